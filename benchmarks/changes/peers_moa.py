"""OpenMOA's learners for feature spaces that evolve: FESL, FTRL and FOBOS. They need Java.

Their readings carry the numbers of the features they have, as OpenMOA's own streams with an open
feature space do. Values are standardised like those of river's logistic regression, and have a
constant beside them, which these learners lack. FESL knows two classes only.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.changes.peers_river import ScaledPeer
from benchmarks.changes.streams import Row, StagedStream

MODELS = {
    "OpenMOA FESL": "FESLClassifier",
    "OpenMOA FTRL": "FTRLClassifier",
    "OpenMOA FOBOS": "FOBOSClassifier",
}
TWO_CLASSES = ("OpenMOA FESL",)


@dataclass(frozen=True)
class MoaInstance:
    """One reading as OpenMOA's learners take it."""

    feature_indices: Any
    x: Any
    y_index: int


class MoaPeer(ScaledPeer):
    """One of OpenMOA's learners."""

    def __init__(self, stream: StagedStream, model: str, seed: int, *, anew: bool) -> None:
        self.name = model
        super().__init__(stream, seed, anew=anew)

    def new_model(self) -> Any:
        """With features enough for every sensor of the stream, and the constant."""
        schemas = importlib.import_module("openmoa.stream").Schema
        width, labels = self.stream.X.shape[1] + 1, [str(k) for k in range(self.stream.classes)]
        schema = schemas.from_custom(
            [f"s{k}" for k in range(width)],
            values_for_class_label=labels,
            target_attribute_name="label",
        )
        kind = getattr(importlib.import_module("openmoa.classifier"), MODELS[self.name])
        return kind(schema, random_seed=self.seed)

    def guess_then_learn(self, row: Row, label: int) -> int:
        """The class it would say, before the truth is told."""
        self.scaler.learn_one(row)
        x = self.scaler.transform_one(row)
        places = np.array([*(int(name[1:]) for name in x), self.stream.X.shape[1]])
        instance = MoaInstance(places, np.array([*x.values(), 1.0]), label)
        guess = int(self.model.predict(instance))
        self.model.train(instance)
        return guess
