"""A promise that was broken, what a sensor's script was promised, and one number for a whole run.

A simulated week has twelve million readings. So what is kept of each, once it has arrived, is the
place of its number in a run of numbers, and one bit for its label: all that a check may ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from edge_opid.source.number import FIRST_SEQ, NOTHING, ReadingNumber
from edge_opid.wire import InstanceId

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


class Runs:
    """A set of numbers that are 1, 2, 3 … of each boot: it costs one entry a boot.

    >>> runs = Runs()
    >>> for seq in (1, 2, 3):
    ...     runs.add(ReadingNumber(7, seq))
    >>> ReadingNumber(7, 3) in runs, ReadingNumber(7, 4) in runs, len(runs), runs.last
    (True, False, 3, ReadingNumber(boot=7, seq=3))
    >>> runs.add(ReadingNumber(7, 5))
    Traceback (most recent call last):
    ValueError: 7/5 does not follow 3 numbers of its boot
    """

    def __init__(self) -> None:
        self.last = NOTHING
        """The one added last."""
        self._upto: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(self._upto.values())

    def __contains__(self, number: ReadingNumber) -> bool:
        return FIRST_SEQ <= number.seq <= self._upto.get(number.boot, 0)

    def add(self, number: ReadingNumber) -> None:
        """The next number of its boot."""
        upto = self._upto.get(number.boot, 0)
        if number.seq != upto + 1:
            boot, seq = number
            raise ValueError(f"{boot}/{seq} does not follow {upto} numbers of its boot")
        self._upto[number.boot] = number.seq
        self.last = number

    def beyond(self, others: Runs) -> Iterator[ReadingNumber]:
        """Those that the others lack, in the order of their boots."""
        for boot, upto in self._upto.items():
            for seq in range(others._upto.get(boot, 0) + 1, upto + 1):
                yield ReadingNumber(boot, seq)


class Ticks:
    """A set of instances, of which each is a bit.

    >>> ticks = Ticks()
    >>> [ticks.add(InstanceId("attic", 7, seq)) for seq in (12, 900, 12)]
    [True, True, False]
    """

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int], bytearray] = {}

    def add(self, instance: InstanceId) -> bool:
        """Whether it was not there before; now it is."""
        bits = self._bits.setdefault((instance.source, instance.boot), bytearray())
        place, bit = instance.seq >> 3, 1 << (instance.seq & 7)
        if place >= len(bits):
            bits.extend(bytes(place + 1 - len(bits)))
        new = not bits[place] & bit
        bits[place] |= bit
        return new


@dataclass
class SentBy:
    """What one sensor's script has sent, under which number, and what it knows to have arrived."""

    name: str
    said: dict[ReadingNumber, Said] = field(default_factory=dict)  # until the node has committed it
    taken: Runs = field(default_factory=Runs)  # `send` returned: it must arrive …
    lost: set[ReadingNumber] = field(default_factory=set)  # … unless its own power went too early
    acknowledged: ReadingNumber = NOTHING
    highest: ReadingNumber = NOTHING
    """Of the numbers that were given to a reading."""
    arrived: Runs = field(default_factory=Runs)
    """What the node has committed: exactly these, in the order of their numbers."""
    moved: dict[ReadingNumber, ReadingNumber] = field(default_factory=dict)
    """Readings that got another number, by the new one: the node said it would not take the old."""

    def numbered(self, number: ReadingNumber, said: Said) -> None:
        """A reading got its number."""
        again = number in self.arrived and number not in self.said
        if again or self.said.setdefault(number, said) != said:
            what = f"{self.name} has sent two readings under {tuple(number)}"
            raise BrokenPromise("number used twice", what)
        self.highest = max(self.highest, number)

    @property
    def readings(self) -> int:
        """How many readings it has taken, under whatever numbers they went."""
        return len(self.taken) - len(self.moved)

    def first_number(self, number: ReadingNumber) -> ReadingNumber:
        """The one under which this reading was taken."""
        while number in self.moved:
            number = self.moved[number]
        return number

    def refused(self, number: ReadingNumber) -> None:
        """`send` raised: the reading was not taken, and its number is free."""
        self.said.pop(number, None)

    def renumbered(self, old: ReadingNumber, new: ReadingNumber) -> None:
        """A reading that was taken goes on under another number, and must arrive under that."""
        self.moved[new] = old
        self.lost.add(old)
        self.taken.add(new)

    def twice(self, number: ReadingNumber) -> ReadingNumber | None:
        """A former number of this reading under which the node has it already."""
        while (former := self.moved.get(number)) is not None:
            if former in self.arrived:
                return former
            number = former
        return None

    def committed(self, number: ReadingNumber) -> None:
        """The node has it for ever.

        One without values stands for a lost one, and a script that does not know that it arrived
        may send it again: those few are remembered.
        """
        self.arrived.add(number)
        if self.said[number][0]:
            del self.said[number]

    def heard(self, upto: ReadingNumber) -> None:
        """The node has acknowledged everything up to this number."""
        self.acknowledged = max(self.acknowledged, upto)


@dataclass
class SaidOnce:
    """What a foreign device has said; each of its values is different from every other.

    >>> once = SaidOnce("lamp")
    >>> once.say(21.3, "calm")
    >>> once.committed(21.3, "calm")
    >>> once.committed(21.3, "calm")
    Traceback (most recent call last):
    firmware_sim.chaos.promises.BrokenPromise: reading twice: lamp said 21.3 once
    """

    name: str
    said: dict[float, str | None] = field(default_factory=dict)
    heard: set[float] = field(default_factory=set)

    def say(self, value: float, label: str | None) -> None:
        """It says this, to whoever listens."""
        self.said[value] = label

    def committed(self, value: float, label: str | None) -> None:
        """The node has learned it for ever."""
        if self.said.get(value, value) != label:
            raise BrokenPromise("reading altered", f"{self.name} never said {value}, {label}")
        if value in self.heard:
            raise BrokenPromise("reading twice", f"{self.name} said {value} once")
        self.heard.add(value)


_END = b"\xff" * 4  # no part is that long: the end of an event


class Digest:
    """A hash over everything that changed somebody's state, in the order in which it happened.

    Each part is hashed with its length, so that no two sequences of parts look alike.

    >>> one, two = Digest(), Digest()
    >>> one.add("n1", b"21.3"); two.add("n12", b"1.3")
    >>> one.hex() == two.hex(), len(one.hex())
    (False, 16)
    """

    def __init__(self) -> None:
        self.parts = 0
        self._hash = blake2b(digest_size=8)

    def add(self, *parts: str | int | bytes) -> None:
        """Take these in, as one event."""
        pieces: list[bytes] = []
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            pieces += (len(data).to_bytes(4, "little"), data)
        pieces.append(_END)
        self._hash.update(b"".join(pieces))
        self.parts += 1

    def hex(self) -> str:
        """What identifies the run so far."""
        return self._hash.hexdigest()
