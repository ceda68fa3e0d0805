"""The label page: what a person knows becomes a command that the gateway hands to the node.

A label names its instance, so that it is about what the person saw, not about when they tapped. It
waits `GRACE_MS` in the database before the gateway takes it: until then taking it back is deleting
it. Later the node is told, which can undo what it learned of its recent instances.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from edge_opid.errors import WireError
from edge_opid.wire import InstanceId, Label, Undo, decode, encode
from gateway.cli.context import CommandContext, OperatorError
from gateway.registry import NodeKey
from gateway.store.commands import OPEN_READ
from gateway.web.access import Session
from gateway.web.guard import now_ms
from gateway.web.site import Site, field

GRACE_MS = 4_000
UNDO_MARGIN_MS = 1_000  # the gateway's clock may be another machine's
QUEUE_MAX = 12
INSTANCES_MAX = 64
GIVEN_MAX = 64
LABELS_WAITING_MAX = OPEN_READ // 2
"""Labels that may wait for a gateway, of all that it reads at once: operators come through."""


def choose_page(site: Site, request: Request) -> Response:
    """Every node, for whoever may label more than one."""
    view = site.view()
    return site.page(request, "choose.html", nodes=[(*key, site.said(key)) for key in view.keys])


def label_page(site: Site, request: Request) -> Response:
    """What the node believes, and one button for each class."""
    view = site.view()
    key = site.key(request, view)
    said = site.ear.said(key) if site.ear is not None else None
    queue = site.ear.unsure(key, QUEUE_MAX) if site.ear is not None else []
    session: Session = request.state.session
    return site.page(
        request,
        "label.html",
        id="/".join(key),
        classes=classes_of(site, key),
        said=said,
        instance=instance_text(said.instance) if said else "",
        queue=[(instance_text(each.instance), each) for each in queue],
        given=_given(site, request, key),
        learned=view.counts(key).get("learned", 0),
        running=view.status["running"],
        hearing=site.hearing,
        alone=bool(session.node),
    )


def classes_of(site: Site, key: NodeKey) -> tuple[str, ...]:
    """What the node tells apart."""
    group = site.view().fleet.group_of(key)
    if group is None:
        raise OperatorError(
            f"node {'/'.join(key)} is not in any group: no gateway accepts its labels"
        )
    return group.classes


def instance_text(instance: InstanceId) -> str:
    """An instance as a field of a form.

    >>> instance_text(InstanceId("attic", 3, 12))
    'attic 3 12'
    """
    return f"{instance.source} {instance.boot} {instance.seq}"


def instance_of(text: str) -> InstanceId:
    """The instance that a field names.

    >>> instance_of("attic 3 twelve")
    Traceback (most recent call last):
    ...
    gateway.cli.context.OperatorError: no instance is called 'attic 3 twelve'
    """
    source, _, rest = text.partition(" ")
    boot, _, seq = rest.partition(" ")
    if not (boot.isdecimal() and seq.isdecimal()) or len(text) > 80:
        raise OperatorError(f"no instance is called {text[:80]!r}")
    return InstanceId(source, int(boot), int(seq))


def give(site: Site, request: Request) -> Response:
    """Leave a label for each instance, or one about now where none is known."""
    view = site.view()
    key, waiting = site.key(request, view), view.status["open_commands"]
    if waiting >= LABELS_WAITING_MAX:
        raise OperatorError(
            f"{waiting} commands are already waiting for the gateway: try again later"
        )
    word, texts = field(request, "label"), request.state.form.get("instance", [])
    texts = [each for each in texts if each]
    if word not in classes_of(site, key):
        there = ", ".join(classes_of(site, key))
        raise OperatorError(f"{word[:80]!r} is not a class of {'/'.join(key)}: {there}")
    if len(texts) > INSTANCES_MAX:
        raise OperatorError(f"at most {INSTANCES_MAX} at once, got {len(texts)}")
    if not texts and field(request, "several"):
        raise OperatorError("choose at least one instance from the list")
    instances = [instance_of(each) for each in texts]
    at_ms = now_ms()
    labels = [Label(word, each) for each in instances] or [Label(word)]
    numbers = site.book.ask(
        lambda context: [
            context.store.submit(*key, encode(each), at_ms + GRACE_MS) for each in labels
        ]
    )
    if site.ear is not None:
        site.ear.forget(key, instances)
    given = "-".join(map(str, numbers))
    return RedirectResponse(f"/label/{'/'.join(key)}?given={given}", 303)


def undo(site: Site, request: Request) -> Response:
    """Take back: what the gateway has not taken is deleted, for the rest the node is told."""
    key = site.key(request, site.view())
    numbers, at_ms = _numbers(field(request, "given")), now_ms()

    def take_back(context: CommandContext) -> int:
        labels = [given_label(context, key, each) for each in numbers]
        gone = context.store.withdraw(*key, numbers, at_ms + UNDO_MARGIN_MS)
        left = [context.store.command(each) for each in numbers]
        for label, command in zip(labels, left, strict=True):
            if label is not None and command is not None:
                undone = Undo(instance=label.instance, time_ms=label.time_ms)
                after_ms = max(at_ms, command.at_ms)  # the label first
                context.store.submit(*key, encode(undone), after_ms)
        return gone

    gone = site.book.ask(take_back)
    sentence = f"{gone} of {len(numbers)} labels were taken back before they were sent."
    if gone < len(numbers):
        sentence += " The node is told to take the others back, if it remembers them."
    back = f"/label/{'/'.join(key)}"
    return site.page(
        request, "message.html", heading="Taken back", sentence=sentence, bad=False, back=back
    )


def given_label(context: CommandContext, key: NodeKey, number: int) -> Label | None:
    """The label that this command is, if it is one of this node."""
    command = context.store.command(number)
    if command is None or (command.site, command.node) != key:
        return None
    try:
        return decode(command.payload, Label)
    except WireError:
        return None


def _numbers(text: str) -> list[int]:
    """Numbers of commands, as an address or a form has them; each as a database can have it."""
    found = (each for each in text.split("-") if each.isdecimal() and len(each) <= 18)
    return [int(each) for each in islice(found, GIVEN_MAX)]


def _given(site: Site, request: Request, key: NodeKey) -> dict[str, Any] | None:
    """What has become of the labels that were just given."""
    text = request.query_params.get("given", "")
    numbers = _numbers(text)
    found = site.book.ask(lambda context: [context.store.command(each) for each in numbers])
    mine = [each for each in found if each is not None and (each.site, each.node) == key]
    if not mine:
        return None
    refused = sorted({each.outcome for each in mine if each.outcome not in ("", "done")})
    return {
        "text": text,
        "count": len(mine),
        "arrived": sum(each.outcome == "done" for each in mine),
        "refused": refused,
        "undo": not refused,
    }
