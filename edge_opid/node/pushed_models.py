"""Two slots for pushed weights: the model in use, and the one to fall back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.models import HeldModel, model_from_state
from edge_opid.models.matrix import CompactModel
from edge_opid.node.scoreboard import PredictorName, Scoreboard

CURRENT, PREVIOUS = PredictorName.MODEL, PredictorName.PREVIOUS


class PushedModels:
    """Weights for the full layout. A new model is on trial beside the one it replaced."""

    def __init__(self) -> None:
        self._models: dict[PredictorName, HeldModel] = {}

    def __bool__(self) -> bool:
        return bool(self._models)

    def version(self, slot: PredictorName = CURRENT) -> int:
        """The version in a slot; 0 for the node's own predictors, and where there is none."""
        return self._models[slot].version if slot in self._models else 0

    def scores(self, x: NDArray[np.float32]) -> dict[PredictorName, NDArray[np.float32]]:
        """What each says of these columns."""
        return {slot: model.scores(x) for slot, model in self._models.items()}

    def matrices(self) -> dict[str, NDArray[np.float32]]:
        """The weights in each slot that holds one matrix, and not a kernel."""
        models = self._models.items()
        return {slot: model.W for slot, model in models if isinstance(model, CompactModel)}

    def parts(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Every array in each slot by its name, for whoever wants to look."""
        return {slot: model.parts() for slot, model in self._models.items()}

    def push(self, model: HeldModel, board: Scoreboard) -> None:
        """The new one is in use; the old one keeps its record."""
        if CURRENT in self._models:
            self._models[PREVIOUS] = self._models[CURRENT]
            board.move(CURRENT, to=PREVIOUS)
        self._models[CURRENT] = model

    def fall_back(self, board: Scoreboard) -> bool:
        """Take the old model back if the new one does markedly worse over its first labels."""
        if PREVIOUS not in self._models or not board.is_worse(CURRENT, PREVIOUS):
            return False
        self._models = {CURRENT: self._models[PREVIOUS]}
        board.move(PREVIOUS, to=CURRENT)
        return True

    def move(self, weights: NDArray[np.float64], board: Scoreboard) -> None:
        """The same columns on other scales: matrices follow, and a kernel, which cannot, goes.

        `weights` are what new ones are of old ones: see `Move`.
        """
        for slot, model in list(self._models.items()):
            if isinstance(model, CompactModel):
                W = (weights @ model.W).astype(np.float32)
                self._models[slot] = CompactModel(model.version, W)
            else:
                del self._models[slot]
                board.forget(slot)

    def clear(self, board: Scoreboard) -> None:
        """The layout or the classes have changed: both are for columns that are no more."""
        self._models.clear()
        board.forget(CURRENT)
        board.forget(PREVIOUS)

    def reorder_classes(self, places: Sequence[int]) -> None:
        """The same classes in another order: class k is the one that was `places[k]`."""
        self._models = {slot: each.reordered(places) for slot, each in self._models.items()}

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restored`."""
        return {slot: model.state() for slot, model in self._models.items()}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> PushedModels:
        """The slots that `state` described."""
        mine = cls()
        for slot, model in saved.items():
            mine._models[PredictorName(slot)] = model_from_state(model)
        return mine
