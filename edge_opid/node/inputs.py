"""What each input of the journal changes in the state, and what happened by it.

`apply` is the only door: the first time and on replay, to the same bits. Nothing here reads a
clock, rolls dice or talks to anyone; `Node` tells the world of the effects, and on replay nobody
listens. Readings, labels and silences are dealt with here, in the order of a reading's way; what
changes settings, layout or scales has modules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edge_opid.errors import OpidError, Refusal
from edge_opid.native.rescue import watch
from edge_opid.node.effects import Effect, Forgotten, Noted, Predicted, noted_rescues
from edge_opid.node.joining import Instance
from edge_opid.node.journal_records import (
    Accepted,
    Beat,
    Closed,
    Configured,
    Input,
    Labelled,
    Ordered,
    Remeasured,
    Returned,
    Silenced,
    Told,
    Undone,
)
from edge_opid.node.memories import Columns
from edge_opid.node.obeying import obey
from edge_opid.node.predicting import encoded, encoded_and_gated, predicted
from edge_opid.node.recent import Entry
from edge_opid.node.reconfiguring import configure, start_over, take_measured
from edge_opid.node.rescaling import remeasure, rescale
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.state import NodeState
from edge_opid.node.truth import Truth
from edge_opid.node.unlearning import undo
from edge_opid.reasons import NodeReason, named
from edge_opid.wire import Asked, InstanceId, SensorReturned, SensorSilent

LEARNED = Noted(NodeReason.LEARNED)  # one for all: it is made for every label


def apply(state: NodeState, change: Input) -> list[Effect]:
    """Change the state as this input says.

    An input that got this far should not fail. If one does, it is noted, and stays in the
    journal: replay fails at the same place and leaves the same bits, where an error thrown
    from here would leave a state that its journal does not explain.
    """
    try:
        return HANDLERS[type(change)](state, change)
    except OpidError as error:
        return [Noted(NodeReason.INPUT_FAILED, str(error), complaint=True)]


# -- readings ----------------------------------------------------------------------------------


def _accept(state: NodeState, change: Accepted) -> list[Effect]:
    now_ms, source, boot, seq, time_ms, values, _ = change
    effects: list[Effect] = []
    heard: list[str] = []
    if state.measuring:
        heard = state.measuring.hear(values)
        effects += take_measured(state, now_ms)
    known = state.known(values)
    if len(known) < len(values):
        strangers = {s: v for s, v in values.items() if s not in known}
        state.newcomers.hear(strangers, now_ms)
        effects += [
            Noted(NodeReason.UNKNOWN_SENSOR, f"no sensor {name!r} in the layout", name)
            for name in strangers
            if name not in heard
        ]
    forgotten = state.register.record(source, boot, seq, now_ms, useful=bool(known))
    if forgotten:
        effects.append(Forgotten(forgotten))
    if not known:
        return effects
    for each in state.joiner.make_way(now_ms, time_ms, known):
        effects += _take_instance(state, each, now_ms)
    state.last.take(known, now_ms)
    state.silence.hear(known, now_ms)
    state.standing_truth.hear()
    if state.local_models.silent:
        effects += _take_back(state, known, now_ms)
    for each in _completed(state, change, known):
        effects += _take_instance(state, each, now_ms)
    return effects


def _completed(state: NodeState, change: Accepted, known: dict[str, float]) -> list[Instance]:
    """The instances that a reading completes."""
    number = InstanceId.unchecked(change.source, change.boot, change.seq)  # as the reading was
    if state.settings.instances == "readings":
        alive = state.local_models.alive
        return state.joiner.add(change.now_ms, change.time_ms, number, known, change.label, alive)
    if change.label is None:
        return []  # it is held until something makes an instance
    return [Instance(change.time_ms, (number,), known, change.label)]


def _take_back(state: NodeState, known: Iterable[str], now_ms: int) -> list[Effect]:
    """Go on with sensors that had fallen silent, where they speak again."""
    silent = state.local_models.silent
    returned = [sensor for sensor in known if sensor in silent]
    if not returned:
        return []
    with watch() as rescued:
        state.local_models.take_back(returned)
    state.scoreboard.forget(PredictorName.BRIDGE)
    back = [SensorReturned(sensor, now_ms) for sensor in returned]
    return [*noted_rescues(rescued), *back]


def _return(state: NodeState, change: Returned) -> list[Effect]:
    """Wait anew for sensors that are said to be there again."""
    state.silence.wait_anew(change.sensors, change.now_ms)
    return _take_back(state, change.sensors, change.now_ms)


def _silence(state: NodeState, change: Silenced) -> list[Effect]:
    """Go on without sensors that are overdue, unless nobody would be left."""
    local_models = state.local_models
    gone = [sensor for sensor in change.sensors if sensor in local_models.alive]
    if not gone or len(gone) == len(local_models.alive):
        return []
    with watch() as rescued:
        local_models.silence(gone, state.scoreboard.carry())
    state.scoreboard.forget(PredictorName.BRIDGE)
    heard = state.last.heard_ms
    silent = [SensorSilent(sensor, change.now_ms, heard.get(sensor, 0)) for sensor in gone]
    return [*silent, *noted_rescues(rescued)]


# -- instances ---------------------------------------------------------------------------------


def _close(state: NodeState, change: Closed) -> list[Effect]:
    complete = state.joiner.close(change.now_ms)
    return [effect for each in complete for effect in _take_instance(state, each, change.now_ms)]


def _beat(state: NodeState, change: Beat) -> list[Effect]:
    return _make_instance(state, change.now_ms, None)


def _make_instance(state: NodeState, now_ms: int, label: str | None) -> list[Effect]:
    """An instance of what is held, which no reading completed."""
    if not state.with_held({}, now_ms).values:
        return [Noted(NodeReason.NOTHING_HELD)]
    number, news = state.own_instances.take(state.standing_truth.heard)
    return _take_instance(state, Instance(now_ms, (number,), {}, label), now_ms, news)


def _take_instance(
    state: NodeState, instance: Instance, now_ms: int, news: bool = True
) -> list[Effect]:
    """Predict, then learn: values that are missing are held, and a truth may stand.

    Without `news` nobody has spoken since the last one: it is no row for a warm-up, or slow
    sensors would seem not to move.
    """
    time_ms, numbers, fresh, label = instance
    values, ages_ms = state.with_held(fresh, now_ms)
    warming = state.warmup is not None
    x, gated = encoded_and_gated(state, values)
    prediction, guesses, seen = predicted(state, values, numbers[-1], time_ms, x)
    state.time_layer.go_on(seen)
    effects: list[Effect] = [prediction]
    if x is not None:
        state.local_models.observe(x)
    if label is None:
        label = state.standing_truth.label_at(time_ms)
        if label is not None and not state.standing_truth.has_news_for(label):
            effects.append(Noted(NodeReason.TRUTH_WITHOUT_NEWS))
            label = None
    truth = _class_of(state, label)
    if label is not None:
        state.standing_truth.note_taught(label)
        if truth is None:
            effects.append(_no_class(state, label))
    entry = Entry.of(
        time_ms,
        numbers,
        values,
        guesses,
        state.layout_version,
        ages_ms,
        state.newcomers.lately(now_ms),
        seen,
    )
    state.recent.remember(entry)
    if truth is None:
        effects += _ask(state, prediction, now_ms)
        effects += _warm(state, values, None)[1] if news else []
    else:
        effects += _learn(state, entry, values, truth, x)
    if not warming:
        effects += _watch_scales(state, fresh, gated, now_ms)
    return effects


def _ask(state: NodeState, made: Predicted, now_ms: int) -> list[Effect]:
    """Ask what an instance was that nobody has said anything about, if it is worth it."""
    per_hour, said = state.settings.asks_per_hour, made.probabilities
    if not per_hour or said is None:
        return []
    shares = made.scores.tolist()
    if not all(-1 <= each <= 2 for each in shares):  # a model of the gateway with other scores
        shares = said
    if not state.asking.decides(shares if made.known else None, now_ms, per_hour):
        return []
    scores = dict(zip(state.settings.classes, said, strict=True))
    likeliest = sorted(scores, key=lambda name: -scores[name])
    asked = Asked(
        instance=made.instance,
        time_ms=made.time_ms,
        label=likeliest[0],
        confidence=scores[likeliest[0]],
        scores={name: scores[name] for name in likeliest},
    )
    return [asked]


def _watch_scales(
    state: NodeState, values: Mapping[str, float], gated: tuple[str, ...], now_ms: int
) -> list[Effect]:
    """Note values at the gate, and rescale whose scale proves wrong, or was measured again."""
    scales, sensors = state.scales, state.local_models.sensors
    effects: list[Effect] = []
    if gated:
        gated = tuple(sensor for sensor in gated if sensor in values)  # held ones were noted
        effects += [
            Noted(NodeReason.VALUE_GATED, f"{name} says {values[name]:g}", name) for name in gated
        ]
    moved = scales.note(values, gated, sensors, state.local_models.gate)
    if scales.again:
        moved += scales.hear(values)
    for each in moved:
        effects += rescale(state, scales.describe(each, sensors[each.name]), now_ms)
    return effects


# -- labels ------------------------------------------------------------------------------------


def _class_of(state: NodeState, label: str | None) -> int | None:
    classes = state.settings.classes
    return classes.index(label) if label in classes else None


def _no_class(state: NodeState, label: str) -> Noted:
    known = ", ".join(state.settings.classes)
    return Noted(NodeReason.UNKNOWN_CLASS, f"{label!r} is not one of the classes {known}", label)


def _take_label(state: NodeState, change: Labelled) -> list[Effect]:
    """A label for an instance of before, for a stretch of time, or about now."""
    truth = _class_of(state, change.label)
    if truth is None:
        return [_no_class(state, change.label)]
    found = meant(state, change)
    if isinstance(found, Refusal):
        return [Noted(named(found.reason), found.sentence)]
    effects: list[Effect] = []
    for entry in found:
        values = entry.values
        effects += _learn(state, entry, values, truth, encoded(state, values))
    begins_ms = state.recent.begins_ms
    if change.from_ms is not None and begins_ms is not None and change.from_ms < begins_ms:
        cut = f"it begins at {change.from_ms}, the recent instances at {begins_ms}"
        effects.append(Noted(NodeReason.LABEL_STRETCH_CUT, cut))
    return effects or _make_instance(state, change.now_ms, change.label)


def meant(state: NodeState, change: Labelled) -> list[Entry] | Refusal:
    """The instances that a label is about, or why it cannot be learned. Changes nothing.

    None at all: it is about now, where none is near enough, and one is to be made of what is held.
    """
    recent, settings = state.recent, state.settings
    if change.from_ms is not None:
        until_ms = change.now_ms if change.until_ms is None else change.until_ms
        waiting = recent.unlearned_between(change.from_ms, until_ms)
        if waiting:
            return waiting
        why = f"no recent instance between {change.from_ms} and {until_ms} waits for a label"
        return Refusal(NodeReason.LABEL_UNKNOWN_INSTANCE, why)
    if change.instance is not None or change.time_ms is not None:
        found = recent.check(change.instance, change.time_ms, settings.label_tolerance_ms)
        return [found] if isinstance(found, Entry) else found
    return _meant_now(state, change)


def _meant_now(state: NodeState, change: Labelled) -> list[Entry] | Refusal:
    """The last instance, if a person who says "now" can mean it."""
    settings = state.settings
    own = settings.instances == "labels"  # then a label has an instance of its own
    tolerance_ms = settings.label_tolerance_ms if own else settings.now_tolerance_ms
    found = state.recent.check(None, change.now_ms, tolerance_ms)
    if isinstance(found, Entry):
        return [found]
    if found.reason != NodeReason.LABEL_UNKNOWN_INSTANCE:
        return found
    if not state.standing_truth.has_news_for(change.label):
        why = "no sensor has reported since this was last said"
        return Refusal(NodeReason.LABEL_ALREADY_LABELLED, why)
    return []


def _take_truth(state: NodeState, change: Told) -> list[Effect]:
    """Somebody who knows it said what is so: see `truth` for what it teaches."""
    truth = Truth(change.label, change.from_ms, change.until_ms)
    index = _class_of(state, truth.label)
    if index is None:
        return [_no_class(state, truth.label)]
    news = truth.label != state.standing_truth.label_at(change.now_ms)
    if not truth.of_a_moment:
        state.standing_truth.stand(truth)
    waiting = _waiting_for(state, truth, change.now_ms)
    if isinstance(waiting, Refusal):
        return [Noted(named(waiting.reason), waiting.sentence)]
    effects: list[Effect] = []
    for entry in waiting:
        values = entry.values
        effects += _learn(state, entry, values, index, encoded(state, values))
        state.standing_truth.note_taught(truth.label)
    return effects or _make_instance_for(state, truth, news, change.now_ms)


def _waiting_for(state: NodeState, truth: Truth, now_ms: int) -> list[Entry] | Refusal:
    """The instances that this truth is about, of those that have no label yet."""
    if not truth.of_a_moment:
        return state.recent.unlearned_between(truth.from_ms, min(truth.until_ms, now_ms))
    found = state.recent.check(None, truth.from_ms, state.settings.label_tolerance_ms)
    if isinstance(found, Entry):
        return [found]
    return [] if found.reason == NodeReason.LABEL_UNKNOWN_INSTANCE else found


def _make_instance_for(state: NodeState, truth: Truth, news: bool, now_ms: int) -> list[Effect]:
    """One of what is held, where a truth found none; unless it has nothing to teach.

    Where labels make the instances, one that says what stands already does so as well.
    """
    if not news and state.settings.instances != "labels":
        return [Noted(NodeReason.TRUTH_REPEATED)]
    if not truth.covers(now_ms):
        return [Noted(NodeReason.TRUTH_WITHOUT_INSTANCE)]
    if not state.standing_truth.has_news_for(truth.label):
        return [Noted(NodeReason.TRUTH_WITHOUT_NEWS)]
    return _make_instance(state, now_ms, truth.label)


def _learn(
    state: NodeState, entry: Entry, values: Mapping[str, float], truth: int, x: Columns | None
) -> list[Effect]:
    """Judge what was predicted for an instance, and learn its label."""
    state.scoreboard.record(entry.guesses, truth)
    if entry.evidence is not None:
        state.time_layer.learn(entry.evidence, truth)
    state.trial.keep(entry.sensors, entry.readings, truth)
    state.frequency.record(truth)
    started_over, noted = _warm(state, values, truth)
    if not started_over and x is not None:
        state.local_models.learn(x, truth)
    state.recent.teach(entry, truth, state.local_models.generation)
    fell_back = state.pushed_models.fall_back(state.scoreboard)
    examples = state.examples.report(
        entry,
        values,
        state.settings.classes[truth],
        state.layout_version,
        state.local_models.sensors,
    )
    if fell_back:
        noted.append(Noted(NodeReason.MODEL_FALLBACK))
    if not entry.guesses:
        noted.append(Noted(NodeReason.LEARNED_UNSCORED))
    return [LEARNED, *noted, *examples]


def _warm(
    state: NodeState, values: Mapping[str, float], truth: int | None
) -> tuple[bool, list[Effect]]:
    """Keep the reading for a better layout; when one is due, learn all that is kept anew."""
    warmup = state.warmup
    if warmup is None or not warmup.add(values, truth):
        return False, []
    return True, start_over(state, warmup)


HANDLERS: dict[type[Any], Callable[[NodeState, Any], list[Effect]]] = {
    Accepted: _accept,
    Labelled: _take_label,
    Closed: _close,
    Beat: _beat,
    Silenced: _silence,
    Told: _take_truth,
    Ordered: obey,
    Configured: configure,
    Remeasured: remeasure,
    Undone: undo,
    Returned: _return,
}
"""For each kind of input, what it does."""
