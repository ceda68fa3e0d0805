"""What was learned through some sensors: three memories, their blend, and how they follow changes.

- A sensor falls **silent**: W^(s) for the sensors that remain bridges at once, and a learner goes
  on that has inherited their statistics. The full learner is parked.
- It **returns** before anybody retired it: the full learner is taken back, unless more has been
  learned without it than with it; then the sensor joins as a new one.
- **Another layout** is wanted: the learner inherits whatever remains.

Beside the learner, which remembers everything, runs one that forgets: where the world drifts it is
the better one, and its record tells how much a change should carry (docs/decisions/0005). A third
memory takes small steps on the sensors' plain values (docs/decisions/0014). What they say together
is a blend of all three, and of the bridge where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.layout import Change, Layout
from edge_opid.learner import WoodburyLearner
from edge_opid.models.matrix import CompactModel
from edge_opid.node.logistic import LogisticMemory, Straight
from edge_opid.node.scoreboard import Blend, PredictorName

Columns = NDArray[np.float32]
SHORT_MEMORY = 0.99  # β of the learner that forgets: a hundred readings


@dataclass(frozen=True, slots=True)
class Learning:
    """How every learner of a node is made."""

    classes: int
    lam: float
    rho: float
    forgetting: float

    def learner(self, layout: Layout, *, short: bool = False) -> WoodburyLearner:
        """A learner that knows nothing yet."""
        return WoodburyLearner(
            layout.vanishing_columns,
            layout.surviving_columns,
            self.classes,
            self.lam,
            self.rho,
            forgetting=min(self.forgetting, SHORT_MEMORY) if short else self.forgetting,
        )


class Memories:
    """The layout of the sensors that are alive, and what was learned on it.

    A node runs these memories over sensors that have ids (`LocalModels`), `edge_opid.Classifier`
    over sensors that are just names.
    """

    def __init__(self, full: Layout, learning: Learning) -> None:
        self.learning = learning
        self.full = full
        """The layout with all sensors, the silent ones too: what pushed weights are made for."""
        self._begin()
        self.silent: tuple[str, ...] = ()
        self.bridge: CompactModel | None = None
        self._parked: tuple[Layout, WoodburyLearner] | None = None
        self._inherited = 0.0  # of the evidence of the parked learner

    def _begin(self) -> None:
        self._settle(self.full)
        self.learner = self.learning.learner(self.layout)
        self.lately = self.learning.learner(self.layout, short=True)
        self.logistic = LogisticMemory(self._straight.names, self.learning.classes)
        self.blend = Blend()

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

    def scores(self, x: Columns) -> dict[PredictorName, Columns]:
        """What the learners, and the bridge where there is one, say: together (own), and each."""
        found = {
            PredictorName.LONG: self.learner.predict_one(x),
            PredictorName.LATELY: self.lately.predict_one(x),
            PredictorName.LOGISTIC: self.logistic.scores(self._straight(x)).astype(np.float32),
        }
        if self.bridge is not None:
            found[PredictorName.BRIDGE] = self.bridge.scores(x)
        return {PredictorName.OWN: self.blend.of(found), **found}

    def own(self, x: Columns) -> Columns:
        """What they say together."""
        return self.scores(x)[PredictorName.OWN]

    def score_then_learn(self, x: Columns, label: int) -> dict[PredictorName, NDArray[Any]]:
        """One labelled instance, for all memories, and what each had said of it before."""
        # What they say before they learn costs nothing: the step computes it anyway.
        found: dict[PredictorName, NDArray[Any]] = {
            PredictorName.LONG: self.learner.score_then_learn(x, label)[0],
            PredictorName.LATELY: self.lately.score_then_learn(x, label)[0],
            PredictorName.LOGISTIC: self.logistic.score_then_learn(self._straight(x), label),
        }
        if self.bridge is not None:
            found[PredictorName.BRIDGE] = self.bridge.scores(x)
        return found

    def learn(self, x: Columns, label: int) -> None:
        """One labelled instance, for all memories, and for the weights of the blend."""
        self.blend.record(self.score_then_learn(x, label), label)

    # -- changes -------------------------------------------------------------------------------

    def silence(self, sensors: Iterable[str], carry: float) -> None:
        """Go on without these, for as long as they say nothing."""
        gone = [sensor for sensor in sensors if sensor in self.alive]
        first = self._parked is None
        if first:
            self._parked = self.layout, self.learner
        self._move_to(self.layout.retire(*map(self.role, gone)), carry)
        self.silent = (*self.silent, *gone)
        if first:
            self._inherited = self.learner.evidence

    def take_back(self, sensors: Iterable[str]) -> None:
        """Take silent sensors back."""
        self.silent = tuple(sensor for sensor in self.silent if sensor not in set(sensors))
        target = self._without_silent()
        self.lately = self.layout.change_to(target).follow(self.lately)
        meanwhile = self.learner.evidence - self._inherited
        if self._parked is not None and self._parked[1].evidence >= meanwhile:
            self.layout, self.learner = self._parked
        if self.layout != target:
            self.learner = self.layout.change_to(target).follow(self.learner)
        self._settle(target)
        self.bridge = None
        if not self.silent:
            self._parked = None

    def change(self, full: Layout, carry: float, replaces: Mapping[str, str] | None = None) -> None:
        """Another layout, for good; `replaces` says whose columns a new sensor continues."""
        self.full = full
        self._parked = None
        self._move_to(self._without_silent(), carry, replaces)
        self.logistic = self.logistic.follow(self._straight.names, replaces)

    def _without_silent(self) -> Layout:
        return self.full.retire(*map(self.role, self.silent))

    def _move_to(
        self, target: Layout, carry: float, replaces: Mapping[str, str] | None = None
    ) -> None:
        change = self.layout.change_to(target, replaces)
        self.bridge = CompactModel(0, bridging(self.learner, change))
        self.blend.forget(PredictorName.BRIDGE)
        self.learner = change.follow(self.learner, carry)
        self.lately = change.follow(self.lately)
        self._settle(target)

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
        columns, classes = self.layout.columns_from(other.layout), self.learning.classes
        for mine, theirs in ((self.learner, other.learner), (self.lately, other.lately)):
            mine.merge(theirs.summary("float64").mapped(columns, places, classes))
        self.logistic = LogisticMemory(self._straight.names, classes)
        self.blend = Blend()
        self.bridge = None
        self._parked = None  # it has not seen the other's readings

    def add_classes(self, classes: int) -> None:
        """Have this many classes, the new ones last: what is known of the others stays, exactly."""
        more = classes - self.learning.classes
        self.learning = replace(self.learning, classes=classes)
        self.learner = self.learner.add_classes(more)
        self.lately = self.lately.add_classes(more)
        self.logistic = self.logistic.add_classes(more)
        if self.bridge is not None:
            self.bridge = CompactModel(0, np.pad(self.bridge.W, ((0, 0), (0, more))))
        if self._parked is not None:
            layout, learner = self._parked
            self._parked = layout, learner.add_classes(more)

    # -- saving --------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of state, with what is parked."""
        parts = [self.learner.nbytes, self.lately.nbytes, self.logistic.nbytes]
        parts += [self.bridge.W.nbytes] if self.bridge else []
        return sum(parts) + (self._parked[1].nbytes if self._parked else 0)

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restore`."""
        parked = self._parked and [self._parked[0].to_dict(), self._parked[1].state()]
        return {
            "layout": self.layout.to_dict(),
            "learner": self.learner.state(),
            "lately": self.lately.state(),
            "logistic": self.logistic.state(),
            "silent": self.silent,
            "bridge": self.bridge and self.bridge.state(),
            "blend": self.blend.state(),
            "parked": parked,
            "inherited": self._inherited,
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
        if saved["parked"]:
            layout, learner = saved["parked"]
            self._parked = Layout.from_dict(layout), WoodburyLearner.from_state(learner)
        self._inherited = saved["inherited"]


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


def bridging(learner: WoodburyLearner, change: Change) -> Columns:
    """W^(s) for exactly the columns that remain, placed as the next layout has them."""
    kept = [source for source in change.sources if source is not None]
    lost = [column for column in range(learner.settings.width) if column not in set(kept)]
    W = np.zeros((len(change.sources), learner.settings.classes), np.float32)
    places = [place for place, source in enumerate(change.sources) if source is not None]
    W[places] = learner.rearrange([*lost, *kept], len(lost)).weights()[1]
    return W
