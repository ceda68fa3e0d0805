"""The classifier as scikit-learn wants it: arrays in, arrays out, in pipelines and searches.

Importing this module imports scikit-learn. `edge_opid` does not import it, so a node needs none.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from edge_opid.classifier import Classifier


class OPIDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """`edge_opid.Classifier` for matrices: `fit`, `partial_fit`, `predict`, `predict_proba`.

    A column is a sensor, and NaN a sensor that is not there: nothing is imputed, weights are solved
    for the others. `fit` learns the rows once, in their order; `partial_fit` goes on. Parameters
    and cost are those of `Classifier`. What it has learned is in `classifier_`, an
    `edge_opid.Classifier` whose sensors are the columns' names, or x0, x1 … where they have none.

    >>> import numpy as np
    >>> X = np.array([[420, 19], [600, 23], [410, 18], [550, 22]] * 5)
    >>> model = OPIDClassifier().fit(X, ["empty", "full", "empty", "full"] * 5)
    >>> model.predict([[580, 22], [np.nan, 18]]).tolist()
    ['full', 'empty']
    """

    def __init__(
        self,
        *,
        knots: int = 1,
        rho: float = 1.0,
        forgetting: float = 1.0,
        warmup: int = 200,
        columns_max: int = 1024,
    ) -> None:
        self.knots, self.rho, self.forgetting = knots, rho, forgetting
        self.warmup, self.columns_max = warmup, columns_max

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, and learn these rows."""
        return self._learn(X, y, None, first=True, last=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn more rows. `classes`: all labels to expect, if not all are among the first."""
        return self._learn(X, y, classes, first=not hasattr(self, "classifier_"))

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None,
        *,
        first: bool,
        last: bool = False,
    ) -> Self:
        rows, labels = validate_data(self, X, y, reset=first, dtype=np.float64, **_NAN)
        labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        if first:
            options = self.get_params(deep=False)
            if last:  # no more are to come, so that these must do to estimate scales
                options["warmup"] = max(2, min(self.warmup, len(rows)))
            self.classifier_ = Classifier(**options)
            self.classes_ = unique_labels(labels if classes is None else classes)
        else:
            self.classes_ = np.union1d(self.classes_, labels)
        self.classifier_.learn_many(self._columns(rows), labels)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable label of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probabilities of each row, a column for each of `classes_`."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64, **_NAN)
        found = self.classifier_.predict_proba_many(self._columns(rows))
        never = np.zeros(len(rows))
        return np.column_stack([found.get(label, never) for label in self.classes_.tolist()])

    def _columns(self, rows: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(rows.shape[1])])
        return dict(zip(map(str, names), rows.T, strict=True))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


_NAN = {"ensure_all_finite": "allow-nan"}
