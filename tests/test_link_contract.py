"""One contract, four links: whatever a simulator may rely on, the real broker must keep."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from support import links
from support.links import wait_until
from support.mosquitto import HOST, Mosquitto

from edge_opid.errors import WireError
from edge_opid.link import (
    Connected,
    Delivery,
    Disconnected,
    Link,
    LinkCounters,
    LinkError,
    MqttOptions,
    Will,
)
from edge_opid.link.background import BackgroundLink
from edge_opid.link.mqtt import MqttLink
from edge_opid.testing import MemoryBroker, MemoryLink
from firmware_sim.live.processes import WAIT_S
from firmware_sim.simulated.broker import SimBroker
from firmware_sim.simulated.clock import VirtualClock
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network

QUIET_S = 0.15  # how long nothing must arrive before we believe that nothing will


class World(Protocol):
    """A broker and the links to it."""

    patience_s: float

    def link(self, name: str, **options: object) -> Link: ...

    def cut(self, name: str) -> None: ...

    def down(self) -> None: ...

    def up(self) -> None: ...

    def heard_out(self, name: str) -> None:
        """Wait until the broker has read everything that a client said before its goodbye."""


class MemoryWorld:
    patience_s = 0.0

    def __init__(self) -> None:
        self.broker = MemoryBroker()

    def link(self, name: str, **options: object) -> Link:
        return MemoryLink(self.broker, name, **options)  # type: ignore[arg-type]

    def cut(self, name: str) -> None:
        self.broker.drop(name)

    def down(self) -> None:
        self.broker.crash(forget=False)

    def up(self) -> None:
        self.broker.restart()

    def heard_out(self, name: str) -> None:
        """At once."""


class PatientLink(SimLink):
    """Simulated time passes whenever somebody looks, as real time does."""

    looking = False  # the network itself looks at counters, too: that takes no time

    def look(self, span_ms: int = 10) -> None:
        if not PatientLink.looking:
            PatientLink.looking = True
            self._network.clock.run_for(span_ms)
            PatientLink.looking = False

    @property
    def connected(self) -> bool:
        self.look()
        return self._accepted

    @property
    def counters(self) -> LinkCounters:
        self.look()
        return self._counted

    @counters.setter
    def counters(self, counted: LinkCounters) -> None:
        self._counted = counted

    def wait_connected(self, timeout_s: float) -> None:
        self.look(int(1000 * timeout_s) // 4)
        super().wait_connected(timeout_s)

    def poll(self, timeout_s: float = 0.0) -> Delivery | None:
        if timeout_s and not self._inbox:
            self.look(int(1000 * timeout_s))
        return super().poll()

    def stop(self, drain_s: float = 5.0) -> int:
        super().stop(drain_s)
        self.look(100)
        return len(self._outbox)


class SimWorld:
    patience_s = 0.0

    def __init__(self) -> None:
        self.broker = SimBroker()
        self.network = Network(VirtualClock(), self.broker, seed=1)

    def link(self, name: str, **options: object) -> Link:
        return PatientLink(self.network, name, **options)  # type: ignore[arg-type]

    def cut(self, name: str) -> None:
        self.network.reset(name)

    def down(self) -> None:
        self.network.clock.run_for(50)  # what was acknowledged before is on its way no longer
        self.broker.crash(forget=False)

    def up(self) -> None:
        self.broker.restart()

    def heard_out(self, name: str) -> None:
        """In order: a goodbye is not overtaken."""


class AttentiveLink(MqttLink):
    """One without a thread, and a caller who gives every link of the world its turn."""

    others: list[Link]

    def look(self) -> None:
        for link in self.others:
            link.serve()

    @property
    def connected(self) -> bool:
        self.look()
        return super().connected

    @property
    def counters(self) -> LinkCounters:
        self.look()
        return super().counters

    def poll(self, timeout_s: float = 0.0) -> Delivery | None:
        deadline = time.monotonic() + timeout_s
        while True:
            self.look()
            delivery = super().poll(0.005)
            if delivery is not None or time.monotonic() >= deadline:
                return delivery


class MqttWorld:
    patience_s = QUIET_S

    def __init__(self, folder: Path, link_type: type[MqttLink]) -> None:
        self.links: list[Link] = []
        self.link_type = link_type
        self.broker = Mosquitto(folder, persistence=True)
        self.broker.start()

    def link(self, name: str, **options: object) -> Link:
        link = self.link_type(
            MqttOptions(
                client_id=name,
                port=self.broker.port,
                reconnect_first_s=0.02,
                reconnect_most_s=0.1,
                **options,  # type: ignore[arg-type]
            )
        )
        self.links.append(link)
        if isinstance(link, AttentiveLink):
            link.others = self.links
        return link

    def cut(self, name: str) -> None:
        """Take the session over with a bare CONNECT of MQTT 3.1.1, and hang up."""
        body = b"\x00\x04MQTT\x04\x00\x00\x3c" + len(name).to_bytes(2, "big") + name.encode()
        with socket.create_connection((HOST, self.broker.port), timeout=WAIT_S) as raw:
            raw.sendall(bytes([0x10, len(body)]) + body)
            assert raw.recv(4)[:1] == b"\x20"

    def down(self) -> None:
        self.broker.stop()

    def up(self) -> None:
        self.broker.start()

    def heard_out(self, name: str) -> None:
        """A newcomer of the same name takes the session over from whatever was not read yet."""
        log = self.broker.folder / "mosquitto.log"
        eventually(lambda: f"Client {name} disconnected." in log.read_text())

    def close(self) -> None:
        for link in self.links:
            link.abort()
        self.broker.kill()


@pytest.fixture(params=["memory", "simulated", "mosquitto", "mosquitto, by a thread"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    if request.param == "simulated":
        yield SimWorld()
        return
    in_thread = request.param != "mosquitto"
    mqtt = MqttWorld(tmp_path, BackgroundLink if in_thread else AttentiveLink)
    yield mqtt
    mqtt.close()


eventually = partial(wait_until, what="the broker or the link has done its part")
take = partial(links.take, acknowledge=False)


def nothing_more(world: World, link: Link) -> bool:
    deadline = time.monotonic() + world.patience_s
    while True:
        if link.poll(0.02) is not None:
            return False
        if time.monotonic() >= deadline:
            return True


def payloads(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.payload for delivery in deliveries]


def started(world: World, name: str, *filters: str, **options: object) -> Link:
    link = world.link(name, **options)
    link.subscribe(filters)
    link.start()
    link.wait_connected(WAIT_S)
    return link


def subscribed(world: World, name: str, *filters: str, **options: object) -> Link:
    """A link whose subscriptions are in force: a message of its own has come back."""
    link = started(world, name, f"probe/{name}", *filters, **options)
    all_was_read(name, link)
    return link


def all_was_read(name: str, link: Link) -> None:
    """Return when the broker has read what this link said: its probe, said last, came back.

    With QoS 0, for a probe of QoS 1 would need an acknowledgement, and who waits until that was
    read? A broker that stops before has the probe for whoever takes up the session.
    """
    link.publish(f"probe/{name}", b"are you there?", qos=0)
    assert payloads(take(link, 1)) == [b"are you there?"]


def leave(world: World, name: str, link: Link) -> None:
    """Stop in order, and be heard: an acknowledgement nobody read is a message that comes again."""
    assert link.stop() == 0
    world.heard_out(name)


def confirmed(link: Link, count: int) -> None:
    eventually(lambda: link.counters.published >= count)


def reconnected(link: Link, times: int = 1) -> None:
    def happened() -> bool:
        link.wait_connected(WAIT_S)
        return link.counters.reconnects >= times

    eventually(happened)


def test_acknowledged_message_is_not_delivered_again(world: World) -> None:
    """What was acknowledged stays done when a new process takes up the session."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    assert sender.publish("reading/attic", b"1")
    (delivery,) = take(node, 1)
    assert (delivery.topic, delivery.payload, delivery.retain) == ("reading/attic", b"1", False)
    node.acknowledge(delivery)
    leave(world, "node", node)
    again = started(world, "node", "reading/+")
    assert nothing_more(world, again)


def test_unacknowledged_message_comes_again_after_a_crash(world: World) -> None:
    """A process that dies before it acknowledged gets the same messages, in the same order."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    for number in range(5):
        sender.publish("reading/attic", bytes([number]))
    first = take(node, 5)
    node.acknowledge(first[0])
    all_was_read("node", node)
    node.abort()
    again = started(world, "node", "reading/+")
    assert payloads(take(again, 4)) == [b"\x01", b"\x02", b"\x03", b"\x04"]
    event = again.poll_event()
    assert isinstance(event, Connected)
    assert event.session_present


def test_acknowledgement_out_of_order_waits_for_its_elders(world: World) -> None:
    """The second message acknowledged alone counts for nothing if the first never was."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    for number in range(3):
        sender.publish("reading/attic", bytes([number]))
    deliveries = take(node, 3)
    node.acknowledge(deliveries[2])
    node.acknowledge(deliveries[1])
    done = node.counters.acknowledged
    node.abort()
    again = started(world, "node", "reading/+")
    assert payloads(take(again, 3)) == [b"\x00", b"\x01", b"\x02"]
    assert node.counters.acknowledged == done


def test_acknowledgement_from_a_former_connection_is_harmless(world: World) -> None:
    """Packet ids are given anew: an old acknowledgement must not free a new message."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    sender.publish("reading/attic", b"before")
    (old,) = take(node, 1)
    world.cut("node")
    reconnected(node)
    (new,) = take(node, 1)
    node.acknowledge(old)
    assert node.counters.acks_stale == 1
    node.abort()
    again = started(world, "node", "reading/+")
    assert payloads(take(again, 1)) == [new.payload] == [b"before"]


def test_message_acknowledged_twice_frees_only_itself(world: World) -> None:
    """The second acknowledgement of one delivery is counted and changes nothing."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    sender.publish("reading/attic", b"1")
    sender.publish("reading/attic", b"2")
    first, _ = take(node, 2)
    node.acknowledge(first)
    node.acknowledge(first)
    assert node.counters.acks_stale == 1
    leave(world, "node", node)
    again = started(world, "node", "reading/+")
    assert payloads(take(again, 1)) == [b"2"]


def test_messages_sent_while_away_are_waiting(world: World) -> None:
    """The session outlives the connection: nothing sent meanwhile is lost."""
    node = subscribed(world, "node", "reading/+")
    leave(world, "node", node)
    sender = started(world, "sender")
    for number in range(50):
        sender.publish("reading/attic", bytes([number]))
    confirmed(sender, 50)
    again = started(world, "node", "reading/+")
    assert payloads(take(again, 50)) == [bytes([number]) for number in range(50)]


def test_session_that_is_not_persistent_is_forgotten(world: World) -> None:
    """A passing visitor leaves nothing behind at the broker."""
    visitor = subscribed(world, "visitor", "reading/+", persistent=False)
    leave(world, "visitor", visitor)
    sender = started(world, "sender")
    sender.publish("reading/attic", b"1")
    confirmed(sender, 1)
    again = started(world, "visitor", "reading/+", persistent=False)
    event = again.poll_event()
    assert isinstance(event, Connected)
    assert not event.session_present
    assert nothing_more(world, again)


def test_late_subscriber_sees_the_retained_message(world: World) -> None:
    """The last retained message waits for whoever comes; an empty one clears it."""
    sender = started(world, "sender")
    sender.publish("desired", b"old", retain=True)
    sender.publish("desired", b"new", retain=True)
    sender.publish("cleared", b"x", retain=True)
    sender.publish("cleared", b"", retain=True)
    confirmed(sender, 4)
    late = started(world, "late", "desired", "cleared")
    (delivery,) = take(late, 1)
    assert (delivery.payload, delivery.retain) == (b"new", True)
    assert nothing_more(world, late)


def test_last_will_is_published_on_abrupt_death(world: World) -> None:
    """Whoever vanishes without a word is reported offline."""
    watcher = subscribed(world, "watcher", "status")
    node = started(world, "node", will=Will("status", b"offline"))
    node.abort()
    assert payloads(take(watcher, 1)) == [b"offline"]
    assert nothing_more(world, watcher)


def test_last_will_is_not_published_after_a_goodbye(world: World) -> None:
    """A node that stops in order speaks for itself."""
    watcher = subscribed(world, "watcher", "status")
    node = started(world, "node", will=Will("status", b"offline"))
    node.publish("status", b"stopping")
    assert node.stop() == 0
    assert payloads(take(watcher, 1)) == [b"stopping"]
    assert nothing_more(world, watcher)


def test_full_queue_refuses_and_counts(world: World) -> None:
    """Without a broker the queue fills; what was taken arrives in order, what was not is known."""
    node = subscribed(world, "node", "reading/+")
    leave(world, "node", node)
    world.down()
    sender = world.link("sender", outbox_messages_max=10)
    sender.start()
    taken = [sender.publish("reading/attic", bytes([number])) for number in range(13)]
    assert taken == [True] * 10 + [False] * 3
    assert sender.counters.refused == {"unsent-queue-full": 3}
    assert sender.counters.publish_refused == 3
    world.up()
    sender.wait_connected(WAIT_S)
    again = started(world, "node", "reading/+")
    assert payloads(take(again, 10)) == [bytes([number]) for number in range(10)]
    assert nothing_more(world, again)


def test_outage_in_the_middle_loses_nothing(world: World) -> None:
    """The broker goes and comes back; both links find it again without help."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    sender.publish("reading/attic", b"before")
    node.acknowledge(take(node, 1)[0])
    confirmed(sender, 1)
    all_was_read("node", node)  # or "before" comes again
    world.down()
    eventually(lambda: not node.connected and not sender.connected)
    sender.publish("reading/attic", b"during")
    world.up()
    reconnected(node)
    reconnected(sender)
    sender.publish("reading/attic", b"after")
    seen = payloads(take(node, 2))
    assert seen == [b"during", b"after"]
    events = [node.poll_event(), node.poll_event()]
    assert isinstance(events[0], Connected)
    assert isinstance(events[1], Disconnected)


def test_order_is_kept_per_publisher(world: World) -> None:
    """Two senders may interleave, but neither overtakes itself."""
    node = subscribed(world, "node", "reading/+")
    one, two = started(world, "one"), started(world, "two")
    for number in range(100):
        one.publish("reading/one", bytes([number]))
        two.publish("reading/two", bytes([number]))
    seen = take(node, 200)
    for name in ("reading/one", "reading/two"):
        numbers = [d.payload[0] for d in seen if d.topic == name]
        assert numbers == list(range(100))


def test_thousand_messages_arrive_exactly(world: World) -> None:
    """1,000 sent, 1,000 received, 1,000 acknowledged, and none of them a second time."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    for number in range(1_000):
        assert sender.publish("reading/attic", number.to_bytes(2, "big"))
    for number in range(1_000):
        (delivery,) = take(node, 1)
        assert int.from_bytes(delivery.payload, "big") == number
        node.acknowledge(delivery)
    confirmed(sender, 1_000)
    assert node.stop() == sender.stop() == 0
    assert node.counters.acknowledged == 1_000
    assert node.counters.dropped == sender.counters.refused == {}
    world.heard_out("node")
    again = started(world, "node", "reading/+")
    assert nothing_more(world, again)


def test_qos_0_needs_no_acknowledgement(world: World) -> None:
    """Fire and forget carries no receipt, and acknowledging it all the same is harmless."""
    node = subscribed(world, "node", "reading/+")
    sender = started(world, "sender")
    sender.publish("reading/attic", b"1", qos=0)
    (delivery,) = take(node, 1)
    assert delivery.receipt is None
    node.acknowledge(delivery)
    assert node.counters.acks_stale == 0


def test_unsubscribed_filter_is_gone_from_the_session(world: World) -> None:
    """A persistent session must not go on sending what nobody wants."""
    node = subscribed(world, "node", "old/+", "new/+")
    node.unsubscribe(["old/+"])
    all_was_read("node", node)
    sender = started(world, "sender")
    sender.publish("old/x", b"unwanted")
    sender.publish("new/x", b"wanted")
    assert payloads(take(node, 1)) == [b"wanted"]
    assert nothing_more(world, node)


@pytest.mark.parametrize("topic", ["", "a/+/b", "a/#", "a\0b", "x" * 65_536, "\ud800"])
def test_topic_no_broker_would_take_is_an_error(world: World, topic: str) -> None:
    """A wrong topic is the caller's mistake, said at once and in words; nothing is queued."""
    link = started(world, "node")
    with pytest.raises(WireError, match="topic"):
        link.publish(topic, b"")
    assert link.counters.publish_refused == 0
    assert link.stop() == 0


def test_publish_after_stop_is_refused(world: World) -> None:
    """A stopped link takes nothing it could not send."""
    link = started(world, "node")
    link.stop()
    assert not link.publish("a", b"1")
    assert link.counters.refused == {"unsent-not-running": 1}
    assert link.stop() == 0


def test_waiting_for_a_broker_that_is_down_ends_with_an_error(world: World) -> None:
    """The wait is bounded and the error names the client."""
    world.down()
    link = world.link("node")
    link.start()
    with pytest.raises(LinkError, match="'node'"):
        link.wait_connected(0.2)
    assert not link.connected
