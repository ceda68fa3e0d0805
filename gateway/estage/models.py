"""What an E-stage fit leaves behind: a small frozen model from [Z, X^(a)] to scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from edge_opid.errors import MismatchError
from gateway.estage.batch import Batch, Floats, Ints


class Model(Protocol):
    """Scores for any number of instances; the largest one is the class."""

    @property
    def name(self) -> str:
        """The candidate it came from."""
        ...

    @property
    def details(self) -> Mapping[str, float]:
        """The settings that cross-validation chose, and w₁ where there is one."""
        ...

    def scores(self, Z: ArrayLike, Xa: ArrayLike, Xs: ArrayLike | None = None) -> Floats:
        """n×c scores from the C-stage's scores, the new sensors and, for some, the survivors."""
        ...


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """Z V_z + X^(a) V_a + bias, whichever way the three were found.

    >>> model = z_alone(classes=2, new=1)
    >>> model.scores([[0.2, 0.8]], [[5.0]]).tolist()
    [[0.2, 0.8]]
    """

    name: str
    V_z: Floats
    """c×c: V^(s) and the Z part of V̄, added up."""
    V_a: Floats
    """d_a×c."""
    bias: Floats
    """c."""
    details: Mapping[str, float] = field(default_factory=dict)
    V_s: Floats | None = None
    """d_s×c: what it adds to the survivors' own weights; None for the forms that know only Z."""

    def scores(self, Z: ArrayLike, Xa: ArrayLike, Xs: ArrayLike | None = None) -> Floats:
        """n×c scores; a model with V_s needs X^(s), too."""
        scores = np.asarray(Z) @ self.V_z + np.asarray(Xa) @ self.V_a + self.bias
        if self.V_s is not None:
            scores = scores + survivors_of(self.name, Xs) @ self.V_s
        return np.asarray(scores)


def survivors_of(name: str, Xs: ArrayLike | None) -> Floats:
    """X^(s), or who needs it."""
    if Xs is None:
        raise MismatchError(f"the {name!r} model needs the survivors' columns Xs")
    return np.asarray(Xs, float)


def z_alone(classes: int, new: int) -> LinearModel:
    """The C-stage's W^(s) as it is: nothing learned, nothing to lose."""
    return LinearModel(
        name="z", V_z=np.eye(classes), V_a=np.zeros((new, classes)), bias=np.zeros(classes)
    )


class Path(Protocol):
    """The models of one candidate for every setting it may take, fitted on the same rows."""

    def scores(self, Z: Floats, Xa: Floats, Xs: Floats | None = None) -> Floats:
        """P×n×c: the scores of each of the P settings."""
        ...

    def mixed(self, mixture: Floats) -> Model:
        """The one model that these P shares of the settings make: mostly one 1 and zeros."""
        ...


@dataclass(frozen=True, kw_only=True)
class LinearPath:
    """P linear models as three stacked arrays."""

    name: str
    V_z: Floats
    """P×c×c."""
    V_a: Floats
    """P×d_a×c."""
    bias: Floats
    """P×c."""
    settings: Mapping[str, Floats]
    """By name, P numbers each: γ, w₁, a cost."""
    V_s: Floats | None = None
    """P×d_s×c, or None."""

    def scores(self, Z: Floats, Xa: Floats, Xs: Floats | None = None) -> Floats:
        """P×n×c: the scores of each setting."""
        scores = Z @ self.V_z + Xa @ self.V_a + self.bias[:, None, :]
        if self.V_s is not None:
            scores = scores + survivors_of(self.name, Xs) @ self.V_s
        return np.asarray(scores)

    def mixed(self, mixture: Floats) -> LinearModel:
        """The weighted sum of the settings' models, which is again a linear model."""
        parts = [np.tensordot(mixture, part, 1) for part in (self.V_z, self.V_a, self.bias)]
        used = mixture != 0
        details = {
            what: float(mixture[used] @ values[used]) for what, values in self.settings.items()
        }
        V_s = None if self.V_s is None else np.tensordot(mixture, self.V_s, 1)
        return LinearModel(
            name=self.name, V_z=parts[0], V_a=parts[1], bias=parts[2], details=details, V_s=V_s
        )


def keep_unseen(
    V_z: Floats, V_a: Floats, bias: Floats, seen: Ints, slope: float = 1.0, offset: float = 0.0
) -> None:
    """A class without an example keeps the C-stage's score, in place, over a stack of models.

    Twenty labelled minutes without a fire are no reason to forget what a fire looks like. The
    slope and offset take a least-squares score to the scale of the model's other scores.
    """
    for k in sorted(set(range(V_z.shape[-1])) - set(seen.tolist())):
        V_z[..., k], V_a[..., k], bias[..., k] = 0.0, 0.0, offset
        V_z[..., k, k] = slope


def seen_classes(batch: Batch, rows: Ints) -> Ints:
    """The classes that have an example among these rows."""
    return np.unique(batch.y[rows])
