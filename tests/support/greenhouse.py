"""The sensors of docs/gateway.md: each node hears every sensor of its own, labelled, until we end.

    python greenhouse.py north south

Values of sensors that a node does not know yet are refused by it, as those of a sensor that was
mounted before anybody announced it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from edge_opid.source import connect

CLASSES = ("dry", "fine", "damp")
SENSORS = ("co2-{}", "soil-{}", "temp-{}", "lux-{}", "lux-9", "o2-1", "o2-2")
EVERY_S = 0.05
READINGS = 20_000  # more than any page needs, on a machine that is busy


def main(nodes: list[str]) -> None:
    """Send until there are enough, or somebody ends us."""
    root, port = Path(os.environ["ROOT"]), int(os.environ["PORT"])
    chance = random.Random(1)
    accounts = root / "etc/opid-gateway/nodes"
    with ExitStack() as stack:
        sources = {
            node: stack.enter_context(
                connect(
                    "greenhouse", node, "box", root / f"spool-{node}", port=port, leave_s=0,
                    credentials=accounts / f"greenhouse-{node}/sensors.credentials",
                )
            )
            for node in nodes
        }  # fmt: skip
        for _ in range(READINGS):
            for node, source in sources.items():
                truth = chance.randrange(3)
                values = {each.format(node): truth - 1 + chance.gauss(0, 0.7) for each in SENSORS}
                source.send(values, CLASSES[truth])
            time.sleep(EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1:])
