"""How fast one source may send: a bucket of tokens for each, filled at a steady rate.

Nothing here is durable. A reading that finds the bucket empty is not acknowledged, so a sender with
a spool brings it again; one without a spool has lost it, and the node counts that.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES_MAX = 256  # buckets at a time, 25 kB; a forgotten source starts with a full one


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_ms: int


class RateLimit:
    """At most `per_second` readings of each source in the long run, and `burst` at once.

    A burst below the sender's window (256) slows every resend down.

    >>> limit = RateLimit(per_second=2.0, burst=3)
    >>> [limit.take("attic", now_ms=0) for _ in range(4)]
    [True, True, True, False]
    >>> limit.take("cellar", now_ms=0)  # one noisy source costs the others nothing
    True
    >>> [limit.take("attic", now_ms=500), limit.take("attic", now_ms=500)]
    [True, False]
    """

    def __init__(self, per_second: float, burst: int, sources_max: int = SOURCES_MAX) -> None:
        if not (0 < per_second < float("inf") and burst >= 1 and sources_max >= 1):
            raise ValueError(
                "a rate limit needs per_second > 0, burst >= 1 and sources_max >= 1, "
                f"got {per_second}, {burst} and {sources_max}"
            )
        self._per_ms = per_second / 1000
        self._burst = burst
        self._sources_max = sources_max
        self._buckets: dict[str, _Bucket] = {}  # the source heard longest ago comes first

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, source: str, now_ms: int) -> bool:
        """Whether this source may send one more reading now; if so, it has."""
        buckets = self._buckets
        bucket = buckets.pop(source, None) or _Bucket(float(self._burst), now_ms)
        buckets[source] = bucket
        if len(buckets) > self._sources_max:
            del buckets[next(iter(buckets))]
        waited_ms = now_ms - bucket.filled_ms
        if waited_ms > 0:  # a clock set back earns nothing
            bucket.tokens = min(self._burst, bucket.tokens + waited_ms * self._per_ms)
        bucket.filled_ms = now_ms
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
