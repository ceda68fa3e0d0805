"""A thousand nodes in one process: what a gateway hears of them, without the work they do at home.

    python -m benchmarks.gateway.fleet PORT COUNT SENSORS

Each introduces itself, checks the signature of every order, reports its version, and uploads a
summary when its layout changes. A real node also decodes and applies the order, 2 ms that a
thousand machines spend at the same time; in one process they would hide what is measured.
"""

from __future__ import annotations

import sys
import time

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
from nacl.signing import SigningKey

from edge_opid.layout import Layout
from edge_opid.learner import WoodburyLearner
from edge_opid.link.mqtt import MqttLink
from edge_opid.link.options import MqttOptions
from edge_opid.wire import (
    Channel,
    Introduction,
    NodeTopics,
    SensorDeployed,
    SensorDescription,
    SensorRetired,
    Status,
    SummaryMessage,
    encode,
    open_sealed,
    to_bytes,
)

SITE, CLASSES = "city", ("calm", "busy", "alarm")
KEY = SigningKey(bytes(range(32)))
LEARNED = 40
LASTS_S = 600.0


def summary(sensors: list[str], layout_version: int) -> bytes:
    """The statistics of a learner that has seen a few labelled instances."""
    width, rng = len(sensors) + 1, np.random.default_rng(len(sensors))
    learner = WoodburyLearner(0, width, len(CLASSES))
    for _ in range(LEARNED):
        label = int(rng.integers(len(CLASSES)))
        learner.learn_one(np.append(rng.normal(size=width - 1) + label, 1.0), label)
    known = learner.summary("float32")
    return encode(
        SummaryMessage(
            layout_version=layout_version,
            width=width,
            classes=len(CLASSES),
            sensors=tuple(sensors),
            vanishing=(),
            lam=known.lam,
            rho=known.rho,
            readings=known.readings,
            evidence=known.evidence,
            gram=to_bytes(known.gram),
            moment=to_bytes(known.moments),
        )
    )


def roomy(client: str, port: int) -> MqttOptions:
    """A connection that refuses nothing for want of room."""
    return MqttOptions(
        client_id=client,
        port=port,
        persistent=False,
        outbox_messages_max=10**5,
        outbox_bytes_max=2**30,
        inbox_messages_max=10**5,
        inbox_bytes_max=2**30,
    )


class Crowd:
    """All nodes behind one connection."""

    def __init__(self, port: int, count: int, sensors: int) -> None:
        self.names = [f"n{n}" for n in range(count)]
        roles = [f"r{n}" for n in range(sensors)]
        self.sensors = sorted(roles, key=Layout(roles).columns.index)
        self.layouts = dict.fromkeys(self.names, 0)
        self.summary = summary(self.sensors, 1)
        self.link = MqttLink(roomy("crowd", port))
        self.link.subscribe([f"opid/1/{SITE}/+/desired"])

    def say(self, name: str, channel: Channel, payload: bytes) -> None:
        """One message of one node."""
        topic = str(NodeTopics(SITE, name).to(channel))
        self.link.publish(topic, payload, retain=channel.retained)

    def introduce(self) -> None:
        """Everybody says what they are."""
        described = tuple(
            SensorDescription(id=each, role=each, reference=0.0, scale=1.0, timeout_s=60.0)
            for each in self.sensors
        )
        payload = encode(
            Introduction(
                version=0,
                layout_version=0,
                sensors=described,
                vanishing=(),
                gate=8.0,
                classes=CLASSES,
                window_ms=0,
            )
        )
        for name in self.names:
            self.say(name, Channel.EVENT, payload)

    def announce(self) -> None:
        """At every node one sensor dies and another one joins."""
        for name in self.names:
            died = SensorRetired("r0", now_ms(), "worn out")
            joins = SensorDeployed("new", role="new", at_ms=now_ms(), reference=0.0, scale=1.0)
            self.say(name, Channel.EVENT, encode(died))
            self.say(name, Channel.EVENT, encode(joins))

    def obey(self, name: str, payload: bytes) -> None:
        """Check the order, and report it."""
        order = msgpack.unpackb(open_sealed(payload, [KEY.verify_key]))
        version, layout = order["version"], order["layout_version"]
        if layout == 2 and self.layouts[name] == 1:
            self.say(name, Channel.SUMMARY, self.summary)
        self.layouts[name] = layout
        model = version if "weights" in order else 0
        status = Status(
            online=True,
            layout_version=layout,
            model_version=model,
            time_ms=now_ms(),
            version=version,
        )
        self.say(name, Channel.STATUS, encode(status))

    def listen(self) -> None:
        """Obey what comes, until nothing does for a moment."""
        while (delivery := self.link.poll(0.02)) is not None:
            self.obey(delivery.topic.split("/")[3], delivery.payload)
            self.link.acknowledge(delivery)


def now_ms() -> int:
    """The wall clock."""
    return int(time.time() * 1000)


def main() -> None:
    """Serve until the benchmark ends us."""
    port, count, sensors = map(int, sys.argv[1:4])
    crowd = Crowd(port, count, sensors)
    crowd.link.start()
    crowd.link.wait_connected(30.0)
    crowd.introduce()
    print("ready", flush=True)
    announced, deadline = False, time.monotonic() + LASTS_S
    while time.monotonic() < deadline:
        crowd.listen()
        if not announced and min(crowd.layouts.values()) == 1:  # everybody is adopted
            announced = True
            crowd.announce()


if __name__ == "__main__":
    main()
