"""What was learned through some sensors: three memories, their blend, and how they follow changes.

- A sensor falls **silent**: W^(s) for the sensors that remain bridges at once, and a learner goes
  on that has inherited their statistics. The full learner is parked.
- It **returns** before anybody retired it: the full learner is taken back, unless more has been
  learned without it than with it; then the sensor joins as a new one.
- **Another layout** is wanted: the learner inherits whatever remains.
- A sensor gets **another scale**: what was learned is moved to it.

Beside the learner, which remembers everything, runs one that forgets: where the world drifts it is
the better one, and its record tells how much a change should carry (docs/decisions/0005). A third
memory takes small steps on the sensors' plain values (docs/decisions/0014). What they say together
is a blend of all three, and of the bridge where there is one.

Labels are rare, so unlabelled readings teach, too (docs/decisions/0032). The Gram matrix of all
readings tells what sensors that die hand on to the others: the bridge is distilled from it. And
readings in which old and new sensors spoke together tell how the new ones follow from the old.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_opid import native
from edge_opid.layout import Change, Layout, Move
from edge_opid.learner import GramLearner, WoodburyLearner
from edge_opid.learner.base import with_columns
from edge_opid.learner.checks import beyond
from edge_opid.learner.handover import READINGS_PER_LABEL, Overlap, regressed
from edge_opid.learner.statistics import Matrix
from edge_opid.models.matrix import CompactModel
from edge_opid.node.logistic import LogisticMemory, Straight, Vector, in_order
from edge_opid.node.scoreboard import BLENDED, Blend, PredictorName

Columns = NDArray[np.float32]
SAID = (PredictorName.OWN, *BLENDED)
"""Who answers, in this order; the bridge, which comes last, where there is one."""
SAID_ALONE = SAID[:-1]
"""The same where there is none."""
STEPS = native.available["compiled"] if native.name == "compiled" else None
SHORT_MEMORY = 0.99  # β of the learner that forgets: a hundred readings
ROUNDED = np.float32(16)
OVERLAP_MIN = 20  # readings of old and new sensors together that are worth a regression


@dataclass(frozen=True, slots=True)
class Learning:
    """How every learner of a node is made."""

    classes: int
    lam: float
    rho: float
    forgetting: float
    unlabelled: bool = True
    """Whether readings without a label teach, too."""

    def learner(self, layout: Layout, *, short: bool = False) -> WoodburyLearner:
        """A learner that knows nothing yet."""
        return WoodburyLearner(
            layout.vanishing_columns,
            layout.surviving_columns,
            self.classes,
            self.lam,
            self.rho,
            forgetting=self.forgets(short=short),
        )

    def forgets(self, *, short: bool) -> float:
        """β of the long or of the short memory."""
        return min(self.forgetting, SHORT_MEMORY) if short else self.forgetting


class Together(NamedTuple):
    """The same instances, in the order of time, in the columns of two layouts."""

    old: Columns
    new: Columns


@dataclass(frozen=True, slots=True)
class Parked:
    """What was known before the first of the silent sensors fell silent, should they return."""

    layout: Layout
    learner: WoodburyLearner
    everything: GramLearner | None

    def map(self, follow: Callable[[Any], Any], layout: Layout) -> Parked:
        """The same for another layout."""
        everything = self.everything and follow(self.everything)
        return Parked(layout, follow(self.learner), everything)


class Memories:
    """The layout of the sensors that are alive, and what was learned on it.

    A node runs these memories over sensors that have ids (`LocalModels`), `edge_opid.Classifier`
    over sensors that are just names.
    """

    _logistic_held: tuple[Any, ...] | None = None
    """The logistic memory for the C file, with the arrays it was made of."""
    _room: Vector
    """Working space for the C file, made with it: float64 of shape (c,), for the blend …"""
    _said: Vector
    """… and of shape (4, c), for what each memory says."""

    def __init__(self, full: Layout, learning: Learning) -> None:
        self.learning = learning
        self.full = full
        """The layout with all sensors, the silent ones too: what pushed weights are made for."""
        self.generation = 0
        """Of the sums: what went into those of another generation cannot be taken out again."""
        self._begin()

    def _begin(self) -> None:
        """Know nothing yet, and wait for every sensor."""
        self.generation += 1
        self._settle(self.full)
        self.silent: tuple[str, ...] = ()
        self.bridge: CompactModel | None = None
        self._parked: Parked | None = None
        self._inherited = 0.0  # of the evidence of the parked learner
        self._lent: NDArray[np.float64] | None = None
        """What the logistic memory's weights say in the place of the silent sensors' ones."""
        self.unlike: tuple[str, ...] = ()
        """Who came with the last change in the place of another one, and says something else."""
        self.learner = self.learning.learner(self.layout)
        self.lately = self.learning.learner(self.layout, short=True)
        self.everything = self._nothing_yet(self.layout)
        self.logistic = LogisticMemory(self._straight.names, self.learning.classes)
        self.blend = Blend()

    def _nothing_yet(self, layout: Layout) -> GramLearner | None:
        """Where the sums over all readings are kept. They have no label: one class for all."""
        return GramLearner(0, layout.width, 1) if self.learning.unlabelled else None

    def _settle(self, layout: Layout) -> None:
        self.layout = layout
        self._straight = Straight(layout, self.full)

    @property
    def alive(self) -> Collection[str]:
        """The sensors that are expected to speak."""
        return [sensor for sensor in self.full.names if sensor not in self.silent]

    def role(self, sensor: str) -> str:
        """The name of a sensor's columns."""
        return sensor

    # -- predicting and learning ---------------------------------------------------------------

    def guess(
        self, x: Columns, *, ordered: bool = False
    ) -> tuple[Columns, dict[PredictorName, int]]:
        """What they say, a row for each of `SAID`, and the class that each says.

        `ordered`: whether readings follow each other in the order of time, for `Blend.of`.
        """
        names = SAID_ALONE if self.bridge is None else SAID
        if STEPS is None:
            rows = self._scores_by_numpy(x, ordered=ordered)
            return rows, dict(zip(names, rows.argmax(axis=1).tolist(), strict=True))
        rows = np.empty((len(names), self.learning.classes), np.float32)
        winners = STEPS.guess(*self._held(), x, rows, self._room, ordered)
        if winners is None:
            self.learner.predict_one(x)  # which says what is beyond its limit
        return rows, dict(zip(names, winners, strict=True))

    def _scores_by_numpy(self, x: Columns, *, ordered: bool) -> Columns:
        """The same without the C file, to the same bits where the ridge learners' are."""
        found = {
            PredictorName.LONG: self.learner.predict_one(x),
            PredictorName.LATELY: self.lately.predict_one(x),
            PredictorName.LOGISTIC: self.logistic.scores(self._straight(x)).astype(np.float32),
        }
        if self.bridge is not None:
            found[PredictorName.BRIDGE] = in_order(x, self.bridge.W).astype(np.float32)
        return np.array([self.blend.of(found, ordered=ordered), *found.values()])

    def scores(self, x: Columns) -> dict[PredictorName, Columns]:
        """What the learners, and the bridge where there is one, say: together (own), and each."""
        rows, guesses = self.guess(x)
        return dict(zip(guesses, rows, strict=True))

    def own(self, x: Columns) -> Columns:
        """What they say together."""
        own: Columns = self.guess(x)[0][0]
        return own

    def score_then_learn(self, x: Columns, label: int) -> dict[PredictorName, NDArray[Any]]:
        """One labelled instance, for all memories, and what each had said of it before."""
        if STEPS is None:
            return self._learn_by_numpy(x, label)
        names = BLENDED if self.bridge is not None else BLENDED[:-1]
        return dict(zip(names, self._step(STEPS, x, label, record=False).copy(), strict=False))

    def _step(self, steps: ModuleType, x: Columns, label: int, *, record: bool) -> Vector:
        """The same by the C file, a row for each; with `record`, the blend takes them down."""
        bad = steps.learn_all(*self._held(), x, label, self._said, record)
        if bad >= 0:
            raise beyond(x, bad, self.learner.settings.limit)
        self.learner.count_learned()
        self.lately.count_learned()
        return self._said

    def _learn_by_numpy(self, x: Columns, label: int) -> dict[PredictorName, NDArray[Any]]:
        # What they say before they learn costs nothing: the step computes it anyway.
        found: dict[PredictorName, NDArray[Any]] = {
            PredictorName.LONG: self.learner.score_then_learn(x, label)[0],
            PredictorName.LATELY: self.lately.score_then_learn(x, label)[0],
            PredictorName.LOGISTIC: self.logistic.score_then_learn(self._straight(x), label),
        }
        if self.bridge is not None:
            found[PredictorName.BRIDGE] = in_order(x, self.bridge.W).astype(np.float32)
        return found

    def _held(self) -> tuple[Any, ...]:
        """All memories as the C file takes them."""
        weights, straight = self.logistic.weights, self._straight
        of = self._logistic_held
        if of is None or of[0] is not weights or of[1] is not straight:
            of = weights, straight, straight.held_with(self.logistic, native.available["compiled"])
            self._logistic_held = of
            self._room = np.empty(self.learning.classes)
            self._said = np.empty((len(BLENDED), self.learning.classes))
        bridge = None if self.bridge is None else self.bridge.W
        return self.learner.held, self.lately.held, of[2], self.blend.errors, bridge

    def __getstate__(self) -> dict[str, Any]:
        """Copied without what is held for the C file, which a copy makes anew."""
        made_anew = "_logistic_held", "_room", "_said"
        return {name: value for name, value in vars(self).items() if name not in made_anew}

    def learn(self, x: Columns, label: int) -> None:
        """One labelled instance, for all memories, and for the weights of the blend."""
        before = self.learner.evidence
        if STEPS is None:
            self.blend.record(self._learn_by_numpy(x, label), label)
        else:
            self._step(STEPS, x, label, record=True)
        if 2 * self.learner.evidence < before + 2:  # it has halved what it knew, to go on
            self.generation += 1

    def unlearn(self, lessons: Sequence[tuple[Columns, int, int]]) -> None:
        """Take back instances of this generation: columns, label, how many were learned since.

        The ridge learners subtract them, exactly. What takes steps keeps them.
        """
        if not lessons:
            return
        X, labels, since = zip(*lessons, strict=True)
        for learner in (self.learner, self.lately):
            weights = learner.settings.forgetting ** np.array(since, float)
            learner.unlearn_many(np.array(X), labels, weights)

    def observe(self, x: Columns) -> None:
        """One instance, whether it will have a label or not: how the sensors go together."""
        if self.everything is None:
            return
        # Adding 16 and taking it away rounds to a millionth of a scale. A value below that is
        # no reading, and as the first one of its sensor it would be divided by.
        if STEPS is None:
            self.everything.learn_one((x + ROUNDED) - ROUNDED, 0)
            return
        bad = STEPS.observe(self.everything.held, x)
        if bad >= 0:
            raise beyond(x, bad, self.everything.settings.limit)
        self.everything.count_learned()

    @property
    def has_few_labels(self) -> bool:
        """Whether most readings had none: then those are worth asking."""
        seen = 0.0 if self.everything is None else self.everything.evidence
        return seen >= READINGS_PER_LABEL * self.learner.evidence

    # -- changes -------------------------------------------------------------------------------

    def silence(self, sensors: Iterable[str], carry: float) -> None:
        """Go on without these, for as long as they say nothing."""
        self.generation += 1
        gone = [sensor for sensor in sensors if sensor in self.alive]
        first = self._parked is None
        if first:
            self._parked = Parked(self.layout, self.learner, self.everything)
        target = self.layout.retire(*map(self.role, gone))
        self._move_to(target, self.layout.change_to(target), carry)
        self.silent = (*self.silent, *gone)
        if first:
            self._inherited = self.learner.evidence
        self._lend()

    def take_back(self, sensors: Iterable[str]) -> None:
        """Take silent sensors back."""
        self.generation += 1
        self.silent = tuple(sensor for sensor in self.silent if sensor not in set(sensors))
        target = self._without_silent()
        self.lately = self.layout.change_to(target).follow(self.lately)
        meanwhile = self.learner.evidence - self._inherited
        if self._parked is not None and self._parked.learner.evidence >= meanwhile:
            self.layout, self.learner = self._parked.layout, self._parked.learner
            self.everything = self._parked.everything
        if self.layout != target:
            change = self.layout.change_to(target)
            self.learner = change.follow(self.learner)
            self.everything = self.everything and change.follow(self.everything)
        self._settle(target)
        self.bridge = None
        self._lend()
        if not self.silent:
            self._parked = None

    def _lend(self) -> None:
        """Let the logistic memory's other weights stand in for those of the silent sensors."""
        self._take_back_lent()
        parked = self._parked
        if not self.silent or parked is None or not self.has_few_labels:
            return
        if parked.everything is not None:
            gram = Straight(parked.layout, self.full).gram(parked.everything.gram())
            self._lent = self.logistic.handed_on([self.role(each) for each in self.silent], gram)
            self.logistic.weights += self._lent

    def _take_back_lent(self) -> None:
        if self._lent is not None:
            self.logistic.weights -= self._lent
            self._lent = None

    def change(
        self,
        full: Layout,
        carry: float,
        replaces: Mapping[str, str] | None = None,
        together: Together | None = None,
    ) -> None:
        """Another layout, for good; `replaces` says whose columns a new sensor continues.

        `together` are instances of the old layout and the new one, where there are any: then the
        new sensors need no label to be of use. One that takes over the columns of another, and says
        something else, is then taken for what it is (`unlike`).
        """
        self.generation += 1
        if together is None or len(together.old) < OVERLAP_MIN:
            together = None
            self._hand_on(full, replaces or {})
        self._lent = self._parked = None  # what was lent stays
        self.full = full
        before, target = self._straight, self._without_silent()
        change = self.layout.change_to(target, replaces)
        self.unlike = () if together is None else _unlike(change, target, together)
        change = change.renewed([c for name in self.unlike for c in target.spans[name]])
        self._move_to(target, change, carry, together)
        self.logistic = self.logistic.follow(self._straight.names, replaces)
        if together is not None:
            self._bend_logistic(before, together, replaces or {})

    def _bend_logistic(
        self, before: Straight, together: Together, replaces: Mapping[str, str]
    ) -> None:
        """Have the logistic memory say of unlike sensors what it said of those before them."""
        for name in self.unlike:
            was, now = (
                before.names.index(replaces.get(name, name)),
                self._straight.names.index(name),
            )
            old = np.array([before(x)[was] for x in together.old])
            new = np.array([self._straight(x)[now] for x in together.new])
            line = regressed(np.column_stack([new, np.ones(len(new))]), old[:, None])
            self.logistic.bend(name, *line[:, 0])

    def _hand_on(self, full: Layout, replaces: Mapping[str, str]) -> None:
        """Have the others take over the logistic memory's weights of sensors that go."""
        gone = {*self.layout.names} - {*full.names, *replaces.values()}
        if gone and self.everything is not None and self.has_few_labels:
            gram = self._straight.gram(self.everything.gram())
            self.logistic.weights += self.logistic.handed_on(gone, gram)

    def rescale(self, full: Layout, clipped: Collection[str] = ()) -> Move:
        """The same sensors with other references, scales or knots: everything learned is moved.

        `clipped` names those of which values were at the gate: those stay where they were. Returns
        how weights for the old full layout follow; raises `MismatchError`, and changes nothing,
        where the two layouts are too far apart.
        """
        move, target = full.move_from(self.full), full.retire(*map(self.role, self.silent))
        living = target.move_from(self.layout)
        parked = self._parked and self._moved_parked(self._parked, full)
        self.generation += 1
        self._take_back_lent()
        self.learner, self.lately = living.follow(self.learner), living.follow(self.lately)
        self.everything = self.everything and living.follow(self.everything)
        self.logistic = self.logistic.rescale(self.full, full, clipped)
        if self.bridge is not None:
            W = (living.weights @ self.bridge.W).astype(np.float32)
            self.bridge = CompactModel(self.bridge.version, W)
        self._parked = parked
        self.full = full
        self._settle(target)
        self._lend()
        return move

    def set_gate(self, gate: float) -> None:
        """Believe values up to another gate; straight columns are the same on either side of it."""
        self._settle(self._without_silent())
        if self._parked is not None:
            before = self._parked.layout
            wider = Layout(before.sensors, before.vanishing, before.pairs, gate=gate)
            self._parked = replace(self._parked, layout=wider)

    def _moved_parked(self, parked: Parked, full: Layout) -> Parked:
        before = parked.layout
        sensors = [sensor for sensor in full.sensors if sensor.name in before.names]
        target = Layout(sensors, before.vanishing, before.pairs, gate=full.gate)
        return parked.map(target.move_from(before).follow, target)

    def _without_silent(self) -> Layout:
        return self.full.retire(*map(self.role, self.silent))

    def _move_to(
        self,
        target: Layout,
        change: Change,
        carry: float,
        together: Together | None = None,
    ) -> None:
        relation = None
        bridge = self._bridged(change)
        if together is not None and change.fresh:
            old, new = (rows.astype(np.float64) for rows in together)
            overlap = Overlap(old, new[:, change.fresh])
            relation = overlap.relation()
            bridge += overlap.correction(self.learner.teacher(), bridge, new)
        self.bridge = CompactModel(0, bridge.astype(np.float32))
        self.blend.forget(PredictorName.BRIDGE)
        self.learner = change.follow(self.learner, carry, relation)
        # What the overlap says holds for its stretch of time, so not all rests on it.
        self.lately = change.follow(self.lately)
        self.everything = self.everything and change.follow(self.everything, relation=relation)
        self._settle(target)

    def _bridged(self, change: Change) -> Matrix:
        """W^(s) for exactly the columns that remain, placed as the next layout has them."""
        places, kept = change.continued
        W = np.zeros((len(change.sources), self.learning.classes))
        if self.everything is not None and self.has_few_labels:
            W[places] = self.learner.distil(kept, self.everything.gram())
        else:
            lost = [each for each in range(self.learner.settings.width) if each not in set(kept)]
            W[places] = self.learner.rearrange([*lost, *kept], len(lost)).weights()[1]
        return W

    def without(self, sensors: Collection[str]) -> Survivors:
        """What is known without these sensors, to predict with; nothing here changes."""
        target = self.layout.retire(*map(self.role, sensors))
        change = self.layout.change_to(target)
        learners = {PredictorName.LONG: self.learner, PredictorName.LATELY: self.lately}
        solved = {n: CompactModel(0, change.follow(k).weights()[0]) for n, k in learners.items()}
        return Survivors(target, solved, self.blend)

    def merge(self, other: Memories, places: Sequence[int]) -> None:
        """Add what another one's ridge learners know; its class k is the class places[k] here.

        All its sensors must be here. Sums add up exactly. Steps do not: the logistic memory starts
        anew, and so does the blend, as who was right before says little of who is right now.
        """
        self.generation += 1
        columns, classes = self.layout.columns_from(other.layout), self.learning.classes
        for mine, theirs in ((self.learner, other.learner), (self.lately, other.lately)):
            mine.merge(theirs.summary("float64").mapped(columns, places, classes))
        if self.everything is not None and other.everything is not None:
            self.everything.merge(other.everything.summary("float64").mapped(columns, [0], 1))
        self.logistic = LogisticMemory(self._straight.names, classes)
        self.blend = Blend()
        self.bridge = self._lent = None
        self._parked = None  # it has not seen the other's readings

    def add_classes(self, classes: int) -> None:
        """Have this many classes, the new ones last: what is known of the others stays, exactly."""
        known = self.learning.classes
        self.with_classes([*range(known), *[None] * (classes - known)])

    def with_classes(self, sources: Sequence[int | None]) -> None:
        """Let class k continue class `sources[k]`, or be a new one (None); exactly."""
        self.learning = replace(self.learning, classes=len(sources))
        self._learners_become(lambda learner: learner.with_classes(sources))
        self.logistic = self.logistic.with_classes(sources)
        if self._lent is not None:
            self._lent = with_columns(self._lent, sources)
        if self.bridge is not None:
            self.bridge = CompactModel(0, with_columns(self.bridge.W, sources))

    def with_ridge(self, lam: float, rho: float, forgetting: float) -> None:
        """Learn on with another λ, ρ and β from the same readings."""
        if forgetting != self.learning.forgetting:
            self.generation += 1  # what a reading still counts for is no power of β any more
        self.learning = replace(self.learning, lam=lam, rho=rho, forgetting=forgetting)
        lately = self.learning.forgets(short=True)
        short = self.lately.with_ridge(lam, rho, lately)
        self._learners_become(lambda learner: learner.with_ridge(lam, rho, forgetting))
        self.lately = short

    def learn_unlabelled(self, unlabelled: bool) -> None:
        """Begin to learn from readings without labels, or forget what was learned from them."""
        if unlabelled == self.learning.unlabelled:
            return
        self._take_back_lent()
        self.learning = replace(self.learning, unlabelled=unlabelled)
        self.everything = self._nothing_yet(self.layout)
        if self._parked is not None:
            nothing = self._nothing_yet(self._parked.layout)
            self._parked = replace(self._parked, everything=nothing)

    def _learners_become(self, other: Callable[[WoodburyLearner], WoodburyLearner]) -> None:
        self.learner, self.lately = other(self.learner), other(self.lately)
        if self._parked is not None:
            self._parked = replace(self._parked, learner=other(self._parked.learner))

    # -- saving --------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of state, with what is parked."""
        parked = self._parked
        gram = [self.everything, parked.everything if parked else None]
        ridge = [self.learner, self.lately, *([parked.learner] if parked else [])]
        bytes_of = [each.nbytes for each in (*ridge, *gram, self.logistic) if each is not None]
        return sum(bytes_of) + (self.bridge.W.nbytes if self.bridge else 0)

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restore`."""
        parked = self._parked and {
            "layout": self._parked.layout.to_dict(),
            "learner": self._parked.learner.state(),
            "everything": self._parked.everything and self._parked.everything.state(),
        }
        return {
            "layout": self.layout.to_dict(),
            "learner": self.learner.state(),
            "lately": self.lately.state(),
            "everything": self.everything and self.everything.state(),
            "logistic": self.logistic.state(),
            "silent": self.silent,
            "bridge": self.bridge and self.bridge.state(),
            "blend": self.blend.state(),
            "parked": parked,
            "inherited": self._inherited,
            "unlike": self.unlike,
            "lent": self._lent,
            "generation": self.generation,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Be what `state` described; `full` and `learning` are as they were then."""
        self._settle(Layout.from_dict(saved["layout"]))
        self.learner = WoodburyLearner.from_state(saved["learner"])
        self.lately = WoodburyLearner.from_state(saved["lately"])
        self.logistic = LogisticMemory.from_state(saved["logistic"])
        self.silent = tuple(saved["silent"])
        self.bridge = CompactModel.from_state(saved["bridge"]) if saved["bridge"] else None
        self.blend = Blend.from_state(saved["blend"])
        self.everything = _restored(saved["everything"])
        if parked := saved["parked"]:
            self._parked = Parked(
                Layout.from_dict(parked["layout"]),
                WoodburyLearner.from_state(parked["learner"]),
                _restored(parked["everything"]),
            )
        self._inherited, self._lent = saved["inherited"], saved["lent"]
        self.unlike = tuple(saved["unlike"])
        self.generation = saved["generation"]


def _unlike(change: Change, target: Layout, together: Together) -> tuple[str, ...]:
    """The sensors of the next layout that say something else than those whose columns they have."""
    old, new = (rows.astype(np.float64) for rows in together)
    found = []
    for name, span in target.spans.items():
        sources = [source for place in span if (source := change.sources[place]) is not None]
        same, mine = old[:, sources], new[:, list(span)]
        if sources and not np.array_equal(same, mine) and Overlap(old, mine).is_unlike(same):
            found.append(name)
    return tuple(found)


def _restored(saved: dict[str, Any] | None) -> GramLearner | None:
    return GramLearner.from_state(saved) if saved else None


@dataclass(frozen=True, slots=True)
class Survivors:
    """The ridge learners, solved for exactly the sensors that a reading has.

    A missing sensor then does not mislead, as a value at its reference would. The logistic memory
    has no sums to solve anew and is left out.
    """

    layout: Layout
    models: Mapping[PredictorName, CompactModel]
    blend: Blend

    def own(self, x: Columns) -> Columns:
        """What they say together."""
        return self.blend.of({name: model.scores(x) for name, model in self.models.items()})
