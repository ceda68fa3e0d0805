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

The rules that a pushed kernel must pass before a node takes it. In this order:

1. exactly the matrices that `kernel_model` lists; 2. not too many landmarks; 3. their shapes;
4. finite; 5. `new` names columns of the layout, each once; 6. scales above 0, a kernel that is
known, of a size within its range; 7. nothing on the way to a score can overflow.

What fails is a `ModelError` with a reason to count by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.learner.settings import LIMIT
from edge_opid.models.matrix import ModelError
from edge_opid.wire import Weights

KERNEL = "kernel"
"""The form whose matrices the table above lists."""

Floats = NDArray[np.float32]
ARRAYS = ("W_s", "new", "centre", "scale", "support", "A", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactKernel:
    """Scores from columns: K·A + bias, with K the kernel between a reading and the landmarks.

    `version` is the gateway's. A score costs m·D multiplications where one matrix costs d·c, and
    the same bits come out each time: sums within a row have a fixed order. The example is a parity,
    which no single matrix can tell:

    >>> corners = np.array([[0, 0, 1, 1], [0, 0, -1, -1], [0, 0, 1, -1], [0, 0, -1, 1]], np.float32)
    >>> says = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    >>> none, one = np.zeros(4, np.float32), np.ones(4, np.float32)
    >>> A, W_s = np.vstack([0 * says, says]), np.zeros((2, 2), np.float32)
    >>> model = CompactKernel(
    ...     version=7, W_s=W_s, new=np.array([0, 1]), centre=none, scale=one, support=corners,
    ...     A=A, bias=none[:2], kind=GAUSSIAN, size=0.5,
    ... )
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

    def reordered(self, places: Sequence[int]) -> CompactKernel:
        """The same model, with the score of class `places[k]` in the place k.

        Z = x·W_s is only a representation: its columns may keep their order.
        """
        A = np.ascontiguousarray(self.A[:, places])
        return replace(self, A=A, bias=np.ascontiguousarray(self.bias[places]))

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
        return cls(version=saved["version"], **arrays, kind=int(kind), size=size)


Parts = Mapping[str, NDArray[Any]]
ALWAYS = frozenset({"W_s", "centre", "scale", "support", "A", "bias", "kernel"})
ROWS = ("centre", "scale", "bias", "kernel")
"""Those that are one row of numbers."""

GAUSSIAN, POLYNOMIAL = 0, 1
SIZES = {GAUSSIAN: (1e-2, 1e2), POLYNOMIAL: (1.0, 4.0)}
"""The smallest and the largest size of each kind. The gateway offers width 1 and degree 2."""

LANDMARKS_MAX = 64
"""With 160 columns and 16 classes the largest model is then 66 kB, and a score takes 80 kB more
while it is computed. A node holds two models at most."""

LARGEST = 1e36
"""A bound for everything that is computed: float32 ends at 3.4e38. A float32 sum of n numbers is
off by a share of n·2⁻²⁴ at most, and no sum here has more than 200, so the factor of 340 that is
left covers the rounding by far."""


def checked(weights: Weights, version: int, width: int, classes: int) -> dict[str, NDArray[Any]]:
    """The parts of a kernel for a layout of `width` columns, all of the rules passed."""
    if set(weights.matrices) - {"new"} != ALWAYS:
        got = f"{weights.form!r} with {sorted(weights.matrices)}"
        raise ModelError("form", f"weights must be {sorted(ALWAYS)}, perhaps 'new', got {got}")
    parts: dict[str, NDArray[Any]] = {
        name: each.array().astype(np.float32) for name, each in weights.matrices.items()
    }
    _check_shapes(parts, width, classes)
    for name, part in parts.items():
        if not np.isfinite(part).all():
            raise ModelError("nonfinite", f"{name} of version {version} must be finite, and is not")
    parts |= {name: parts[name][0] for name in ROWS}
    parts["new"] = _places(parts.get("new"), width)
    _check_numbers(parts["kernel"], parts["scale"])
    bound = largest(parts)
    if not bound <= LARGEST:  # NaN would be refused, too
        raise ModelError("range", f"scores must stay below {LARGEST:g}, these may reach {bound:g}")
    return parts


def _check_shapes(parts: Parts, width: int, classes: int) -> None:
    """Every matrix has the shape that the layout, the classes and the landmarks make."""
    landmarks = len(parts["support"])
    if landmarks > LANDMARKS_MAX:
        wanted = f"at most {LANDMARKS_MAX} landmarks"
        raise ModelError("landmarks", f"support must be {wanted}, got {landmarks}")
    new = parts["new"].shape[1] if "new" in parts else 0
    both = classes + new
    shapes = {
        "W_s": (width, classes),
        "new": (1, new),
        "centre": (1, both),
        "scale": (1, both),
        "support": (landmarks, both),
        "A": (2 * landmarks, classes),
        "bias": (1, classes),
        "kernel": (1, 2),
    }
    for name, part in parts.items():
        if part.shape != shapes[name]:
            wanted, got = ("×".join(map(str, shape)) for shape in (shapes[name], part.shape))
            raise ModelError("shape", f"{name} must be {wanted}, as the layout, got {got}")


def _places(new: NDArray[Any] | None, width: int) -> NDArray[np.int64]:
    """Which columns are new: whole numbers, each once, each a column of the layout."""
    if new is None:
        return np.zeros(0, np.int64)
    inside = (new >= 0) & (new < width) & (new == np.floor(new))
    if not inside.all():
        wanted = f"whole numbers from 0 to {width - 1}"
        raise ModelError("columns", f"new must be {wanted}, got {new[~inside][0]:g}")
    found = np.asarray(new[0], np.int64)
    if len(np.unique(found)) != len(found):
        raise ModelError("columns", f"new must name each column once, got {found.tolist()}")
    return found


def _check_numbers(kernel: NDArray[Any], scale: NDArray[Any]) -> None:
    """A kernel that is known, of a size that it may have, and nothing divided by zero."""
    kind, size = kernel.tolist()
    if kind not in SIZES:
        raise ModelError("range", f"the kernel's kind must be of {sorted(SIZES)}, got {kind:g}")
    low, high = SIZES[int(kind)]
    low, high = float(np.float32(low)), float(np.float32(high))  # as it travelled
    if not low <= size <= high or (kind == POLYNOMIAL and size != int(size)):
        wanted = f"from {low:g} to {high:g}" + (", and whole" if kind == POLYNOMIAL else "")
        raise ModelError("range", f"the kernel's size must be {wanted}, got {size:g}")
    if scale.min() <= 0:
        raise ModelError("range", f"scale must be above 0, got {scale.min():g}")


def largest(parts: Parts) -> float:
    """A number that nothing computed on the way to a score exceeds, for columns up to `LIMIT`.

    By the triangle inequality, from the inside out, in float64, which may get to inf, and not to
    NaN, whatever float32 numbers are given: |Z_k| ≤ LIMIT·Σ|W_jk|; |u| ≤ (that + |centre|)/scale;
    |support − u| ≤ |support| + |u|. A Gaussian is at most 1. For a polynomial |1 + mean product| is
    at most 1 + Σ|support|·|u|, which is at least 1, so the powers on the way are below the last
    one; a score is at most Σ K·|A| + |bias|. No layout lets a column beyond `LIMIT` through: its
    gate is at most that (`node.desired`), and hats and the constant column are at most 1.
    """
    kind, size = parts["kernel"].tolist()
    W, support, A = (np.abs(parts[name]).astype(np.float64) for name in ("W_s", "support", "A"))
    with np.errstate(over="ignore"):
        columns = np.concatenate([LIMIT * W.sum(0), np.full(len(parts["new"]), LIMIT)])
        shifted = columns + np.abs(parts["centre"])
        u = shifted / parts["scale"]
        if kind == GAUSSIAN:
            apart = np.square(support + u).sum(1) * max(1.0, 1 / (2 * size**2))
            most = np.ones(len(support))
        else:
            apart = (support * u).sum(1)
            most = (1 + apart) ** size
        scores = (np.concatenate([most, most])[:, None] * A).sum(0) + np.abs(parts["bias"])
        return float(max(each.max() for each in (shifted, u, apart, most, scores)))
