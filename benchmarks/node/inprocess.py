"""CPU a reading inside the node: no broker, no disk, no thread; every reading labelled.

    python -m benchmarks.node.inprocess [--readings 3000] [--rounds 5] [--format json]
    python -m benchmarks.node.inprocess --profile many     # where the time goes, by function

It hands encoded readings to `Node.handle`, as the loop does, and says of every commit that it is
durable. What is measured is what a node decides and computes: decoding, joining, predicting,
learning, the prediction's bytes and the journal record. Processor time, the least of the rounds:
machines are shared, and nothing makes a reading cheaper than it is.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import cProfile
import platform
import pstats
import random
import time

from benchmarks.common.command import add_json_option, command_line, write_json
from edge_opid import native
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.actions import Commit
from edge_opid.node.node import Node
from edge_opid.wire import Channel, NodeTopics, Reading, encode

CLASSES = ("fresh", "stale", "bad")
SIZES = {"few": (1, 4), "many": (25, 49)}
"""Sensors that vanish and that survive: those of `benchmarks.node`."""
WARM = 300  # readings before the clock runs: caches are filled, and every branch was taken


def node(size: str, form: str) -> Node:
    """A node in use, with its scales given."""
    vanishing, surviving = names(size)
    config = NodeConfig(
        site="farm",
        node="n1",
        classes=CLASSES,
        sensors=tuple(
            SensorConfig(name, reference=0.0, scale=1.0) for name in (*vanishing, *surviving)
        ),
        vanishing=tuple(vanishing),
        rate_per_second=1e6,
        rate_burst=10**6,
        format=form,
    )
    made = Node(config)
    made.start(0)
    return made


def names(size: str) -> tuple[list[str], list[str]]:
    """The sensors that vanish, and those that survive."""
    vanishing, surviving = SIZES[size]
    return [f"v{n}" for n in range(vanishing)], [f"s{n}" for n in range(surviving)]


def payloads(size: str, count: int) -> list[bytes]:
    """Labelled readings of all sensors, numbered from 1, a second apart."""
    chance, sensors = random.Random(7), [name for each in names(size) for name in each]
    made = []
    for seq in range(1, count + 1):
        label = chance.choice(CLASSES)
        shift = CLASSES.index(label) / 2
        values = {name: chance.gauss(shift, 1.0) for name in sensors}
        made.append(encode(Reading(1, seq, 1000 * seq, values, label)))
    return made


def feed(made: Node, topic: str, readings: list[bytes], first: int) -> None:
    """Hand these to the node, and say of each commit that it is durable."""
    for seq, payload in enumerate(readings, first):
        for action in made.handle(topic, payload, 1000 * seq, seq):
            if isinstance(action, Commit):
                made.on_committed(1000 * seq)


def cpu_us(size: str, form: str, count: int) -> float:
    """Processor time a reading, in µs, after a warm start."""
    topic, made = str(NodeTopics("farm", "n1").to(Channel.READING, "s")), node(size, form)
    readings = payloads(size, WARM + count)
    feed(made, topic, readings[:WARM], 1)
    began = time.process_time()
    feed(made, topic, readings[WARM:], WARM + 1)
    return (time.process_time() - began) / count * 1e6


def profile(size: str, form: str, count: int) -> None:
    """Where the time goes, by function."""
    topic, made = str(NodeTopics("farm", "n1").to(Channel.READING, "s")), node(size, form)
    readings = payloads(size, WARM + count)
    feed(made, topic, readings[:WARM], 1)
    watcher = cProfile.Profile()
    watcher.enable()
    feed(made, topic, readings[WARM:], WARM + 1)
    watcher.disable()
    pstats.Stats(watcher).sort_stats("tottime").print_stats(60)


def main() -> None:
    """Measure both sizes in turns, and print the least of each."""
    parser = command_line(__doc__)
    parser.add_argument("--readings", type=int, default=3_000, help="for each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", choices=("json", "msgpack"), default="json")
    parser.add_argument("--profile", choices=tuple(SIZES), help="only profile this size")
    add_json_option(parser)
    options = parser.parse_args()
    if options.profile:
        profile(options.profile, options.format, options.readings)
        return
    found: dict[str, list[float]] = {size: [] for size in SIZES}
    for _ in range(options.rounds):
        for size in SIZES:
            found[size].append(cpu_us(size, options.format, options.readings))
    version = platform.python_version()
    print(f"{platform.machine()}, Python {version}, {native.name}, {options.format}\n")
    print("| CPU µs a reading, in process | least | median |")
    print("|---|---|---|")
    for size, took in found.items():
        middle = sorted(took)[len(took) // 2]
        print(f"| {sum(SIZES[size])} sensors | {min(took):.0f} | {middle:.0f} |")
    write_json(options.json, found)


if __name__ == "__main__":
    main()
