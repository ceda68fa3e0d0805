"""Digests of what the steps of a node leave in the C file: the same bits on every CPU.

The ridge learners have theirs in `edge_opid.learner.golden_bits`; here are a layout with hats, the
logistic memory, the bridge, the blend and the time layer. Values come from integer arithmetic
alone. As a program (`python -m edge_opid.node.golden_bits`) it prints a line a case and fails on
any other digest.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from edge_opid import native
from edge_opid.layout import Layout, Sensor
from edge_opid.learner import WoodburyLearner
from edge_opid.learner.golden_bits import plain_readings
from edge_opid.node.compiled_time_layer import CompiledTimeLayer, flattened
from edge_opid.node.logistic import LogisticMemory, Straight
from edge_opid.node.scoreboard import Blend, PredictorName
from edge_opid.node.time_layer import TimeLayer

READINGS = 500
KNOTS = (-8.0, -1.0, 0.5, 2.0, 8.0)
DIGESTS = {"memories": "1614f04005c8808d", "time layer": "83346a2ac98683b0"}


def digest_of_memories() -> str:
    """What a layout with hats, two ridges, the logistic memory, a bridge and the blend say."""
    steps = native.available["compiled"]
    layout = Layout(
        [Sensor("a", 0.5, 2.0, KNOTS), Sensor("b", -1.0, 3.0), Sensor("c", 0, 1, KNOTS)]
    )
    straight = Straight(layout, layout)
    memory, blend = LogisticMemory(straight.names, 3), Blend()
    ridges = [WoodburyLearner(0, layout.width, 3, forgetting=beta) for beta in (1.0, 0.99)]
    held = [*(each.held for each in ridges), straight.held_with(memory, steps), blend.errors]
    bridge = plain_readings(layout.width, 3)[0].T.copy()
    rows, said, told = np.empty((5, 3), np.float32), np.empty((4, 3)), hashlib.sha256()
    X, y = plain_readings(3, READINGS)
    for place, (values, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        x = layout.encode(dict(zip("abc", values, strict=True)))
        winners = steps.guess(*held, bridge, x, rows, np.empty(3), place % 2 == 1)
        steps.learn_all(*held, bridge, x, label, said, True)
        told.update(x.tobytes() + rows.tobytes() + bytes(winners) + said.tobytes())
    for array in (memory.weights, memory.squares, np.array(blend.errors)):
        told.update(array.tobytes())
    return told.hexdigest()[:16]


def digest_of_time_layer(kind: type[TimeLayer]) -> str:
    """Evidence, probabilities and state of a layer whose labels come three readings late."""
    layer, told, waiting = kind(3), hashlib.sha256(), []
    X, y = plain_readings(3, READINGS)
    for place, (scores, label) in enumerate(zip(X, (y + y[::-1]) % 3, strict=True)):
        seen, said = layer.answer(scores / np.float32(4), PredictorName.OWN, 60_000 * place)
        told.update(np.array(seen.numbers).tobytes() + np.array(said).tobytes())
        layer.go_on(seen)
        waiting.append((seen, int(label)))
        if place >= 3:
            layer.learn(*waiting.pop(0))
    told.update(np.array(list(flattened(layer.state())), np.float64).tobytes())
    return told.hexdigest()[:16]


def found() -> dict[str, str]:
    """The digests here."""
    time_layer = digest_of_time_layer(CompiledTimeLayer)
    return {"memories": digest_of_memories(), "time layer": time_layer}


if __name__ == "__main__":
    here = found()
    for name, digest in here.items():
        sys.stdout.write(f"{name} {digest} {'ok' if digest == DIGESTS[name] else 'WRONG'}\n")
    sys.exit(here != DIGESTS)
