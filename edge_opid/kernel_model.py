"""A kernel on a node: OPID's E-stage (Eq. 13–18 by the kernel trick), on landmarks.

What the gateway pushes under the form `kernel`, for a layout of d columns with c classes, d_a of
the columns new, and m landmarks; D = c + d_a:

| matrix | shape | what |
|---|---|---|
| `W_s` | d×c | W^(s), with zeros for the new columns: Z = x·W_s |
| `new` | 1×d_a | which columns of x are new, from 0; left out where none is |
| `centre`, `scale` | 1×D | u = ([Z, x_new] − centre) / scale |
| `support` | m×D | the landmarks, in the units of u |
| `A` | 2m×c | what each landmark says: m rows for k(z, ·) on Z alone, m for k(u, ·) on all |
| `bias` | 1×c | added to the scores |
| `kernel` | 1×2 | its kind and size: 0, Gaussian, and its width; 1, polynomial, and its degree |

`kernel_rules` has what makes a node refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kernel_rules import GAUSSIAN, checked
from .wire import Weights

KERNEL = "kernel"
"""The form whose matrices the table above lists."""

Floats = NDArray[np.float32]
ARRAYS = ("W_s", "new", "centre", "scale", "support", "A", "bias")


@dataclass(frozen=True, slots=True)
class CompactKernel:
    """Scores from columns: K·A + bias, with K the kernel between a reading and the landmarks.

    `version` is the gateway's. A score costs m·D multiplications where one matrix costs d·c, and
    the same bits come out each time: sums within a row have a fixed order. The example is a parity,
    which no single matrix can tell:

    >>> corners = np.array([[0, 0, 1, 1], [0, 0, -1, -1], [0, 0, 1, -1], [0, 0, -1, 1]], np.float32)
    >>> says = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    >>> none, one = np.zeros(4, np.float32), np.ones(4, np.float32)
    >>> A, W_s = np.vstack([0 * says, says]), np.zeros((2, 2), np.float32)
    >>> model = CompactKernel(7, W_s, np.array([0, 1]), none, one, corners, A, none[:2], 0, 0.5)
    >>> [int(model.scores(np.array(x, np.float32)).argmax()) for x in ([2, 1], [-1, 2])]
    [0, 1]
    """

    version: int
    W_s: Floats
    """d×c."""
    new: NDArray[np.int64]
    """d_a places among the d columns."""
    centre: Floats
    """D."""
    scale: Floats
    """D."""
    support: Floats
    """m×D."""
    A: Floats
    """2m×c."""
    bias: Floats
    """c."""
    kind: int
    size: float

    def scores(self, x: Floats) -> Floats:
        """One score for each class. One array of the landmarks' size is made on the way."""
        u = np.concatenate([x @ self.W_s, x[self.new]])
        u -= self.centre
        u /= self.scale
        if self.kind == GAUSSIAN:
            parts = self.support - u
            parts *= parts
        else:
            parts = self.support * u
        return np.asarray(self._near(parts) @ self.A + self.bias, np.float32)

    def _near(self, parts: Floats) -> Floats:
        """2m kernel values from the landmarks' squared distances, or products, by column.

        The sums are divided by the number of columns, as the gateway's are: the size of a kernel
        then means the same for Z alone and for all columns.
        """
        c, (m, both) = len(self.bias), parts.shape
        K = np.empty(2 * m, np.float32)
        np.add.reduce(parts[:, :c], axis=1, out=K[:m])
        np.add.reduce(parts[:, c:], axis=1, out=K[m:])
        K[m:] += K[:m]
        K[:m] /= c
        K[m:] /= both
        if self.kind == GAUSSIAN:
            K /= -2 * self.size**2
            return np.asarray(np.exp(K, out=K))
        K += 1
        base = K.copy()
        for _ in range(int(self.size) - 1):  # `**` would take logarithms, and round otherwise
            K *= base
        return K

    @classmethod
    def from_weights(
        cls, weights: Weights, version: int, width: int, classes: int
    ) -> CompactKernel:
        """The model a gateway pushed, for a layout of `width` columns."""
        return cls.from_state({"version": version, **checked(weights, version, width, classes)})

    def parts(self) -> dict[str, NDArray[Any]]:
        """Every array by its name, for whoever wants to look."""
        found: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in ARRAYS}
        return {**found, "kernel": np.array([self.kind, self.size], np.float32)}

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `from_state`."""
        return {"version": self.version, "form": KERNEL, **self.parts()}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> CompactKernel:
        """The model that `state` described."""
        kind, size = saved["kernel"].tolist()
        arrays = {name: saved[name] for name in ARRAYS}
        return cls(saved["version"], **arrays, kind=int(kind), size=size)
