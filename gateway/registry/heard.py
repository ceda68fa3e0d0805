"""Still here: what every status says, and hardly anybody asks. Saved once in a while.

A status that says nothing new changes no decision. Saved each time, ten thousand nodes would have
a gateway write five gigabytes a day to say that all is well. So it is kept in memory, with the
samples of the history (`Chronicle`), and a sweep puts it into records: every `SWEEP_MS` the next
few nodes in the order of their keys, since neighbours lie in the same pages of the database; each
at most once a minute, and all of them within an hour. In a fleet of up to two hundred that is once
a minute.

A fleet too large for that has, beside it, one record a site of when each node was last heard
(`HeardRecord`), every two minutes: some bytes a node, so that whoever looks, or wants to be called
when a node has said nothing for a quarter of an hour, is not told an old time.

What is news (online or not, an order obeyed) is a record at once, and none of this.

Killed, a gateway has forgotten up to an hour of a node's "still here". It needs of it only when
*anybody* was last heard (`Timekeeping`: for how long was I away?), and that is as recent as the
last sweep. If it errs, it takes its absence for longer than it was, and a silence for shorter: no
sensor is retired too early. An orderly stop saves everything.
"""

from __future__ import annotations

import json
import math
import zlib
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from gateway.registry.history import NodeKey

SWEEP_MS, BUSY_SWEEP_MS = 10_000, 60_000
SAVED_MS = 60_000
"""How often one node's "still here" is worth a write."""
ROUND_S = 3_600
AT_LEAST_PER_S = 3.4
TIMES_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardRecord:
    """When each node of a site was last heard.

    >>> HeardRecord.of("street", {"north": 1_800_000_000_500}).times()
    {('street', 'north'): 1800000000000}
    """

    KEY: ClassVar[tuple[str, ...]] = ("site",)
    site: str
    seconds: bytes
    """Names and seconds since 1970, as compressed JSON: to the second is enough."""

    @classmethod
    def of(cls, site: str, times_ms: dict[str, int]) -> HeardRecord:
        """From milliseconds by node."""
        seconds = {node: at_ms // 1000 for node, at_ms in sorted(times_ms.items())}
        text = json.dumps(seconds, separators=(",", ":"))
        return cls(site=site, seconds=zlib.compress(text.encode()))

    def times(self) -> dict[NodeKey, int]:
        """Milliseconds by node; nothing where the bytes are damaged, for nobody depends on them."""
        try:
            found = json.loads(zlib.decompress(self.seconds))
            return {(self.site, node): 1000 * int(at) for node, at in found.items()}
        except (ValueError, TypeError, AttributeError, zlib.error):
            return {}


class Heard:
    """When each node last spoke and its words, as long as they are not in a record."""

    def __init__(self) -> None:
        self._news: dict[NodeKey, tuple[int, bytes]] = {}
        self._saved_ms: dict[NodeKey, int] = {}
        self._swept_ms: int | None = None
        self._times: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._times_ms: int | None = None
        self._last: NodeKey = ("", "")

    def note(self, key: NodeKey, status: bytes, now_ms: int) -> None:
        """A node has spoken."""
        self._news[key] = now_ms, status
        self._times[key[0]][key[1]] = now_ms

    def take_due(self, now_ms: int, *, busy: bool) -> list[tuple[NodeKey, int, bytes]]:
        """The next few nodes in their order: who, when it spoke, and its status."""
        if self._swept_ms is None:
            self._swept_ms = now_ms
        passed_ms = now_ms - self._swept_ms
        if 0 <= passed_ms < (BUSY_SWEEP_MS if busy else SWEEP_MS):  # less: the clock was set
            return []
        self._swept_ms = now_ms
        per_s = max(AT_LEAST_PER_S, len(self._news) / ROUND_S)
        at_most = math.ceil(per_s * min(abs(passed_ms), BUSY_SWEEP_MS) / 1000)
        keys = sorted(self._news)
        start = bisect_right(keys, self._last)
        ripe = [key for key in (*keys[start:], *keys[:start]) if self._is_ripe(key, now_ms)]
        return [self._take(key, now_ms) for key in ripe[:at_most]]

    def take_times(self, now_ms: int) -> list[HeardRecord]:
        """When everybody was last heard, now and then, where a sweep takes longer than a minute."""
        if self._times_ms is None:
            self._times_ms = now_ms
        if 0 <= now_ms - self._times_ms < TIMES_MS:
            return []
        self._times_ms = now_ms
        if sum(map(len, self._times.values())) <= 60 * AT_LEAST_PER_S:
            return []
        return [HeardRecord.of(site, times) for site, times in sorted(self._times.items())]

    def take_all(self, now_ms: int) -> list[tuple[NodeKey, int, bytes]]:
        """Everybody: it is the end."""
        return [self._take(key, now_ms) for key in sorted(self._news)]

    def _is_ripe(self, key: NodeKey, now_ms: int) -> bool:
        saved_ms = self._saved_ms.get(key)
        return saved_ms is None or not 0 <= now_ms - saved_ms < SAVED_MS

    def _take(self, key: NodeKey, now_ms: int) -> tuple[NodeKey, int, bytes]:
        seen_ms, status = self._news.pop(key)
        self._saved_ms[key], self._last = now_ms, key
        return key, min(seen_ms, now_ms), status

    def forget(self, key: NodeKey) -> None:
        """Nothing was ever heard of this node."""
        self._news.pop(key, None)
        self._saved_ms.pop(key, None)
        self._times[key[0]].pop(key[1], None)
