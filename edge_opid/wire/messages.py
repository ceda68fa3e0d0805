"""What sensors and nodes say to each other, and to the world, several times a second.

Every message checks itself when it is built. The site, the node and the source are not in it:
they are in its topic, once, where the broker's access rules can see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Self

from edge_opid.errors import WireError, shown
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.schema import (
    Checked,
    Count,
    Id,
    Identifier,
    Line,
    Many,
    Millis,
    Names,
    NumberField,
    Ordinal,
    Table,
    Text,
    Whole,
    Yes,
    setters_of,
)

Values = Annotated[Mapping[str, float], Table(Identifier(), NumberField(), LIMITS.sensors_max)]
Scores = Annotated[Mapping[str, float], Table(Text(), NumberField(), LIMITS.classes_max)]
Counts = Annotated[Mapping[str, int], Table(Identifier(), Whole(), LIMITS.counts_max)]
Rates = Annotated[
    Mapping[str, float], Table(Identifier(), NumberField(low=0.0), LIMITS.reasons_max)
]
Sure = Annotated[float, NumberField(low=0.0)]
Reasons = Annotated[tuple[str, ...], Many(Text(), LIMITS.reasons_max)]
Digests = Annotated[tuple[str, ...], Many(Identifier(), LIMITS.confirmed_max)]


SCHEMA_VERSION = 1
UNKNOWN = "unknown"
"""What a prediction says before anything was learned, and where its node is less sure than it was
told to be. No class may have this name."""


class Message(Checked):
    """A record that travels alone, under its own `kind`."""

    __slots__ = ()
    bytes_max: ClassVar[int] = LIMITS.small_payload_bytes_max


@dataclass(frozen=True, slots=True)
class InstanceId(Checked):
    """Which reading is meant: the `seq`-th that `source` sent since its `boot`-th start."""

    kind: ClassVar[str] = "instance"
    source: Id
    boot: Count
    seq: Ordinal

    @classmethod
    def unchecked(cls, source: str, boot: int, seq: int) -> Self:
        """The number of a reading whose parts were checked."""
        made = object.__new__(cls)
        _put_source(made, source)
        _put_boot(made, boot)
        _put_seq(made, seq)
        return made


_put_source, _put_boot, _put_seq = setters_of(InstanceId)


@dataclass(frozen=True, slots=True)
class Reading(Message):
    """The values of one or more sensors of one source, at one instant.

    `boot` counts the starts of the source and `seq` its readings since then, from 1. Together they
    let the node drop duplicates and notice gaps. `label` is the true class, if the source knows it.
    A reading without values stands for one that its source has lost: it only advances the number.

    >>> Reading(boot=3, seq=1, time_ms=1_700_000_000_000, values={"attic-temp": 21.5}).label
    >>> Reading(boot=3, seq=0, time_ms=0, values={"attic-temp": 21.5})
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: reading.seq must be from 1 to 9007199254740991, got 0
    """

    kind: ClassVar[str] = "reading"
    boot: Count
    seq: Ordinal
    time_ms: Millis
    values: Values
    label: Line | None = None

    @classmethod
    def unchecked(
        cls, boot: int, seq: int, time_ms: int, values: Mapping[str, float], label: str | None
    ) -> Self:
        """A reading of what was checked."""
        made = object.__new__(cls)
        _put_reading_boot(made, boot)
        _put_reading_seq(made, seq)
        _put_time_ms(made, time_ms)
        _put_values(made, values)
        _put_label(made, label)
        return made


_put_reading_boot, _put_reading_seq, _put_time_ms, _put_values, _put_label = setters_of(Reading)


@dataclass(frozen=True, slots=True)
class Label(Message):
    """The true class of an instance, named by its number or its time; it may come late.

    It may also apply to every instance in a period, from `from_ms` until `until_ms` (or until now).
    Without any of these it applies to the current moment.

    >>> Label("fresh", time_ms=1_700_000_000_000).instance
    >>> Label("fresh", InstanceId("attic", boot=3, seq=12)).time_ms
    >>> Label("fresh").is_about_now
    True
    """

    kind: ClassVar[str] = "label"
    label: Line
    instance: InstanceId | None = None
    time_ms: Millis | None = None
    from_ms: Millis | None = None
    until_ms: Millis | None = None

    @property
    def is_about_now(self) -> bool:
        """Whether it names no instance and no time."""
        return self.instance is None and self.time_ms is None and self.from_ms is None

    def check_together(self) -> None:
        """Two ways to say which instance could disagree."""
        _check_which(self)


@dataclass(frozen=True, slots=True)
class Undo(Message):
    """Take back the label of an instance, or all labels in a period.

    Without either, the last label that was learned is taken back.

    >>> Undo(InstanceId("attic", boot=3, seq=12)).is_about_the_last
    False
    """

    kind: ClassVar[str] = "undo"
    instance: InstanceId | None = None
    time_ms: Millis | None = None
    from_ms: Millis | None = None
    until_ms: Millis | None = None

    @property
    def is_about_the_last(self) -> bool:
        """Whether it names no instance and no time."""
        return self.instance is None and self.time_ms is None and self.from_ms is None

    def check_together(self) -> None:
        """As with a label."""
        _check_which(self)


def _check_which(said: Label | Undo) -> None:
    """One way to say which instance; a stretch of time has a beginning, and ends after it."""
    ways = {"instance": said.instance, "time_ms": said.time_ms, "from_ms": said.from_ms}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise WireError("content", f"{said.kind} must have one of {list(ways)}, got {given}")
    if said.until_ms is not None and (said.from_ms is None or said.until_ms < said.from_ms):
        raise WireError(
            "content",
            f"{said.kind}.until_ms must come after from_ms, got {said.from_ms} and {said.until_ms}",
        )


@dataclass(frozen=True, slots=True)
class Example(Message):
    """One labelled instance, as the node joined it: a row of the batch that a gateway collects.

    `values` are the raw values of the sensors in the layout `layout_version`; sensors without a
    value are left out. `instance` is its last reading, `time_ms` its time. After a crash the same
    instance may be sent again: count them by `instance`.

    >>> Example(InstanceId("attic", 3, 12), 2, 1_700_000, {"attic-temp": 21.5}, "fresh").label
    'fresh'
    """

    kind: ClassVar[str] = "example"
    instance: InstanceId
    layout_version: Count
    time_ms: Millis
    values: Values
    label: Line


@dataclass(frozen=True, slots=True)
class Ack(Message):
    """Every reading of this `boot` up to `seq` is applied and on disk; 0 means none of them yet.

    The sender may delete what is acknowledged, never readings of another boot, and retries the
    rest. A higher `newest` means that this boot is over: the node has applied readings of the newer
    boot and accepts no more of this one, so the rest must be renumbered above `newest`. If `newest`
    equals `boot`, a number after `seq` is missing: send what follows it again.

    >>> Ack(boot=5, seq=0, newest=4)
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: ack.newest must be 0 or at least ack.boot 5, got 4
    """

    kind: ClassVar[str] = "ack"
    boot: Count
    seq: Count
    newest: Count = 0

    def check_together(self) -> None:
        """A boot cannot be over for the sake of an older one."""
        if 0 < self.newest < self.boot:
            raise WireError(
                "content",
                f"ack.newest must be 0 or at least ack.boot {self.boot}, got {self.newest}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Message):
    """What the node predicts for one instance, and which predictor it came from.

    `instance` is the reading that completed it, `time_ms` its time. Version 0 is the node's own,
    before any gateway. `predictor` says which of the node's predictors was served. `confidence` is
    the probability that the best class is right, and `scores` are the probabilities of all classes;
    a served file has scores of its own and no confidence. The label is `unknown` until something
    was learned, and below the required confidence.
    """

    kind: ClassVar[str] = "prediction"
    instance: InstanceId
    time_ms: Millis
    label: Line
    scores: Scores
    model_version: Count
    layout_version: Count
    predictor: Id | None = None
    confidence: Sure | None = None

    def check_together(self) -> None:
        """The predicted class is one of those that were scored, or none; 1 is as sure as can be."""
        if self.confidence is not None and self.confidence > 1:
            raise WireError(
                "range", f"prediction.confidence must be at most 1, got {self.confidence}"
            )
        if self.label not in self.scores and self.label != UNKNOWN:
            scored = shown(sorted(self.scores))
            raise WireError(
                "content", f"prediction.label must be one of {scored}, got {shown(self.label)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Message):
    """The node is unsure of this instance and asks for its label.

    `label` is its guess, `confidence` the probability of that, and `scores` the probabilities of
    all classes, the most likely first. The answer is a `Label` with this `instance`.
    """

    kind: ClassVar[str] = "asked"
    instance: InstanceId
    time_ms: Millis
    label: Line
    confidence: Sure
    scores: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Message):
    """How a node is doing. Retained; with `online=False` it is also the node's last will.

    `counts` are the counters since the node's state began (readings, duplicates, refusals by
    reason), `accuracy` is the recent accuracy of each predictor, and `degraded` says why the node
    is not well. `version` is that of the last order obeyed, so that a gateway sees what has
    arrived; `model_version` is that of the weights in use, which is older if an order brought none.
    The last will is written when the node starts: it has no time, and the versions of that moment.
    `silent` lists the sensors that are not heard: an event says so at once, but a broker may lose
    an event, and the next status repeats it.

    >>> Status(online=True, layout_version=2, model_version=7).healthy
    True
    >>> Status(online=True, layout_version=2, model_version=7, degraded=("disk full",)).healthy
    False
    >>> will = Status.last_will(layout_version=2, model_version=7, version=8)
    >>> will.online, will.version
    (False, 8)
    """

    kind: ClassVar[str] = "status"
    bytes_max: ClassVar[int] = 2 * LIMITS.small_payload_bytes_max  # all may be silent, all counted
    online: Yes
    layout_version: Count
    model_version: Count
    time_ms: Millis | None = None
    counts: Counts = field(default_factory=dict)
    accuracy: Rates = field(default_factory=dict)
    degraded: Reasons = ()
    version: Count = 0
    silent: Names = ()

    @property
    def healthy(self) -> bool:
        """Online, and nothing to complain about."""
        return self.online and not self.degraded

    @classmethod
    def last_will(cls, layout_version: int, model_version: int, version: int) -> Status:
        """What the broker says for the node when its connection breaks."""
        return cls(
            online=False,
            layout_version=layout_version,
            model_version=model_version,
            version=version,
        )


@dataclass(frozen=True, slots=True)
class Confirmed(Message):
    """The gateway has handled these messages of a node: each is saved, or was refused.

    `of` are their digests. A broker confirms a message before it has saved it, and may lose it in a
    crash; so a node repeats what is stored nowhere else (`REPEATED` in `codec`) until the gateway
    itself has answered. It is not signed: anyone who can forge it can also keep a message from
    arriving.

    >>> Confirmed(of=("1d62f0d1b4bae4e386bb5354f902e65f",)).kind
    'confirmed'
    """

    kind: ClassVar[str] = "confirmed"
    of: Digests
