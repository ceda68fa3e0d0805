"""What readings without labels are worth when sensors die and others come.

    python -m benchmarks.handover distil     # a third of the sensors dies: what the bridge says
    python -m benchmarks.handover fit        # a third is replaced: what a gateway fits and pushes
    python -m benchmarks.handover overlap    # a third is replaced, again and again: the node

`distil`: some labels among 2,000 readings, then a third of the sensors dies. The bridge distilled
from all readings against the one from the labelled readings alone (Eq. 4), on rows not seen before.
`fit`: three nodes with some labels among 2,000 readings in all; a third of the sensors dies, a
third is new, and 60 instances of the new layout are labelled. What the gateway makes of their sums
and the batch, with the sums of all readings and without.
`overlap`: the streams of `benchmarks.changes`, of whose readings a share is labelled. New sensors
speak for a while before they replace others. The node that learns from it against the node that
does not, and against the best linear model (`oracle`). This takes hours; with `--kept FILE` it goes
on where it was interrupted.

Figures are percentage points, with one standard error. Development data: scikit-learn's digits,
breast cancer and wine, mixtures drawn from seeds, and the worlds of the simulator; nothing was
chosen on the others (docs/decisions/0032).
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.changes.ours import Oracle, OurNode
from benchmarks.changes.streams import Stage, StagedStream, arranged, streams_data
from benchmarks.common.cells import replace_file
from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.data import DATA, Floats, Ints
from benchmarks.common.statistics import error
from edge_opid import GramLearner, WarmUp, WoodburyLearner
from edge_opid.config.node import NodeConfig
from edge_opid.layout.layout import BIAS
from edge_opid.node.effects import Predicted
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted
from gateway.estage import LINEAR, SurvivorColumns, column_weights, fit_best
from gateway.fitting.pooling import Member, pool

READINGS = 2_000
LABELS = (10, 30, 60, 120)
MEMBERS, BATCH = 3, 60
MEASURED = 200
SEED = 4_000


def distil_gain(X: Floats, y: Ints, labels: int, seed: int) -> tuple[float, float]:
    """Accuracy of the bridge from labelled readings alone, and of the distilled one."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    seen, names = min(READINGS, 7 * len(y) // 10), [f"s{place:03}" for place in range(X.shape[1])]
    warmup = WarmUp(names, MEASURED)
    for row in X[:MEASURED]:
        warmup.add(dict(zip(names, map(float, row), strict=True)))
    layout = warmup.layout()
    columns = np.array([layout.encode(dict(zip(names, map(float, row), strict=True))) for row in X])
    dead = {names[place] for place in rng.permutation(len(names))[: len(names) // 3]}
    kept = [place for place, name in enumerate(layout.columns) if name not in dead]
    lost = [place for place, name in enumerate(layout.columns) if name in dead]
    learner = WoodburyLearner(0, layout.width, int(y.max()) + 1)
    everything = GramLearner(0, layout.width, 1)
    chosen = rng.permutation(seen)[:labels]
    learner.learn_many(columns[chosen], y[chosen])
    everything.learn_many(columns[:seen], np.zeros(seen, int))
    alone = learner.rearrange([*lost, *kept], len(lost)).weights()[1]
    taught = learner.distil(kept, everything.gram())
    fresh = columns[seen:][:, kept]
    right = [float(((fresh @ W).argmax(axis=1) == y[seen:]).mean()) for W in (alone, taught)]
    return right[0], right[1]


def fit_gain(X: Floats, y: Ints, labels: int, seed: int) -> tuple[float, float]:
    """Accuracy of what a gateway fits without the sums of all readings, and with them."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    X, y = X[order][:, rng.permutation(X.shape[1])], y[order]
    seen, third = min(READINGS, len(y) // 2), X.shape[1] // 3
    scale = X[:MEASURED].std(axis=0)
    Z = np.clip((X - X[:MEASURED].mean(axis=0)) / np.where(scale > 0, scale, 1.0), -8, 8)
    Z = np.column_stack([Z, np.ones(len(y))]).round(6)  # as a node does: next to 0 is 0
    roles = [*(f"s{place:03}" for place in range(X.shape[1])), BIAS]
    old, gone = roles[:third] + roles[2 * third :], roles[:third]
    kept, new = roles[2 * third :], roles[third : 2 * third]
    labelled = rng.permutation(seen)[:labels]
    plain = [
        _member(f"n{k}", old, _columns(Z, roles, old, range(k, seen, MEMBERS)), y[k:seen:MEMBERS],
                np.isin(np.arange(k, seen, MEMBERS), labelled), int(y.max()) + 1)
        for k in range(MEMBERS)
    ]  # fmt: skip
    batch, rest = range(seen, seen + BATCH), range(seen + BATCH, len(y))
    right = []
    for members in ([replace(each, everything=None) for each in plain], plain):
        found = pool(members, kept, int(y.max()) + 1, gone)
        W_s, Xs = found.survivors_weights(1.0, 1.0), _columns(Z, roles, kept, batch)
        sure = SurvivorColumns.of(Xs, found.survivors_gram(), found.survivors_ridge(1.0))
        best = fit_best(
            Xs @ W_s, _columns(Z, roles, new, batch), y[batch], int(y.max()) + 1,
            survivors=sure, seed=seed, candidates=LINEAR,
        )  # fmt: skip
        W = column_weights(best.model, W_s).matrix(bias_column=kept.index(BIAS))
        said = _columns(Z, roles, [*kept, *new], rest) @ W
        right.append(float((said.argmax(axis=1) == y[rest]).mean()))
    return right[0], right[1]


def _columns(Z: Floats, roles: list[str], wanted: list[str], rows: range) -> Floats:
    return Z[np.ix_(rows, [roles.index(role) for role in wanted])]


def _member(
    node: str, roles: list[str], X: Floats, y: Ints, labelled: NDArray[np.bool_], classes: int
) -> Member:
    """A node's summary of the labelled rows and of all."""
    learner, everything = GramLearner(0, len(roles), classes), GramLearner(0, len(roles), 1)
    learner.learn_many(X[labelled], y[labelled])
    everything.learn_many(X, np.zeros(len(X), int))
    known = everything.summary()
    without = replace(known, moments=known.moments[:, :0])
    return Member(node, tuple(roles), learner.summary(), 8.0, without)


def distil_sets(folder: Path) -> Iterator[tuple[str, Floats, Ints]]:
    """The sets of the comparison, and scikit-learn's, which the rule was chosen on."""
    from sklearn.datasets import (  # noqa: PLC0415 - slow, and for this alone
        load_breast_cancer,
        load_digits,
        load_wine,
    )

    for name, (X, y) in streams_data(["dna", "splice", "mnist035", "room"], folder).items():
        yield name, X, y
    path = folder / "occupancy_detection.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            yield "occupancy", file["X_train"].astype(float), file["y_train"].astype(np.int64)
    for bundled in (load_digits, load_breast_cancer, load_wine):
        data = bundled()
        yield f"{bundled.__name__[5:]} (dev)", data.data, data.target.astype(np.int64)


def distil(options: argparse.Namespace) -> dict[str, list[float]]:
    """The table of `distil` or `fit`, printed line by line."""
    gain = {"distil": distil_gain, "fit": fit_gain}[options.what]
    print(f"{'set':22}" + "".join(f"{f'{n} labels':>26}" for n in LABELS), flush=True)
    figures = {}
    for name, X, y in distil_sets(options.data):
        line = []
        for labels in LABELS:
            runs = [gain(X, y, labels, SEED + k) for k in range(options.seeds)]
            gains = 100 * np.array([taught - alone for alone, taught in runs])
            alone = 100 * float(np.mean([each for each, _ in runs]))
            line.append(f"{alone:9.1f} {gains.mean():+7.1f} ± {error(gains):.1f}   ")
            figures[f"{name} {labels}"] = [alone, float(gains.mean()), error(gains)]
        print(f"{name:22}{' '.join(line)}", flush=True)
    return figures


class FewLabels(OurNode):
    """A node that is told a share of the labels, with new sensors speaking before they join."""

    share, overlap, unlabelled = 1.0, 0, False

    def run(self, seed: int) -> tuple[float, float]:
        """Accuracy in the first 100 readings after changes, and over the whole stream."""
        rng, stages = np.random.default_rng(seed), list(self.stream.stages())
        first: list[bool] = []
        whole: list[bool] = []
        for stage, after in zip(stages, [*stages[1:], None], strict=True):
            self.change(stage)
            hits = [self._hit(place, stage, after, rng.random()) for place in stage.rows]
            whole += hits
            first += hits[:100] if stage.rows.start else []
        return float(np.mean(first)), float(np.mean(whole))

    def _hit(self, place: int, stage: Stage, after: Stage | None, chance: float) -> bool:
        names = stage.sensors
        if after is not None and place >= stage.rows.stop - self.overlap:
            names = tuple(dict.fromkeys((*names, *after.sensors)))
        truth = int(self.stream.y[place])
        label = self.labels[truth] if chance < self.share else None
        return self._guess(self.stream.row(place, names), label) == truth

    def _guess(self, row: dict[str, float], label: str | None) -> int:
        self.now += 1000
        accepted = Accepted(self.now, "s", 1, self.now // 1000, self.now, row, label)
        made = [each for each in apply(self.state, accepted) if isinstance(each, Predicted)]
        return made[0].winner

    def _config(self, sensors: tuple[str, ...]) -> NodeConfig:  # type: ignore[override]
        plain = super()._config(sensors)
        recent = max(256, self.overlap)
        return replace(plain, learn_unlabelled=self.unlabelled, recent=recent)


class BestLinear(FewLabels, Oracle):
    """The oracle of `benchmarks.changes`, predicting the same readings."""


WITHOUT, BEST = "without", "best linear"
NODES = {WITHOUT: 0, "unlabelled": 0, "overlap 50": 50, "overlap 200": 200, "overlap 1000": 1000}
"""How many readings new sensors speak before they join; `without` learns from labels alone."""


Run = dict[str, tuple[float, float]]
"""Of every kind of node, how often it was right after changes and over one whole stream."""


def overlaps(stream: StagedStream, share: float, seed: int) -> Run:
    """Every kind of node through one stream."""
    found = {}
    for name, rows in {**NODES, BEST: 0}.items():
        node = (BestLinear if name == BEST else FewLabels)(stream, knots_of(stream))
        node.share, node.overlap, node.unlabelled = share, rows, name != WITHOUT
        found[name] = node.run(seed)
    return found


def knots_of(stream: StagedStream) -> int:
    """Hats as in `benchmarks.changes`."""
    return 1 if stream.setting.binary else stream.setting.knots


def overlap(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """The table of `overlap`: first 100 after a change / whole stream, every seed of all cells."""
    runs = _runs(options)
    figures: dict[str, dict[str, list[float]]] = {}
    for name, share in product(options.streams, options.shares):
        found = [runs[key] for k in range(options.seeds) if (key := _key(name, share, k)) in runs]
        if not found:
            continue  # no data
        base = 100 * np.array([run[WITHOUT] for run in found])
        first, whole = base.mean(axis=0)
        line = [f"{name:9} {share:6.0%}  {WITHOUT} {first:5.1f} / {whole:5.1f}"]
        figures[f"{name} {share}"] = cell = {WITHOUT: [first, whole]}
        for kind in list(found[0])[1:]:
            gains = 100 * np.array([run[kind] for run in found]) - base
            line.append(
                f"{kind} {gains[:, 0].mean():+.1f} ± {error(gains[:, 0]):.1f} / "
                f"{gains[:, 1].mean():+.1f} ± {error(gains[:, 1]):.1f}"
            )
            cell[kind] = [*gains.mean(axis=0), error(gains[:, 0]), error(gains[:, 1])]
        print("; ".join(line), flush=True)
    return figures


def _runs(options: argparse.Namespace) -> dict[str, Run]:
    """Every run of the table; those in `--kept` are not repeated, fresh ones are added to it."""
    kept: Path | None = options.kept
    runs: dict[str, Run] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    data = streams_data(options.streams, options.data)
    for k, share, name in product(range(options.seeds), options.shares, data):
        key = _key(name, share, k)
        if key not in runs:
            runs[key] = overlaps(arranged(name, data[name], SEED + k), share, SEED + k)
            if kept:
                replace_file(kept, json.dumps(runs, indent=1) + "\n")
    return runs


def _key(stream: str, share: float, k: int) -> str:
    return f"{stream} {share} {SEED + k}"


def main() -> None:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument("what", choices=["distil", "fit", "overlap"])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--streams", nargs="+", default=["dna", "splice", "mnist035", "room"])
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.1, 0.02])
    parser.add_argument("--kept", type=Path, help="runs of `overlap` so far; fresh ones are added")
    add_json_option(parser)
    options = parser.parse_args()
    write_json(options.json, (overlap if options.what == "overlap" else distil)(options))


if __name__ == "__main__":
    main()
