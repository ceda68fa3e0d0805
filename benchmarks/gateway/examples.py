"""What a gateway's batch costs on the network: examples from the node, or every reading and label.

    python -m benchmarks.gateway.examples

A node is fed until it has reported the examples it was asked for. Beside it are counted the bytes
that a gateway would have had to hear on the topics `reading/+` and `label` for the same batch, and
would then have had to join, deduplicate and match by itself. Bytes are those of topic and payload.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from nacl.signing import SigningKey

from benchmarks.common.command import command_line
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.actions import Append, Commit, Publish
from edge_opid.node.node import Node
from edge_opid.wire import (
    Channel,
    Desired,
    Example,
    InstanceId,
    Label,
    NodeTopics,
    Reading,
    decode_on,
    encode,
    seal_desired,
)
from firmware_sim.live.introductions import standardised

KEY = SigningKey(bytes(range(32)))
CLASSES = ("fresh", "stale", "bad")
TOPICS = NodeTopics("farm", "n1")
WINDOW_MS = 500
Delivery = tuple[str, bytes, int]


def node_of(names: list[str], wanted: int) -> Node:
    """A node with these sensors, which owes so many examples."""
    sensors = tuple(SensorConfig(name, reference=0.0, scale=1.0) for name in names)
    node = Node(
        NodeConfig(site="farm", node="n1", classes=CLASSES, sensors=sensors, window_ms=WINDOW_MS),
        [KEY.verify_key],
    )
    described = standardised({name: name for name in names})
    order = Desired(
        site="farm",
        node="n1",
        version=1,
        layout_version=1,
        sensors=described,
        vanishing=(),
        gate=8.0,
        classes=CLASSES,
        gather=wanted,
    )
    node.handle(str(TOPICS.to(Channel.DESIRED)), seal_desired(order, KEY), 0, None)
    return node


def life(names: list[str], alone: bool, labelled: int) -> Iterator[Delivery]:
    """Instances once a second, by one source or one a sensor; every `labelled`-th has a label."""
    rng, seq = random.Random(1), 0
    sources = {name: [name] for name in names} if alone else {"attic": names}
    while True:
        seq += 1
        now_ms = 1_000 * seq
        for source, sensors in sources.items():
            reading = Reading(1, seq, now_ms, {name: rng.gauss(0, 1) for name in sensors})
            yield str(TOPICS.to(Channel.READING, source)), encode(reading), now_ms
        if seq % labelled == 0:
            label = Label(rng.choice(CLASSES), InstanceId(source, 1, seq))
            yield str(TOPICS.to(Channel.LABEL)), encode(label), now_ms + 100


def gathered(sensors: int, alone: bool, labelled: int, wanted: int) -> tuple[int, int]:
    """Bytes of the examples, and of what was to be heard for them."""
    names = [f"s{number}" for number in range(sensors)]
    node, reported, heard, found = node_of(names, wanted), 0, 0, 0
    for topic, payload, now_ms in life(names, alone, labelled):
        heard += len(topic) + len(payload)
        for action in node.handle(topic, payload, now_ms, None):
            match action:
                case Publish(where, example) if where == str(TOPICS.to(Channel.EVENT)):
                    assert isinstance(decode_on(Channel.EVENT, example), Example)
                    reported, found = reported + len(where) + len(example), found + 1
                case Append() | Publish():
                    pass
                case Commit():
                    node.on_committed(now_ms)
        if found == wanted:
            return reported, heard
    raise AssertionError("life goes on")


def main() -> None:
    """One row for each way in which readings and labels may come."""
    parser = command_line(__doc__)
    parser.add_argument("--wanted", type=int, default=30, help="examples in the batch")
    wanted = parser.parse_args().wanted
    print("| sensors | sent by | labelled | bytes an example | kB of examples | kB to be heard |")
    print("|---|---|---|---|---|---|")
    for sensors in (5, 74):
        for alone in (False, True):
            for labelled in (1, 100):
                mine, theirs = gathered(sensors, alone, labelled, wanted)
                who, share = ("each" if alone else "one source"), f"1 in {labelled}"
                each = mine / wanted
                row = (
                    sensors,
                    who,
                    share,
                    f"{each:.0f}",
                    f"{mine / 1e3:.1f}",
                    f"{theirs / 1e3:.1f}",
                )
                print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
