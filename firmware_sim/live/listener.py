"""Who watches a live fleet for its score, and speaks for its operator and its labeller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from nacl.signing import VerifyKey

from edge_opid.wire import (
    Channel,
    Desired,
    InstanceId,
    Label,
    NodeTopics,
    Prediction,
    Status,
    decode,
    encode,
    open_sealed,
)
from edge_opid.wire import Event as Message
from firmware_sim.live.broker import Broker
from firmware_sim.live.observer import Observer
from firmware_sim.scenario.score import Score


class FleetListener(Observer):
    """Predictions go to the score; orders with weights are counted, and who is online is known."""

    def __init__(self, broker: Broker, site: str, key: VerifyKey, score: Score) -> None:
        self._site, self._key, self._score = site, key, score
        self.place: dict[tuple[str, int, int], int] = {}  # node, boot and number of a reading
        self.pushed: dict[tuple[str, int], int] = {}  # node, version: bytes of that order
        self.online: set[str] = set()
        self.served_by: Counter[str] = Counter()
        self._takers: dict[Channel, Callable[[str, bytes], None]] = {
            Channel.PREDICTION: self._take_prediction,
            Channel.DESIRED: self._take_order,
            Channel.STATUS: self._take_status,
        }
        filters = [f"opid/1/{site}/+/{each}" for each in self._takers]
        super().__init__(broker.options(f"opid-sim-{site}"), filters)

    def listen(self) -> None:
        """Take in everything that has been heard by now, in the caller's own thread."""
        for channel, take in self._takers.items():
            heard = self.heard[channel]
            while heard:
                topic, payload = heard.popleft()
                try:
                    take(topic.node, payload)
                except ValueError:
                    continue  # somebody else's, on a broker that is not ours

    def _take_prediction(self, node: str, payload: bytes) -> None:
        said = decode(payload, Prediction)
        place = self.place.get((node, said.instance.boot, said.instance.seq))
        if place is not None:
            self._score.served(node, place, said.label)
            self.served_by[said.predictor or "own"] += 1

    def _take_status(self, node: str, payload: bytes) -> None:
        if payload and decode(payload, Status).online:
            self.online.add(node)
        else:
            self.online.discard(node)

    def _take_order(self, node: str, payload: bytes) -> None:
        if not payload:
            return  # it was taken back
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
            self.link.publish(topic, b"", retain=True)

    def _say(self, node: str, channel: Channel, payload: bytes) -> None:
        self.link.publish(str(NodeTopics(self._site, node).to(channel)), payload)


def now_ms() -> int:
    """The wall clock, as messages have it."""
    return int(time.time() * 1000)
