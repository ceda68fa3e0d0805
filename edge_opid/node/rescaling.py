"""Another scale for a sensor: what was learned is moved, or the gateway is asked for it.

Who needs one is found by `scales`: a sensor whose values are at the gate too often, or one that an
operator has measured again (`opid-node remeasure`).
"""

from __future__ import annotations

from edge_opid.native.rescue import watch
from edge_opid.node.effects import Effect, Noted, noted_rescues
from edge_opid.node.journal_records import Remeasured
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.state import NodeState
from edge_opid.reasons import NodeReason
from edge_opid.wire import ScaleMeasured, SensorDescription


def rescale(state: NodeState, sensor: SensorDescription, now_ms: int) -> list[Effect]:
    """Take another scale for a sensor; where a gateway has the say, ask for it."""
    mine, before = state.local_models, state.local_models.sensors[sensor.id]
    clipped = [sensor.id] if sensor.id in state.scales.counts else []
    state.scales.forget(sensor.id)
    if state.is_ordered:
        return [_scale_measured(sensor, now_ms)] if state.scales.may_ask(sensor.id) else []
    with watch() as rescued:
        wanted = {**mine.sensors, sensor.id: sensor}
        if mine.take_scales(wanted, clipped) is None:
            mine.obey(tuple(wanted.values()), mine.vanishing, mine.gate, carry=1.0)
    state.scoreboard.forget(PredictorName.BRIDGE)
    said = Noted(NodeReason.SCALE_MOVED, _moved_sentence(before, sensor), sensor.id)
    return [said, *noted_rescues(rescued)]


def remeasure(state: NodeState, change: Remeasured) -> list[Effect]:
    """Measure a sensor again by its next values, on an operator's word."""
    sensor = state.local_models.sensors.get(change.sensor)
    if sensor is None or state.warmup is not None:
        return [Noted(NodeReason.REMEASURE_REFUSED, "it has no scale yet", change.sensor)]
    state.scales.measure_again(sensor.id, len(sensor.knots))
    return [Noted(NodeReason.REMEASURING, "by its next values", sensor.id)]


def _scale_measured(sensor: SensorDescription, now_ms: int) -> ScaleMeasured:
    """What a gateway is asked for."""
    return ScaleMeasured(
        sensor.id,
        at_ms=now_ms,
        reference=sensor.reference,
        scale=sensor.scale,
        knots=sensor.knots,
    )


def _moved_sentence(before: SensorDescription, now: SensorDescription) -> str:
    """What became of a scale, for the log."""
    return (
        f"{now.id}: reference {now.reference:g}, scale {now.scale:g}; it was {before.reference:g} "
        f"and {before.scale:g}; what was learned is converted, and what was clipped stays clipped"
    )
