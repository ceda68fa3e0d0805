"""What a node that has no configuration yet could use: the proposals of `opid-node discover`.

The pages listen for half a minute, with their own account: where the broker has rules, they hear
what those let the account `web` read.
"""

from __future__ import annotations

import math

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from edge_opid.discovery.proposal import Known, propose, toml_lines
from gateway.cli.context import OperatorError
from gateway.registry import NodeKey
from gateway.web.book import View
from gateway.web.ear import DISCOVER_S
from gateway.web.site import Site


def discover_page(site: Site, request: Request) -> Response:
    """What was heard the last time somebody asked, as lines of a `node.toml`."""
    view = site.view()
    key, ear = site.key(request, view), site.ear
    left_s = 0 if ear is None else math.ceil(max(0.0, ear.discovering_s))
    proposal = None if ear is None or left_s else propose(ear.home, _known(view, key))
    return site.page(
        request,
        "discover.html",
        id="/".join(key),
        hearing=site.hearing,
        left_s=left_s,
        listens_s=round(DISCOVER_S),
        proposal=proposal,
        lines=[] if proposal is None else list(toml_lines(proposal)),
    )


def discover(site: Site, request: Request) -> Response:
    """Begin to listen."""
    key = site.key(request, site.view())
    if site.ear is None:
        raise OperatorError(f"cannot listen to the broker: live listening is {site.hearing}")
    site.ear.discover()
    return RedirectResponse(f"/discover/{'/'.join(key)}", 303)


def _known(view: View, key: NodeKey) -> Known:
    """Its classes tell what it is to learn; its sensors are proposed once more."""
    group = view.fleet.group_of(key)
    return Known(classes=() if group is None else tuple(group.classes))
