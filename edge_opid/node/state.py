"""The durable half of a node: a fold over its inputs, which gives the same bits every time.

Nothing here reads a clock, rolls dice or talks to anyone. `apply` changes the state and returns
what happened, for `Node` to tell the world; on replay nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, Self

import numpy as np

from edge_opid.config.node import NodeConfig
from edge_opid.errors import OpidError
from edge_opid.models import HeldModel, model_from_weights
from edge_opid.native.rescue import watch
from edge_opid.node.effects import (
    Effect,
    ExampleReporter,
    Forgotten,
    Noted,
    Predicted,
    summarised,
)
from edge_opid.node.joining import Instance, InstanceJoiner
from edge_opid.node.journal_records import Accepted, Closed, Input, Labelled, Ordered, Silenced
from edge_opid.node.local_models import LocalModels
from edge_opid.node.memories import Columns, Learning
from edge_opid.node.orders import Standing
from edge_opid.node.pushed_models import CURRENT, PushedModels
from edge_opid.node.recent import Entry, Recent
from edge_opid.node.scoreboard import PREFERENCE, PredictorName, Scoreboard
from edge_opid.node.silence import SilenceDetector
from edge_opid.node.sources import SourceRegister
from edge_opid.node.trial import Doubt, Trial, tried
from edge_opid.node.warmup import NodeWarmUp
from edge_opid.wire import (
    Desired,
    InstanceId,
    SensorDescription,
    SensorReturned,
    SensorSilent,
    decode,
    digest,
)


class NodeState:
    """Everything a node must not forget."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.learning = Learning(len(config.classes), config.lam, config.rho, config.forgetting)
        self.warmup = NodeWarmUp.needed(config)
        sensors = self.warmup.guessed() if self.warmup else described(config)
        self.local_models = LocalModels(sensors, config.vanishing, config.gate, self.learning)
        self.register = SourceRegister()
        self.silence = SilenceDetector()
        self.joiner = InstanceJoiner(config.window_ms)
        self.recent = Recent(config.recent)
        self.scoreboard = Scoreboard()
        self.frequency = [0] * len(config.classes)
        self._frequent: Columns | None = None  # the shares of the classes, until the next label
        self.pushed_models = PushedModels()
        self.trial = Trial()
        self.doubt: Doubt | None = None
        """The last weights that came, if they contradict what this node has seen."""
        self.examples = ExampleReporter()
        self.version, self.content, self.layout_version = 0, "", 0
        self._handlers: dict[type[Any], Callable[[Any], list[Effect]]] = {
            Accepted: self._accepted,
            Labelled: self._labelled,
            Closed: self._closed,
            Silenced: self._silenced,
            Ordered: self._ordered,
        }

    @property
    def expected(self) -> dict[str, tuple[int, int]]:
        """source: (boot, next sequence number)"""
        return self.register.expected

    def apply(self, change: Input) -> list[Effect]:
        """Change as this input says.

        An input that got this far should not fail. If one does, it is noted, and stays in the
        journal: replay fails at the same place and leaves the same bits, where an error thrown
        from here would leave a state that its journal does not explain.
        """
        try:
            return self._handlers[type(change)](change)
        except OpidError as error:
            return [Noted("input-failed", str(error))]

    # -- readings ------------------------------------------------------------------------------

    def _accepted(self, change: Accepted) -> list[Effect]:
        known = {s: v for s, v in change.values.items() if s in self.local_models.sensors}
        effects: list[Effect] = [Noted("unknown-sensor")] * (len(change.values) - len(known))
        forgotten = self.register.record(
            change.source, change.boot, change.seq, change.now_ms, useful=bool(known)
        )
        effects += [Forgotten(forgotten)] if forgotten else []
        self.silence.hear(known, change.now_ms)
        silent = self.local_models.silent
        returned = [sensor for sensor in known if sensor in silent] if silent else []
        if returned:
            with watch() as rescued:
                self.local_models.take_back(returned)
            self.scoreboard.forget(PredictorName.BRIDGE)
            effects += noted_rescues(rescued)
            effects += [SensorReturned(sensor, change.now_ms) for sensor in returned]
        if not known:
            return effects
        number = InstanceId(change.source, change.boot, change.seq)
        complete = self.joiner.add(
            change.now_ms, change.time_ms, number, known, change.label, self.local_models.alive
        )
        for each in complete:
            effects += self._instance(each)
        return effects

    def _closed(self, change: Closed) -> list[Effect]:
        complete = self.joiner.close(change.now_ms)
        return [effect for each in complete for effect in self._instance(each)]

    def _instance(self, instance: Instance) -> list[Effect]:
        """Predict, then learn."""
        x = self._encoded(instance.values)
        prediction, guesses = self.predicted(instance.values, instance.number, instance.time_ms, x)
        effects: list[Effect] = [prediction]
        truth = self._class_of(instance.label)
        if instance.label is not None and truth is None:
            effects.append(Noted("unknown-class"))
        time_ms, numbers, learned = instance.time_ms, instance.numbers, truth is not None
        entry = Entry.of(time_ms, numbers, instance.values, guesses, learned, self.layout_version)
        self.recent.remember(entry)
        if truth is None:
            effects += self._warm(instance.values, None)[1]
        else:
            effects += self._learn(entry, instance.values, truth, x)
        return effects

    @property
    def columns(self) -> tuple[str, ...]:
        """The learners' columns by name; none while what they mean is still being estimated."""
        return self.local_models.layout.columns if self.warmup is None else ()

    def _encoded(self, values: Mapping[str, float]) -> Columns | None:
        """The learners' columns; None before the warm-up has a first layout."""
        usable = self.warmup is None or self.warmup.usable
        return self.local_models.encode(values) if usable else None

    def predicted(
        self, values: Mapping[str, float], number: InstanceId, time_ms: int, x: Columns | None
    ) -> tuple[Predicted, dict[PredictorName, int]]:
        """What the best predictor says, and what each of them does. Changes nothing."""
        scores = self._scores(values, x)
        guesses = {name: int(found.argmax()) for name, found in scores.items()}
        served = self.scoreboard.best(name for name in self._preference() if name in scores)
        version = self.pushed_models.version(served)
        winner, said, columns = guesses[served], scores[served], self.columns
        made = Predicted(
            instance=number,
            time_ms=time_ms,
            winner=winner,
            scores=said,
            predictor=served,
            model_version=version,
            x=x,
            columns=columns,
        )
        return made, guesses

    def _preference(self) -> tuple[PredictorName, ...]:
        """Whom to serve while nobody is surely ahead; weights in doubt have to be."""
        if self.doubted is None or self.doubted.version != self.pushed_models.version():
            return PREFERENCE
        return (*(name for name in PREFERENCE if name != CURRENT), CURRENT)

    def predicted_unkept(
        self, values: Mapping[str, float], number: InstanceId, time_ms: int
    ) -> Predicted:
        """A prediction for a reading that cannot be kept."""
        return self.predicted(values, number, time_ms, self._encoded(values))[0]

    def _scores(
        self, values: Mapping[str, float], x: Columns | None
    ) -> dict[PredictorName, Columns]:
        if self._frequent is None:
            total = max(1, sum(self.frequency))
            self._frequent = np.array(self.frequency, np.float32) / np.float32(total)
        scores = {PredictorName.FREQUENT: self._frequent}
        if x is not None:
            scores |= self.local_models.scores(x)
        if self.pushed_models:
            full = (
                self.local_models.encode_full(values)
                if x is None or self.local_models.silent
                else x
            )
            scores |= self.pushed_models.scores(full)
        return scores

    # -- labels --------------------------------------------------------------------------------

    def _class_of(self, label: str | None) -> int | None:
        return self.config.classes.index(label) if label in self.config.classes else None

    def _labelled(self, change: Labelled) -> list[Effect]:
        truth = self._class_of(change.label)
        if truth is None:
            return [Noted("unknown-class")]
        tolerance = self.config.label_tolerance_ms
        entry = self.recent.claim(change.instance, change.time_ms, tolerance)
        if not isinstance(entry, Entry):
            return [Noted(entry.reason)]
        values = entry.values
        return self._learn(entry, values, truth, self._encoded(values))

    def _learn(
        self,
        entry: Entry,
        values: Mapping[str, float],
        truth: int,
        x: Columns | None,
    ) -> list[Effect]:
        self.scoreboard.record(entry.guesses, truth)
        self.trial.remember(values, truth)
        self.frequency[truth] += 1
        self._frequent = None
        started_over, noted = self._warm(values, truth)
        if not started_over and x is not None:
            self.local_models.learn(x, truth)
        fell_back = self.pushed_models.fall_back(self.scoreboard)
        examples = self.examples.report(
            entry,
            values,
            self.config.classes[truth],
            self.layout_version,
            self.local_models.sensors,
        )
        noted += [Noted("model-fallback")] if fell_back else []
        return [Noted("learned"), *noted, *examples]

    def _warm(self, values: Mapping[str, float], truth: int | None) -> tuple[bool, list[Effect]]:
        """Keep the reading for a better layout; when one is due, learn all that is kept anew."""
        warmup = self.warmup
        if warmup is None or not warmup.add(values, truth):
            return False, []
        self.local_models.start_over(warmup.estimated())
        for row, label in warmup.sensible_rows():
            if label is not None:
                self.local_models.learn(self.local_models.encode(row), label)
        if not warmup.over:
            return True, []
        self.warmup = None
        return True, [Noted("values-set-aside", sentence) for sentence in warmup.aside()]

    # -- changes of the sensors ----------------------------------------------------------------

    def overdue(self, since_ms: int) -> tuple[str, ...]:
        """Sensors to be declared silent; nobody is while their references are being estimated."""
        return () if self.warmup else self.silence.overdue(self.local_models, since_ms)

    def _silenced(self, change: Silenced) -> list[Effect]:
        gone = [sensor for sensor in change.sensors if sensor in self.local_models.alive]
        if not gone or len(gone) == len(self.local_models.alive):
            return []
        with watch() as rescued:
            self.local_models.silence(gone, self.scoreboard.carry())
        self.scoreboard.forget(PredictorName.BRIDGE)
        heard = self.silence.last
        silent = [SensorSilent(sensor, change.now_ms, heard.get(sensor, 0)) for sensor in gone]
        return [*silent, *noted_rescues(rescued)]

    def standing(self) -> Standing:
        """What a document of the gateway is judged against."""
        mine, local_models = self.config, self.local_models
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

    def _ordered(self, change: Ordered) -> list[Effect]:
        desired = decode(change.document, Desired)
        effects: list[Effect] = []
        if desired.layout_version > self.layout_version:
            effects += self._obey(desired, change.now_ms)
        if desired.weights is not None:
            width, classes = self.local_models.full.width, len(self.config.classes)
            model = model_from_weights(desired.weights, desired.version, width, classes)
            effects += self._pushed(model)
        self.version, self.content = desired.version, digest(change.document)
        self.examples.owed = desired.gather
        return effects

    def _pushed(self, model: HeldModel) -> list[Effect]:
        """Take a model: with a clean record, unless it contradicts what this node has seen."""
        self.pushed_models.push(model, self.scoreboard)
        self.doubt, right = tried(model, self.trial, self.local_models)
        if self.doubt is None:
            return [Noted("model-swapped")]
        for hit in right:
            self.scoreboard.record({CURRENT: 1}, int(hit))
        fell_back = self.pushed_models.fall_back(self.scoreboard)
        doubted = Noted("model-doubted", log=str(self.doubt))
        return [doubted, *([Noted("model-fallback")] if fell_back else [])]

    @property
    def doubted(self) -> Doubt | None:
        """The doubt, for as long as labels have not spoken for the weights after all."""
        if self.doubt is None or self.pushed_models.version() != self.doubt.version:
            return self.doubt
        return None if self.scoreboard.is_ahead(CURRENT, PredictorName.OWN) else self.doubt

    def _obey(self, desired: Desired, now_ms: int) -> list[Effect]:
        effects = summarised(self.local_models, self.layout_version)
        if self.warmup is None and self.local_models.are(
            desired.sensors, desired.vanishing, desired.gate
        ):
            self.layout_version = desired.layout_version  # adopted: another number, nothing else
            return effects
        carry = self.scoreboard.carry()
        arrived = [s.id for s in desired.sensors if s.id not in self.local_models.sensors]
        with watch() as rescued:
            self.local_models.obey(desired.sensors, desired.vanishing, desired.gate, carry)
        effects += noted_rescues(rescued)
        self.silence.expect(self.local_models.sensors, arrived, now_ms)
        self.layout_version, self.warmup = desired.layout_version, None
        self.pushed_models.clear(self.scoreboard)
        self.doubt = None
        self.scoreboard.forget(PredictorName.BRIDGE)
        return [*effects, Noted("layout-changed")]

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restored`."""
        return {
            "local_models": self.local_models.state(),
            "warmup": self.warmup and self.warmup.state(),
            "register": self.register.state(),
            "silence": self.silence.state(),
            "joiner": self.joiner.state(),
            "recent": self.recent.state(),
            "scoreboard": self.scoreboard.state(),
            "frequency": self.frequency,
            "pushed_models": self.pushed_models.state(),
            "trial": self.trial.state(),
            "doubt": list(astuple(self.doubt)) if self.doubt else [],
            "examples_owed": self.examples.owed,
            "versions": [self.version, self.content, self.layout_version],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any], config: NodeConfig) -> Self:
        """The state that `state` described."""
        mine = cls(config)
        mine.local_models = LocalModels.restored(saved["local_models"], mine.learning)
        mine.warmup = NodeWarmUp.restored(saved["warmup"], config) if saved["warmup"] else None
        mine.register = SourceRegister.restored(saved["register"])
        mine.silence = SilenceDetector.restored(saved["silence"])
        mine.joiner = InstanceJoiner.from_state(saved["joiner"], config.window_ms)
        mine.recent = Recent.from_state(saved["recent"], config.recent)
        mine.scoreboard = Scoreboard.from_state(saved["scoreboard"])
        mine.frequency, mine._frequent = list(saved["frequency"]), None
        mine.pushed_models = PushedModels.restored(saved["pushed_models"])
        mine.trial = Trial.restored(saved["trial"])
        mine.doubt = Doubt(*saved["doubt"]) if saved["doubt"] else None
        mine.examples = ExampleReporter(saved["examples_owed"])
        mine.version, mine.content, mine.layout_version = saved["versions"]
        return mine


def noted_rescues(sentences: Sequence[str]) -> list[Effect]:
    """What rounding had spoiled, and was mended."""
    return [Noted("numbers-rescued", sentence) for sentence in sentences]


def described(config: NodeConfig) -> tuple[SensorDescription, ...]:
    """The configured sensors, whose references and scales are all given."""
    return tuple(
        SensorDescription(
            id=s.id,
            role=s.role,
            reference=s.reference or 0.0,
            scale=s.scale or 1.0,
            timeout_s=s.timeout_s,
        )
        for s in config.sensors
    )
