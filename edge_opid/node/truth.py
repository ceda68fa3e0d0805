"""What is so, according to somebody who knows it: a presence sensor, a button, a switch.

A truth has a class and the stretch of time it is about. It teaches

1. every instance of that stretch that waits for a label, once;
2. the instances that are made while it stands: until its time is over, or another truth comes;
3. where there was none at the moment it became so, one made of what is held.

A presence sensor repeats itself every few seconds, and that is no news: a truth that says what
stands already only makes it last longer. And where no sensor has spoken since the last instance it
taught, the same values would be learned twice: it waits until there is something new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class Truth(NamedTuple):
    """A class, and from when until when it is so, by the times of the instances."""

    label: str
    from_ms: int
    until_ms: int

    @property
    def of_a_moment(self) -> bool:
        """Whether it is about one moment only, and does not stand."""
        return self.from_ms == self.until_ms

    def covers(self, time_ms: int) -> bool:
        """Whether it is about this time, too."""
        return self.from_ms <= time_ms <= self.until_ms


class StandingTruth:
    """The last truth that holds for a while, and what it has taught. Part of the durable state.

    >>> standing = StandingTruth()
    >>> standing.hear()
    >>> standing.stand(Truth("occupied", 0, 600_000))
    >>> standing.label_at(5_000)
    'occupied'
    >>> standing.note_taught("occupied")
    >>> standing.has_news_for("occupied"), standing.has_news_for("empty")
    (False, True)
    """

    def __init__(self) -> None:
        self._standing: Truth | None = None
        self.heard = 0
        """Readings with a value of a known sensor."""
        self._taught: tuple[str, int] = ("", -1)  # the last class, and what had been heard then

    def hear(self) -> None:
        """Sensors have spoken: there is something new to learn from."""
        self.heard += 1

    def stand(self, truth: Truth) -> None:
        """From now on this is so."""
        self._standing = truth

    def label_at(self, time_ms: int) -> str | None:
        """What is known to be so at this time."""
        standing = self._standing
        return standing.label if standing is not None and standing.covers(time_ms) else None

    def has_news_for(self, label: str) -> bool:
        """Whether an instance made now would teach this class anything it was not just taught."""
        return self._taught != (label, self.heard)

    def note_taught(self, label: str) -> None:
        """An instance was learned on its word."""
        self._taught = label, self.heard

    def follow_classes(self, names: Mapping[str, str]) -> None:
        """What each class is called now; a truth of a class that is gone goes with it."""
        if self._standing is not None:
            label = names.get(self._standing.label)
            self._standing = None if label is None else self._standing._replace(label=label)
        self._taught = names.get(self._taught[0], ""), self._taught[1]

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {"standing": self._standing, "heard": self.heard, "taught": self._taught}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """What `state` described."""
        mine = cls()
        mine._standing = Truth(*saved["standing"]) if saved["standing"] else None
        mine.heard, mine._taught = saved["heard"], tuple(saved["taught"])
        return mine
