"""The forms in which a gateway may push a model, and a node keeps it: one line for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_opid.models.landmark_kernel import KERNEL, CompactKernel
from edge_opid.models.matrix import MATRIX, CompactModel, ModelError
from edge_opid.wire import Weights

HeldModel = CompactModel | CompactKernel
FORMS: dict[str, type[CompactModel] | type[CompactKernel]] = {
    MATRIX: CompactModel,
    KERNEL: CompactKernel,
}


def model_from_weights(weights: Weights, version: int, width: int, classes: int) -> HeldModel:
    """What a gateway pushed, checked against a layout of `width` columns.

    >>> from edge_opid.wire import Matrix
    >>> model_from_weights(Weights("matrix", {"W": Matrix.of([[1.0, 2.0]])}), 3, 1, 2).version
    3
    >>> model_from_weights(Weights("quantum", {}), 3, 1, 2)
    Traceback (most recent call last):
    ...
    edge_opid.models.matrix.ModelError: weights must be of a form of ['kernel', 'matrix'], got \
'quantum'
    """
    if weights.form not in FORMS:
        wanted = f"of a form of {sorted(FORMS)}"
        raise ModelError("form", f"weights must be {wanted}, got {weights.form!r}")
    return FORMS[weights.form].from_weights(weights, version, width, classes)


def model_from_state(saved: Mapping[str, Any]) -> HeldModel:
    """The model whose `state` was kept. A state that names no form is of one matrix."""
    return FORMS[saved.get("form", MATRIX)].from_state(saved)
