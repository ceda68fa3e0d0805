"""What a clock may be believed, and what it may not do to a fleet. No I/O.

Machines without a clock of their own start in 1970, or in 2099, and are set later or never. So

1. silence, and the time that a change stays open, are counted while the gateway runs: what passed
   between its last life and this one (`AWAY_MS` and more), or by which the clock was set meanwhile,
   is no time in which it listened;
2. a clock that is behind what the book has seen, or more than `DOUBT_MS` ahead of it, is doubted.
   While it is, no sensor comes to the end of its life, and no change to the end of its time;
3. the doubt ends when most of the nodes heard since have the same time. It is saved, so that a
   restart does not end it. What has to go meanwhile an operator can retire.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from gateway.registry import NodeKey
from gateway.registry.fleet import Fleet

AWAY_MS = 600_000
"""The longest absence that counts as time in which a silent sensor was silent."""
DOUBT_MS = 86_400_000
"""An end of life may come a day early, and a gateway be off for a day, without anybody's doubts."""
BEHIND_MS = 60_000
AGREE_MS = 600_000
"""Two clocks are the same that differ by less."""
KIND = "clock"


def own_key(site: str) -> NodeKey:
    """Whom doubts about the clock are noted for: the gateway of this site, or of all (empty)."""
    return site, ""


class Timekeeping:
    """The clock of one life, judged by the book and by what nodes say."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._own: NodeKey = own_key(fleet.site)
        self._last_ms = max((node.seen_ms for node in fleet.nodes.values()), default=None)
        self._began = False
        self._agrees: dict[NodeKey, bool] = {}
        self._agreeing = 0  # how many of them do

    @property
    def sure(self) -> bool:
        """Whether the clock is believed."""
        doubt = self._fleet.doubts.get((*self._own, KIND))
        return doubt is None or not doubt.sentence

    def begin(self, now_ms: int) -> str:
        """The first look at the clock of this life; what is wrong with it, or nothing."""
        if self._began or self._last_ms is None:
            self._began = True
            return ""
        self._began = True
        away_ms = now_ms - self._last_ms
        self._fleet.cap_times(now_ms)
        if away_ms > AWAY_MS:
            self._fleet.shift_times(away_ms, now_ms)
        if away_ms > DOUBT_MS or away_ms < -BEHIND_MS:
            return self._doubt(
                f"and when a node was last heard it was {_date(self._last_ms)}", now_ms
            )
        return ""

    def shift(self, step_ms: int, now_ms: int) -> str:
        """The clock was set, by so much, to now; the sentence about it."""
        self._fleet.shift_times(step_ms, now_ms)
        self._fleet.cap_times(now_ms)
        self._agrees.clear()
        self._agreeing = 0
        what = f"it was set by {step_ms / 1000:+.0f} s"
        if step_ms > DOUBT_MS:
            return self._doubt(what, now_ms)
        return f"the clock says {_date(now_ms)}: {what}; silence is counted on as before"

    def compare(self, key: NodeKey, time_ms: int, now_ms: int) -> bool:
        """Compare with the time that a node has told; whether that ends our doubts."""
        agrees = abs(time_ms - now_ms) <= AGREE_MS
        self._agreeing += agrees - self._agrees.get(key, False)
        self._agrees[key] = agrees
        if self.sure or 2 * self._agreeing <= len(self._agrees):
            return False
        doubt = self._fleet.doubts[*self._own, KIND]
        self._fleet.put(replace(doubt, sentence="", at_ms=now_ms))
        return True

    def _doubt(self, why: str, now_ms: int) -> str:
        sentence = (
            f"the clock says {_date(now_ms)}, {why}: until most nodes agree with it, no sensor "
            "comes to the end of its life and no change to the end of its time; set the clock"
        )
        self._fleet.doubt(self._own, KIND, sentence, now_ms)
        return sentence


def _date(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{ms} ms"
