"""A node's sensors and what it has learned through them: one layout, one learner, and the changes.

- A sensor falls **silent**: the node bridges at once, with W^(s) for the sensors that remain, and
  goes on with a learner that has inherited their statistics. The full learner is parked.
- It **returns** before anybody retired it: the full learner is taken back, unless more has been
  learned without it than with it; then the sensor joins as a new one.
- The gateway **orders** another layout: the learner inherits whatever remains.

Beside the learner, which remembers everything, runs one that forgets: where the world drifts it is
the better one, and its record tells how much a change should carry (docs/decisions/0005). A third
memory takes small steps on the sensors' plain values (docs/decisions/0014). What the node itself
says is a blend of all three, and of the bridge where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layout import Change, Layout
from ..learner import WoodburyLearner
from ..model import CompactModel
from ..wire import SensorDescription
from .desired import layout_of
from .logistic import LogisticMemory, Straight
from .scoreboard import Blend

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


class Senses:
    """The sensors of a node, by id; the layout of those alive; what was learned on it."""

    def __init__(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str],
        gate: float,
        learning: Learning,
    ) -> None:
        self.learning = learning
        self._describe(sensors, vanishing, gate)
        self._begin()
        self.silent: tuple[str, ...] = ()
        self.bridge: CompactModel | None = None
        self._parked: tuple[Layout, WoodburyLearner] | None = None
        self._inherited = 0.0  # of the evidence of the parked learner

    def _describe(
        self, sensors: Sequence[SensorDescription], vanishing: Sequence[str], gate: float
    ) -> None:
        self.sensors = {sensor.id: sensor for sensor in sensors}
        self.vanishing, self.gate = tuple(vanishing), gate
        self.full = layout_of(sensors, vanishing, gate)
        """The layout with all sensors, the silent ones too: what pushed weights are made for."""

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
        if not self.silent:
            return self.sensors.keys()
        return [sensor for sensor in self.sensors if sensor not in self.silent]

    def by_role(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values of living sensors, by the role that names their columns."""
        roles, silent = self.sensors, self.silent
        return {roles[s].role: v for s, v in values.items() if s in roles and s not in silent}

    def encode(self, values: Mapping[str, float]) -> Columns:
        """The learner's columns; a value beyond the gate counts as one at the gate."""
        return self.layout.encode(self.by_role(values), clip_gated=True)

    def encode_full(self, values: Mapping[str, float]) -> Columns:
        """The columns that pushed weights are made for."""
        if not self.silent:
            return self.encode(values)
        return self.full.encode(self.by_role(values), clip_gated=True)

    def scores(self, x: Columns) -> dict[str, Columns]:
        """What the learners, and the bridge where there is one, say: together (own), and each."""
        found = {
            "long": self.learner.predict_one(x),
            "lately": self.lately.predict_one(x),
            "logistic": self.logistic.scores(self._straight(x)).astype(np.float32),
        }
        if self.bridge is not None:
            found["bridge"] = self.bridge.scores(x)
        return {"own": self.blend.of(found), **found}

    def learn(self, x: Columns, label: int) -> None:
        """One labelled instance, for all memories, and for the weights of the blend."""
        # What they say before they learn costs nothing: the step computes it anyway.
        found = {
            "long": self.learner.score_then_learn(x, label)[0],
            "lately": self.lately.score_then_learn(x, label)[0],
            "logistic": self.logistic.score_then_learn(self._straight(x), label),
        }
        if self.bridge is not None:
            found["bridge"] = self.bridge.scores(x)
        self.blend.record(found, label)

    # -- changes -------------------------------------------------------------------------------

    def silence(self, sensors: Iterable[str], carry: float) -> None:
        """Go on without these, for as long as they say nothing."""
        gone = [sensor for sensor in sensors if sensor in self.alive]
        first = self._parked is None
        if first:
            self._parked = self.layout, self.learner
        roles = [self.sensors[sensor].role for sensor in gone]
        self._move_to(self.layout.retire(*roles), carry)
        self.silent = (*self.silent, *gone)
        if first:
            self._inherited = self.learner.evidence

    def welcome(self, sensors: Iterable[str]) -> None:
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

    def obey(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str],
        gate: float,
        carry: float,
    ) -> None:
        """The gateway's next layout."""
        ids = {sensor.id for sensor in sensors}
        silent = tuple(sensor for sensor in self.silent if sensor in ids)
        self.silent = silent if len(silent) < len(ids) else ()  # at least one is waited for
        self._describe(sensors, vanishing, gate)
        self._parked = None
        self._move_to(self._without_silent(), carry)
        self.logistic = self.logistic.follow(self._straight.names)

    def are(
        self, sensors: Sequence[SensorDescription], vanishing: Sequence[str], gate: float
    ) -> bool:
        """Whether this is what they are already."""
        mine = tuple(self.sensors.values()), self.vanishing, self.gate
        return mine == (tuple(sensors), tuple(vanishing), gate)

    def start_over(self, sensors: Sequence[SensorDescription]) -> None:
        """A better estimate of references and scales, while the warm-up lasts."""
        self._describe(sensors, self.vanishing, self.gate)
        self._begin()

    def _without_silent(self) -> Layout:
        return self.full.retire(*(self.sensors[sensor].role for sensor in self.silent))

    def _move_to(self, target: Layout, carry: float) -> None:
        change = self.layout.change_to(target)
        self.bridge = CompactModel(0, bridging(self.learner, change))
        self.blend.forget("bridge")
        self.learner = change.follow(self.learner, carry)
        self.lately = change.follow(self.lately)
        self._settle(target)

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restored`."""
        parked = self._parked and [self._parked[0].to_dict(), self._parked[1].state()]
        return {
            "sensors": [sensor.plain() for sensor in self.sensors.values()],
            "vanishing": self.vanishing,
            "gate": self.gate,
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

    @classmethod
    def restored(cls, saved: Mapping[str, Any], learning: Learning) -> Senses:
        """The senses that `state` described."""
        described = [
            SensorDescription(**{**plain, "knots": tuple(plain.get("knots", ()))})
            for plain in saved["sensors"]
        ]
        senses = cls(described, tuple(saved["vanishing"]), saved["gate"], learning)
        senses._settle(Layout.from_dict(saved["layout"]))
        senses.learner = WoodburyLearner.from_state(saved["learner"])
        senses.lately = WoodburyLearner.from_state(saved["lately"])
        if "logistic" in saved:  # older snapshots have none: it starts anew
            senses.logistic = LogisticMemory.from_state(saved["logistic"])
        senses.silent = tuple(saved["silent"])
        senses.bridge = CompactModel.from_state(saved["bridge"]) if saved["bridge"] else None
        senses.blend = Blend.from_state(saved.get("blend", {}))  # older snapshots have none
        if saved["parked"]:
            layout, learner = saved["parked"]
            senses._parked = Layout.from_dict(layout), WoodburyLearner.from_state(learner)
        senses._inherited = saved["inherited"]
        return senses


def bridging(learner: WoodburyLearner, change: Change) -> NDArray[np.float32]:
    """W^(s) for exactly the columns that remain, placed as the next layout has them."""
    kept = [source for source in change.sources if source is not None]
    lost = [column for column in range(learner.settings.width) if column not in set(kept)]
    W = np.zeros((len(change.sources), learner.settings.classes), np.float32)
    places = [place for place, source in enumerate(change.sources) if source is not None]
    W[places] = learner.rearrange([*lost, *kept], len(lost)).weights()[1]
    return W
