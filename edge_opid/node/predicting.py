"""What a node says of the values of a moment: every predictor is asked, one is served.

Nothing here changes the state. Whoever keeps the answer tells the time layer (`TimeLayer.go_on`),
and the scoreboard once the label is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge_opid.node.effects import Predicted
from edge_opid.node.memories import SAID, Columns
from edge_opid.node.pushed_models import CURRENT
from edge_opid.node.scoreboard import PREFERENCE, PredictorName
from edge_opid.node.state import NodeState
from edge_opid.node.time_layer import Evidence
from edge_opid.wire import InstanceId

FREQUENT = PredictorName.FREQUENT  # an enum's attribute takes a while, and this is for each reading


def encoded(state: NodeState, values: Mapping[str, float]) -> Columns | None:
    """The learners' columns; None before the warm-up has a first layout."""
    return encoded_and_gated(state, values)[0]


def encoded_and_gated(
    state: NodeState, values: Mapping[str, float]
) -> tuple[Columns | None, tuple[str, ...]]:
    """The same, and the sensors whose values are at the gate or beyond."""
    if state.warmup is None or state.warmup.usable:
        return state.local_models.encode_and_gate(values)
    return None, ()


def predicted(
    state: NodeState,
    values: Mapping[str, float],
    number: InstanceId,
    time_ms: int,
    x: Columns | None,
) -> tuple[Predicted, dict[PredictorName, int], Evidence]:
    """What is served, what each predictor says, and on what evidence."""
    guesses, rows, pushed = _guesses(state, values, x)
    served = state.scoreboard.best([name for name in _preference(state) if name in guesses])
    if rows is not None and served in SAID:
        said = rows[SAID.index(served)]
    else:
        said = state.frequency.shares() if served is FREQUENT else pushed[served]
    seen, probabilities = state.time_layer.answer(said, served, time_ms)
    known = any(state.frequency.counts) or bool(state.pushed_models)
    made = Predicted(
        instance=number,
        time_ms=time_ms,
        winner=probabilities.index(max(probabilities)),
        scores=said,
        predictor=served,
        model_version=state.pushed_models.version(served),
        probabilities=probabilities,
        x=x,
        columns=state.columns,
        known=known,
    )
    return made, guesses if known else {}, seen  # what is no guess is neither right nor wrong


def predicted_unkept(
    state: NodeState, values: Mapping[str, float], number: InstanceId, time_ms: int, now_ms: int
) -> Predicted:
    """A prediction for a reading that cannot be kept."""
    known = state.with_held(values, now_ms).values
    return predicted(state, known, number, time_ms, encoded(state, known))[0]


def _preference(state: NodeState) -> tuple[PredictorName, ...]:
    """Whom to serve while nobody is surely ahead; weights in doubt have to be."""
    if state.doubt is None and not state.knows_less:
        return PREFERENCE  # as nearly always
    doubt, version, own = state.doubted, state.pushed_models.version(), PredictorName.OWN
    if doubt is not None and doubt.version == version:
        return (*(name for name in PREFERENCE if name != CURRENT), CURRENT)
    if version and state.knows_less == version and not state.scoreboard.is_ahead(CURRENT, own):
        return (own, *(name for name in PREFERENCE if name != own))
    return PREFERENCE


def _guesses(
    state: NodeState, values: Mapping[str, float], x: Columns | None
) -> tuple[dict[PredictorName, int], Columns | None, dict[PredictorName, Columns]]:
    """The class each predictor says; the scores of the local ones, in rows, and of the pushed."""
    guesses, rows = {FREQUENT: state.frequency.winner}, None
    local_models = state.local_models
    if x is not None:
        rows, local = local_models.guess(x, ordered=state.time_layer.sees_order)
        guesses |= local
    pushed: dict[PredictorName, Columns] = {}
    if state.pushed_models:
        full = local_models.encode_full(values) if x is None or local_models.silent else x
        pushed = state.pushed_models.scores(full)
        guesses |= {name: int(found.argmax()) for name, found in pushed.items()}
    return guesses, rows, pushed
