"""The large messages: what a node is, what it knows, and what a gateway wants of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import WireError, shown
from edge_opid.wire.arrays import Matrix, check_numbers, from_bytes
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import Message
from edge_opid.wire.schema import (
    Bytes,
    Checked,
    Count,
    Id,
    Many,
    Millis,
    Names,
    NestedField,
    NotNegative,
    Ordinal,
    Positive,
    Table,
    Text,
    Whole,
)
from edge_opid.wire.sensors import SensorDescription

Width = Annotated[int, Whole(1, LIMITS.columns_max)]
ClassCount = Annotated[int, Whole(2, LIMITS.classes_max)]
ClassNames = Annotated[tuple[str, ...], Many(Text(), LIMITS.classes_max)]
Quota = Annotated[int, Whole(0, LIMITS.gather_max)]
Sensors = Annotated[
    tuple[SensorDescription, ...], Many(NestedField(SensorDescription), LIMITS.sensors_max)
]
Matrices = Annotated[
    Mapping[str, Matrix],
    Table(Text("[A-Za-z][A-Za-z0-9_]{0,31}"), NestedField(Matrix), LIMITS.matrices_max),
]


def check_unique(names: tuple[str, ...], where: str) -> None:
    """No name comes twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WireError("content", f"{where} must be different, got {shown(twice)} more than once")


def check_among(names: tuple[str, ...], all_of_them: tuple[str, ...], where: str) -> None:
    """No name comes twice, and none is a stranger."""
    check_unique(names, where)
    strangers = sorted(set(names) - set(all_of_them))
    if strangers:
        raise WireError("content", f"{where} must be of its sensors, got {shown(strangers)}")


def check_layout(
    sensors: tuple[SensorDescription, ...],
    vanishing: tuple[str, ...],
    classes: tuple[str, ...],
    where: str,
) -> None:
    """It is one layout: no name twice, none unknown, no wider than promised."""
    ids = tuple(sensor.id for sensor in sensors)
    check_unique(ids, f"{where}.sensors, by id,")
    check_unique(tuple(sensor.role for sensor in sensors), f"{where}.sensors, by role,")
    check_unique(classes, f"{where}.classes")
    check_among(vanishing, ids, f"{where}.vanishing")
    if not sensors or len(classes) < 2:
        got = f"{len(sensors)} sensors and {len(classes)} classes"
        raise WireError("content", f"{where} must have a sensor and 2 classes, got {got}")
    width = sum(sensor.columns for sensor in sensors)
    if width > LIMITS.columns_max:
        raise WireError(
            "content",
            f"{where}.sensors must take at most {LIMITS.columns_max} columns, got {width}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction(Message):
    """What a node is, for a gateway that does not know it yet.

    It has the same fields as `Desired`: an operator who adds a node to a gateway need not describe
    it again, and the references and scales from the node's first readings are included. `version`
    and `layout_version` are those it obeys, 0 before any order; `window_ms` is how far apart the
    values of one instance may be.
    """

    kind: ClassVar[str] = "introduction"
    bytes_max: ClassVar[int] = LIMITS.payload_bytes_max
    version: Count
    layout_version: Count
    sensors: Sensors
    vanishing: Names
    gate: Positive
    classes: ClassNames
    window_ms: Millis

    def check_together(self) -> None:
        """What it introduces is one layout."""
        check_layout(self.sensors, self.vanishing, self.classes, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReadings(Checked):
    """The sums over all readings of a learner, labelled or not: how its sensors go together.

    `gram` is as in `SummaryMessage`, of the same columns; `readings` and `evidence`, too.
    """

    kind: ClassVar[str] = "all_readings"
    readings: Count
    evidence: NotNegative
    gram: Bytes

    def gram_array(self) -> NDArray[np.float32]:
        """The upper triangle of G, row by row, as one row of numbers."""
        return from_bytes(self.gram)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMessage(Message):
    """A learner's statistics for one layout: everything a gateway needs to pool nodes.

    `gram` is the upper triangle of G = Σx̃x̃ᵀ, row by row, width·(width + 1)/2 numbers; `moment` is
    Σx̃yᵀ, width × classes, row by row; both float32. `sensors` are those whose columns these are:
    the living ones, because a node without one of its sensors sums over fewer columns. `vanishing`
    are those of them that were expected to go; a `Layout` of both has the columns in this order.
    `readings` is how many were learned, `evidence` what they still weigh after forgetting.
    `everything` is missing where its node is told not to learn from readings without labels, is of
    an older release, or has too many columns for two Gram matrices to fit.
    """

    kind: ClassVar[str] = "summary"
    bytes_max: ClassVar[int] = LIMITS.summary_bytes_max
    layout_version: Count
    width: Width
    classes: ClassCount
    sensors: Names
    vanishing: Names
    lam: NotNegative
    rho: Positive
    readings: Count
    evidence: NotNegative
    gram: Bytes
    moment: Bytes
    everything: AllReadings | None = None

    def check_together(self) -> None:
        """Both arrays fill their shapes, and the names are different, and of its sensors."""
        check_unique(self.sensors, "summary.sensors")
        check_among(self.vanishing, self.sensors, "summary.vanishing")
        check_numbers(self.gram, self.width * (self.width + 1) // 2, "summary.gram")
        check_numbers(self.moment, self.width * self.classes, "summary.moment")
        if self.everything is not None:
            entries = self.width * (self.width + 1) // 2
            check_numbers(self.everything.gram, entries, "summary.everything.gram")

    def gram_array(self) -> NDArray[np.float32]:
        """The upper triangle of G, row by row, as one row of numbers."""
        return from_bytes(self.gram)

    def moment_array(self) -> NDArray[np.float32]:
        """Σx̃yᵀ, width × classes."""
        return from_bytes(self.moment).reshape(self.width, self.classes)


@dataclass(frozen=True, slots=True)
class Weights(Checked):
    """A fitted model: which `form` it has, and its matrices by the paper's letters.

    >>> Weights("opide", {"W_survivors": Matrix.of([[1.0]]), "V": Matrix.of([[0.5]])}).form
    'opide'
    """

    kind: ClassVar[str] = "weights"
    form: Id
    matrices: Matrices


@dataclass(frozen=True, slots=True)
class Desired(Message):
    """What the gateway wants of one node: this layout, these classes, and perhaps this model.

    The address is inside, under the signature, because a topic proves nothing: a broker could
    deliver one node's weights to another. `version` only ever grows. `vanishing` are the sensors
    expected to go next, `gate` the largest |z| that is believed. The node reports its next `gather`
    labelled instances, each as an `Example`; 0 cancels an earlier request.
    """

    kind: ClassVar[str] = "desired"
    bytes_max: ClassVar[int] = LIMITS.payload_bytes_max
    site: Id
    node: Id
    _: KW_ONLY
    version: Ordinal
    layout_version: Ordinal
    sensors: Sensors
    vanishing: Names
    gate: Positive
    classes: ClassNames
    weights: Weights | None = None
    gather: Quota = 0

    def check_together(self) -> None:
        """What it orders is one layout."""
        check_layout(self.sensors, self.vanishing, self.classes, self.kind)
