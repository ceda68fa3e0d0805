"""The two large messages: what a node knows, and what a gateway wants of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_opid.wire.arrays import Matrix, check_numbers, from_bytes
from edge_opid.wire.errors import WireError, shown
from edge_opid.wire.fields import (
    Bytes,
    Count,
    Id,
    Many,
    Names,
    NotNegative,
    Ordinal,
    Positive,
    Table,
    Text,
    Whole,
)
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import Message
from edge_opid.wire.records import Checked, Record
from edge_opid.wire.sensors import SensorDescription

Width = Annotated[int, Whole(1, LIMITS.columns_max)]
ClassCount = Annotated[int, Whole(2, LIMITS.classes_max)]
ClassNames = Annotated[tuple[str, ...], Many(Text(), LIMITS.classes_max)]
Sensors = Annotated[
    tuple[SensorDescription, ...], Many(Record(SensorDescription), LIMITS.sensors_max)
]
Matrices = Annotated[
    Mapping[str, Matrix],
    Table(Text("[A-Za-z][A-Za-z0-9_]{0,31}"), Record(Matrix), LIMITS.matrices_max),
]


def check_unique(names: tuple[str, ...], where: str) -> None:
    """No name comes twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WireError("content", f"{where} must be different, got {shown(twice)} more than once")


@dataclass(frozen=True, slots=True)
class Summary(Message):
    """A learner's statistics for one layout: all that a gateway needs to pool nodes.

    `gram` is the upper triangle of G = Σx̃x̃ᵀ, row by row, width·(width + 1)/2 numbers; `moment` is
    Σx̃yᵀ, width × classes, row by row; both float32. `vanishing` are the sensors that were expected
    to go, `readings` how many were learned, `evidence` what they still weigh after forgetting.
    """

    kind: ClassVar[str] = "summary"
    bytes_max: ClassVar[int] = LIMITS.payload_bytes_max
    layout_version: Count
    width: Width
    classes: ClassCount
    vanishing: Names
    lam: NotNegative
    rho: Positive
    readings: Count
    evidence: NotNegative
    gram: Bytes
    moment: Bytes

    def check_together(self) -> None:
        """Both arrays fill their shapes, and the names are different."""
        check_unique(self.vanishing, "summary.vanishing")
        check_numbers(self.gram, self.width * (self.width + 1) // 2, "summary.gram")
        check_numbers(self.moment, self.width * self.classes, "summary.moment")

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

    It is addressed inside, under the signature, because a topic proves nothing: a broker could
    deliver one node's weights to another. `version` only ever grows. `vanishing` are the sensors
    expected to go next, `gate` the largest |z| that is believed.
    """

    kind: ClassVar[str] = "desired"
    bytes_max: ClassVar[int] = LIMITS.payload_bytes_max
    site: Id
    node: Id
    version: Ordinal
    layout_version: Ordinal
    sensors: Sensors
    vanishing: Names
    gate: Positive
    classes: ClassNames
    weights: Weights | None = None

    def check_together(self) -> None:
        """The layout is one: no name twice, none unknown, no wider than promised."""
        ids = tuple(sensor.id for sensor in self.sensors)
        check_unique(ids, "desired.sensors, by id,")
        check_unique(tuple(sensor.role for sensor in self.sensors), "desired.sensors, by role,")
        check_unique(self.vanishing, "desired.vanishing")
        check_unique(self.classes, "desired.classes")
        strangers = sorted(set(self.vanishing) - set(ids))
        if strangers:
            raise WireError(
                "content", f"desired.vanishing must be of its sensors, got {shown(strangers)}"
            )
        if not self.sensors or len(self.classes) < 2:
            got = f"{len(self.sensors)} sensors and {len(self.classes)} classes"
            raise WireError("content", f"desired must have a sensor and 2 classes, got {got}")
        width = sum(sensor.columns for sensor in self.sensors)
        if width > LIMITS.columns_max:
            raise WireError(
                "content",
                f"desired.sensors must take at most {LIMITS.columns_max} columns, got {width}",
            )
