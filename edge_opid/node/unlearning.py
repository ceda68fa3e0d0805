"""A label that was a mistake is taken back, as though it had never been given.

Sums subtract, so for the ridge learners this is exact: what the instance still counts for is taken
out of Σx̃x̃ᵀ and Σx̃yᵀ (`learner.unlearn_one`). In a warm-up the kept row loses its label, and all is
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
    effects: list[Effect] = []
    for entry in found:
        effects += _take_back(state, entry)
    return effects


def _take_back(state: NodeState, entry: Entry) -> Sequence[Effect]:
    lesson = entry.lesson
    if lesson is None:
        return []
    which = spelled(entry.numbers[-1])
    with watch() as rescued:
        unlearned = _unlearn(state, entry, lesson)
    if not unlearned:
        return [Noted(NodeReason.UNDO_TOO_LATE, f"{which}: {TOO_LATE}", which)]
    entry.lesson, since = None, state.recent.lessons - lesson.place
    state.frequency.take_back(lesson.label)
    state.trial.forget(entry.values, lesson.label)
    if entry.evidence is not None:
        before = state.recent.nearest_lesson(state.time_layer.time_ms)
        state.time_layer.take_back(entry.evidence, lesson.label, since, before)
    label = state.settings.classes[lesson.label]
    return [
        Noted(NodeReason.UNLEARNED, f"{which} is not {label!r}", which),
        *noted_rescues(rescued),
    ]


def _unlearn(state: NodeState, entry: Entry, lesson: Lesson) -> bool:
    """Take it out of what the learners know; whether that could be."""
    warmup, local_models = state.warmup, state.local_models
    if lesson.label < 0:
        return False
    if warmup is not None:
        if not warmup.unlabel(entry.values, lesson.label):
            return False
        start_over(state, warmup)
        return True
    x = encoded(state, entry.values)
    if x is None or lesson.generation != local_models.generation:
        return False
    local_models.unlearn(x, lesson.label, since=state.recent.lessons - lesson.place)
    return True
