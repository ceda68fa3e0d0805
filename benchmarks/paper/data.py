"""The paper's sets: from a folder, scikit-learn or OpenML, and then through a C-stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.data import Floats, Ints
from benchmarks.paper.baselines import imputed_ridge, survivors_ridge
from benchmarks.paper.strength import chosen_rho
from benchmarks.paper.tables import SETTINGS, TableLine
from edge_opid import WoodburyLearner
from edge_opid.learner.statistics import Statistics, solve

LAM = 1.0
LIT_MIN = 98
"""An MNIST pixel is used if this many of the set's images light it: 455 and 489, as in Table 1."""


def load(name: str, folder: Path, network: bool) -> tuple[Floats, Ints] | None:
    """All instances, training and test together, in the file's order; None where there is no data.

    Labels become class indices.
    """
    setting = SETTINGS[name]
    found = bundled() if not setting.file else from_folder(setting, folder)
    if found is None and network and setting.openml:
        found = from_openml(setting)
    if found is None:
        return None
    X, labels = found
    if setting.labels:
        rows = np.isin(labels, setting.labels)
        X, labels = X[rows], labels[rows]
    return scaled(setting, X), np.unique(labels, return_inverse=True)[1].astype(np.int64)


def bundled() -> tuple[Floats, Any]:
    """scikit-learn's 8×8 digits."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow, and not always needed

    data = load_digits()
    return data.data, data.target.astype(str)


def from_folder(setting: TableLine, folder: Path) -> tuple[Floats, Any] | None:
    """`FILE.npz` of the folder."""
    path = folder / f"{setting.file}.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        parts = [part for part in ("train", "test") if f"X_{part}" in file]
        X = np.vstack([file[f"X_{part}"] for part in parts]).astype(float)
        y = np.concatenate([file[f"y_{part}"] for part in parts])
    return X, y.astype(int).astype(str)


def from_openml(setting: TableLine) -> tuple[Floats, Any] | None:
    """The set from OpenML, or None where there is no network."""
    from sklearn.datasets import fetch_openml  # noqa: PLC0415 - slow, and not always needed

    try:
        data = fetch_openml(setting.openml, version=1, as_frame=False, parser="liac-arff")
    except OSError as error:  # URLError and its kin
        print(f"{setting.title}: not from OpenML ({error})")
        return None
    X = data.data.toarray() if hasattr(data.data, "toarray") else data.data
    labels = np.asarray(data.target).astype(float).astype(int)
    return np.asarray(X, float), (labels - (setting.openml == "USPS")).astype(str)


def scaled(setting: TableLine, X: Floats) -> Floats:
    """Columns to about ±1; of MNIST's only the pixels that vary, in order."""
    if setting.file == "splice":
        return (X - 2.5) / 1.5
    if setting.file == "mnist035":
        X = X[:, np.sum(X > 0, axis=0) >= LIT_MIN][:, : setting.width]
    elif setting.file == "gisette":
        X = X[:, np.ptp(X, axis=0) > 0][:, : setting.width]
    return np.asarray(X / max(1.0, np.abs(X).max()))


@dataclass(frozen=True)
class SinglePrecision:
    """The same C-stage on a node, in float32, and what a gateway makes of the node's summary."""

    bridge: NDArray[np.float32]
    """W^(s) of the node's learner."""
    W_s: Floats
    """W^(s) from the summary, solved in float64."""
    gram: Floats
    """The survivors' part of the summary's Gram matrix."""


@dataclass(frozen=True)
class SplitSet:
    """A set after its C-stage: the survivors' weights, and what is left for the E-stage."""

    setting: TableLine
    classes: int
    Xs: Floats
    """All instances' survivors, a constant column last (every node's layout has one)."""
    Xa: Floats
    y: Ints
    rest: Ints
    """The rows that the C-stage did not learn."""
    rho: float
    gram: Floats
    """The survivors' part of the C-stage's Gram matrix."""
    W_s: Floats
    ridge: Floats
    zero: Floats
    """A ridge on all columns, the vanished ones then taken as 0 …"""
    mean: tuple[Floats, Floats]
    """… or as their means: weights, bias."""
    single: SinglePrecision

    def draw(self, n: int, seed: int, anew: bool) -> tuple[Ints, Ints]:
        """Rows to fit and rows to test on, n each, as many of each class in both together.

        They are the 2n rows that follow the C-stage, split at random; `anew`: 2n drawn at random
        from all that follow. Where the file's order means nothing, always the latter.
        """
        rng = np.random.default_rng(seed)
        share = 2 * n // self.classes
        members = [self.rest[self.y[self.rest] == k] for k in range(self.classes)]
        if anew or not self.setting.ordered:
            members = [rng.permutation(rows) for rows in members]
        rows = rng.permutation(np.concatenate([rows[:share] for rows in members]))
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]


def compress(setting: TableLine, X: Floats, y: Ints) -> SplitSet:
    """The C-stage on the first instances of each class: sums, no instance kept."""
    classes, dv, end = int(y.max()) + 1, setting.vanished, setting.vanished + setting.survived
    learned = np.concatenate(
        [np.flatnonzero(y == k)[: setting.total // classes] for k in range(classes)]
    )
    both = np.hstack([X[:, :end], np.ones((len(X), 1))])
    seen, target = both[learned], np.eye(classes)[y[learned]]
    known = Statistics(seen.T @ seen, seen.T @ target, len(seen), float(len(seen)))
    kept, every = range(dv, end + 1), range(end + 1)
    rho, rho_all = chosen_rho(known, kept), chosen_rho(known, every)
    return SplitSet(
        setting, classes, both[:, dv:], X[:, end : end + setting.augmented], y,
        np.setdiff1d(np.arange(len(y)), learned), rho, known.gram[dv:, dv:],
        solve(known, dv, LAM, rho)[1],
        survivors_ridge(known, kept, rho),
        imputed_ridge(known, kept, np.zeros(end + 1), rho_all)[0],
        imputed_ridge(known, kept, seen.mean(0), rho_all),
        on_a_node(seen, y[learned], dv, rho),
    )  # fmt: skip


def on_a_node(seen: Floats, y: Ints, vanishing: int, rho: float) -> SinglePrecision:
    """The C-stage by the learner that nodes have, one reading after the other."""
    surviving, classes = seen.shape[1] - vanishing, int(y.max()) + 1
    learner = WoodburyLearner(vanishing, surviving, classes, lam=LAM, rho=rho)
    learner.learn_many(seen, y)
    known = learner.summary().statistics()
    W_s = solve(known, vanishing, LAM, rho)[1]
    return SinglePrecision(learner.weights()[1], W_s, known.gram[vanishing:, vanishing:])


def resplit(setting: TableLine, share: float) -> TableLine:
    """The same set with this share of its columns surviving, the rest halved (the paper's Fig. 4).

    >>> resplit(SETTINGS["dna"], 0.2).survived
    36
    """
    survived = round(share * setting.width)
    vanished = (setting.width - survived + 1) // 2
    augmented = setting.width - survived - vanished
    return replace(setting, vanished=vanished, survived=survived, augmented=augmented)


def available(names: Sequence[str], folder: Path, network: bool) -> dict[str, tuple[Floats, Ints]]:
    """The sets that there is data for; the others are named."""
    found = {}
    for name in names:
        data = load(name, folder, network)
        if data is None:
            print(f"{SETTINGS[name].title}: no {SETTINGS[name].file}.npz in {folder}, left out")
        else:
            found[name] = data
    return found
