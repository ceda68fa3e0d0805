"""River's classifiers on a stream whose sensors change: dictionaries in, as river likes them.

Every peer has the scaler it wants, which also sees what new sensors said before they replaced
others (the readings from which the node learns their ranges). Each is run twice: it goes on through
the changes, or starts anew at each; the report takes the better one of the two for every stream.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.changes.streams import Row, Stage, StagedStream

TREES = 10


def logistic(seed: int) -> Any:  # noqa: ARG001 - every maker takes a seed
    """One logistic regression a class."""
    linear_model = importlib.import_module("river.linear_model")
    multiclass = importlib.import_module("river.multiclass")
    return multiclass.OneVsRestClassifier(linear_model.LogisticRegression())


def tree(seed: int) -> Any:  # noqa: ARG001
    """A Hoeffding tree."""
    return importlib.import_module("river.tree").HoeffdingTreeClassifier()


def forest(seed: int) -> Any:
    """An adaptive random forest."""
    return importlib.import_module("river.forest").ARFClassifier(n_models=TREES, seed=seed)


def bayes(seed: int) -> Any:  # noqa: ARG001
    """Gaussian naive Bayes."""
    return importlib.import_module("river.naive_bayes").GaussianNB()


MODELS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "river LR": (logistic, True),
    "river HT": (tree, False),
    "river ARF": (forest, False),
    "river NB": (bayes, False),
}
"""The maker of each, and whether it wants its values scaled: splits and Gaussians do not mind."""


class ScaledPeer:
    """A peer with river's scaler, and what it does at a change."""

    def __init__(self, stream: StagedStream, seed: int, *, anew: bool) -> None:
        self.stream, self.seed, self.anew = stream, seed, anew
        self.known: set[str] = set()
        self.scaler = importlib.import_module("river.preprocessing").StandardScaler()
        self.model = self.new_model()

    def new_model(self) -> Any:
        """A model that knows nothing yet."""
        raise NotImplementedError

    def change(self, stage: Stage) -> None:
        """Sensors come and go; the scaler has heard the new ones before."""
        fresh = [name for name in stage.sensors if name not in self.known]
        self.known |= set(fresh)
        for row in self.stream.before(stage):
            self.scaler.learn_one({name: row[name] for name in fresh})
        if self.anew and stage.rows.start:
            self.model = self.new_model()


class RiverPeer(ScaledPeer):
    """A river model."""

    def __init__(self, stream: StagedStream, model: str, seed: int, *, anew: bool) -> None:
        self.make, self.scaled = MODELS[model]
        super().__init__(stream, seed, anew=anew)

    def new_model(self) -> Any:
        """As its maker makes it."""
        return self.make(self.seed)

    def guess_then_learn(self, row: Row, label: int) -> int:
        """The class it would say before the truth is told; −1, never right, if it says none."""
        x = row
        if self.scaled:
            self.scaler.learn_one(row)
            x = self.scaler.transform_one(row)
        guess = self.model.predict_one(x)
        self.model.learn_one(x, label)
        return -1 if guess is None else int(guess)
