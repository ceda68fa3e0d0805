"""What scores columns: the contract, and compact weights that were pushed, or frozen, keep it.

`kernel_model` has the other form that may be pushed, `forms` the list of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import RefusedError
from edge_opid.wire import Weights

MATRIX = "matrix"
"""The form whose one matrix W takes every column of the layout to every class."""

WEIGHT_MAX = 1e30
"""With 160 columns, each as large as a learner takes (1e6), no score overflows in float32."""


class ModelError(RefusedError, ValueError):
    """Weights that do not fit: `reason` is a word to count by."""


class Predictor(Protocol):
    """Scores from columns, whoever computes them: NumPy here, a TFLite runtime in `tflite`."""

    @property
    def version(self) -> int:
        """The gateway's; 0 for what did not come from it."""
        ...

    def scores(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """One score for each class; x is in the order of the layout's columns."""
        ...


class NamedPredictor(Protocol):
    """A predictor that knows its columns and classes by name, and not yet in whose order."""

    def arranged(self, columns: Sequence[str], classes: Sequence[str]) -> Predictor:
        """The same for a layout with these columns; a `ModelError` where names are others."""
        ...


@dataclass(frozen=True, slots=True)
class CompactModel:
    """Scores from columns: x·W. `version` is the gateway's, 0 for what the node made itself.

    >>> model = CompactModel(7, np.array([[1.0, 0.0], [0.0, 1.0]], np.float32))
    >>> int(model.scores(np.array([0.2, 0.9], np.float32)).argmax())
    1
    """

    version: int
    W: NDArray[np.float32]

    def scores(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """One score for each class."""
        return np.asarray(x @ self.W, np.float32)

    @classmethod
    def from_weights(cls, weights: Weights, version: int, width: int, classes: int) -> CompactModel:
        """The model a gateway pushed, for a layout of `width` columns."""
        if weights.form != MATRIX or set(weights.matrices) != {"W"}:
            got = f"{weights.form!r} with {sorted(weights.matrices)}"
            raise ModelError("form", f"weights must be {MATRIX!r} with ['W'], got {got}")
        W = weights.matrices["W"].array().astype(np.float32)
        if W.shape != (width, classes):
            raise ModelError(
                "shape",
                f"W must be {width}×{classes}, as the layout, got {W.shape[0]}×{W.shape[1]}",
            )
        if not np.isfinite(W).all():
            raise ModelError("nonfinite", f"W of version {version} must be finite, and is not")
        if np.abs(W).max() > WEIGHT_MAX:
            largest = f"{np.abs(W).max():g}"
            raise ModelError("range", f"|W| must be at most {WEIGHT_MAX:g}, got {largest}")
        return cls(version, W)

    def reordered(self, places: Sequence[int]) -> CompactModel:
        """The same model, with the score of class `places[k]` in the place k."""
        return replace(self, W=np.ascontiguousarray(self.W[:, places]))

    def parts(self) -> dict[str, NDArray[Any]]:
        """Every array by its name, for whoever wants to look."""
        return {"W": self.W}

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `from_state`."""
        return {"version": self.version, **self.parts()}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> CompactModel:
        """The model that `state` described."""
        return cls(saved["version"], saved["W"])
