"""One matrix from survivors, new sensors and a bias to scores: all that a node needs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_opid.errors import MismatchError
from gateway.estage.batch import BatchError, Floats
from gateway.estage.models import LinearModel, Model

Dtype = Literal["float32", "float16"]


@dataclass(frozen=True)
class ColumnWeights:
    """x_s·survivors + x_a·new + bias: W^(s), V^(s), V̄, w₁ and w₂ multiplied out."""

    survivors: Floats
    """d_s×c."""
    new: Floats
    """d_a×c."""
    bias: Floats
    """c."""

    def scores(self, Xs: ArrayLike, Xa: ArrayLike) -> Floats:
        """n×c scores."""
        return np.asarray(np.asarray(Xs) @ self.survivors + np.asarray(Xa) @ self.new + self.bias)

    def matrix(self, bias_column: int | None = None) -> Floats:
        """Rows for the survivors, the new sensors, and the bias last.

        A layout's own constant column is one of the survivors: `bias_column` says which, and the
        bias is then added to that row instead of getting one of its own.

        >>> weights = ColumnWeights(np.ones((2, 2)), np.zeros((1, 2)), np.array([0.5, 0.0]))
        >>> weights.matrix(bias_column=1).tolist()
        [[1.0, 1.0], [1.5, 1.0], [0.0, 0.0]]
        """
        if bias_column is None:
            return np.vstack([self.survivors, self.new, self.bias])
        rows = np.vstack([self.survivors, self.new])
        rows[bias_column] += self.bias
        return rows


def column_weights(model: Model, W_s: ArrayLike) -> ColumnWeights:
    """The model on raw columns, for Z = X^(s) W^(s). A kernel cannot become one matrix.

    >>> from gateway.estage import z_alone
    >>> column_weights(z_alone(classes=2, new=1), [[1.0, 2.0]]).matrix().tolist()
    [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    """
    if not isinstance(model, LinearModel):
        raise MismatchError(f"only linear models become one matrix, and {model.name!r} is not one")
    W_s = np.asarray(W_s, float)
    if W_s.ndim != 2 or W_s.shape[1] != len(model.V_z):
        raise MismatchError(f"W^(s) must have {len(model.V_z)} classes, got shape {W_s.shape}")
    survivors = W_s @ model.V_z
    if model.V_s is not None:
        if model.V_s.shape != survivors.shape:
            raise MismatchError(f"W^(s) must be {model.V_s.shape}, got {W_s.shape}")
        survivors = survivors + model.V_s
    return ColumnWeights(survivors, model.V_a, model.bias)


@dataclass(frozen=True)
class Rounded:
    """A matrix as it travels, and what the rounding costs on a labelled batch."""

    matrix: NDArray[Any]
    exact_accuracy: float
    rounded_accuracy: float
    changed: float
    """The share of instances that get another label."""

    @property
    def loss(self) -> float:
        """The accuracy given up."""
        return self.exact_accuracy - self.rounded_accuracy


def rounded(matrix: ArrayLike, X: ArrayLike, y: ArrayLike, dtype: Dtype = "float16") -> Rounded:
    """`matrix` in float32 or float16, and the price, over rows X (columns of the matrix, in order).

    A node multiplies in float32 whatever the weights travelled as. Weights beyond float16's 65,504
    are a `BatchError`: send those in float32.

    >>> rounded([[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.8], [0.5, 0.4]], [1, 0]).loss
    0.0
    """
    exact, X, y = np.asarray(matrix, float), np.asarray(X, float), np.asarray(y, int)
    with np.errstate(over="ignore"):
        small = exact.astype(dtype)
    if not np.isfinite(small).all():
        raise BatchError(f"weights up to {np.abs(exact).max():g} do not fit {dtype}")
    before = (X @ exact).argmax(1)
    after = (X.astype(np.float32) @ small.astype(np.float32)).argmax(1)
    shares = np.mean(before == y), np.mean(after == y), np.mean(before != after)
    return Rounded(small, float(shares[0]), float(shares[1]), float(shares[2]))
