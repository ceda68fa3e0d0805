"""A label that was a mistake is taken back, as though it had never been given.

Sums subtract, so for the ridge learners this is exact: what the instance still counts for is taken
out of Σx̃x̃ᵀ and Σx̃yᵀ (`learner.unlearn_many`). In a warm-up the kept row loses its label, and all is
learned anew. It is also taken out of the frequency of classes, and of the instances that pushed
models are tried on; and the time layer goes by the label before it again.

What takes steps cannot subtract: the logistic memory, the weights of the time layer and the records
of who was right keep what the label moved, until later labels have moved them on (decision 39).

A label can be taken back while

1. its instance is among the recent ones;
2. the learners' sums are those it went into: no sensor has come, gone, fallen silent, returned or
   been rescaled since, and the warm-up in which it came is not over;
3. its class is there, and forgetting is what it was: else nobody knows what it still counts for.

Where it cannot, nothing changes, and the node says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_opid.errors import Refusal
from edge_opid.native.rescue import watch
from edge_opid.node.effects import Effect, Noted, noted_rescues
from edge_opid.node.journal_records import Undone
from edge_opid.node.predicting import encoded
from edge_opid.node.recent import Entry, Lesson, spelled
from edge_opid.node.reconfiguring import start_over
from edge_opid.node.state import NodeState
from edge_opid.reasons import NodeReason, named

TOO_LATE = "sensors, scales, classes or forgetting have changed since it was learned"


def labelled(state: NodeState, change: Undone) -> list[Entry] | Refusal:
    """The instances whose labels are to be taken back, the last one first; or why there are none.

    Changes nothing.
    """
    recent = state.recent
    if change.from_ms is not None:
        until_ms = change.now_ms if change.until_ms is None else change.until_ms
        found: list[Entry] = recent.between(change.from_ms, until_ms)
        which = f"between {change.from_ms} and {until_ms}"
    elif change.instance is not None or change.time_ms is not None:
        tolerance_ms = state.settings.label_tolerance_ms
        one, which = recent.look_up(change.instance, change.time_ms, tolerance_ms)
        if one is None:
            return Refusal(NodeReason.LABEL_UNKNOWN_INSTANCE, f"no recent instance {which}")
        found = [one]
    else:
        found, which = recent.last_labelled(), "at all"
    taught = [each for each in found if each.lesson is not None]
    if not taught:
        return Refusal(NodeReason.UNDO_WITHOUT_LABEL, f"no recent instance {which} has a label")
    return sorted(taught, key=_place, reverse=True)


def _place(entry: Entry) -> int:
    return entry.lesson.place if entry.lesson is not None else -1


def undo(state: NodeState, change: Undone) -> list[Effect]:
    """Take these labels back."""
    found = labelled(state, change)
    if isinstance(found, Refusal):
        return [Noted(named(found.reason), found.sentence)]
    taught = [(entry, entry.lesson) for entry in found if entry.lesson is not None]
    unlearn = _unlearn_kept if state.warmup is not None else _unlearn_learned
    with watch() as rescued:
        unlearned = unlearn(state, taught)
    effects = [
        _take_back(state, *each) if done else _too_late(each[0])
        for each, done in zip(taught, unlearned, strict=True)
    ]
    return [*effects, *noted_rescues(rescued)]


def _unlearn_kept(state: NodeState, taught: Sequence[tuple[Entry, Lesson]]) -> list[bool]:
    """Take labels off rows of the warm-up, and learn what is left anew; of which that could be."""
    warmup = state.warmup
    assert warmup is not None
    unlearned = [
        lesson.label >= 0 and warmup.unlabel(entry.values, lesson.label) for entry, lesson in taught
    ]
    if any(unlearned):
        start_over(state, warmup)
    return unlearned


def _unlearn_learned(state: NodeState, taught: Sequence[tuple[Entry, Lesson]]) -> list[bool]:
    """Take instances out of what the learners know, all at once; of which that could be."""
    local_models, learned = state.local_models, state.recent.lessons
    columns = [
        encoded(state, entry.values)
        if lesson.label >= 0 and lesson.generation == local_models.generation
        else None
        for entry, lesson in taught
    ]
    local_models.unlearn(
        [
            (x, lesson.label, learned - lesson.place)
            for x, (_, lesson) in zip(columns, taught, strict=True)
            if x is not None
        ]
    )
    return [x is not None for x in columns]


def _take_back(state: NodeState, entry: Entry, lesson: Lesson) -> Noted:
    """Everything else that goes by a label forgets it."""
    entry.lesson, since = None, state.recent.lessons - lesson.place
    state.frequency.take_back(lesson.label)
    state.trial.forget(entry.values, lesson.label)
    if entry.evidence is not None:
        before = state.recent.nearest_lesson(state.time_layer.time_ms)
        state.time_layer.take_back(entry.evidence, lesson.label, since, before)
    which, label = spelled(entry.numbers[-1]), state.settings.classes[lesson.label]
    return Noted(NodeReason.UNLEARNED, f"{which} is not {label!r}", which)


def _too_late(entry: Entry) -> Noted:
    which = spelled(entry.numbers[-1])
    return Noted(NodeReason.UNDO_TOO_LATE, f"{which}: {TOO_LATE}", which)
