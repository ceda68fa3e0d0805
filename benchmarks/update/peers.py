"""Who `update.py` measures: ours, the paper's form, the limit, and the peers that install here.

Every peer gets its readings in the form it likes best, made before the clock starts.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_opid import GramLearner, WoodburyLearner, native

CLASSES = 3
READINGS = 64  # distinct readings, used round and round


@dataclass(frozen=True)
class Contender:
    """A name, one update (told which reading to take), and the bytes it keeps between updates."""

    name: str
    step: Callable[[int], object]
    bytes_kept: int | None


def readings(width: int) -> tuple[np.ndarray, list[int]]:
    """Seeded readings of this width with labels."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(READINGS, width)).astype(np.float32)
    return X, [int(label) for label in X[:, :CLASSES].argmax(1)]


def ours(vanishing: int, surviving: int) -> Iterator[Contender]:
    """Both learners, compiled and in NumPy, Eq. 10 as printed, and the pass over S."""
    X, y = readings(vanishing + surviving)
    for kind in (WoodburyLearner, GramLearner):
        for name in sorted(native.available):
            learner = kind(vanishing, surviving, CLASSES, native=name)
            yield Contender(f"{kind.__name__}, {name}", _learning(learner, X, y), learner.nbytes)
    yield _as_printed(vanishing, X, y)
    size = vanishing + 2 * surviving
    for what, shape in (("D×D", (size, size)), ("our bytes", (_packed(vanishing, surviving),))):
        S, one = np.ones(shape, np.float32), np.float32(1.0)
        yield Contender(f"limit: read + write {what} once", _pass_over(S, one), S.nbytes)


def _packed(vanishing: int, surviving: int) -> int:
    return int(WoodburyLearner(vanishing, surviving, CLASSES).state()["columns"].size)


def _learning(learner: Any, X: Any, y: list[int]) -> Callable[[int], object]:
    rows = list(X)
    return lambda i: learner.learn_one(rows[i % READINGS], y[i % READINGS])


def _pass_over(S: Any, one: Any) -> Callable[[int], object]:
    return lambda _: np.multiply(S, one, out=S)


def _as_printed(vanishing: int, X: Any, y: list[int]) -> Contender:
    """Proposition 2 for n = 1 in NumPy float32, term by term (it diverges: time only)."""
    width = X.shape[1]
    size = 2 * width - vanishing
    A_inverse, B = np.eye(size, dtype=np.float32), np.zeros((size, CLASSES), np.float32)
    start, identity = A_inverse.copy(), np.eye(3, dtype=np.float32)
    U = np.zeros((size, 3), np.float32)

    def step(i: int) -> None:
        if i % READINGS == 0:
            A_inverse[:] = start  # before it overflows, which would make it slower still
        x = X[i % READINGS]
        U[:width, 0], U[width:, 1] = x, x[vanishing:]
        U[:, 2] = U[:, 0] - U[:, 1]
        AU = A_inverse @ U
        A_inverse[:] -= AU @ np.linalg.inv(identity + U.T @ AU) @ (U.T @ A_inverse)
        B[:, y[i % READINGS]] += U[:, 0] + U[:, 1]

    return Contender("Eq. 10 as printed, NumPy", step, A_inverse.nbytes + B.nbytes)


def contenders(vanishing: int, surviving: int) -> Iterator[Contender]:
    """The peers that can be imported; the others are named on stderr."""
    X, y = readings(vanishing + surviving)
    for make in (_river_logistic, _river_tree, _sklearn, _padasip, _vowpal):
        try:
            contender = make(X, y)
        except ImportError as error:
            print(f"not measured, {error}", file=sys.stderr)
            continue
        yield contender


def _river(model: Any, name: str, X: Any, y: list[int]) -> Contender:
    rows = [{f"x{j}": float(v) for j, v in enumerate(x)} for x in X]
    return Contender(
        name, lambda i: model.learn_one(rows[i % READINGS], y[i % READINGS]), _kept(model)
    )


def _kept(model: Any) -> int:
    return len(pickle.dumps(model))


def _river_logistic(X: Any, y: list[int]) -> Contender:
    linear_model = importlib.import_module("river.linear_model")
    multiclass = importlib.import_module("river.multiclass")
    model = multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    for x, label in zip(X, y, strict=True):  # so that all classes and weights exist
        model.learn_one({f"x{j}": float(v) for j, v in enumerate(x)}, label)
    return _river(model, "river one-vs-rest logistic regression", X, y)


def _river_tree(X: Any, y: list[int]) -> Contender:
    tree = importlib.import_module("river.tree")
    return _river(tree.HoeffdingTreeClassifier(), "river Hoeffding tree", X, y)


def _sklearn(X: Any, y: list[int]) -> Contender:
    linear_model = importlib.import_module("sklearn.linear_model")
    model, classes = linear_model.SGDClassifier(), np.arange(CLASSES)
    rows = [X[i : i + 1] for i in range(READINGS)]
    labels = [np.array([label]) for label in y]
    model.partial_fit(X, np.array(y), classes=classes)
    return Contender(
        "scikit-learn SGDClassifier.partial_fit",
        lambda i: model.partial_fit(rows[i % READINGS], labels[i % READINGS]),
        _kept(model),
    )


def _padasip(X: Any, y: list[int]) -> Contender:
    filters = importlib.import_module("padasip").filters
    models = [filters.FilterRLS(n=X.shape[1], mu=0.99, w="zeros") for _ in range(CLASSES)]
    rows = [x.astype(np.float64) for x in X]

    def step(i: int) -> None:
        for label, model in enumerate(models):
            model.adapt(float(y[i % READINGS] == label), rows[i % READINGS])

    return Contender("padasip RLS, one a class", step, 8 * CLASSES * X.shape[1] * (X.shape[1] + 1))


def _vowpal(X: Any, y: list[int]) -> Contender:
    workspace = importlib.import_module("vowpalwabbit").Workspace
    model = workspace(f"--oaa {CLASSES} --quiet")
    lines = [
        f"{label + 1} | " + " ".join(f"{j}:{v:.6f}" for j, v in enumerate(x))
        for x, label in zip(X, y, strict=True)
    ]
    return Contender(
        "Vowpal Wabbit, from a ready line", lambda i: model.learn(lines[i % READINGS]), None
    )
