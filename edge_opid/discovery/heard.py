"""What a broker said while we listened: by topic, the last message, how many, and how often."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

TOPICS_MAX = 5_000  # more than a large home has; each costs its last message
BYTES_MAX = 64 * 2**20  # of all last messages together


@dataclass(slots=True)
class HeardTopic:
    """The last message of one topic. `live` counts those that nobody had kept for us."""

    payload: bytes
    live: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def every_s(self) -> float | None:
        """The mean time between two messages; None where there were no two."""
        return None if self.live < 2 else (self.last_s - self.first_s) / (self.live - 1)

    @property
    def text(self) -> str | None:
        """The payload as text, if it is one."""
        try:
            return self.payload.decode()
        except UnicodeDecodeError:
            return None

    @property
    def document(self) -> Any:
        """The payload as what its JSON says; None where it is none."""
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError):
            return None


@dataclass(slots=True)
class Heard:
    """All topics.

    >>> heard = Heard()
    >>> for second in (0.0, 10.0, 20.0):
    ...     heard.add("home/attic", b"21.5", retained=False, at_s=second)
    >>> heard.topics["home/attic"].every_s
    10.0
    """

    topics: dict[str, HeardTopic] = field(default_factory=dict)
    left_out: int = 0  # messages of topics there was no room for
    _bytes: int = 0

    def add(self, topic: str, payload: bytes, *, retained: bool, at_s: float) -> None:
        """One message."""
        known = self.topics.get(topic)
        grown = self._bytes + len(payload) - (0 if known is None else len(known.payload))
        if grown > BYTES_MAX or (known is None and len(self.topics) >= TOPICS_MAX):
            self.left_out += 1
            return
        self._bytes = grown
        known = self.topics.setdefault(topic, HeardTopic(payload))
        known.payload = payload
        if not retained:
            known.first_s = known.first_s if known.live else at_s
            known.last_s = at_s
            known.live += 1
