"""The node on a stream: its durable half, `NodeState`, fed with what it would be fed.

Readings come in as accepted inputs and layouts as the gateway's documents; sockets, signatures and
the journal are left out, since they change no prediction. A new sensor's reference, scale and knots
are what the gateway's measuring would find: a `WarmUp` over the readings in which it already speaks
but has no column yet. The first sensors are measured by the node's own warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.changes.streams import MEASURED, Row, Stage, StagedStream
from edge_opid import Layout, WarmUp, WoodburyLearner
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.effects import Noted, Predicted
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Ordered
from edge_opid.node.local_models import LocalModels
from edge_opid.node.memories import Learning
from edge_opid.node.state import NodeState
from edge_opid.wire import Desired, SensorDescription, encode

GATE = 8.0
LINEAR_RHO, LIFTED_RHO, TIMED_RHO = 100.0, 10.0, 1.0
"""The ridge of a node without and with hats, and where rows come in the order of time and the world
drifts: there it is the node's default. Found on development streams (see the page)."""
STEP_MS = 1000


@dataclass(frozen=True, slots=True)
class DoubleLearning(Learning):
    """The node's learners in float64, for the comparison of precisions."""

    def learner(self, layout: Layout, *, short: bool = False) -> WoodburyLearner:
        """The same settings in the other dtype."""
        made = Learning.learner(self, layout, short=short).settings
        return WoodburyLearner(
            made.vanishing, made.surviving, made.classes, made.lam, made.rho,
            forgetting=made.forgetting, dtype="float64",
        )  # fmt: skip


class OurNode:
    """What a node predicts on a stream, and how it goes through the changes."""

    def __init__(self, stream: StagedStream, knots: int, *, double: bool = False) -> None:
        self.stream, self.knots, self.double = stream, knots, double
        self.labels = tuple(f"c{k}" for k in range(stream.classes))
        self.known: dict[str, SensorDescription] = {}
        self.now = 0
        self.served: dict[str, int] = {}

    def change(self, stage: Stage) -> None:
        """The next stage begins."""
        if stage.rows.start == 0:
            self.state = NodeState(self._config(stage.sensors))
            if self.double:
                self._in_double()
            return
        self._measure(stage)
        self._move(stage)

    def _config(self, sensors: Sequence[str]) -> NodeConfig:
        return NodeConfig(
            site="bench", node="n1", classes=self.labels, gate=GATE,
            rho=self._rho(),
            sensors=tuple(SensorConfig(name, knots=self.knots) for name in sensors),
            warmup_readings=MEASURED,
        )  # fmt: skip

    def _rho(self) -> float:
        if self.stream.setting.timed:
            return TIMED_RHO
        return LINEAR_RHO if self.knots == 1 else LIFTED_RHO

    def _in_double(self) -> None:
        state, plain = self.state, self.state.local_models.learning
        double = DoubleLearning(plain.classes, plain.lam, plain.rho, plain.forgetting)
        sensors = list(state.local_models.sensors.values())
        state.local_models = LocalModels(sensors, (), GATE, double)

    def _measure(self, stage: Stage) -> None:
        """Descriptions of the sensors that have none yet, from what they said before."""
        self.known |= self.state.local_models.sensors
        fresh = [name for name in stage.sensors if name not in self.known]
        warmup = WarmUp(fresh, MEASURED, self.knots, gate=GATE)
        for row in self.stream.before(stage):
            warmup.add({name: row[name] for name in fresh})
        for sensor in warmup.layout().sensors:
            self.known[sensor.name] = SensorDescription(
                id=sensor.name,
                role=sensor.name,
                reference=sensor.reference,
                scale=sensor.scale,
                timeout_s=60.0,
                knots=sensor.knots,
            )

    def _described(self, names: Sequence[str]) -> tuple[SensorDescription, ...]:
        return tuple(self.known[name] for name in names)

    def _move(self, stage: Stage) -> None:
        """The gateway's order for the next layout."""
        version = self.state.layout_version + 1
        document = Desired(
            site="bench", node="n1", version=version, layout_version=version,
            sensors=self._described(stage.sensors), vanishing=(), gate=GATE,
            classes=self.labels, weights=None,
        )  # fmt: skip
        self._apply_order(encode(document))

    def _apply_order(self, document: bytes) -> None:
        for effect in apply(self.state, Ordered(self.now, document)):
            if isinstance(effect, Noted) and effect.complaint:
                raise ValueError(effect.why)

    def guess_then_learn(self, row: Row, label: int) -> int:
        """What the node would publish for this reading; then it is told the truth."""
        self.now += STEP_MS
        seq = self.now // STEP_MS
        accepted = Accepted(self.now, "s", 1, seq, self.now, row, self.labels[label])
        for effect in apply(self.state, accepted):
            if isinstance(effect, Predicted):
                self.served[effect.predictor] = self.served.get(effect.predictor, 0) + 1
                return effect.winner
        raise ValueError(f"no prediction for reading {seq}")


class Restart(OurNode):
    """A node that is set up anew at every change, with the sensors' ranges and nothing else."""

    def _move(self, stage: Stage) -> None:
        super()._move(stage)
        self.state.local_models.start_over(self._described(stage.sensors))
        self.state.local_models.bridge = None


class ZeroFill(OurNode):
    """Columns of every sensor for ever: one that is dead, or not born yet, counts as 0.

    A sensor not born yet has only ever counted as 0, so adding its columns when it is born gives
    the same statistics as having had them from the start.
    """

    def _move(self, stage: Stage) -> None:  # noqa: ARG002 - all that are known, not only the living
        self.state.local_models.obey(list(self.known.values()), (), GATE, 1.0)
        self.state.local_models.bridge = None


class Oracle(Restart):
    """Knows what the sensors alive would have said in all readings so far, with the labels."""

    def _move(self, stage: Stage) -> None:
        super()._move(stage)
        local_models = self.state.local_models
        for place in range(stage.rows.start):
            x = local_models.encode(self.stream.row(place, stage.sensors))
            local_models.learn(x, int(self.stream.y[place]))
