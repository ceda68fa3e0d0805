"""What the emulated node is told: the same readings in every life, and what it must then know."""

from __future__ import annotations

import numpy as np

from edge_opid.config.node import NodeConfig
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, pack_state, unpack_state
from edge_opid.node.state import NodeState
from firmware_sim.live.timeless import but_for_times
from firmware_sim.live.toml import toml_table

SITE, NODE, SOURCE, CLASSES, SEED = "farm", "n1", "s", ("dry", "damp"), 20
SENSORS = "abc"
QUICK = {"commit_s": 0.2, "commit_records": 8, "rate_per_second": 1e6, "rate_burst": 10**6}
"""Many commits in a short life: each is a moment at which a plug may be pulled."""
STATE = "/var/lib/opid-node"


def settings(
    *,
    tls: bool = False,
    keys: tuple[str, ...] = (),
    folder: str = STATE,
    tflite: str | None = None,
) -> str:
    """`node.toml` of the machine."""
    node = toml_table("node", QUICK, site=SITE, node=NODE, classes=list(CLASSES), vanishing=["c"])
    sensors = "".join(
        toml_table("[sensors]", id=each, reference=0.0, scale=1.0, timeout_s=3600.0)
        for each in SENSORS
    )
    broker = {"host": "localhost"} | ({"tls_ca": "/etc/opid-node/ca.pem"} if tls else {})
    rest = toml_table("broker", broker)
    rest += toml_table("state", folder=folder, status_file="/run/opid-node/status.json")
    rest += toml_table("serve", tflite=tflite)
    return node + rest + toml_table("gateway", keys=list(keys)) + sensors


def readings(count: int) -> list[tuple[dict[str, float], str]]:
    """The first readings of the world, with their labels: the same, however many are asked for."""
    found = np.random.default_rng(SEED).normal(size=(count, len(SENSORS) + 1)).tolist()
    return [
        (dict(zip(SENSORS, values, strict=True)), CLASSES[chance > 0]) for *values, chance in found
    ]


class Undisturbed:
    """A node in this process that is told the readings one after another, and never dies."""

    def __init__(self, config: NodeConfig, boot: int) -> None:
        self._state, self._boot, self.applied = NodeState(config), boot, 0

    def after(self, count: int) -> bytes:
        """Every bit it knows after so many readings, but for when it heard them.

        `count` must not go down from one call to the next.
        """
        rows = readings(count)
        for seq in range(self.applied + 1, count + 1):
            values, label = rows[seq - 1]
            apply(self._state, Accepted(seq, SOURCE, self._boot, seq, seq, values, label))
        self.applied = count
        return but_for_times(unpack_state(pack_state(self._state.state())))
