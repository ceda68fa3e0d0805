"""The classifier as river wants it: in pipelines, in `evaluate.progressive_val_score`, anywhere.

    from river import evaluate, metrics, preprocessing
    from edge_opid.river import OPIDClassifier

    evaluate.progressive_val_score(dataset, OPIDClassifier(), metrics.Accuracy())

Importing this module imports river. `edge_opid` does not import it, so a node needs no river.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from river import base

from edge_opid.classifier import Classifier


class OPIDClassifier(Classifier, base.MiniBatchClassifier):
    """`edge_opid.Classifier`, to the bit, as a `river.base.MiniBatchClassifier`.

    Parameters and cost are those of `Classifier`. It scales its sensors itself and needs no scaler
    before it; what is not a number has to be encoded (`river.preprocessing.OneHotEncoder`).

    >>> from river import datasets, evaluate, metrics
    >>> evaluate.progressive_val_score(datasets.Phishing(), OPIDClassifier(), metrics.Accuracy())
    Accuracy: 89.83%
    """

    @property
    def _multiclass(self) -> bool:
        return True

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:  # noqa: ARG002 - as river has it
        """The most probable label; None before anything was learned."""
        return super().predict_one(x)

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:  # noqa: ARG002
        """The probability of every label seen so far; {} before anything was learned."""
        return super().predict_proba_one(x)

    def predict_many(self, X: Any) -> Any:
        """The label for each row of a DataFrame, as a Series."""
        return _pandas().Series(super().predict_many(X), index=X.index)

    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities for each row of a DataFrame, as a DataFrame with a column a label."""
        return _pandas().DataFrame(super().predict_proba_many(X), index=X.index)


def _pandas() -> Any:
    """River's mini-batches are pandas DataFrames, so whoever has one has pandas."""
    return importlib.import_module("pandas")
