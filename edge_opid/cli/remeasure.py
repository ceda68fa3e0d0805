"""`remeasure`: have the scale of a stopped node's sensor measured anew."""

from __future__ import annotations

import os
import time
from argparse import Namespace

from edge_opid.cli.output import print_lines
from edge_opid.config.node import NodeConfig
from edge_opid.config.service import load_config
from edge_opid.errors import SettingError
from edge_opid.node.journal_records import Remeasured, pack_record


def remeasure(given: Namespace) -> int:
    """Write it into the journal of a stopped node: its next start begins to measure."""
    config = load_config(given.file, os.environ)
    from edge_opid.service.wiring import open_node  # noqa: PLC0415 - it brings paho along

    with open_node(config, must_have_run=True) as (node, store, _):
        known = node.state.local_models.sensors
        if given.sensor in node.state.measuring.until:
            print_lines([f"{given.sensor} is already being measured"])
            return 0
        if given.sensor not in known or node.state.warmup is not None:
            there = "none yet" if node.state.warmup is not None else ", ".join(known)
            raise SettingError("SENSOR", f"{given.sensor!r} has no scale; those that have: {there}")
        if node.state.is_ordered:
            raise SettingError(
                "SENSOR",
                f"{given.sensor!r} gets its scale from a gateway: use opid-gateway sensor "
                "remeasure",
            )
        _check_not_given(config.node, given.sensor, given.file.name)
        store.append(pack_record(Remeasured(time.time_ns() // 1_000_000, given.sensor)))
        store.commit()
        sensor = known[given.sensor]
    print_lines(
        [
            f"{sensor.id} is measured by its next {config.node.warmup_readings} values, from the "
            f"next start on; until then its scale is {sensor.scale:g} about {sensor.reference:g}"
        ]
    )
    return 0


def _check_not_given(node: NodeConfig, sensor: str, file: str) -> None:
    """What was measured would differ from the file for good, and nobody could tell which holds."""
    for each in node.sensors:
        if each.id == sensor and each.scale is not None:
            raise SettingError(
                "SENSOR",
                f"{sensor!r} has the reference {each.reference:g} and the scale {each.scale:g} of "
                f"{file}: write others there; or delete both lines, restart, and measure it then",
            )
