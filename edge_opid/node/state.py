"""The durable half of a node: everything it must not forget, and how it is saved.

It is a fold over the node's inputs, which gives the same bits every time: `inputs.apply` changes
it, and nothing else does. Each field below is an idea with a module of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import astuple
from typing import Any, Self

from edge_opid.config.node import NodeSettings
from edge_opid.node.asking import Asking
from edge_opid.node.compiled_time_layer import restored_time_layer, time_layer
from edge_opid.node.configuration import Memory, described
from edge_opid.node.effects import ExampleReporter
from edge_opid.node.joining import InstanceJoiner, OwnInstances
from edge_opid.node.last_values import Held, LastValues
from edge_opid.node.local_models import LocalModels
from edge_opid.node.memories import Learning
from edge_opid.node.newcomers import Newcomers
from edge_opid.node.orders import Standing
from edge_opid.node.pushed_models import CURRENT, PushedModels
from edge_opid.node.recent import Recent
from edge_opid.node.scales import NodeScales
from edge_opid.node.scoreboard import ClassFrequency, PredictorName, Scoreboard
from edge_opid.node.silence import SilenceDetector
from edge_opid.node.sources import SourceRegister
from edge_opid.node.trial import Doubt, Trial
from edge_opid.node.truth import StandingTruth
from edge_opid.node.warmup import NodeWarmUp, SensorsMeasured


class NodeState:
    """Everything a node must not forget.

    The settings are part of it: `Configured` is the first input, and every change of them is one.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self.take_settings(settings)
        learning = Learning(
            len(settings.classes),
            settings.lam,
            settings.rho,
            settings.forgetting,
            settings.learn_unlabelled,
        )
        self.warmup = NodeWarmUp.needed(settings)
        given = tuple(described(sensor) for sensor in settings.sensors)
        sensors = self.warmup.guessed() if self.warmup else given
        self.local_models = LocalModels(sensors, settings.vanishing, settings.gate, learning)
        self.measuring = SensorsMeasured(settings, {})
        self.scales = NodeScales(settings)
        self.register = SourceRegister()
        self.last = LastValues()
        self.silence = SilenceDetector(self.last)
        self.standing_truth = StandingTruth()
        self.own_instances = OwnInstances()
        self.joiner = InstanceJoiner(settings.window_ms)
        self.recent = Recent(settings.recent)
        self.newcomers = Newcomers()
        self.scoreboard = Scoreboard()
        self.time_layer = time_layer(len(settings.classes))
        self.frequency = ClassFrequency([0] * len(settings.classes))
        self.pushed_models = PushedModels()
        self.asking = Asking()
        self.trial = Trial()
        self.doubt: Doubt | None = None
        """The last weights that came, if they contradict what this node has seen."""
        self.knows_less = 0
        """The version of the weights that know less of new sensors than this node; 0 for none."""
        self.examples = ExampleReporter()
        self.version, self.content, self.layout_version = 0, "", 0

    @property
    def expected(self) -> dict[str, tuple[int, int]]:
        """source: (boot, next sequence number)"""
        return self.register.expected

    def take_settings(self, settings: NodeSettings) -> None:
        """Go by these settings; `reconfiguring` lets everything else follow them."""
        self.settings = settings
        self._holds = _holds(settings)

    # -- what is so ----------------------------------------------------------------------------

    @property
    def is_ordered(self) -> bool:
        """Whether a gateway has the say over the layout."""
        return self.layout_version > 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The learners' columns by name; none while what they mean is still being estimated."""
        return self.local_models.layout.columns if self.warmup is None else ()

    @property
    def doubted(self) -> Doubt | None:
        """The doubt, for as long as labels have not spoken for the weights after all."""
        if self.doubt is None or self.pushed_models.version() != self.doubt.version:
            return self.doubt
        return None if self.scoreboard.is_ahead(CURRENT, PredictorName.OWN) else self.doubt

    def known(self, values: Mapping[str, float]) -> dict[str, float]:
        """What instances are made of: sensors with columns, and those a warm-up may give some."""
        known = self.local_models.sensors.keys()
        sensors = known if self.warmup is None else {*known, *self.warmup.names}
        if type(values) is dict and values.keys() <= sensors:
            return values  # all of them, as nearly always
        return {sensor: value for sensor, value in values.items() if sensor in sensors}

    def with_held(self, values: Mapping[str, float], now_ms: int) -> Held:
        """The values of a moment, and what is held of the living sensors that are missing."""
        return self.last.with_held(values, now_ms, self.local_models.alive, self._hold_ms)

    def _hold_ms(self, sensor: str) -> int | None:
        given = self._holds.get(sensor)
        return self.silence.hold_ms(sensor, self.local_models) if given is None else given

    def overdue(self, since_ms: int) -> tuple[str, ...]:
        """Sensors to be declared silent; nobody is while their references are being estimated."""
        return () if self.warmup else self.silence.overdue(self.local_models, since_ms)

    def standing(self) -> Standing:
        """What a document of the gateway is judged against."""
        mine, local_models = self.settings, self.local_models
        return Standing(
            site=mine.site,
            node=mine.node,
            classes=mine.classes,
            version=self.version,
            content=self.content,
            layout_version=self.layout_version,
            sensors=tuple(local_models.sensors.values()),
            vanishing=local_models.vanishing,
            lam=mine.lam,
            rho=mine.rho,
        )

    def remembered(self) -> Memory:
        """What a configuration is compared with."""
        local_models = self.local_models
        return Memory(
            settings=self.settings,
            sensors=local_models.sensors,
            vanishing=local_models.vanishing,
            gate=local_models.gate,
            measuring=self.measuring.until,
            ordered=self.version > 0,
            warming_up=self.warmup is not None,
        )

    def take_overlap(self, arrived: Collection[str]) -> list[dict[str, float]]:
        """Recent instances in which these spoke beside the others; they are no newcomers now."""
        self.newcomers.admit(arrived)
        return self.recent.with_all([*self.local_models.alive, *arrived]) if arrived else []

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restored`."""
        made = {name: part() if callable(part) else part for name, part in self.parts().items()}
        return {**made, "recent": self.recent.state()}

    def parts(self) -> dict[str, Any]:
        """The same, but large parts as functions that make them, for `pack_state`.

        So a snapshot needs no second copy of everything at once: a node's memory would stay as
        large as that.
        """
        return {
            "settings": self.settings.plain,
            "local_models": self.local_models.state,
            "warmup": self.warmup and self.warmup.state,
            "measuring": self.measuring.state,
            "scales": self.scales.state,
            "register": self.register.state,
            "last": self.last.state,
            "silence": self.silence.state,
            "truth": self.standing_truth.state,
            "made": list(astuple(self.own_instances)),
            "joiner": self.joiner.state,
            "recent": self.recent.parts,
            "newcomers": self.newcomers.state,
            "scoreboard": self.scoreboard.state,
            "time_layer": self.time_layer.state,
            "frequency": self.frequency.counts,
            "pushed_models": self.pushed_models.state,
            "asking": self.asking.state,
            "trial": self.trial.state,
            "doubt": list(astuple(self.doubt)) if self.doubt else [],
            "knows_less": self.knows_less,
            "examples_owed": self.examples.owed,
            "versions": [self.version, self.content, self.layout_version],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """The state that `state` described."""
        settings = NodeSettings.restored(saved["settings"])
        mine = cls(settings)
        learning = mine.local_models.learning
        mine.local_models = LocalModels.restored(saved["local_models"], learning)
        mine.measuring = SensorsMeasured.restored(saved["measuring"], settings)
        mine.warmup = None
        if saved["warmup"]:
            mine.warmup = NodeWarmUp.restored(saved["warmup"], settings, mine.measuring.until)
        mine.scales = NodeScales.restored(saved["scales"], settings)
        mine.register = SourceRegister.restored(saved["register"])
        mine.last = LastValues.restored(saved["last"])
        mine.silence = SilenceDetector.restored(saved["silence"], mine.last)
        mine.standing_truth = StandingTruth.restored(saved["truth"])
        mine.own_instances = OwnInstances(*saved["made"])
        mine.joiner = InstanceJoiner.from_state(saved["joiner"], settings.window_ms)
        mine.recent = Recent.from_state(saved["recent"], settings.recent)
        mine.newcomers = Newcomers.restored(saved["newcomers"])
        mine.scoreboard = Scoreboard.from_state(saved["scoreboard"])
        mine.time_layer = restored_time_layer(saved["time_layer"])
        mine.frequency = ClassFrequency(saved["frequency"])
        mine.pushed_models = PushedModels.restored(saved["pushed_models"])
        mine.asking = Asking.restored(saved["asking"])
        mine.trial = Trial.restored(saved["trial"])
        mine.doubt = Doubt(*saved["doubt"]) if saved["doubt"] else None
        mine.knows_less = saved["knows_less"]
        mine.examples = ExampleReporter(saved["examples_owed"])
        mine.version, mine.content, mine.layout_version = saved["versions"]
        return mine


def _holds(settings: NodeSettings) -> dict[str, int]:
    """For how long the value of a sensor is held, in ms, where the configuration says so."""
    given = {sensor.id: sensor.hold_s for sensor in settings.sensors}
    return {sensor: int(1000 * hold_s) for sensor, hold_s in given.items() if hold_s is not None}
