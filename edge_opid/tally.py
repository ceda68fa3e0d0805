r"""What happened, by reason: counted always, logged when it is worth a line, shown in the status.

Whoever decides says `note(reason, …)` and goes on. The tally adds what it knows of the message at
hand (`begin`): its topic and its first bytes. It keeps the last of each reason for the status, and
the lines that whoever runs the decisions takes and writes (`take_lines`). It reads no clock and
writes nothing itself.

A reason is logged at its 1st, 2nd, 4th, 8th … time for each of the first sixteen topics, sources or
sensors it is about, so that one loud device does not hide another; further ones share a count, so
that invented names cannot flood the log. And it is logged when it has not been for an hour.

>>> from edge_opid.reasons import NodeReason
>>> tally = Tally()
>>> tally.begin("opid/1/farm/n1/label", b'{"label": "wet"}', now_ms=0)
>>> tally.note(NodeReason.UNKNOWN_CLASS, why="no class 'wet'")
>>> [line] = tally.take_lines()
>>> print(line.reason, line.times, line.fields["first"], line.fields["why"])
unknown-class 1 {"label": "wet"} no class 'wet'
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from edge_opid.log import worth_a_line
from edge_opid.reasons import Reason

FIRST_BYTES = 48  # of a refused payload: enough to know it by, in a log and in a status
CULPRITS_MAX = 16  # that have their own count for each reason
LINES_MAX = 256  # that wait to be written: more than a round of anything can make
AGAIN_MS = 3_600_000  # without a line for so long, the next one is news again
_SECRET = re.compile(r"pass|secret|token|credential|key|pwd|psk|auth", re.IGNORECASE)


class LogLine(NamedTuple):
    """One line for the log: a reason that has now happened so many times, and about what."""

    reason: Reason
    times: int
    fields: Mapping[str, object]

    @property
    def event(self) -> str:
        """What the line begins with."""
        return self.reason.event


class Noted(NamedTuple):
    """The last time that something happened: when, on which topic, its first bytes, and what."""

    at_ms: int
    topic: str
    payload: bytes
    fields: Mapping[str, object]


class Tally:
    """Counts by reason, the last of each, and the lines to be logged. Bounded, whatever comes."""

    def __init__(self) -> None:
        self.counts: Counter[Reason] = Counter()
        self.latest: dict[Reason, Noted] = {}
        self.at_hand: list[tuple[Reason, Mapping[str, object]]] = []
        """What was noted of the message at hand, for whoever watches."""
        self.lines: deque[LogLine] = deque(maxlen=LINES_MAX)
        """To be logged, and not taken yet."""
        self._spoken: dict[Reason, dict[str, int]] = {}  # reason → culprit → how often
        self._line_ms: dict[Reason, int] = {}
        self._now_ms, self._topic, self._payload = 0, "", b""

    def begin(self, topic: str, payload: bytes, now_ms: int) -> None:
        """From now on it is about this message; an empty topic is the passing of time."""
        self._now_ms, self._topic, self._payload = now_ms, topic, payload
        if self.at_hand:
            self.at_hand = []

    def note(self, reason: Reason, times: int = 1, /, *, about: str = "", **fields: object) -> None:
        """It has happened, so many times at once. `about` is a source, a sensor, a node …"""
        self.counts[reason] += times
        if not reason.level:
            return
        self.latest[reason] = Noted(self._now_ms, self._topic, self._payload[:FIRST_BYTES], fields)
        self.at_hand.append((reason, fields))
        if self._is_worth_a_line(reason, about or self._topic):
            self._line_ms[reason] = self._now_ms
            self.lines.append(LogLine(reason, self.counts[reason], self._told(reason, fields)))

    def take_lines(self) -> list[LogLine]:
        """What is to be logged now."""
        if not self.lines:
            return []
        lines = list(self.lines)
        self.lines.clear()
        return lines

    def _is_worth_a_line(self, reason: Reason, culprit: str) -> bool:
        spoken = self._spoken.setdefault(reason, {})
        times = self.counts[reason]
        if culprit in spoken or len(spoken) < CULPRITS_MAX:
            times = spoken[culprit] = spoken.get(culprit, 0) + 1
        return worth_a_line(times) or self._now_ms - self._line_ms.get(reason, 0) >= AGAIN_MS

    def _told(self, reason: Reason, fields: Mapping[str, object]) -> dict[str, object]:
        told: dict[str, object] = {"reason": reason.value}
        if self._topic:
            told |= {"topic": self._topic, "first": first_bytes(self._payload)}
        told |= fields
        told.setdefault("why", reason.what)
        if self.counts[reason] == 1 and reason.do:
            told["do"] = reason.do
        return told

    def shown(self) -> dict[str, dict[str, Any]]:
        """By name, for a status: how often, the last time, about what, why, and what to do."""
        return {
            reason.value: {
                "count": self.counts[reason],
                "at_ms": last.at_ms,
                **({"topic": last.topic, "first": first_bytes(last.payload)} if last.topic else {}),
                **{name: str(value) for name, value in last.fields.items()},
                "why": str(last.fields.get("why", reason.what)),
                "do": reason.do,
            }
            for reason, last in dict(self.latest).items()  # another thread may ask
        }


def first_bytes(payload: bytes) -> str:
    r"""The beginning of a payload as a log may show it: printable, short, and no secret in it.

    >>> first_bytes(b"\x82\xa1v\x01\xa4kind"), first_bytes(b'{"t": "21 \xc2\xb0C"}')
    ('\\x82\\xa1v\\x01\\xa4kind', '{"t": "21 °C"}')
    >>> first_bytes(b'{"user": "attic", "password": "1234"}')
    '{"user": "attic", "…'
    """
    beginning = payload[:FIRST_BYTES]
    text = beginning.decode("utf-8", errors="replace").rstrip("\ufffd")
    if not text.isprintable() or "\ufffd" in text:
        text = repr(beginning)[2:-1]
    secret = _SECRET.search(text)
    return text if secret is None else text[: secret.start()] + "…"
