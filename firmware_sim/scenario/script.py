"""From a scenario and a seed to everything that is said: which sensor says what, and what is true.

The same script is read out by simulated devices and by real processes. It is computed when it is
asked for, a stretch of readings at a time, and is the same whoever asks, in whichever order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edge_opid.config.node import NodeConfig
from edge_opid.wire import SensorDeployed, SensorRetired
from firmware_sim.scenario.scenario import Event, Scenario
from firmware_sim.world import World, open_world
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.chance import stream
from firmware_sim.world.sensor import SimulatedSensor
from firmware_sim.world.truth import Truths

BEGINS_S = 6 * 3_600.0  # a morning
STRETCH = 256  # readings computed at once
KEPT = 2  # stretches of each node: whoever is late still finds his
SILENT_READINGS = 8  # a sensor that misses so many counts as silent
SHEET_READINGS = 50  # from which reference and scale follow where there is no data sheet
WARM_UP_READINGS = 40  # of a node, for sensors without a data sheet

Message = SensorRetired | SensorDeployed


@dataclass(frozen=True, slots=True)
class SensorLife:
    """A sensor of a node, from the reading at which it begins to the one it no longer has."""

    sensor: Catalogued
    specimen: SimulatedSensor
    begins: int
    ends: float = math.inf

    def at(self, place: int) -> bool:
        """Whether it speaks."""
        return self.begins <= place < self.ends


@dataclass(frozen=True, slots=True)
class ScriptedInstance:
    """What the sensors of one node say at one moment, and the truth."""

    node: str
    place: int
    values: Mapping[str, float]
    truth: str
    known: bool  # whether somebody tells the node the truth, at once or later


@dataclass(frozen=True, slots=True)
class Announcement:
    """What happens to a node's sensors before a reading; operators announce most of it."""

    at: int
    node: str
    gone: Catalogued | None
    come: Catalogued | None
    silent: bool

    @property
    def words(self) -> str:
        """For people, without the node."""
        if self.come is None:
            return f"{self.gone.role if self.gone else ''} {'dies' if self.silent else 'goes'}"
        if self.gone is None:
            return f"{self.come.role} joins"
        same = self.gone.role == self.come.role
        return f"{self.gone.role} → {'another make' if same else self.come.role}"

    def messages(self, now_ms: int, timeout_s: float) -> list[Message]:
        """What the operator tells the gateway."""
        if self.silent:
            return []
        found: list[Message] = []
        same = self.gone and self.come and self.gone.role == self.come.role
        if self.gone:  # it is out of the wall already: nobody has to wait for the two together
            found.append(SensorRetired(self.gone.id, now_ms, "worn out"))
        if self.come:
            replaces = self.gone.id if self.gone and same else None
            found.append(self._deployed(self.come, now_ms, timeout_s, replaces))
        return found

    @staticmethod
    def _deployed(
        come: Catalogued, now_ms: int, timeout_s: float, replaces: str | None
    ) -> SensorDeployed:
        return replace(come.deployed(now_ms, replaces), timeout_s=timeout_s)


class Script:
    """Everything that is said in one scenario with one seed.

    >>> from firmware_sim.scenario.scenario import load_scenario
    >>> script = Script(load_scenario("one_retire"), seed=7)
    >>> told = script.instance("n1", 0)
    >>> len(told.values), told.truth in script.classes
    (6, True)
    >>> [each.words for each in script.announcements if each.node == "n1"]
    ['pm10 goes']
    >>> gone_at = script.changes("n1")[0]
    >>> len(script.instance("n1", gone_at).values)
    5
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed
        self.nodes = scenario.names
        self._worlds = {
            node: open_world(scenario.world, seed, place) for place, node in enumerate(self.nodes)
        }
        self.classes = self._first.classes
        self._lives: dict[str, list[SensorLife]] = {
            node: self._beginning(node) for node in self.nodes
        }
        self.announcements = tuple(self._announced())
        self._known = {node: self._told(node) for node in self.nodes}
        self._stretch = lru_cache(maxsize=KEPT * len(self.nodes))(self._computed)
        self.sheet = lru_cache(maxsize=None)(self._sheet)

    @property
    def _first(self) -> World:
        return self._worlds[self.nodes[0]]

    # --- who there is -----------------------------------------------------------------------------

    def lives(self, node: str) -> tuple[SensorLife, ...]:
        """Every sensor that the node ever has."""
        return tuple(self._lives[node])

    def alive(self, node: str, place: int) -> tuple[Catalogued, ...]:
        """The sensors of a node at a reading, by role."""
        found = (life.sensor for life in self._lives[node] if life.at(place))
        return tuple(sorted(found, key=lambda sensor: sensor.role))

    def changes(self, node: str) -> tuple[int, ...]:
        """The readings before which the node's sensors change."""
        return tuple(sorted({each.at for each in self.announcements if each.node == node}))

    def node_config(self, node: str, site: str, period_s: float) -> NodeConfig:
        """The node as it is installed, where readings are so far apart."""
        timeout_s = self.timeout_s(period_s)
        sensors = tuple(sensor.config(timeout_s=timeout_s) for sensor in self.alive(node, 0))
        return NodeConfig(
            site=site,
            node=node,
            classes=self.classes,
            sensors=sensors,
            rate_per_second=1_000.0,
            rate_burst=10_000,
            commit_s=0.2,
            commit_records=16,
            warmup_readings=WARM_UP_READINGS,
        )

    def timeout_s(self, period_s: float) -> float:
        """After which a sensor counts as silent."""
        return SILENT_READINGS * period_s

    def _beginning(self, node: str) -> list[SensorLife]:
        return [self._installed(node, self._first.sensor(r), 0) for r in self.scenario.sensors]

    def _installed(self, node: str, sensor: Catalogued, place: int) -> SensorLife:
        """One conversion a reading: chance is drawn once for each."""
        timed = replace(sensor, model=replace(sensor.model, period_s=self.scenario.every_s))
        return SensorLife(sensor, timed.simulated(self.seed, node, self._time_s(place)), place)

    def _announced(self) -> Iterator[Announcement]:
        for event in self.scenario.events:
            for node in self.scenario.whom(event):
                gone = None if event.do == "deploy" else self._end(node, event)
                come = None
                if event.do in ("deploy", "replace"):
                    role = event.by or event.sensor
                    come = self._newcomer(node, role, event)
                    self._lives[node].append(self._installed(node, come, event.at))
                yield Announcement(event.at, node, gone, come, event.do == "silence")

    def _end(self, node: str, event: Event) -> Catalogued:
        lives = self._lives[node]
        for number, life in enumerate(lives):
            if life.sensor.role == event.sensor and life.at(event.at):
                lives[number] = replace(life, ends=event.at)
                return life.sensor
        raise AssertionError("the scenario was checked")  # pragma: no cover

    def _newcomer(self, node: str, role: str, event: Event) -> Catalogued:
        """The catalogue's sensor, or the successor of the last one in this role."""
        before = [life.sensor for life in self._lives[node] if life.sensor.role == role]
        made = before[-1].successor(self.seed) if before else self._first.sensor(role)
        return made if event.data_sheet else replace(made, reference=None, scale=None)

    # --- what is said -----------------------------------------------------------------------------

    def instance(self, node: str, place: int) -> ScriptedInstance:
        """The `place`-th reading of a node, from 0."""
        number, offset = divmod(place, STRETCH)
        values, truths = self._stretch(node, number)
        said = {name: v for name, column in values if (v := column[offset]) == v}  # not NaN
        return ScriptedInstance(node, place, said, truths[offset], bool(self._known[node][place]))

    def _told(self, node: str) -> NDArray[np.bool_]:
        """A byte for each reading: a week of them is half a megabyte."""
        chance = stream(self.seed, "told", node)
        return np.asarray(chance.random(self.scenario.readings) < self.scenario.labels)

    def _time_s(self, place: int) -> float:
        return BEGINS_S + place * self.scenario.every_s

    def _truths(self, node: str, first: int, count: int) -> Truths:
        times = [self._time_s(place) for place in range(first, first + count)]
        return self._worlds[node].over(np.array(times))

    def _computed(self, node: str, number: int) -> tuple[list[tuple[str, list[float]]], list[str]]:
        first = number * STRETCH
        truths = self._truths(node, first, STRETCH)
        places = np.arange(first, first + STRETCH)
        values = []
        for life in self._lives[node]:
            if life.begins < first + STRETCH and life.ends > first:
                said = life.specimen.read_block(truths)
                said[(places < life.begins) | (places >= life.ends)] = math.nan
                values.append((life.sensor.id, said.tolist()))
        return values, self._worlds[node].labels(truths)

    def _sheet(self, node: str, sensor: str) -> tuple[float, float]:
        """Reference and scale of a sensor: its data sheet's, or those of its first readings."""
        life = next(each for each in self._lives[node] if each.sensor.id == sensor)
        if life.sensor.reference is not None and life.sensor.scale is not None:
            return life.sensor.reference, life.sensor.scale
        first = life.specimen.read_block(self._truths(node, life.begins, SHEET_READINGS))
        spread = float(np.nanstd(first))
        return float(np.nanmean(first)), spread if spread > 0 else 1.0
