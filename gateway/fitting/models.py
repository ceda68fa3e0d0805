"""What a fit left behind, as nodes will have it: one matrix, or a kernel on landmarks.

Both are kept as the parts of a `FitRecord`, so that a gateway that was restarted signs the same
numbers again; both give weights for whatever order of columns a node has, and scores for a batch
in the order of the change, to be compared with a later fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_opid.models.landmark_kernel import GAUSSIAN, KERNEL, POLYNOMIAL, CompactKernel
from edge_opid.models.matrix import MATRIX
from edge_opid.wire import Matrix, Weights, to_bytes
from gateway.estage import KernelModel
from gateway.fitting.job import Floats
from gateway.registry import ChangeRecord, FitRecord

KINDS = {"rbf": GAUSSIAN, "poly": POLYNOMIAL}


class FittedModel(Protocol):
    """A fit without its story."""

    def weights(self, columns: Sequence[str], dtype: str) -> Weights:
        """As they travel, for a layout with these columns."""
        ...

    def scores(self, X: Floats) -> Floats:
        """n×c scores of rows whose columns are in the order of the change."""
        ...


def fitted_model(fit: FitRecord, change: ChangeRecord) -> FittedModel:
    """The model that a record holds."""
    if fit.is_kernel:
        return FittedKernel(fit.parts, change.columns, fit.survivors, fit.new)
    return FittedMatrix(fit.parts, change.columns)


class FittedMatrix:
    """Scores are x·W: a row of W for each column."""

    def __init__(self, parts: Mapping[str, bytes], columns: Sequence[str]) -> None:
        self._W = numbers(parts["W"]).reshape(len(columns), -1)
        self._rows = dict(zip(columns, self._W, strict=True))

    def weights(self, columns: Sequence[str], dtype: str) -> Weights:
        """The rows in this order."""
        W = np.array([self._rows[column] for column in columns])
        return Weights(MATRIX, {"W": Matrix.of(W, travels_as(W, dtype))})

    def scores(self, X: Floats) -> Floats:
        """n×c."""
        return np.asarray(X @ self._W)


def travels_as(weights: NDArray[np.float32], wanted: str) -> str:
    """The dtype that can hold them: float16 ends at 65,504.

    >>> travels_as(np.float32([[7e4]]), "float16"), travels_as(np.float32([[6e4]]), "float16")
    ('float32', 'float16')
    """
    fits = np.abs(weights).max() <= np.finfo(np.float16).max
    return wanted if fits else "float32"


class FittedKernel:
    """What `edge_opid.models.landmark_kernel` lists, with names instead of places.

    It travels in float32, whatever the policy says: the weights of landmarks cancel, and float16
    would keep their rounding.
    """

    def __init__(
        self,
        parts: Mapping[str, bytes],
        columns: Sequence[str],
        survivors: Sequence[str],
        new: Sequence[str],
    ) -> None:
        found = {name: numbers(part) for name, part in parts.items()}
        c, both = len(found["bias"]), len(found["centre"])
        self._columns, self._new = tuple(columns), tuple(new)
        self._rows = dict(zip(survivors, found["W_s"].reshape(-1, c), strict=True))
        self._nothing = np.zeros(c, np.float32)
        self._placeless = {
            "centre": found["centre"].reshape(1, both),
            "scale": found["scale"].reshape(1, both),
            "support": found["support"].reshape(-1, both),
            "A": np.concatenate([found["A_s"], found["A_b"]]).reshape(-1, c),
            "bias": found["bias"].reshape(1, c),
            "kernel": found["kernel"].reshape(1, 2),
        }

    def weights(self, columns: Sequence[str], dtype: str = "float32") -> Weights:  # noqa: ARG002
        """W^(s) and the places of the new columns in this order; the rest does not depend on it."""
        W = np.array([self._rows.get(column, self._nothing) for column in columns])
        parts = {"W_s": W, **self._placeless}
        if self._new:
            parts["new"] = np.array([[columns.index(column) for column in self._new]])
        return Weights(KERNEL, {name: Matrix.of(part) for name, part in parts.items()})

    def node_model(self) -> CompactKernel:
        """What a node with the change's own order of columns makes of it, or its refusal."""
        width, classes = len(self._columns), len(self._nothing)
        return CompactKernel.from_weights(self.weights(self._columns), 0, width, classes)

    def scores(self, X: Floats) -> Floats:
        """n×c, computed as nodes do."""
        model = self.node_model()
        return np.array([model.scores(x) for x in np.asarray(X, np.float32)], float)


def kernel_parts(W_s: Floats, model: KernelModel) -> dict[str, bytes]:
    """The parts of a record, in float32."""
    return {
        "W_s": to_bytes(W_s),
        "centre": to_bytes(model.centre),
        "scale": to_bytes(model.scale),
        "support": to_bytes(model.support),
        "A_s": to_bytes(model.A_s),
        "A_b": to_bytes(model.A_b),
        "bias": to_bytes(model.bias),
        "kernel": to_bytes([KINDS[model.kernel.kind], model.kernel.size]),
    }


def numbers(part: bytes) -> NDArray[np.float32]:
    """One row of float32."""
    return np.frombuffer(part, "<f4")


class PushedWeights:
    """The weights of a fit, for whatever order of columns a node has."""

    def __init__(self, size: int, model: FittedModel, dtype: str) -> None:
        self.size, self._model, self._dtype = size, model, dtype
        self._made: dict[tuple[str, ...], Weights] = {}

    def weights(self, columns: tuple[str, ...]) -> Weights:
        """As they travel; made once for all nodes with these columns."""
        if columns not in self._made:
            self._made[columns] = self._model.weights(columns, self._dtype)
        return self._made[columns]
