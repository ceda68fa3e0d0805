"""A node without sockets and disks: what it asks for is done at once, and everything is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from nacl.signing import SigningKey

from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.actions import Append, Commit, Publish, Release
from edge_opid.node.node import Node
from edge_opid.tally import LogLine
from edge_opid.wire import (
    Ack,
    Channel,
    Confirmed,
    Desired,
    Matrix,
    NodeTopics,
    Prediction,
    Reading,
    SensorDescription,
    Status,
    Topic,
    Weights,
    decode_on,
    digest,
    encode,
    seal_desired,
)

KEY = SigningKey(bytes(range(32)))
OTHER_KEY = SigningKey(bytes(32))
CLASSES = ("fresh", "stale", "bad")
TOPICS = NodeTopics("farm", "n1")


def config(**changes) -> NodeConfig:
    """Three given sensors, one source, a commit every second record or second."""
    options = {
        "site": "farm",
        "node": "n1",
        "classes": CLASSES,
        "sensors": tuple(
            SensorConfig(name, reference=0.0, scale=1.0, timeout_s=10.0) for name in ("a", "b", "c")
        ),
        "rate_per_second": 10_000.0,
        "rate_burst": 10_000,
        "commit_s": 1.0,
        "commit_records": 2,
    }
    return NodeConfig(**{**options, **changes})


def description(name, role=None, **changes):
    options = {"reference": 0.0, "scale": 1.0, "timeout_s": 10.0, **changes}
    return SensorDescription(id=name, role=role or name, **options)


def desired(version, layout_version=1, sensors=("a", "b", "c"), weights=None, **changes) -> Desired:
    options = {
        "site": "farm",
        "node": "n1",
        "version": version,
        "layout_version": layout_version,
        "sensors": tuple(description(name) for name in sensors),
        "vanishing": (),
        "gate": 8.0,
        "classes": CLASSES,
        "weights": weights,
    }
    return Desired(**{**options, **changes})


def folded(W) -> Weights:
    return Weights("matrix", {"W": Matrix.of(W)})


@dataclass
class Rig:
    """Runs a node's actions: records to a list, publications to another, commits at once."""

    node: Node
    durable: list[bytes] = field(default_factory=list)
    pending: list[bytes] = field(default_factory=list)
    published: list[tuple[str, bytes, bool]] = field(default_factory=list)
    released: list[object] = field(default_factory=list)
    warned: list[LogLine] = field(default_factory=list)
    disk_full: bool = False

    @classmethod
    def make(cls, **changes):
        return cls(Node(config(**changes), [KEY.verify_key]))

    def run(self, actions, now_ms):
        for action in actions:
            match action:
                case Append(record):
                    self.pending.append(record)
                case Publish(topic, payload, retain):
                    self.published.append((topic, payload, retain))
                case Release(token):
                    self.released.append(token)
                case LogLine():
                    self.warned.append(action)
                case Commit():
                    self.commit(now_ms)

    def commit(self, now_ms):
        if self.disk_full:
            self.run(self.node.on_commit_failed("disk full", now_ms), now_ms)
            return
        self.durable += self.pending
        self.pending.clear()
        self.run(self.node.on_committed(now_ms), now_ms)

    def handle(self, topic, payload, now_ms=0, token=None, retained=False):
        self.run(self.node.handle(str(topic), payload, now_ms, token, retained), now_ms)

    def tick(self, now_ms):
        self.run(self.node.tick(now_ms), now_ms)

    def read(self, seq, values, label=None, now_ms=None, boot=1, source="s"):
        now_ms = seq * 100 if now_ms is None else now_ms
        payload = encode(Reading(boot, seq, now_ms, values, label))
        self.handle(TOPICS.to(Channel.READING, source), payload, now_ms, token=(source, boot, seq))

    def order(self, document: Desired, key=KEY, now_ms=0):
        self.handle(TOPICS.to(Channel.DESIRED), seal_desired(document, key), now_ms, token="order")

    def confirm(self, now_ms=0):
        """The gateway has all that was said so far."""
        for _, payload, _ in list(self.published):
            said = encode(Confirmed((digest(payload),)))
            self.handle(TOPICS.to(Channel.CONFIRMED), said, now_ms, token="confirmed")

    def messages(self, channel, kind):
        """What was said on a channel, of this kind or union of kinds."""
        found = [
            decode_on(channel, payload)
            for topic, payload, _ in self.published
            if Topic.parse(topic).channel is channel
        ]
        return [message for message in found if isinstance(message, kind)]

    def predictions(self):
        return self.messages(Channel.PREDICTION, Prediction)

    def acks(self):
        return self.messages(Channel.ACK, Ack)

    def statuses(self):
        return self.messages(Channel.STATUS, Status)

    def frozen(self) -> bytes:
        """Every bit of the durable state."""
        return self.node.snapshot()

    def reborn(self, snapshot=None, since=0):
        """The node that the journal gives: what a restart would find."""
        other = Rig.make()
        other.node = Node(self.node.config, [KEY.verify_key])
        other.node.restore(snapshot, self.durable[since:])
        other.durable = list(self.durable)
        return other
