"""How the state follows another configuration: other settings, classes and sensors.

`configuration` has decided before the journal was written; here it is done. A new sensor whose
scale nobody gave is measured first and joins later (`take_measured`), and the end of a warm-up
(`start_over`) is the same to all sensors at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_opid.config.node import NodeSettings
from edge_opid.native.rescue import watch
from edge_opid.node.configuration import NewLayout
from edge_opid.node.effects import Effect, Noted, noted_rescues, summarised
from edge_opid.node.journal_records import Configured
from edge_opid.node.scales import NodeScales
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.state import NodeState
from edge_opid.node.warmup import NodeWarmUp
from edge_opid.reasons import NodeReason
from edge_opid.wire import SensorDeployed, SensorDescription

NOTHING_MOVED = "no sensor moved during the warm-up: it starts again"


def configure(state: NodeState, change: Configured) -> list[Effect]:
    """Other settings, which `configuration.compare` found possible; everything is kept."""
    before, now = state.settings, NodeSettings.restored(change.settings)
    if now == before:
        return []
    state.take_settings(now)
    places = {name: place for place, name in enumerate(before.classes)}
    sources = [places.get(change.former.get(name, name)) for name in now.classes]
    state.standing_truth.follow_classes({change.former.get(n, n): n for n in now.classes})
    if sources != list(range(len(before.classes))):
        _follow_classes(state, sources)
    learning = now.lam, now.rho, now.forgetting
    if learning != (before.lam, before.rho, before.forgetting):
        state.local_models.with_ridge(*learning)
    state.scales.take_settings(now)
    state.local_models.learn_unlabelled(now.learn_unlabelled)
    state.joiner.set_window(now.window_ms)
    state.recent.resize(now.recent)
    layout = NewLayout.restored(change.layout) if change.layout is not None else None
    until = state.measuring.until if layout is None else layout.measuring
    state.measuring = state.measuring.under(now, until)
    if state.warmup is not None:
        state.warmup = state.warmup.under(now, sources, until)
        if layout is not None:
            ids = {sensor.id for sensor in now.sensors} - until.keys()
            vanishing = [sensor for sensor in now.vanishing if sensor in ids]
            return start_over(state, state.warmup, vanishing, now.gate)
        return start_over(state, state.warmup) if state.warmup.over else []
    if layout is None:
        return []
    return _take_layout(
        state, layout.sensors, layout.vanishing, layout.gate, layout.continues, change.now_ms
    )


def _follow_classes(state: NodeState, sources: Sequence[int | None]) -> None:
    """Class k is the one that was `sources[k]`, or a new one."""
    before = len(state.frequency.counts)
    state.local_models.with_classes(sources)
    state.recent.with_classes(sources)
    state.time_layer.with_classes(sources)
    state.trial.with_classes(sources)
    state.frequency.with_classes(sources)
    kept = [source for source in sources if source is not None]
    if len(kept) == len(sources) == before:
        state.pushed_models.reorder_classes(kept)
    else:  # what was fitted without a class has no score to compare for it
        state.pushed_models.clear(state.scoreboard)
        state.doubt = None


def _take_layout(
    state: NodeState,
    sensors: Sequence[SensorDescription],
    vanishing: Sequence[str],
    gate: float,
    continues: Mapping[str, str],
    now_ms: int,
) -> list[Effect]:
    """Other sensors by the operator's word: as an order of a gateway, if it changes columns."""
    local_models = state.local_models
    before, columns = local_models.sensors, local_models.full
    summary = summarised(local_models, state.layout_version)
    carry = state.scoreboard.carry()
    arrived = [sensor.id for sensor in sensors if sensor.id not in before]
    overlap = state.take_overlap(arrived)
    with watch() as rescued:
        changed = local_models.reconfigure(sensors, vanishing, gate, carry, continues, overlap)
    if local_models.full.sensors != columns.sensors:
        state.pushed_models.clear(state.scoreboard)
        state.doubt = None
    state.trial.follow(before, local_models.sensors, local_models.unlike)
    _forget_scales_of(state, before)
    if not changed:
        return noted_rescues(rescued)
    state.silence.expect(local_models.sensors, arrived, now_ms)
    state.scoreboard.forget(PredictorName.BRIDGE)
    return [*summary, *noted_rescues(rescued), Noted(NodeReason.LAYOUT_CHANGED)]


def _forget_scales_of(state: NodeState, before: Mapping[str, SensorDescription]) -> None:
    """What was watched, or begun to be measured, of scales and knots that are others now."""
    sensors = state.local_models.sensors
    state.scales.keep_only(sensors)
    for id_, was in before.items():
        now = sensors.get(id_)
        same = was.reference, was.scale, was.knots
        if now is not None and (now.reference, now.scale, now.knots) != same:
            state.scales.forget(id_)


# -- sensors that are measured first -----------------------------------------------------------


def take_measured(state: NodeState, now_ms: int) -> list[Effect]:
    """Let the new sensors join that have said enough; in a warm-up they wait for its end."""
    joining = state.measuring.measured() if state.warmup is None else []
    if state.is_ordered:
        asked = [sensor for sensor in joining if state.measuring.may_ask(sensor.id)]
        return [_sensor_deployed(sensor, now_ms) for sensor in asked]
    if not joining:
        return []
    local_models, until = state.local_models, state.measuring.until
    leaving = [until[sensor.id] for sensor in joining]
    continues = {
        new.role: local_models.role(old)
        for new, old in zip(joining, leaving, strict=True)
        if old in local_models.sensors and local_models.role(old) != new.role
    }
    joined = {sensor.id: sensor for sensor in joining}
    kept = [s for s in local_models.sensors.values() if s.id not in {*leaving, *joined}]
    planned = {*local_models.vanishing, *(s for s in state.settings.vanishing if s in joined)}
    vanishing = [s.id for s in (*kept, *joining) if s.id in planned]
    state.measuring = state.measuring.without(joined)
    told = [
        Noted(
            NodeReason.SENSOR_MEASURED,
            f"{s.id} joins: reference {s.reference:g}, scale {s.scale:g}",
            s.id,
        )
        for s in joining
    ]
    gate = local_models.gate
    return [*told, *_take_layout(state, [*kept, *joining], vanishing, gate, continues, now_ms)]


def _sensor_deployed(sensor: SensorDescription, now_ms: int) -> SensorDeployed:
    """What a gateway is asked for: a place for a sensor that has moved at last."""
    return SensorDeployed(
        sensor.id,
        role=sensor.role,
        at_ms=now_ms,
        reference=sensor.reference,
        scale=sensor.scale,
        knots=sensor.knots,
        timeout_s=sensor.timeout_s,
    )


def start_over(
    state: NodeState,
    warmup: NodeWarmUp,
    vanishing: Sequence[str] | None = None,
    gate: float | None = None,
) -> list[Effect]:
    """Learn all that the warm-up has kept anew, in the layout that it suggests.

    Sensors that have not moved are not in it. Where nobody has, the warm-up begins anew.
    """
    local_models = state.local_models
    estimated = warmup.estimated() if warmup.usable else ()
    if not estimated:
        local_models.start_over(warmup.guessed(), vanishing, gate)
        if not warmup.over:
            return []
        state.warmup = NodeWarmUp(state.settings, state.measuring.until)
        return [Noted(NodeReason.NOTHING_MOVED, NOTHING_MOVED, complaint=True)]
    moved = {sensor.id for sensor in estimated}
    vanishing = [sensor for sensor in state.settings.vanishing if sensor in moved]
    local_models.start_over(estimated, vanishing, gate)
    for row, label in warmup.sensible_rows():
        x = local_models.encode(row)
        local_models.observe(x)
        if label is not None:
            local_models.learn(x, label)
    if not warmup.over:
        return []
    state.warmup = None
    state.measuring = state.measuring.with_resting(warmup.resting())
    state.scales = NodeScales(state.settings)
    waiting = [Noted(NodeReason.SENSOR_WAITS, line, line) for line in state.measuring.resting()]
    aside = [Noted(NodeReason.VALUES_SET_ASIDE, line, complaint=True) for line in warmup.aside()]
    return [*waiting, *aside]
