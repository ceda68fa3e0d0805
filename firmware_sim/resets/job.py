"""What the processes of `firmware_sim.resets` agree on: the nodes, their settings, every reading.

The readings come from the seed, so that whoever judges knows them without having been told.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.config.service import ServiceConfig
from edge_opid.link.options import MqttOptions
from firmware_sim.resets.relay import HOST

SITE, SOURCE = "field", "box"
CLASSES = ("dry", "damp", "wet")
SENSORS = ("soil", "air", "rain")
COMMIT_S = 2.0  # on a disk that 200 nodes share; what is not committed comes again with a reset
RECONNECT_S = (0.25, 4.0)  # sooner than by default: who is not connected cannot be reset
SYNC_S = 5.0  # the spool's: no power is cut here


@dataclass(frozen=True)
class Job:
    """One run: who there is, where, for how long, and what is wrong with them on purpose."""

    folder: str
    port: int
    seed: int
    nodes: int
    readings: int  # of every node
    rate: float  # of every node, a second
    plant: str | None = None
    commit_s: float = COMMIT_S

    @property
    def resend_s(self) -> float:
        """A source's patience: longer than a commit, or every reading goes twice."""
        return 2 * self.commit_s

    @property
    def settle_s(self) -> float:
        """Until a copy that is still on its way has arrived, and is committed if it is taken."""
        return 2 * self.commit_s

    def write(self, path: Path) -> Path:
        """For another process."""
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Job:
        """What `write` wrote."""
        return cls(**json.loads(path.read_text()))

    def broker(self, client: str) -> MqttOptions:
        """The way to the broker, through the relay."""
        first_s, most_s = RECONNECT_S
        return MqttOptions(
            client_id=client,
            host=HOST,
            port=self.port,
            reconnect_first_s=first_s,
            reconnect_most_s=most_s,
        )

    def spool(self, place: int) -> Path:
        """Where the source of a node keeps what is not acknowledged."""
        return Path(self.folder) / f"spool-{place}"

    def config(self, place: int) -> ServiceConfig:
        """The whole configuration of one node, as its TOML file would give it."""
        name = node_name(place)
        return ServiceConfig(
            node=_node_config(name, self.commit_s),
            broker=self.broker(f"opid-{SITE}-{name}"),
            state_folder=Path(self.folder) / f"state-{place}",
        )

    def sent(self, place: int) -> list[tuple[dict[str, float], str]]:
        """Values and label of each reading that the source of this node sends, in order."""
        chance = np.random.default_rng([self.seed, place])
        values = chance.normal(size=(self.readings, len(SENSORS)))
        labels = chance.integers(0, len(CLASSES), self.readings)
        return [
            (dict(zip(SENSORS, map(float, row), strict=True)), CLASSES[label])
            for row, label in zip(values, labels, strict=True)
        ]


def node_name(place: int) -> str:
    """The id of a node."""
    return f"n{place}"


@cache
def _node_config(name: str, commit_s: float) -> NodeConfig:
    sensors = tuple(
        # The state must be a matter of the readings alone: nothing is measured, nobody is silent.
        SensorConfig(sensor, reference=0.0, scale=1.0, timeout_s=86_400.0)
        for sensor in SENSORS
    )
    return NodeConfig(
        site=SITE,
        node=name,
        classes=CLASSES,
        sensors=sensors,
        vanishing=("rain",),
        commit_s=commit_s,
    )
