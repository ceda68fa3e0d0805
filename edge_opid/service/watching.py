"""What reaches a node and what becomes of it, live, for `opid-node watch`.

The node offers a Unix socket beside its status file. Whoever connects is sent a line of JSON for
each message: its topic, its first bytes, what it became and what was refused of it and why. A
second connection to the broker could not show that, and would be dangerous: where the broker takes
user names as client ids, as the one of `opid-gateway init` does, a watcher with the node's password
would take the node's session away.

For the same reason labels may come this way, too (`opid-node label`): a line of JSON, dealt with as
if it had come on the `label` topic, and told of as any message is.

The node never waits for a watcher. While nobody watches, a round costs one look at the socket. A
watcher that does not keep up loses lines, is told how many, and does not slow anything down.
"""

from __future__ import annotations

import json
import socket
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge_opid.errors import WireError
from edge_opid.node.actions import Action, Publish
from edge_opid.reasons import Reason
from edge_opid.tally import Tally, first_bytes
from edge_opid.wire import UNKNOWN, Channel, Topic, decode_on

WELCOME = b'{"welcome": true}\n'  # from here on nothing is missed
WATCHERS_MAX = 4  # each costs a socket and its buffer
LABEL_BYTES_MAX = 1_024  # sent at once: a label has a few hundred


def socket_path(status_file: Path) -> Path:
    """Where the node with this status file can be watched.

    >>> str(socket_path(Path("/run/opid-node/status.json")))
    '/run/opid-node/status.json.watch'
    """
    return status_file.with_name(status_file.name + ".watch")


class Watchers:
    """Those who watch one node. Only the node's own user, and root, can connect."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)  # a former life's
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._ear.bind(str(path))
            path.chmod(0o600)
            self._ear.listen(WATCHERS_MAX)
            self._ear.setblocking(False)
        except OSError:
            self._ear.close()
            raise
        weakref.finalize(self, self._ear.close)  # a loop that ends by an error closes nothing
        self._lost: dict[socket.socket, int] = {}  # watcher → lines it did not get

    def __bool__(self) -> bool:
        return bool(self._lost)

    def welcome(self) -> None:
        """Let in who waits at the door."""
        with suppress(OSError):  # nobody is there, or not any more
            while True:
                watcher, _ = self._ear.accept()
                watcher.setblocking(False)
                if len(self._lost) < WATCHERS_MAX:
                    self._lost[watcher] = 0
                    watcher.send(WELCOME)
                else:
                    watcher.close()

    def take_labels(self) -> list[bytes]:
        """What watchers have sent since: lines of JSON. Who sends too much is parted with."""
        found = []
        for watcher in list(self._lost):
            try:
                said = watcher.recv(LABEL_BYTES_MAX)
            except BlockingIOError:
                continue
            except OSError:
                said = b""
            if said.endswith(b"\n"):
                found += said.splitlines()
            else:
                self._part_with(watcher)  # it has gone, or has sent half a line or a long one
        return found

    def tell(self, line: Mapping[str, Any]) -> int:
        """Send a line to everybody; how many did not get it."""
        behind = 0
        for watcher, lost in list(self._lost.items()):
            told = {**line, "lost_before": lost} if lost else line
            data = json.dumps(told, ensure_ascii=False).encode() + b"\n"
            try:
                sent = watcher.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._part_with(watcher)
                continue
            if 0 < sent < len(data):
                self._part_with(watcher)  # half a line cannot be taken back
                continue
            self._lost[watcher] = 0 if sent else lost + 1
            behind += not sent
        return behind

    def _part_with(self, watcher: socket.socket) -> None:
        del self._lost[watcher]
        watcher.close()

    def close(self) -> None:
        """Say nothing more, and leave no socket behind."""
        for watcher in list(self._lost):
            self._part_with(watcher)
        self._ear.close()
        self._path.unlink(missing_ok=True)


def told_of(
    topic: str, payload: bytes, actions: Sequence[Action], tally: Tally, learned: int, now_ms: int
) -> dict[str, Any]:
    """One message (no topic: the passing of time), and what became of it."""
    refused = [_refusal(reason, fields) for reason, fields in tally.at_hand]
    return {
        "at_ms": now_ms,
        "topic": topic,
        "first": first_bytes(payload),
        "became": list(_became(actions)),
        "learned": learned,
        "noted": refused,
    }


def _refusal(reason: Reason, fields: Mapping[str, object]) -> dict[str, str]:
    return {"reason": reason.value, "why": str(fields.get("why", reason.what)), "do": reason.do}


def _became(actions: Sequence[Action]) -> Iterator[str]:
    for action in actions:
        if not isinstance(action, Publish):
            continue
        try:
            channel = Topic.parse(action.topic).channel
            if channel is Channel.PREDICTION:
                yield _predicted(action.payload)
            elif channel is Channel.EVENT:
                yield decode_on(channel, action.payload).kind
        except WireError:
            continue


def _predicted(payload: bytes) -> str:
    """A prediction in words, whichever format the node publishes."""
    said: Any
    if payload[:1] == b"{":
        said = json.loads(payload)
        number, label, who = said["instance"], said["label"], said["predictor"]
        name = f"{number['source']}/{number['boot']}/{number['seq']}"
    else:
        said = decode_on(Channel.PREDICTION, payload)
        label, who, number = said.label, said.predictor, said.instance
        name = f"{number.source}/{number.boot}/{number.seq}"
    by = "" if label == UNKNOWN else f" by {who}"
    return f"instance {name}: predicted {label}{by}"
