"""A predictor from outside that a node was told to serve: while it fits, beside everything else.

It is no part of the node's state. What is learned, recorded on the scoreboard and written to the
journal is the same whether a file is served or not, so replay gives the same bits whatever lies
there by then. Only what the world hears is exchanged.

| the node's layout | what is served |
|---|---|
| references and scales are still being estimated | the node's own best predictor |
| exactly the columns and classes that the file names | the file |
| anything else: a sensor is silent, was retired or is new | the node's own best predictor |
"""

from __future__ import annotations

import numpy as np

from edge_opid.models.matrix import ModelError, NamedPredictor, Predictor
from edge_opid.node.effects import Predicted
from edge_opid.node.scoreboard import PredictorName
from edge_opid.reasons import NodeReason
from edge_opid.tally import Tally

NAME = PredictorName.TFLITE
"""As predictions call it, and the first word of what is counted."""


class ExternalModel:
    """The predictor, and whether it fits the present layout. One is made for each node.

    `model` is None where it could not be loaded; `trouble` then says why. A node goes on without.
    """

    def __init__(self, model: NamedPredictor | None, trouble: str = "") -> None:
        self._model = model
        self._columns: tuple[str, ...] = ()  # the layout that `_predictor` was arranged for …
        self._classes: tuple[str, ...] = ()  # … and the classes
        self._predictor: Predictor | None = None
        self._misfit, self._failure = trouble, ""

    def predict_instead(self, made: Predicted, classes: tuple[str, ...], tally: Tally) -> Predicted:
        """What the file says of the same instance; `made` itself where it does not fit."""
        predictor = self._arranged(made.columns, classes, tally)
        if predictor is None or made.x is None:
            return made
        try:
            scores = predictor.scores(made.x)
            if not np.isfinite(scores).all():
                raise ModelError("nonfinite", f"scores must be finite, got {scores.tolist()}")
        except ModelError as error:
            self._failure = f"{NAME} failed: {error}"
            tally.note(NodeReason.TFLITE_FAILED, why=str(error))
            return made
        self._failure = ""
        winner, version = int(scores.argmax()), predictor.version
        return made._replace(
            winner=winner,
            scores=scores,
            predictor=NAME,
            model_version=version,
            probabilities=None,  # nobody has recorded how right it was when it was how sure
            known=True,
        )

    def troubles(
        self, columns: tuple[str, ...], classes: tuple[str, ...], tally: Tally
    ) -> list[str]:
        """Why the file is not served for these columns and classes; empty while it is."""
        self._arranged(columns, classes, tally)
        waits = f"{NAME} waits for the end of the warm-up"
        found = self._misfit if columns or self._model is None else waits
        return [each for each in (found, self._failure) if each]

    def _arranged(
        self, columns: tuple[str, ...], classes: tuple[str, ...], tally: Tally
    ) -> Predictor | None:
        """The predictor for this layout, if there is one; looked at once for each layout."""
        if self._model is None or not columns:
            return None
        if (columns, classes) == (self._columns, self._classes):
            return self._predictor
        self._columns, self._classes, self._predictor = columns, classes, None
        self._misfit = self._failure = ""
        try:
            self._predictor = self._model.arranged(columns, classes)
        except ModelError as error:
            self._misfit = f"{NAME} does not fit: {error}"
            tally.note(NodeReason.TFLITE_DOES_NOT_FIT, why=str(error))
        return self._predictor
