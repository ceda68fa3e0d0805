"""Every method of the comparison as one function: a draw in, test accuracy out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.data import Floats, Ints
from benchmarks.paper.baselines import Columns, raw_logistic
from benchmarks.paper.data import SplitSet
from benchmarks.paper.residual import fit_residual
from gateway.estage import (
    LINEAR,
    BestModel,
    LinearModel,
    SurvivorColumns,
    column_weights,
    fit_best,
    fit_opid,
    fit_opide,
    fit_update,
)
from gateway.estage.opid import Penalty


@dataclass(frozen=True)
class Draw:
    """One split of a world's E-stage, and the seed that every fit of it gets."""

    world: SplitSet
    fit: Ints
    test: Ints
    seed: int

    @cached_property
    def Z(self) -> Floats:
        """The C-stage's scores of all instances."""
        return np.asarray(self.world.Xs @ self.world.W_s)

    def batch(self) -> tuple[Floats, Floats, Ints, int]:
        """Z, X^(a), labels and classes: what a fit may see."""
        world = self.world
        return self.Z[self.fit], world.Xa[self.fit], world.y[self.fit], world.classes

    def right(self, scores: NDArray[np.floating[Any]]) -> float:
        """Test accuracy of these scores of the test instances."""
        return float(np.mean(scores.argmax(1) == self.world.y[self.test]))

    @cached_property
    def best(self) -> BestModel:
        """`fit_best` as the gateway calls it."""
        return fit_best(
            *self.batch(), survivors=self.survivors(), seed=self.seed, candidates=LINEAR
        )

    @cached_property
    def matrix(self) -> Floats:
        """`fit_best` as one matrix, from what a node's float32 learner has uploaded."""
        single = self.world.single
        world = replace(self.world, W_s=single.W_s, gram=single.gram)
        best = replace(self, world=world).best
        return column_weights(best.model, single.W_s).matrix()

    def survivors(self) -> SurvivorColumns:
        """X^(s) of the batch, and how sure the C-stage is of its weights."""
        world = self.world
        return SurvivorColumns.of(world.Xs[self.fit], world.gram, world.rho)

    def scores(self, model: Scorer) -> float:
        """Test accuracy of a model."""
        world, test = self.world, self.test
        return self.right(model.scores(self.Z[test], world.Xa[test], world.Xs[test]))


def mixed_of(best: BestModel) -> str:
    """The forms that have a share in it."""
    shares = best.model.details
    return " + ".join(form for form, share in shares.items() if share > 0) or best.chosen


Scorer = BestModel | LinearModel
Method = Callable[[Draw], float]


def raw(draw: Draw, columns: Columns) -> float:
    """The paper's SVM, SVM^(s) and SVM^(a): logistic regression on the batch alone."""
    world, fit, test = draw.world, draw.fit, draw.test
    model = raw_logistic(
        world.Xs[fit], world.Xa[fit], world.y[fit], world.classes, columns, seed=draw.seed
    )
    return draw.right(model.scores(world.Xs[test], world.Xa[test]))


def opid(draw: Draw, penalty: Penalty) -> float:
    """Eq. 14, as printed or balanced."""
    model = fit_opid(*draw.batch(), penalty=penalty, seed=draw.seed)
    return draw.scores(model)


def opide(draw: Draw) -> float:
    """Eq. 11."""
    model = fit_opide(*draw.batch(), seed=draw.seed)
    return draw.scores(model)


def residual(draw: Draw) -> float:
    """Ridge of Y − Z."""
    return draw.scores(fit_residual(*draw.batch(), seed=draw.seed))


def update(draw: Draw) -> float:
    """The C-stage continued on the batch, its labels teaching the survivors' weights."""
    return draw.scores(fit_update(*draw.batch(), draw.survivors(), seed=draw.seed))


def best(draw: Draw) -> float:
    """The product: the mixture of the forms that held-out instances of the batch speak for."""
    return draw.scores(draw.best)


def bridge(draw: Draw) -> float:
    """Z alone as a node computes it: W^(s) of its own learner, everything in float32."""
    rows = draw.world.Xs[draw.test].astype(np.float32)
    return draw.right(rows @ draw.world.single.bridge)


def pushed(draw: Draw, dtype: str) -> float:
    """`fit_best` as it reaches a node: from float32 sums, weights in `dtype`, scores in float32."""
    world, test = draw.world, draw.test
    rows = np.column_stack([world.Xs[test], world.Xa[test], np.ones(len(test))])
    W = draw.matrix.astype(dtype).astype(np.float32)
    return draw.right(rows.astype(np.float32) @ W)


def mean_imputed(draw: Draw) -> float:
    """A ridge on all columns, the vanished ones filled with their means."""
    weights, bias = draw.world.mean
    return draw.right(draw.world.Xs[draw.test] @ weights + bias)


METHODS: dict[str, Method] = {
    "SVM": partial(raw, columns="both"),
    "SVM(s)": partial(raw, columns="survivors"),
    "SVM(a)": partial(raw, columns="new"),
    "ridge": lambda draw: draw.right(draw.world.Xs[draw.test] @ draw.world.ridge),
    "ridge, 0": lambda draw: draw.right(draw.world.Xs[draw.test] @ draw.world.zero),
    "ridge, mean": mean_imputed,
    "Z alone": lambda draw: draw.right(draw.Z[draw.test]),
    "OPID printed": partial(opid, penalty="printed"),
    "OPIDe": opide,
    "OPID": partial(opid, penalty="balanced"),
    "residual": residual,
    "update": update,
    "fit_best": best,
}
PRECISION: dict[str, Method] = {
    "Z alone, float32": bridge,
    "fit_best, float32": partial(pushed, dtype="float32"),
    "fit_best, float16": partial(pushed, dtype="float16"),
}
"""The same in a node's numbers: name, comma, dtype."""
BASELINES = ("SVM", "SVM(s)", "SVM(a)", "ridge", "ridge, 0", "ridge, mean")
"""What knows nothing of the paper's method."""
FORMS = ("Z alone", "OPID printed", "OPIDe", "OPID", "residual", "update")
"""The E-stage's forms, each by itself."""
SHARE_METHODS = ("SVM", "SVM(s)", "Z alone", "OPIDe", "OPID", "fit_best")
"""Of the second group: the paper's Fig. 4."""
