"""A promise that was broken, and what a sensor's script was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_opid.source.number import NOTHING, Number

Said = tuple[Mapping[str, float], str | None]
"""What a reading says: values by sensor, and the truth, where it is known."""


class BrokenPromise(AssertionError):  # noqa: N818 - not an error of the simulator
    """Something happened that must never happen: `promise` is a few words to count by."""

    def __init__(self, promise: str, sentence: str) -> None:
        super().__init__(f"{promise}: {sentence}")
        self.promise, self.sentence = promise, sentence

    def __reduce__(self) -> tuple[type[BrokenPromise], tuple[str, str]]:
        """Exceptions travel between processes as their arguments."""
        return BrokenPromise, (self.promise, self.sentence)


@dataclass
class SentBy:
    """What one sensor's script has sent, under which number, and what it knows to have arrived."""

    name: str
    said: dict[Number, Said] = field(default_factory=dict)
    taken: dict[Number, None] = field(default_factory=dict)  # `send` returned: it must arrive …
    lost: set[Number] = field(default_factory=set)  # … unless its own power went too early
    acknowledged: Number = NOTHING

    def numbered(self, number: Number, said: Said) -> None:
        """A reading got its number."""
        if self.said.setdefault(number, said) != said:
            what = f"{self.name} has sent two readings under {tuple(number)}"
            raise BrokenPromise("number used twice", what)

    def heard(self, upto: Number) -> None:
        """The node has acknowledged everything up to this number."""
        self.acknowledged = max(self.acknowledged, upto)
