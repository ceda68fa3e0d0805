"""What a seed decides before anything happens: who there is, what is sensed, what will change.

The truth is as simple as can be (a class, and for each role a number that leans towards it), since
these runs ask whether anything is lost and not how well it is classified. Every value is different
from every other, so that a reading can be recognised wherever it turns up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.wire import SensorDeployed, SensorRetired
from firmware_sim.simulated.clock import START_MS, dice
from firmware_sim.simulated.foreign_device import ROLE, SOURCE, foreign_config, foreign_sensor
from gateway.policy import Group, Policy

SITE = "street"
CLASSES = ("calm", "busy", "alarm")
ROLES = ("co", "db", "no", "pm")
NEWCOMERS = ("uv", "wind")
REPLACED = ROLES[3]
"""The role whose sensor is replaced while it lives, in some stories; nothing else becomes of it."""
POLICY = Policy(
    settle_s=1,
    silence_s=5,
    measure_readings=4,
    overlap_readings=6,
    summary_wait_s=2,
    first_batch=8,
    batch_max=16,
    gather_s=30,
    retry_s=2,
    retry_max_s=8,
)


@dataclass(frozen=True)
class StoryAnnouncement:
    """An operator has removed or installed a sensor, and says so."""

    at_ms: int
    node: str
    event: SensorRetired | SensorDeployed
    by_message: bool
    """By MQTT; otherwise by the command line, which leaves it in the database."""


@dataclass(frozen=True)
class SourceScript:
    """One sensor's script: which roles it reads, how often, how it spares its card."""

    node: str
    source: str
    roles: tuple[str, ...]
    period_ms: int
    sync_every: int

    @property
    def client(self) -> str:
        """How the broker knows it."""
        return f"{SITE}-{self.node}-{self.source}"


@dataclass(frozen=True)
class Lamp:
    """A foreign device of a node: how often it speaks, and until when."""

    node: str
    period_ms: int
    until_ms: int


class Story:
    """All of it, for one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = dice(seed, "story")
        self.until_ms = chance.randint(8_000, 13_000)
        self.nodes = tuple(f"n{place + 1}" for place in range(chance.choice((1, 2, 2, 2, 3))))
        self.group = Group("air", SITE, CLASSES, self.nodes)
        self.policy = POLICY
        self.lamps = {node: lamp for node in self.nodes if (lamp := self._lamp(node))}
        self.configs = {node: self._config(node) for node in self.nodes}
        self.scripts = [script for node in self.nodes for script in self._scripts(node)]
        self._gone_ms: dict[str, int] = {}  # sensor: when it says its last word
        self._come_ms: dict[str, int] = {}
        self.announcements = self._changes()
        self.queue_max = chance.choice((1_000, 1_000, 30))  # a full queue drops without a word
        self.receive_max = chance.choice((65_535, 20, 4))  # what the broker takes unconfirmed
        self._views = {role: [dice("view", role, c).gauss(0, 1) for c in CLASSES] for role in _ALL}

    def _lamp(self, node: str) -> Lamp | None:
        """Some nodes have a foreign device, and some of these die."""
        chance = dice(self.seed, "lamp", node)
        if chance.random() < 0.6:
            return None
        until_ms = self.until_ms if chance.random() < 0.5 else chance.randint(1_000, self.until_ms)
        return Lamp(node, chance.randint(400, 1_500), until_ms)

    def _config(self, node: str) -> NodeConfig:
        chance = dice(self.seed, "config", node)
        lamps = (node,) if node in self.lamps else ()
        return NodeConfig(
            site=SITE,
            node=node,
            classes=CLASSES,
            sensors=(
                *_sensors(node, given=chance.random() < 0.75),
                *map(foreign_sensor, lamps),
            ),
            foreign=tuple(map(foreign_config, lamps)),
            vanishing=chance.choice(((), (f"co-{node}",))),
            warmup_readings=8,
            window_ms=chance.choice((0, 0, 150)),
            recent=16,
            rate_per_second=chance.choice((8.0, 1_000.0)),
            rate_burst=chance.choice((20, 1_000)),
            commit_s=chance.choice((0.3, 1.0, 3.0)),
            commit_records=chance.choice((1, 8, 32)),
        )

    def _scripts(self, node: str) -> list[SourceScript]:
        chance = dice(self.seed, "scripts", node)
        shares = {"box": ROLES} if chance.random() < 0.5 else {"box": ROLES[:2], "roof": ROLES[2:]}
        return [
            SourceScript(node, source, roles, chance.randint(150, 700), chance.choice((1, 4, 8)))
            for source, roles in shares.items()
        ]

    # --- what changes -----------------------------------------------------------------------------

    def _changes(self) -> tuple[StoryAnnouncement, ...]:
        """A sensor goes, a sensor comes; sometimes everywhere, sometimes without a word."""
        chance = dice(self.seed, "changes")
        found = self._replacements()
        for step in range(chance.choice((0, 1, 1, 2))):
            at_ms = chance.randint(1_500, self.until_ms)
            everywhere = chance.random() < 0.4
            for node in self.nodes if everywhere else (chance.choice(self.nodes),):
                by_message, silent = chance.random() < 0.5, chance.random() < 0.3
                role, newcomer = ROLES[step], NEWCOMERS[step]
                self._gone_ms[f"{role}-{node}"] = at_ms
                if not silent:
                    gone = SensorRetired(f"{role}-{node}", START_MS + at_ms, "worn out")
                    found.append(StoryAnnouncement(at_ms, node, gone, by_message))
                self._come_ms[f"{newcomer}-{node}"] = at_ms + 300
                come = self._newcomer(node, newcomer, at_ms + 300, measured=chance.random() < 0.3)
                found.append(StoryAnnouncement(at_ms + 300, node, come, by_message))
        return tuple(found)

    def _replacements(self) -> list[StoryAnnouncement]:
        """A sensor gets a successor that speaks beside it, for a while or for good."""
        chance, found = dice(self.seed, "replacements"), []
        for node in self.nodes:
            if chance.random() < 0.7:
                continue
            at_ms = chance.randint(1_500, self.until_ms)
            old, new = f"{REPLACED}-{node}", _heir(node)
            self._come_ms[new] = at_ms + chance.choice((-500, 0, 800))
            if chance.random() < 0.4:  # before or in the middle of the overlap
                self._gone_ms[old] = at_ms + chance.choice((0, 500, 2_000))
            come = self._newcomer(node, REPLACED, at_ms, measured=chance.random() < 0.5)
            event = replace(come, sensor=new, replaces=old)
            found.append(StoryAnnouncement(at_ms, node, event, chance.random() < 0.5))
        return found

    def _newcomer(self, node: str, role: str, at_ms: int, *, measured: bool) -> SensorDeployed:
        return SensorDeployed(
            f"{role}-{node}",
            role=role,
            at_ms=START_MS + at_ms,
            reference=None if measured else 0.0,
            scale=None if measured else 1.0,
            timeout_s=60.0,
        )

    # --- what is sensed ---------------------------------------------------------------------------

    def said(
        self, script: SourceScript, place: int, now_ms: int
    ) -> tuple[Mapping[str, float], str | None]:
        """What this script reads now, as its `place`-th reading; two of three know the truth."""
        chance = dice(self.seed, "world", script.client, place)
        truth = chance.randrange(len(CLASSES))
        roles = (*script.roles, *(NEWCOMERS if script.source == "box" else ()))
        values = {
            sensor: self.seen(role, truth, chance)
            for role in roles
            if self._speaks(sensor := f"{role}-{script.node}", role, now_ms)
        }
        heir = _heir(script.node)
        if REPLACED in script.roles and now_ms >= self._come_ms.get(heir, now_ms + 1):
            values[heir] = self.seen(REPLACED, truth, chance)
        return values, CLASSES[truth] if chance.random() < 0.67 else None

    def shone(self, node: str, place: int) -> tuple[Mapping[str, float], str | None]:
        """What the foreign device of a node reads, as its `place`-th reading."""
        chance = dice(self.seed, "world", node, SOURCE, place)
        truth = chance.randrange(len(CLASSES))
        return {ROLE: self.seen(ROLE, truth, chance)}, CLASSES[
            truth
        ] if chance.random() < 0.67 else None

    def seen(self, role: str, truth: int, chance: Random) -> float:
        """What a sensor in this role reads while this class is the truth."""
        return self._views[role][truth] + chance.gauss(0, 0.5)

    def _speaks(self, sensor: str, role: str, now_ms: int) -> bool:
        if role in NEWCOMERS:
            return now_ms >= self._come_ms.get(sensor, now_ms + 1)
        return now_ms < self._gone_ms.get(sensor, now_ms + 1)


_ALL = (*ROLES, *NEWCOMERS, ROLE)


def _heir(node: str) -> str:
    """The sensor that takes over from `REPLACED`."""
    return f"{REPLACED}-{node}-2"


def _sensors(node: str, *, given: bool) -> tuple[SensorConfig, ...]:
    """With references and scales, or with hats, whose knots the first readings must show."""
    made = (SensorConfig(f"{role}-{node}", role=role, knots=3, timeout_s=4.0) for role in ROLES)
    if given:
        return tuple(replace(each, reference=0.0, scale=1.0, knots=1) for each in made)
    return tuple(made)
