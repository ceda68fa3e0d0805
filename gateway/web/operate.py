"""Retire, deploy, replace, remeasure: first the rehearsal, then the confirmation, then the outcome.

The rehearsal is that of the command line, on a copy of the fleet; confirming rehearses again, for
the fleet may be another by then, and leaves the same command in the database.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from edge_opid.wire import SensorDeployed, SensorRemeasured, SensorRetired, encode
from gateway.cli.context import CommandContext, OperatorError
from gateway.cli.sensors import rehearse, rehearse_open
from gateway.registry import NodeKey, SensorState
from gateway.registry.events import Announcement
from gateway.web.access import LINK_MS, Scope
from gateway.web.book import Facts, View
from gateway.web.guard import now_ms
from gateway.web.site import Site, field

FIELDS = ("what", "sensor", "reason", "role", "reference", "scale", "unit", "replaces")
APART_MS = 3_600_000
"""How long after a sensor fell silent another one may appear and still be its replacement."""


def operate_page(site: Site, request: Request) -> Response:
    """What can be done to a node's sensors."""
    view = site.view()
    key = site.key(request, view)
    return site.page(
        request,
        "operate.html",
        id="/".join(key),
        sensors=view.node(key)["sensors"],
        proposals=[each for each in proposals(site, view) if each["node"] == "/".join(key)],
        is_open=site.settings.is_open,
    )


def rehearse_page(site: Site, request: Request) -> Response:
    """What would follow, before anything is asked for."""
    key = site.key(request, site.view())
    event = event_of(request)
    told = site.book.ask(lambda context: _rehearsed(context, key, event))
    fields = {name: field(request, name) for name in FIELDS if field(request, name)}
    return site.page(
        request, "rehearsal.html", id="/".join(key), told=told, fields=fields,
        doing=f"{fields['what']} {event.sensor}",
    )  # fmt: skip


def confirm(site: Site, request: Request) -> Response:
    """Leave the command, if it still can be done."""
    key = site.key(request, site.view())
    event = event_of(request)

    def submit(context: CommandContext) -> int:
        _rehearsed(context, key, event)
        return context.store.submit(*key, encode(event), event.at_ms)

    number = site.book.ask(submit)
    site.book.expire()
    return RedirectResponse(f"/command/{number}", 303)


def _rehearsed(context: CommandContext, key: NodeKey, event: Announcement) -> list[str]:
    fleet = context.fleet()
    if fleet.group_of(key) is None:
        raise OperatorError(f"node {'/'.join(key)} is no longer in any group of the configuration")
    rehearse_open(context, fleet)
    return list(rehearse(fleet, key, event, context.config.policy))


def event_of(request: Request) -> Announcement:
    """What the form asks for."""
    what, sensor, at_ms = field(request, "what"), field(request, "sensor"), now_ms()
    if what == "retire":
        return SensorRetired(sensor, at_ms, field(request, "reason") or "retired on the page")
    if what == "remeasure":
        return SensorRemeasured(sensor, at_ms)
    if what in ("deploy", "replace"):
        return SensorDeployed(
            sensor,
            role=field(request, "role"),
            at_ms=at_ms,
            unit=field(request, "unit") or None,
            reference=_number(request, "reference"),
            scale=_number(request, "scale"),
            replaces=field(request, "replaces") or None,
        )
    raise OperatorError(f"must be retire, deploy, replace or remeasure, got {what[:40]!r}")


def _number(request: Request, name: str) -> float | None:
    text = field(request, name)
    try:
        return float(text.replace(",", ".")) if text else None
    except ValueError:
        raise OperatorError(f"{name} must be a number, got {text[:40]!r}") from None


def command_page(site: Site, request: Request) -> Response:
    """What became of a command."""
    number = request.path_params["number"]
    command = site.book.ask(lambda context: context.store.command(number))
    if command is None:
        raise OperatorError(f"command {number} no longer exists")
    site.book.expire()
    return site.page(
        request,
        "command.html",
        command=command,
        id=f"{command.site}/{command.node}",
        running=site.view().status["running"],
    )


# -- proposals -------------------------------------------------------------------------------------


def proposals_page(site: Site, request: Request) -> Response:
    """What somebody should decide."""
    view = site.view()
    return site.page(
        request, "proposals.html", proposals=proposals(site, view), hearing=site.hearing
    )


def proposals(site: Site, view: View) -> list[Facts]:
    """Sensors that fell silent, and those that appeared about then: does one replace the other?"""
    found: list[Facts] = []
    for key in sorted(view.silent):
        strangers = site.ear.strangers(key) if site.ear is not None else {}
        for old in view.ordered_sensors(key):
            if old.state == SensorState.SILENT:
                found += _proposals(key, old, strangers)
    return found


def _proposals(key: NodeKey, old: Any, strangers: dict[str, int]) -> list[Facts]:
    base = {"node": "/".join(key), "old": old.id, "role": old.role, "since_ms": old.since_ms}
    about_then = sorted(
        (at_ms, name) for name, at_ms in strangers.items() if at_ms >= old.since_ms - APART_MS
    )
    return [{**base, "new": name, "at_ms": at_ms} for at_ms, name in about_then] or [
        {**base, "new": "", "at_ms": 0}
    ]


# -- a phone ---------------------------------------------------------------------------------------


def invite(site: Site, request: Request) -> Response:
    """A link for a phone that may then label this node, and nothing else."""
    key = site.key(request, site.view())
    if site.keys is None:
        raise OperatorError(
            "only this machine can open these pages, and it needs no link: set web.host "
            "and web.token to reach them from a phone"
        )
    code = site.keys.link(Scope.LABEL, "/".join(key), now_ms())
    url = f"{request.state.caller.origin}/join#{code}"
    return site.page(request, "invite.html", id="/".join(key), url=url, minutes=LINK_MS // 60_000)
