"""Bytes and messages that nobody should send, by the million: nothing may raise, nothing may grow.

    python -m benchmarks.fuzz [--inputs 1000000] [--seconds 0] [--seed 0] [--first 0]

Five targets take turns: the codec, topics and filters, the envelope, foreign payloads, and a whole
node. A node lives for one generation of 20,000 inputs, a disk that sometimes refuses and a clock
that moves; at its end every delivery has been released, and its journal, replayed, must give the
same bits. Each generation has its own seed, so that what it found can be repeated in seconds.

Ends with 1 at the first exception that is not a refusal, with the seed and the bytes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: its threads only wait

import json
import math
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
from nacl.signing import SigningKey

from benchmarks.common.command import command_line
from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig
from edge_opid.node import journal_records
from edge_opid.node.actions import Action, Append, Commit, Publish, Release
from edge_opid.node.node import Node
from edge_opid.wire import (
    LIMITS,
    MESSAGES_ON,
    Ack,
    Channel,
    Desired,
    Filter,
    InstanceId,
    Label,
    Matrix,
    Message,
    NodeTopics,
    Reading,
    SensorDescription,
    Topic,
    Weights,
    WireError,
    decode,
    decode_on,
    encode,
    open_desired,
    seal,
)
from edge_opid.wire.foreign import parse

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
GENERATION = 20_000
KEY = SigningKey(bytes(range(32)))
CLASSES = ("fresh", "stale", "bad")
TOPICS = NodeTopics("farm", "n1")
SOURCES = ("porch", "roof", "attic")
SENSORS = ("a", "b", "c", "d", "e")
KINDS: list[type[Message]] = [*{each for some in MESSAGES_ON.values() for each in some}, Desired]
FOREIGN = (
    ForeignConfig(
        "zigbee2mqtt/+",
        "{1}",
        {"temperature": "a", "AM.Humidity": "b"},
        "mode",
        availability="zigbee2mqtt/+/availability",
    ),
    ForeignConfig("tele/pm/value", "pm", "c"),
    ForeignConfig("list/+/#", "list", {"readings[0].value": "a", "readings[1]": "{1}"}),
)
NUMBERS: tuple[float, ...] = (
    *(0, 1, -1, 2, 7, 255, 65_536, 2**31, 2**53 - 1, 2**53, 2**63, 2**64 - 1, -(2**63)),
    *(0.5, -0.0, 1e-45, 1e-40, LIMITS.positive_min, 1e-30, 1e9, 1e30, 1e300),
    *(LIMITS.number_max, -LIMITS.number_max, math.nan, math.inf, -math.inf),
)
OTHERS: tuple[Any, ...] = (None, True, "", "a", "fresh", "ü" * 40, "\n", b"", b"\0" * 12, [], {})


class Finding(Exception):  # noqa: N818 - what a fuzzer is for
    """A promise is broken, although nothing was raised: what both fuzzers look for."""


def configs(rng: Random) -> NodeConfig:
    """One of the many ways a node may be set up."""
    given: dict[str, Any] = {"reference": 0.0, "scale": 1.0} if rng.random() < 0.6 else {}
    knots = 1 if given else rng.choice((1, 5))
    sensors = [SensorConfig(s, knots=knots, timeout_s=20.0, **given) for s in SENSORS[:3]]
    return NodeConfig(
        site="farm",
        node="n1",
        classes=CLASSES,
        sensors=tuple(sensors),
        vanishing=rng.choice(((), ("a",), ("b", "c"))),
        forgetting=rng.choice((1.0, 0.99)),
        window_ms=rng.choice((0, 0, 300)),
        recent=rng.choice((4, 64)),
        rate_burst=rng.choice((20, 500)),
        commit_s=rng.choice((0.5, 5.0)),
        commit_records=rng.choice((1, 10, 128)),
        warmup_readings=rng.choice((30, 60)),
        format=rng.choice(("msgpack", "json")),
        foreign=FOREIGN,
        asks_per_hour=rng.choice((0.0, 0.0, 2.0, 3_600.0)),
    )


# --- what arrives -----------------------------------------------------------------------------


def corpus() -> list[bytes]:
    """One of every message as it should be, and some payloads of other people's devices."""
    golden = [bytes.fromhex(path.read_text()) for path in sorted(GOLDEN.glob("*.hex"))]
    foreign = {"temperature": 21.5, "AM": {"Humidity": "48.5"}, "readings": [{"value": 1}, "ON"]}
    spoken = [path.read_bytes() for path in sorted(GOLDEN.glob("*.json"))]
    words = [b'{"state": "offline"}', b"online", b"fresh", b'{"undo": true}']
    return [*golden, *spoken, *words, json.dumps(foreign).encode(), b"-0.25", b"ON", b"nan"]


@dataclass
class MessageMutator:
    """Damage to bytes: of a transport, of a careless sender, of somebody who knows the format."""

    rng: Random
    seeds: list[bytes] = field(default_factory=corpus)

    def payload(self) -> bytes:
        """A seed, damaged."""
        return self.damaged(self.rng.choice(self.seeds))

    def damaged(self, payload: bytes) -> bytes:
        """These bytes after one to three accidents."""
        ways = (self._cut, self._flip, self._splice, self._noise, self._repeat, self._value)
        for way in self.rng.choices(ways, (2, 3, 2, 1, 1, 6), k=self.rng.choice((1, 1, 1, 2, 3))):
            payload = way(payload)
        return payload

    def _cut(self, payload: bytes) -> bytes:
        return payload[: self.rng.randint(0, len(payload))]

    def _flip(self, payload: bytes) -> bytes:
        altered = bytearray(payload)
        for _ in range(self.rng.randint(1, 4) if payload else 0):
            altered[self.rng.randrange(len(altered))] ^= 1 << self.rng.randrange(8)
        return bytes(altered)

    def _splice(self, payload: bytes) -> bytes:
        other = self.rng.choice(self.seeds)
        return self._cut(payload) + other[self.rng.randint(0, len(other)) :]

    def _noise(self, payload: bytes) -> bytes:
        start = self.rng.randint(0, len(payload))
        return payload[:start] + self.rng.randbytes(self.rng.choice((1, 4, 40))) + payload[start:]

    def _repeat(self, payload: bytes) -> bytes:
        start = self.rng.randint(0, len(payload))
        return payload[:start] + payload[start : start + 9] * self.rng.choice((2, 50, 3_000))

    def _value(self, payload: bytes) -> bytes:
        """Another value somewhere inside, well-formed: what only the last checks can find."""
        try:
            document = msgpack.unpackb(payload, strict_map_key=False)
            return bytes(msgpack.packb(self.altered(document)))
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException):
            return self._flip(payload)

    def altered(self, document: Any) -> Any:
        """The same document but for one value, one key or one item."""
        inside = isinstance(document, dict | list) and document and self.rng.random() < 0.9
        if not inside:
            return self._other(document)
        if isinstance(document, list):
            return self._altered_list(document)
        key = self.rng.choice(list(document))
        if self.rng.random() < 0.1:
            return {k: v for k, v in document.items() if k != key}
        return {**document, key: self.altered(document[key])}

    def _altered_list(self, document: list[Any]) -> list[Any]:
        place = self.rng.randrange(len(document))
        if self.rng.random() < 0.2:
            return [*document, document[place]]
        return [*document[:place], self.altered(document[place]), *document[place + 1 :]]

    def _other(self, value: Any) -> Any:
        if isinstance(value, bytes) and self.rng.random() < 0.5:
            return self._flip(value)
        return self.rng.choice(NUMBERS) if self.rng.random() < 0.7 else self.rng.choice(OTHERS)


@dataclass
class Chatter:
    """Deliveries to a node: some as they should be, some nearly, some of no sense at all."""

    rng: Random
    node: Node

    def __post_init__(self) -> None:
        self.mutator = MessageMutator(self.rng)
        self.unit = self.rng.choice((1.0, 1.0, 1.0, 1e-42, 1e-30, 1e30))
        self.topics = [str(TOPICS.to(each)) for each in Channel if not each.per_source]
        self.topics += [str(NodeTopics("farm", "n2").to(Channel.LABEL)), "zigbee2mqtt/attic"]
        self.topics += ["zigbee2mqtt/attic/availability"]
        self.topics += ["tele/pm/value", "list/x/y", "opid/1", "opid/1/farm/n1/reading/", "", "/"]
        self.topics += [str(TOPICS.to(Channel.READING, source)) for source in SOURCES]

    def delivery(self) -> tuple[str, bytes]:
        """A topic and a payload."""
        makers = (self._reading, self._label, self._desired, self._foreign, self._anything)
        topic, payload = self.rng.choices(makers, (8, 2, 1, 2, 5))[0]()
        if self.rng.random() < 0.1:
            payload = self.mutator.damaged(payload)
        if self.rng.random() < 0.02:
            topic = self.mutator.damaged(topic.encode()).decode(errors="replace")
        return topic, payload

    def _anything(self) -> tuple[str, bytes]:
        return self.rng.choice(self.topics), self.mutator.payload()

    def _reading(self) -> tuple[str, bytes]:
        source = self.rng.choice(SOURCES)
        if self.rng.random() < 0.02:
            source = f"x{self.rng.randrange(400)}"
        boot, seq = self.node.state.expected.get(source, (1, 1))
        seq += self.rng.choice((0, 0, 0, 0, 0, 0, 0, 1, 2, 3, -1, -2))
        if self.rng.random() < 0.01:
            boot, seq = boot + 1, self.rng.choice((1, 1, 1, 5))
        if self.rng.random() < 0.02:
            source, boot, seq = "stuck", *self._far_ahead()
        seq = min(max(1, seq), LIMITS.integer_max)
        time_ms = self.rng.choice((0, 1_000, 1_700_000_000_000, LIMITS.integer_max))
        values = {s: self._number() for s in self.rng.sample((*SENSORS, "zz"), self._few())}
        reading = Reading(min(boot, LIMITS.integer_max), seq, time_ms, values, self._truth())
        return str(TOPICS.to(Channel.READING, source)), encode(reading)

    def _far_ahead(self) -> tuple[int, int]:
        """The last numbers there are, boot after boot: what is before them will never come."""
        boot, seq = self.node.state.expected.get("stuck", (1, 1))
        return boot + (seq > 2**52), LIMITS.integer_max - self.rng.randrange(3)

    def _few(self) -> int:
        return self.rng.choice((0, 1, 2, 3, 3, 3, 4))

    def _number(self) -> float:
        extreme = self.rng.choice(NUMBERS)
        fits = abs(extreme) <= LIMITS.number_max  # false for NaN
        return extreme if fits and self.rng.random() < 0.05 else self.rng.gauss(0, self.unit)

    def _truth(self) -> str | None:
        return self.rng.choice((*CLASSES, *CLASSES, None, None, "purple"))

    def _label(self) -> tuple[str, bytes]:
        source, truth = self.rng.choice(SOURCES), self._truth() or CLASSES[0]
        boot, seq = self.node.state.expected.get(source, (1, 2))
        which = InstanceId(source, boot, max(1, min(seq, 2**53) - self.rng.randint(1, 6)))
        label = Label(truth, which) if self.rng.random() < 0.7 else Label(truth, time_ms=1_000)
        if self.rng.random() < 0.5:
            return str(TOPICS.to(Channel.LABEL)), encode(label)
        return self._spoken(truth, which)

    def _spoken(self, truth: str, which: InstanceId) -> tuple[str, bytes]:
        """A label as people write it, or one that is taken back."""
        if self.rng.random() < 0.2:
            return str(TOPICS.to(Channel.LABEL_NOW)), truth.encode()
        said: dict[str, Any] = self.rng.choice(({"label": truth}, {"label": truth}, {"undo": True}))
        number = f"{which.source}/{which.boot}/{which.seq}"
        ways: tuple[dict[str, Any], ...] = (
            {"instance": which.plain()},
            {"instance": number},
            {"time": 1.0},
            {"time": "2023-11-14T22:13:20+00:00"},
            {"from": 0, "until": self.rng.choice((1, 1e9, 1.7e12))},
            {"from": 1_700_000_000},
            {},
        )
        said = {**said, **self.rng.choice(ways)}
        if self.rng.random() < 0.2:
            said = self.mutator.altered(said)
        return str(TOPICS.to(Channel.LABEL)), json.dumps(said, default=repr).encode()

    def _desired(self) -> tuple[str, bytes]:
        document = encode(self._document())
        if self.rng.random() < 0.6:
            document = self.mutator._value(document)
        sealed = seal(document, KEY)
        damaged = self.rng.random() < 0.2
        return str(TOPICS.to(Channel.DESIRED)), self.mutator.damaged(sealed) if damaged else sealed

    def _document(self) -> Desired:
        mine = self.node.state.standing()
        moved = self.rng.random() < 0.3
        names = self.rng.sample(SENSORS, self.rng.randint(1, 4))
        sensors = tuple(self._sensor(name) for name in names) if moved else mine.sensors
        vanishing = tuple(names[: self.rng.choice((0, 1))]) if moved else mine.vanishing
        gate = abs(self._number()) or 1.0
        return Desired(
            site="farm",
            node="n1",
            version=min(mine.version + self.rng.choice((1, 1, 1, 0, 9)) or 1, LIMITS.integer_max),
            layout_version=min(mine.layout_version + moved or 1, LIMITS.integer_max),
            sensors=sensors,
            vanishing=vanishing,
            gate=8.0 if self.rng.random() < 0.8 else max(gate, LIMITS.positive_min),
            classes=CLASSES,
            weights=self._weights(sum(each.columns for each in sensors) + 1),
            gather=self.rng.choice((0, 1, 30, LIMITS.gather_max)),
        )

    def _sensor(self, name: str) -> SensorDescription:
        scale = max(abs(self._number()), LIMITS.positive_min)
        knots = self.rng.choice(((), (), (-2.0, 0.0, 2.0)))
        role = self.rng.choice((name, name, f"role-{name}"))
        return SensorDescription(
            id=name, role=role, reference=self._number(), scale=scale, timeout_s=20.0, knots=knots
        )

    def _weights(self, rows: int) -> Weights | None:
        if self.rng.random() < 0.4:
            return None
        W = [[self._number() for _ in CLASSES] for _ in range(rows)]
        return Weights("matrix", {"W": Matrix.of(W)})

    def _foreign(self) -> tuple[str, bytes]:
        if self.rng.random() < 0.1:
            words = (b"online", b"offline", b'{"state":"offline"}', b'{"state":"online"}')
            return "zigbee2mqtt/attic/availability", self.rng.choice(words)
        topic = self.rng.choice(
            ("zigbee2mqtt/attic", "zigbee2mqtt/stuck", "tele/pm/value", "list/a/b")
        )
        if self.rng.random() < 0.1:
            topic = f"zigbee2mqtt/x{self.rng.randrange(1_000)}"
        if topic == "tele/pm/value":
            return topic, self.rng.choice((b"1.5", b"ON", str(self._number()).encode()))
        document = {"temperature": self._number(), "AM": {"Humidity": str(self._number())}}
        document |= {"mode": self._truth(), "readings": [{"value": self._number()}, "off"]}
        if self.rng.random() < 0.3:
            document = self.mutator.altered(document)
        return topic, json.dumps(document, default=repr).encode()


# --- what it arrives at -----------------------------------------------------------------------


@dataclass
class Driven:
    """A node whose actions are done at once, and held to its promises.

    No delivery is released twice; no number is acknowledged that is not durable; whatever it
    publishes can be read by those it is meant for.
    """

    config: NodeConfig
    now_ms: int = 1_700_000_000_000
    disk_refuses: bool = False
    durable: list[bytes] = field(default_factory=list)
    pending: list[bytes] = field(default_factory=list)
    reached: dict[str, tuple[int, int]] = field(default_factory=dict)
    owed: set[int] = field(default_factory=set)
    given: int = 0
    mark: tuple[int, bytes] | None = None  # a snapshot on the way

    def __post_init__(self) -> None:
        self.node = Node(self.config, [KEY.verify_key])

    def handle(self, topic: str, payload: bytes) -> list[Action]:
        """One delivery."""
        self.given += 1
        self.owed.add(self.given)
        return self.perform(self.node.handle(topic, payload, self.now_ms, self.given))

    def tick(self, wait_ms: int) -> list[Action]:
        """Time goes by."""
        self.now_ms += wait_ms
        return self.perform(self.node.tick(self.now_ms))

    def perform(self, actions: list[Action]) -> list[Action]:
        """Do what the node asks for, in this order."""
        for action in actions:
            match action:
                case Append(record):
                    self.pending.append(record)
                case Commit():
                    self.commit()
                case Release(token):
                    self._released(token)
                case Publish(topic, payload):
                    self._heard(Topic.parse(topic), payload)
        return actions

    def commit(self) -> None:
        """Make it durable, or not."""
        if self.disk_refuses:
            self.perform(self.node.on_commit_failed("disk full", self.now_ms))
            return
        for change in map(journal_records.unpack_record, self.pending):
            if isinstance(change, journal_records.Accepted):
                self.reached[change.source] = change.boot, change.seq + 1
        self.durable += self.pending
        self.pending.clear()
        self.perform(self.node.on_committed(self.now_ms))

    def reconnect(self) -> None:
        """The broker takes every delivery back that was not released."""
        self.node.on_disconnected()
        self.owed.clear()
        self.perform(self.node.on_connected(self.now_ms))

    def settle(self) -> None:
        """Everything that was accepted is durable, and no delivery is forgotten."""
        self.disk_refuses = False
        self.tick(10_000)
        self.commit()
        if self.owed:
            raise Finding(f"{len(self.owed)} of {self.given} deliveries were never released")

    def check_replay(self) -> None:
        """The journal alone, or a snapshot and the journal after it: the same bits."""
        self.settle()
        for since, snapshot in ((0, None), self.mark or (0, None)):
            again = Node(self.config, [KEY.verify_key])
            again.restore(snapshot, self.durable[since:])
            if again.snapshot() != self.node.snapshot():
                raise Finding(f"replay of {len(self.durable)} records from {since} on differs")

    def remember(self) -> None:
        """Take a snapshot, if the node's state is what is durable."""
        if not self.pending:
            self.mark = len(self.durable), self.node.snapshot()

    def _released(self, token: object) -> None:
        if token not in self.owed:
            raise Finding(f"delivery {token} was released, and is not owed")
        self.owed.remove(int(str(token)))

    def _heard(self, topic: Topic, payload: bytes) -> None:
        message = decode_on(topic.channel, payload)
        if isinstance(message, Ack) and message.seq:
            boot, following = self.reached.get(topic.source or "", (-1, 0))
            if (message.boot, message.seq) >= (boot, following):
                raise Finding(f"{message} to {topic.source}: durable before {boot}, {following}")


Target = Callable[[], Iterator[str]]
"""Made once a generation; each step is one input, and says the word to count it by."""


class Generation:
    """20,000 inputs from one seed; `last` is the one being tried, as long as it is tried."""

    def __init__(self, seed: str) -> None:
        self.rng = Random(seed)
        self.mutator = MessageMutator(self.rng)
        self.driven = Driven(configs(self.rng))
        self.chatter = Chatter(self.rng, self.driven.node)
        self.last: tuple[str, object, bytes] = ("", "", b"")

    def run(self, count: int, words: Counter[str]) -> None:
        """So many inputs; half of them for the node, and after them its replay."""
        targets = (self.codec, self.topics, self.envelope, self.foreign)
        for _ in range(count):
            node = self.rng.random() < 0.5
            target = self.node if node else self.rng.choice(targets)
            try:
                words[f"{target.__name__}: {target()}"] += 1
            except WireError as error:
                words[f"{target.__name__}: {error.reason}"] += 1
        self.last = ("replay", "", b"")
        self.driven.check_replay()
        for reason, times in self.driven.node.counted().items():
            words[f"node counted: {reason}"] += times

    def codec(self) -> str:
        """Any kind of message from damaged bytes; what is read can be written."""
        kind, payload = self.rng.choice(KINDS), self.rng.choice(self.mutator.seeds)
        if self.rng.random() < 0.9:
            kind = next((each for each in KINDS if each.kind.encode() in payload[:40]), kind)
        payload = self.mutator.damaged(payload)
        self.last = "codec", kind.__name__, payload
        encode(decode(payload, kind))
        return "read"

    def topics(self) -> str:
        """Any text as a topic and as a filter."""
        text = self.mutator.damaged(self.rng.choice(self.chatter.topics).encode())
        self.last = "topics", "", text
        topic = text.decode(errors="replace")
        Filter("opid/1/+/+/reading/+").matches(topic)
        Filter(topic).matches(topic)
        return "read" if str(Topic.parse(topic)) == topic else "changed"

    def envelope(self) -> str:
        """A signed document that was damaged before or after it was signed."""
        payload = self.mutator.payload()
        if self.rng.random() < 0.7:
            payload = seal(payload, KEY)
        if self.rng.random() < 0.3:
            payload = self.mutator.damaged(payload)
        self.last = "envelope", "", payload
        open_desired(payload, [KEY.verify_key])
        return "read"

    def foreign(self) -> str:
        """Somebody else's payload."""
        topic, payload = self.chatter._foreign()
        if self.rng.random() < 0.5:
            payload = self.mutator.damaged(payload)
        self.last = "foreign", topic, payload
        for each in FOREIGN:
            if Filter(each.filter).matches(topic):
                parse(payload, topic, each.topic)
        return "read"

    def node(self) -> str:
        """One delivery to the node, or some time, or trouble with disk and network."""
        driven, chance = self.driven, self.rng.random()
        if chance < 0.1:
            self.last = "node", "tick", b""
            driven.tick(self.rng.choice((0, 10, 100, 500, 3_000, 25_000)))
            return "tick"
        if chance < 0.105:
            driven.disk_refuses = self.rng.random() < 0.4
            driven.remember()
            return "disk"
        if chance < 0.107:
            self.last = "node", "reconnect", b""
            driven.reconnect()
            return "reconnect"
        topic, payload = self.chatter.delivery()
        self.last = "node", topic, payload
        actions = driven.handle(topic, payload)
        return "accepted" if any(isinstance(each, Append) for each in actions) else "not accepted"


# --- the run ----------------------------------------------------------------------------------


def peak_mb() -> float:
    """The most memory this process ever had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(words: Counter[str]) -> Iterable[str]:
    """Every word that was counted, target by target."""
    for word, times in sorted(words.items()):
        yield f"  {times:>9,}  {word}"


def main() -> int:
    """Run as many inputs, or as long, as asked for."""
    parser = command_line(__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this long")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--first", type=int, default=0, help="the generation to begin with")
    asked = parser.parse_args()
    words: Counter[str] = Counter()
    start, tried, number, warm_mb = time.monotonic(), 0, asked.first, 0.0
    while tried < asked.inputs and time.monotonic() - start < asked.seconds:
        count, generation = (
            min(GENERATION, asked.inputs - tried),
            Generation(f"{asked.seed}/{number}"),
        )
        try:
            generation.run(count, words)
        except Exception:  # noqa: BLE001 - the very thing this is looking for
            target, where, payload = generation.last
            traceback.print_exc()
            print(f"\n{target} {where}: {payload.hex() or 'no bytes'}")
            print(f"again: python -m benchmarks.fuzz.messages --seed {asked.seed} --first {number}")
            return 1
        tried, number = tried + count, number + 1
        warm_mb = warm_mb or peak_mb()
    seconds = time.monotonic() - start
    print("\n".join(table(words)))
    print(f"{tried:,} inputs in {seconds:.0f} s: {tried / seconds:,.0f} a second, 0 exceptions")
    print(f"peak memory {peak_mb():.1f} MB; after the first {GENERATION:,} it was {warm_mb:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
