"""The few parts of a TFLite graph that an E-stage predictor needs, before they become bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32] | NDArray[np.int8]


class Op(IntEnum):
    """`BuiltinOperator` of TFLite's schema: the operators used here."""

    CONCATENATION = 2
    FULLY_CONNECTED = 9


@dataclass(frozen=True)
class Tensor:
    """A named array. Without `data` it is computed, or an input; with a `scale` it is int8."""

    name: str
    shape: tuple[int, ...]
    data: Array | None = None
    scale: float | None = None
    """What one step of an int8 weight is worth; None for float32."""


@dataclass(frozen=True)
class Step:
    """One operator: the tensors it reads, in the operator's order, and the one it writes."""

    op: Op
    inputs: tuple[Tensor, ...]
    output: Tensor

    @property
    def int8(self) -> bool:
        """Whether its weights are int8 while what flows through it is float32."""
        return any(tensor.scale is not None for tensor in self.inputs)

    @property
    def version(self) -> int:
        """Which form of the operator a runtime must know.

        9 is the first FULLY_CONNECTED that takes int8 weights together with inputs whose zero
        point is chosen anew for each reading. Weights with a scale for every class would be 12,
        and tflite-runtime, whose last release is 2.14, does not know that one.
        """
        return 9 if self.int8 else 1


@dataclass(frozen=True)
class Graph:
    """Steps in the order they run, what they start from, and what they end in."""

    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    description: str

    @property
    def output(self) -> Tensor:
        """What the last step writes."""
        return self.steps[-1].output

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor once: the inputs, then in the order of the steps."""
        found = list(self.inputs)
        for step in self.steps:
            # By identity: two tensors of zeros are equal, and still two.
            found += [each for each in step.inputs if all(each is not known for known in found)]
            found.append(step.output)
        return found


def place(tensors: Sequence[Tensor], wanted: Tensor) -> int:
    """Where this very tensor stands."""
    return next(index for index, each in enumerate(tensors) if each is wanted)
