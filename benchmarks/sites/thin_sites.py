"""Sites of thin nodes: what gateways hear of them, in an order that does not depend on who listens.

In round k every node of a site loses sensor rk and gains another. Each node checks the signature of
every order, uploads a summary when its layout changes, and reports; once all nodes of the site have
the layout, their labelled instances follow in a fixed order. So two runs with the same seed give a
gateway the same batches, whoever it is and however often it died.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np

from benchmarks.gateway.fleet import CLASSES, KEY, LEARNED, now_ms
from edge_opid.layout import Layout
from edge_opid.learner import WoodburyLearner
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.node.effects import summary_message
from edge_opid.wire import (
    Channel,
    Example,
    InstanceId,
    NodeTopics,
    SensorDeployed,
    SensorRetired,
    Status,
    encode,
    open_sealed,
)
from firmware_sim.live.introductions import first_introduction

SENSORS = 4
BATCH = 30
AGAIN_S = 3.0  # between two introductions of a node that has no order


def roles_of(round_: int) -> list[str]:
    """The sensors of a node after so many changes, in the order of their columns."""
    roles = [f"r{n}" for n in range(round_, round_ + SENSORS)]
    return sorted(roles, key=Layout(roles).columns.index)


def seeded(*what: object) -> np.random.Generator:
    """The same numbers for the same names, in any process."""
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


@dataclass
class ThinSite:
    """The nodes of one site, and how far each has come."""

    name: str
    nodes: list[str]
    round: int = 0
    layouts: dict[str, int] = field(default_factory=dict)
    taught: int = 0
    """The last round whose labelled instances were sent."""

    def summary(self, layout_version: int) -> bytes:
        """What a node's learner knew of the layout before this one."""
        sensors = roles_of(layout_version - 1)
        rng, width = seeded(self.name, layout_version), len(sensors) + 1
        learner = WoodburyLearner(0, width, len(CLASSES))
        for _ in range(LEARNED):
            label = int(rng.integers(len(CLASSES)))
            learner.learn_one(np.append(rng.normal(size=width - 1) + label, 1.0), label)
        return encode(summary_message(learner, layout_version, tuple(sensors), ()))

    def examples(self) -> Iterable[tuple[str, bytes]]:
        """The batch of this round: node and message, in order."""
        rng = seeded(self.name, self.round, "batch")
        for number in range(BATCH):
            node = self.nodes[number % len(self.nodes)]
            label = int(rng.integers(len(CLASSES)))
            values = {role: float(rng.normal() + label) for role in roles_of(self.round)}
            instance = InstanceId("box", self.round, number + 1)
            version = self.round + 1
            yield node, encode(Example(instance, version, now_ms(), values, CLASSES[label]))


class ThinSites:
    """All sites behind one connection, which also records every order that comes."""

    def __init__(self, port: int, sites: Iterable[str], nodes: int) -> None:
        names = [f"n{n}" for n in range(nodes)]
        self.sites = {site: ThinSite(site, names) for site in sites}
        self.orders: defaultdict[tuple[str, str], list[tuple[int, bytes]]] = defaultdict(list)
        """Of each node: version and payload of every order, as they arrived."""
        self._link = BackgroundLink(
            MqttOptions(
                client_id="thin-sites",
                port=port,
                persistent=False,
                outbox_messages_max=10**5,
                outbox_bytes_max=2**30,
                inbox_messages_max=10**5,
                inbox_bytes_max=2**30,
            )
        )
        self._introduced_s = 0.0
        self._link.subscribe([f"opid/1/{site}/+/desired" for site in self.sites])

    def start(self) -> None:
        """Connect, and let every node introduce itself."""
        self._link.start()
        self._link.wait_connected(30.0)
        self._introduce()

    def _introduce(self) -> None:
        """As nodes do: again, until they have an order."""
        self._introduced_s = time.monotonic()
        hello = encode(first_introduction({each: each for each in roles_of(0)}, CLASSES))
        for site in self.sites.values():
            for node in site.nodes:
                if node not in site.layouts:
                    self._say(site.name, node, Channel.EVENT, hello)

    def stop(self) -> None:
        """Say goodbye."""
        self._link.stop()

    def change(self, name: str) -> None:
        """At every node of a site one sensor dies and another one joins."""
        site = self.sites[name]
        site.round += 1
        old, new = f"r{site.round - 1}", f"r{site.round - 1 + SENSORS}"
        for node in site.nodes:
            died = SensorRetired(old, now_ms(), "worn out")
            joins = SensorDeployed(new, role=new, at_ms=now_ms(), reference=0.0, scale=1.0)
            self._say(name, node, Channel.EVENT, encode(died))
            self._say(name, node, Channel.EVENT, encode(joins))

    def listen(self, wait_s: float = 0.02) -> None:
        """Obey what has come, and teach where all have the newest layout."""
        while (delivery := self._link.poll(wait_s)) is not None:
            _, _, site, node, _ = delivery.topic.split("/")
            self._obey(self.sites[site], node, delivery.payload)
            self._link.acknowledge(delivery)
        if time.monotonic() > self._introduced_s + AGAIN_S:
            self._introduce()
        for each in self.sites.values():
            ready = all(each.layouts.get(node, 0) > each.round for node in each.nodes)
            if each.taught < each.round and ready:
                each.taught = each.round
                for node, payload in each.examples():
                    self._say(each.name, node, Channel.EVENT, payload)

    def _obey(self, site: ThinSite, node: str, payload: bytes) -> None:
        order = msgpack.unpackb(open_sealed(payload, [KEY.verify_key]))
        version, layout = order["version"], order["layout_version"]
        self.orders[site.name, node].append((version, payload))
        before = site.layouts.get(node, 0)
        if layout > before > 0:
            self._say(site.name, node, Channel.SUMMARY, site.summary(before))
        site.layouts[node] = max(layout, before)
        model = version if "weights" in order else 0
        said = Status(
            online=True,
            layout_version=layout,
            model_version=model,
            time_ms=now_ms(),
            version=version,
        )
        self._say(site.name, node, Channel.STATUS, encode(said))

    def _say(self, site: str, node: str, channel: Channel, payload: bytes) -> None:
        topic = str(NodeTopics(site, node).to(channel))
        self._link.publish(topic, payload, retain=channel.retained)


def meaning(payload: bytes) -> dict[str, object]:
    """What an order tells a node to do; its version is the gateway's own affair."""
    order = msgpack.unpackb(open_sealed(payload, [KEY.verify_key]))
    return {name: value for name, value in order.items() if name not in ("version", "gather")}
