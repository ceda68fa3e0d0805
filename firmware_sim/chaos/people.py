"""People: the operator who announces sensors until the gateway has heard it, and a labeller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edge_opid.wire import (
    Channel,
    InstanceId,
    Label,
    NodeTopics,
    SensorDeployed,
    SensorRetired,
    encode,
)
from firmware_sim.chaos.story import SITE, StoryAnnouncement
from firmware_sim.simulated.gateway_device import GatewayDevice
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network
from gateway.registry import SensorState

AGAIN_MS = 1_500


class Operator:
    """Says everything again until it sees that it has been heard, as people do."""

    def __init__(
        self, network: Network, gateway: GatewayDevice, announcements: Iterable[StoryAnnouncement]
    ) -> None:
        self._clock, self._gateway = network.clock, gateway
        self._link = SimLink(network, "operator")
        self._link.start()
        self.open = sorted(announcements, key=lambda each: each.at_ms)
        self._work()

    def _work(self) -> None:
        self.open = [each for each in self.open if not self._heard(each)]
        for each in self.open:
            if each.at_ms <= self._clock.now_ms:
                self._say(each)
        if self.open:
            self._clock.after(AGAIN_MS, self._work)

    def _say(self, announcement: StoryAnnouncement) -> None:
        payload = encode(self._event(announcement))
        if announcement.by_message:
            topic = NodeTopics(SITE, announcement.node).to(Channel.EVENT)
            self._link.publish(str(topic), payload)
        else:
            self._gateway.store.submit(SITE, announcement.node, payload, self._clock.now_ms)

    def _event(self, announcement: StoryAnnouncement) -> SensorRetired | SensorDeployed:
        """As the dashboard has it.

        Nothing can be replaced that it does not show: then the new one just joins. And who sees a
        sensor join that should be gone says so again, as of now: an older word is a late copy.
        """
        event, key = announcement.event, (SITE, announcement.node)
        if not self._gateway.alive:
            return event
        fleet = self._gateway.gateway.fleet
        record = fleet.sensors[key].get(event.sensor)
        if isinstance(event, SensorRetired):
            since = 0 if record is None else record.announced_ms + 1
            return replace(event, at_ms=max(event.at_ms, since))
        lacks = key in fleet.nodes and event.replaces not in fleet.sensors[key]
        return replace(event, replaces=None) if lacks else event

    def _heard(self, announcement: StoryAnnouncement) -> bool:
        """As the dashboard shows it; without a gateway there is none.

        A sensor that went before it had moved never got a column: its node did not introduce it,
        and the dashboard does not show it.
        """
        if not self._gateway.alive or announcement.at_ms > self._clock.now_ms:
            return False
        fleet, key = self._gateway.gateway.fleet, (SITE, announcement.node)
        record = fleet.sensors[key].get(announcement.event.sensor)
        if isinstance(announcement.event, SensorRetired):
            shown = record is not None or key not in fleet.nodes
            return not shown or (record is not None and record.state == SensorState.RETIRED)
        return record is not None


class Labeller:
    """Somebody who looks at the readings that came without a label, and knows."""

    def __init__(self, network: Network) -> None:
        self._link = SimLink(network, "labeller")
        self._link.start()

    def tell(self, node: str, instance: InstanceId, label: str) -> None:
        """The truth about an instance; it may be lost on the way, nobody keeps it."""
        topic = NodeTopics(SITE, node).to(Channel.LABEL)
        self._link.publish(str(topic), encode(Label(label, instance)))
