"""As much of each form as held-out instances surely speak for: one matrix, and Z where in doubt.

Z is the C-stage as it is; the update knows the survivors from old readings and new labels; OPIDe
knows the new sensors from the batch's logistic loss. They err on different instances, so none is
chosen: their scores are added up,

    (1 − u − w)·t₀·Z + u·t₁·update + w·OPIDe

which is one matrix. t₀ and t₁ take least-squares scores to log-odds, each by the smallest
held-out log-loss. (u, w) has the smallest log-loss *plus two standard errors* of its difference
from Z alone: what is not sure to be better costs as much as it might be worse. With few labels that
leaves Z; with more, the shares grow by themselves. Decision 15 has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gateway.estage.batch import Batch, Floats, Ints, standard_errors
from gateway.estage.models import LinearPath
from gateway.estage.opide import Opide
from gateway.estage.tuning import OneSetting, instance_losses, log_loss, one_of
from gateway.estage.update import Update

PARTS = 10
"""Shares are multiples of 1/PARTS."""
DOUBT = 2.0
"""How many standard errors of its difference from Z a mixture is charged for. With one the average
gain is larger by a fifth, and four times as many small sets lose half a point to Z: decision 15."""
TEMPERATURES: Floats = np.geomspace(1, 30, 25)
"""t's grid: a least-squares score has a slope of 4 near ½, and more where classes are clear."""


class CStageScores(OneSetting):
    """The C-stage's own scores: a form with one setting and nothing to fit."""

    name, count = "z", 1

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """The same for each training part."""
        c = batch.classes
        V_z, V_a, bias = np.eye(c)[None], np.zeros((1, batch.new, c)), np.zeros((1, c))
        return [LinearPath(name=self.name, V_z=V_z, V_a=V_a, bias=bias, settings={}) for _ in held]


MixedForm = CStageScores | Update | Opide
FORMS: tuple[MixedForm, ...] = (CStageScores(), Update(), Opide())
"""What is mixed, Z first."""


def shares_of(count: int) -> Floats:
    """Every way to give each of `count` forms a multiple of 1/PARTS; all to the first one first.

    >>> shares_of(2)[:3].round(1).tolist(), len(shares_of(3))
    ([[1.0, 0.0], [0.9, 0.1], [0.8, 0.2]], 66)
    """
    grid = product(range(PARTS + 1), repeat=count - 1)
    return np.array([(PARTS - sum(rest), *rest) for rest in grid if sum(rest) <= PARTS]) / PARTS


@dataclass(frozen=True)
class Mixture:
    """The candidate. Its settings are those of all forms, one form after the other."""

    name: str = "mixture"

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """One path for each training part."""
        each = [form.paths(batch, held) for form in forms_for(batch)]
        return [joined(self.name, parts) for parts in zip(*each, strict=True)]

    def choose(self, scores: Floats, batch: Batch) -> Floats:
        """Every form's own settings, then temperatures, then shares."""
        settings, held = [], []
        for form, own in split(scores, batch):
            chosen = form.choose(own, batch)
            alone = np.tensordot(chosen, own.swapaxes(0, 1), 1)
            t = 1.0 if isinstance(form, Opide) else temperature(alone, batch.y)
            settings.append(t * chosen)
            held.append(t * alone)
        share = sure_shares(np.stack(held), batch)
        return np.concatenate([part * own for part, own in zip(share, settings, strict=True)])


def forms_for(batch: Batch) -> tuple[MixedForm, ...]:
    """All forms; without the survivors' columns there is no update."""
    known = batch.survivors is not None
    return tuple(form for form in FORMS if known or not isinstance(form, Update))


def split(scores: Floats, batch: Batch) -> Iterator[tuple[MixedForm, Floats]]:
    """Each form with its own part of R×P×n×c held-out scores."""
    start = 0
    for form in forms_for(batch):
        yield form, scores[:, start : start + form.count]
        start += form.count


def temperature(scores: Floats, y: Ints) -> float:
    """What R×n×c least-squares scores are best multiplied by, read as log-odds."""
    heated = TEMPERATURES[:, None, None] * scores[:, None]
    return float(TEMPERATURES[log_loss(heated, y).argmin()])


def sure_shares(held: Floats, batch: Batch) -> Floats:
    """The shares of F forms, from their F×R×n×c held-out log-odds; the first one is Z's."""
    shares = shares_of(len(held))
    losses = instance_losses(np.tensordot(shares, held, 1).swapaxes(0, 1), batch.y)
    doubt = standard_errors(losses - losses[0], batch)
    return np.asarray(shares[np.argmin(losses.mean(1) + DOUBT * doubt)])


def joined(name: str, parts: Sequence[LinearPath]) -> LinearPath:
    """The settings of all forms. Details of a model: what each form's scores are multiplied by."""
    counts = [len(part.bias) for part in parts]
    own = {p.name: np.repeat(one_of(len(parts), k), counts) for k, p in enumerate(parts)}
    return LinearPath(
        name=name,
        V_z=np.concatenate([part.V_z for part in parts]),
        V_a=np.concatenate([part.V_a for part in parts]),
        bias=np.concatenate([part.bias for part in parts]),
        settings=own,
        V_s=survivors_part(parts),
    )


def survivors_part(parts: Sequence[LinearPath]) -> Floats | None:
    """V_s of every setting, zeros for the forms that know only Z; None where no form has any."""
    width = next((part.V_s.shape[1] for part in parts if part.V_s is not None), None)
    if width is None:
        return None
    blocks = [
        np.zeros((*part.bias.shape[:1], width, part.bias.shape[1]))
        if part.V_s is None
        else part.V_s
        for part in parts
    ]
    return np.concatenate(blocks)
