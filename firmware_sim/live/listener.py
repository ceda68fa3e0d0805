"""Somebody who listens to a live fleet: predictions, weights that are pushed, and how nodes are.

A thread takes what arrives; whoever plays the scenario hears it when it asks, in its own thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque

from nacl.signing import VerifyKey

from edge_opid.link.contract import Delivery
from edge_opid.link.mqtt import MqttLink
from edge_opid.wire import (
    Channel,
    Desired,
    InstanceId,
    Label,
    NodeTopics,
    Prediction,
    Status,
    Topic,
    decode,
    encode,
    open_sealed,
)
from edge_opid.wire import Event as Message
from firmware_sim.live.broker import Broker
from firmware_sim.scenario.score import Score

CONNECT_S = 20.0
HEARD_MAX = 100_000  # messages that wait to be asked for


class LiveListener:
    """One client of the broker, which also speaks for the operator and the labeller."""

    def __init__(self, broker: Broker, site: str, key: VerifyKey, score: Score) -> None:
        self._site, self._key, self._score = site, key, score
        self.place: dict[tuple[str, int, int], int] = {}  # node, boot and number of a reading
        self.pushed: dict[
            tuple[str, int], int
        ] = {}  # node, version: bytes of an order with weights
        self.online: set[str] = set()
        self.served_by: Counter[str] = Counter()
        self._heard: deque[Delivery] = deque(maxlen=HEARD_MAX)
        self._link = MqttLink(broker.options(f"opid-sim-{site}"))
        heard = (Channel.PREDICTION, Channel.DESIRED, Channel.STATUS)
        self._link.subscribe(f"opid/1/{site}/+/{each}" for each in heard)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ear", daemon=True)

    def __enter__(self) -> LiveListener:
        self._link.start()
        self._link.wait_connected(CONNECT_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._link.stop()
        self._thread.join(CONNECT_S)

    def _run(self) -> None:
        while not self._over.is_set():
            delivery = self._link.poll(0.1)
            if delivery is not None:
                self._heard.append(delivery)
                self._link.acknowledge(delivery)

    # --- hearing ----------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take in everything that has been heard by now."""
        while self._heard:
            delivery = self._heard.popleft()
            topic = Topic.parse(delivery.topic)
            try:
                if topic.channel is Channel.PREDICTION:
                    self._predicted(topic.node, decode(delivery.payload, Prediction))
                elif topic.channel is Channel.DESIRED and delivery.payload:
                    self._ordered(topic.node, delivery.payload)
                elif topic.channel is Channel.STATUS and delivery.payload:
                    self._reported(topic.node, decode(delivery.payload, Status))
            except ValueError:
                continue  # somebody else's, on a broker that is not ours

    def _predicted(self, node: str, said: Prediction) -> None:
        place = self.place.get((node, said.instance.boot, said.instance.seq))
        if place is not None:
            self._score.served(node, place, said.label)
            self.served_by[said.predictor or "own"] += 1

    def _reported(self, node: str, status: Status) -> None:
        if status.online:
            self.online.add(node)
        else:
            self.online.discard(node)

    def _ordered(self, node: str, payload: bytes) -> None:
        order = decode(open_sealed(payload, [self._key]), Desired)
        if order.weights is not None:
            self.pushed[node, order.version] = len(payload)

    # --- speaking ---------------------------------------------------------------------------------

    def announce(self, node: str, event: Message) -> None:
        """As an operator's script would."""
        self._say(node, Channel.EVENT, encode(event))

    def label(self, node: str, instance: InstanceId, truth: str) -> None:
        """As somebody who looked."""
        self._say(node, Channel.LABEL, encode(Label(truth, instance)))

    def forget(self, node: str) -> None:
        """Take back what the broker retains of a node: it belongs to somebody else."""
        for channel in (Channel.STATUS, Channel.DESIRED):
            topic = str(NodeTopics(self._site, node).to(channel))
            self._link.publish(topic, b"", retain=True)

    def _say(self, node: str, channel: Channel, payload: bytes) -> None:
        self._link.publish(str(NodeTopics(self._site, node).to(channel)), payload)


def now_ms() -> int:
    """The wall clock, as messages have it."""
    return int(time.time() * 1000)
