"""The C-stage continued, and as much of OPIDe beside it as held-out instances speak for.

The continued C-stage knows the survivors from many readings, OPIDe the new sensors from the batch's
logistic loss; they err on different instances. Their sum

    (1 − w)·t·continued + w·OPIDe

is again one matrix. t takes least-squares scores to log-odds; t and then w are those with the
smallest log-loss on held-out instances, and w may be 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .batch import Batch, Floats, Ints
from .models import LinearPath
from .opide import Opide
from .tuning import log_loss, one_of
from .update import Update

CONTINUED = Update("continued", strengths=(np.inf,))
"""The C-stage with the batch as its next readings, the new sensors left out: nothing to choose."""
SHARES: Floats = np.linspace(0, 1, 11)
"""w's grid."""
TEMPERATURES: Floats = np.geomspace(1, 30, 25)
"""t's grid: a least-squares score has a slope of 4 near ½, and more where classes are clear."""


@dataclass(frozen=True)
class Blend:
    """The candidate: the settings of `continued`, which are one, and then all of OPIDe's."""

    name: str = "blend"
    first: Update = CONTINUED
    second: Opide = field(default_factory=Opide)

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """One path for each training part."""
        pairs = zip(self.first.paths(batch, held), self.second.paths(batch, held), strict=True)
        return [joined(self.name, *pair) for pair in pairs]

    def choose(self, scores: Floats, y: Ints) -> Floats:
        """OPIDe's own choice, then t, then w."""
        other = self.second.choose(scores[:, 1:], y)
        opide = np.tensordot(other, scores[:, 1:].swapaxes(0, 1), 1)
        heated = TEMPERATURES[:, None, None] * scores[:, :1]
        t = float(TEMPERATURES[log_loss(heated, y).argmin()])
        shares = SHARES[:, None, None]
        both = (1 - shares) * t * scores[:, :1] + shares * opide[:, None]
        w = float(SHARES[log_loss(both, y).argmin()])
        return np.append((1 - w) * t * one_of(1, 0), w * other)


def joined(name: str, first: LinearPath, second: LinearPath) -> LinearPath:
    """The settings of both, one after the other."""
    V_z, V_a, bias = (
        np.concatenate(pair)
        for pair in ((first.V_z, second.V_z), (first.V_a, second.V_a), (first.bias, second.bias))
    )
    own = np.repeat([1.0, 0.0], [len(first.bias), len(second.bias)])
    V_s = None
    if first.V_s is not None:
        V_s = np.concatenate([first.V_s, np.zeros((len(second.bias), *first.V_s.shape[1:]))])
    return LinearPath(name, V_z, V_a, bias, {"continued": own}, V_s)
