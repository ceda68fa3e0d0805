"""What an order of the gateway changes: the layout, the pushed model, the examples owed.

The order has passed the rules of `orders`, and stands in the journal.
"""

from __future__ import annotations

from edge_opid.models import HeldModel, model_from_weights
from edge_opid.native.rescue import watch
from edge_opid.node.effects import Effect, Noted, noted_rescues, summarised
from edge_opid.node.journal_records import Ordered
from edge_opid.node.pushed_models import CURRENT
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.state import NodeState
from edge_opid.node.trial import knows_less, tried
from edge_opid.reasons import NodeReason
from edge_opid.wire import Desired, decode, digest


def obey(state: NodeState, change: Ordered) -> list[Effect]:
    """Do what the gateway wants: first the layout, then the weights, which are for it."""
    desired = decode(change.document, Desired)
    effects: list[Effect] = []
    if desired.layout_version > state.layout_version:
        effects += _take_layout(state, desired, change.now_ms)
    if desired.weights is not None:
        width, classes = state.local_models.full.width, len(state.settings.classes)
        model = model_from_weights(desired.weights, desired.version, width, classes)
        effects += _take_model(state, model)
    state.version, state.content = desired.version, digest(change.document)
    state.examples.owed = desired.gather
    return effects


def _take_model(state: NodeState, model: HeldModel) -> list[Effect]:
    """Take a model: with a clean record, unless it contradicts what this node has seen."""
    if not state.pushed_models:
        overlap = state.recent.answered_with_all(state.local_models.alive, state.layout_version)
        less = knows_less(model, overlap, state.local_models)
        state.knows_less = model.version if less else 0
    state.pushed_models.push(model, state.scoreboard)
    state.time_layer.renew(CURRENT)
    state.doubt, right = tried(model, state.trial, state.local_models)
    if state.doubt is None:
        served = "follows the node's own" if state.knows_less == model.version else "is served"
        return [Noted(NodeReason.MODEL_SWAPPED, f"version {model.version} {served}")]
    for hit in right:
        state.scoreboard.record({CURRENT: 1}, int(hit))
    fell_back = state.pushed_models.fall_back(state.scoreboard)
    doubted = Noted(NodeReason.MODEL_DOUBTED, str(state.doubt))
    return [doubted, *([Noted(NodeReason.MODEL_FALLBACK)] if fell_back else [])]


def _take_layout(state: NodeState, desired: Desired, now_ms: int) -> list[Effect]:
    """Go on with other sensors, and inherit what was learned of those that remain."""
    local_models = state.local_models
    effects = summarised(local_models, state.layout_version)
    if state.warmup is None and local_models.are(desired.sensors, desired.vanishing, desired.gate):
        state.layout_version = desired.layout_version  # adopted: another number, nothing else
        return effects
    carry = state.scoreboard.carry()
    before = local_models.sensors
    arrived = [s.id for s in desired.sensors if s.id not in before]
    gone = [sensor for sensor in before if sensor not in {s.id for s in desired.sensors}]
    overlap = state.take_overlap(arrived)
    with watch() as rescued:
        move = local_models.obey(
            desired.sensors, desired.vanishing, desired.gate, carry, instances=overlap
        )
    effects += noted_rescues(rescued)
    state.trial.follow(before, local_models.sensors, local_models.unlike)
    state.silence.expect(local_models.sensors, arrived, now_ms)
    # Who did not move in the warm-up is not in the gateway's book: it is told of it later.
    until = state.measuring.until.items() if state.warmup is None else ()
    resting = {s: old for s, old in until if not old and s not in local_models.sensors}
    state.measuring = state.measuring.under(state.settings, resting)
    state.scales.keep_only(local_models.sensors)
    state.layout_version, state.warmup = desired.layout_version, None
    if move is None:
        state.pushed_models.clear(state.scoreboard)
    else:
        state.pushed_models.move(move.weights, state.scoreboard)
    state.doubt = None
    state.scoreboard.forget(PredictorName.BRIDGE)
    return [
        *effects,
        Noted(NodeReason.LAYOUT_CHANGED, f"layout {state.layout_version} is in force"),
        *(Noted(NodeReason.SENSOR_DEPLOYED, f"{each} joins", each) for each in arrived),
        *(Noted(NodeReason.SENSOR_RETIRED, f"{each} goes", each) for each in gone),
    ]
