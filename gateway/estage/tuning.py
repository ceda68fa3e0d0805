"""Settings by cross-validation: fit every setting on every fold, look only at held-out scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gateway.estage.batch import Batch, Floats, Ints, stratified_folds
from gateway.estage.models import Model, Path

NOTHING = np.array([], np.int64)


class Candidate(Protocol):
    """One way to fit the E-stage, with settings still open."""

    @property
    def name(self) -> str:
        """As the table calls it."""
        ...

    def paths(self, batch: Batch, held: Sequence[Ints]) -> Sequence[Path]:
        """One path of settings for each training part: all rows but those held out."""
        ...

    def choose(self, scores: Floats, batch: Batch) -> Floats:
        """Which mixture of the P settings to use, from R×P×n×c held-out scores of this batch."""
        ...


class OneSetting:
    """Candidates that use one setting: the one with the smallest squared error."""

    def choose(self, scores: Floats, batch: Batch) -> Floats:
        """A 1 for the best of P settings, zeros for the others."""
        return one_of(scores.shape[1], int(squared_error(scores, batch.y).argmin()))


def one_of(count: int, place: int) -> Floats:
    """`count` zeros, and a 1 at `place`."""
    return np.asarray(np.eye(count)[place])


# Accuracy moves in steps of 1/n, so in a batch of 40 most settings tie: settings are chosen by the
# loss they were fitted to, and shares of forms by log-loss.
def squared_error(scores: Floats, y: Ints) -> Floats:
    """P mean squared errors against the one-hot labels, from R×P×n×c scores."""
    return np.asarray(np.mean((scores - np.eye(scores.shape[-1])[y]) ** 2, axis=(0, 2, 3)))


def log_loss(scores: Floats, y: Ints) -> Floats:
    """P mean log-losses, from R×P×n×c log-odds.

    >>> log_loss(np.array([[[[0.0, 0.0]]]]), np.array([1])).round(3)
    array([0.693])
    """
    return np.asarray(instance_losses(scores, y).mean(1))


def instance_losses(scores: Floats, y: Ints) -> Floats:
    """P×n log-losses, means over the repeats, from R×P×n×c log-odds."""
    top = scores.max(-1, keepdims=True)
    total = np.log(np.exp(scores - top).sum(-1)) + top[..., 0]
    own = np.take_along_axis(scores, y[None, None, :, None], -1)[..., 0]
    return np.asarray(np.mean(total - own, axis=0))


@dataclass(frozen=True)
class HeldOut:
    """A candidate's scores for instances it was not fitted on."""

    scores: Floats
    """R×P×n×c: repeats, settings, instances, classes."""
    fold: Ints
    """R×n: the fold in which each instance was held out."""
    whole: Path
    """The same settings, fitted on the whole batch."""


def path_scores(path: Path, part: Batch) -> Floats:
    """P×n×c scores of these instances."""
    Xs = None if part.survivors is None else part.survivors.Xs
    return path.scores(part.Z, part.Xa, Xs)


def held_out(candidate: Candidate, batch: Batch, splits: Sequence[Sequence[Ints]]) -> HeldOut:
    """Fit every setting on every fold of every repeat, and on the whole batch."""
    held = [rows for split in splits for rows in split]
    *parts, whole = candidate.paths(batch, [*held, NOTHING])
    following = iter(parts)
    scores, fold = [], np.zeros((len(splits), batch.n), np.int64)
    for repeat, split in enumerate(splits):
        parted = [batch.take(rows) for rows in split]
        blocks = [path_scores(next(following), part) for part in parted]
        order = np.concatenate([*split, NOTHING])
        scores.append(np.concatenate(blocks, axis=1)[:, np.argsort(order)])
        for number, rows in enumerate(split):
            fold[repeat, rows] = number
    return HeldOut(np.stack(scores), fold, whole)


def honest_scores(candidate: Candidate, found: HeldOut, batch: Batch) -> Floats:
    """R×n×c held-out scores of the candidate *with* its tuning.

    For the instances of a fold the settings are chosen on the other folds' instances alone, so a
    candidate with many settings gains nothing from having tried them all on the instance itself.
    """
    repeats, _, n, c = found.scores.shape
    honest = np.zeros((repeats, n, c))
    for repeat, (scores, fold) in enumerate(zip(found.scores, found.fold, strict=True)):
        for number in range(fold.max() + 1):
            mine, others = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            mixture = candidate.choose(scores[None, :, others], batch.take(others))
            honest[repeat, mine] = np.tensordot(mixture, scores[:, mine], 1)
    return honest


def tuned(candidate: Candidate, batch: Batch, folds: int, seed: int, repeats: int = 1) -> Model:
    """The candidate's model on the whole batch, its settings chosen on held-out instances."""
    splits = [stratified_folds(batch, folds, seed + repeat) for repeat in range(repeats)]
    splits = [split for split in splits if len(split) > 1]
    if not splits:
        path = candidate.paths(batch, [NOTHING])[0]
        count = len(path_scores(path, batch))
        return path.mixed(one_of(count, 0))
    found = held_out(candidate, batch, splits)
    return found.whole.mixed(candidate.choose(found.scores, batch))
