"""The simulated network, broker and sensor's card: what they break, and what they must not."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from edge_opid.link import Connected, Delivery, Disconnected
from edge_opid.source.number import ReadingNumber
from firmware_sim.chaos.faults import Targets, faults_for, listed, parsed
from firmware_sim.chaos.soak import shrunk
from firmware_sim.simulated.broker import SimBroker
from firmware_sim.simulated.clock import VirtualClock, WallClock, dice
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import KEEPALIVE_MS, Network
from firmware_sim.simulated.source_device import Medium, MemorySpool


@dataclass
class Net:
    """A sender and a reader who acknowledges what he takes."""

    seed: int = 1
    clock: VirtualClock = field(default_factory=VirtualClock)
    broker: SimBroker = field(default_factory=SimBroker)

    def __post_init__(self):
        self.network = Network(self.clock, self.broker, self.seed)
        self.reader = self.link("reader", "reading/#", "desired")
        self.sender = self.link("sender")
        self.clock.run_for(200)

    def link(self, name: str, *filters: str) -> SimLink:
        link = SimLink(self.network, name)
        link.subscribe(filters)
        link.start()
        return link

    def send(self, *numbers: int, topic: str = "reading/attic") -> None:
        for number in numbers:
            assert self.sender.publish(topic, bytes([number]))

    def taken(self, *, acknowledging: bool = True) -> list[int]:
        found: list[Delivery] = []
        while (delivery := self.reader.poll()) is not None:
            found.append(delivery)
            if acknowledging:
                self.reader.acknowledge(delivery)
        return [delivery.payload[0] for delivery in found]

    def events(self) -> list[str]:
        found = []
        while (event := self.reader.poll_event()) is not None:
            found.append(type(event).__name__)
        return found


@pytest.fixture
def net() -> Net:
    return Net()


def test_events_of_one_moment_happen_in_the_order_they_were_asked_for() -> None:
    """A heap alone would compare callbacks; and the past is now."""
    clock, heard = VirtualClock(), []
    for name in "abc":
        clock.after(5, lambda name=name: heard.append(name))
    clock.run_for(5)
    clock.at(1, lambda: heard.append(f"late at {clock.now_ms}"))
    clock.run_for(0)
    assert heard == ["a", "b", "c", "late at 5"]
    assert clock.events == 4


def test_wall_clock_that_jumps_leaves_the_other_clock_alone() -> None:
    """Only the wall clock can be set."""
    clock = VirtualClock()
    machine = WallClock(clock)
    before = machine.wall()
    clock.run_for(1_000)
    machine.jump(-3_600_000)
    assert machine.wall() == before + 1 - 3_600
    assert machine.monotonic() == 1.0


def test_chance_of_one_purpose_does_not_depend_on_another() -> None:
    """A fault more or less must not change what the others do."""
    assert dice(1, "a").random() == dice(1, "a").random()
    assert len({dice(*names).random() for names in ((1, "a"), (2, "a"), (1, "b"))}) == 3


def test_reset_loses_what_was_on_its_way_and_nothing_for_good(net: Net) -> None:
    """Everything comes, some of it twice, in order."""
    net.send(*range(10))
    net.clock.run_for(12)
    net.network.reset("sender")
    net.network.reset("reader")
    net.clock.run_for(3_000)
    seen = net.taken()
    assert sorted(set(seen)) == list(range(10))
    assert net.events()[-2:] == [Disconnected.__name__, Connected.__name__]
    net.clock.run_for(3_000)
    assert net.taken() == []


def test_short_partition_only_delays(net: Net) -> None:
    """TCP sends again; nobody notices anything."""
    net.events()
    net.network.part("reader", KEEPALIVE_MS // 2)
    net.send(1, 2, 3)
    net.clock.run_for(KEEPALIVE_MS // 2 - 1)
    assert net.taken() == []
    net.clock.run_for(500)
    assert net.taken() == [1, 2, 3]
    assert net.events() == []


def test_long_partition_ends_the_connection_and_keeps_the_messages(net: Net) -> None:
    """Both sides give up; what was sent meanwhile waits in the session."""
    net.events()
    net.network.part("reader", 3 * KEEPALIVE_MS)
    net.send(1, 2, 3)
    net.clock.run_for(3 * KEEPALIVE_MS - 1)
    assert not net.reader.connected
    net.clock.run_for(4_000)
    assert net.taken() == [1, 2, 3]
    assert net.events() == ["Disconnected", "Connected"]


def test_delivery_of_a_dead_connection_is_not_polled_after_it(net: Net) -> None:
    """Its packet id means something else by now: it comes again with a receipt that counts."""
    net.send(1)
    net.clock.run_for(200)
    net.network.reset("reader")
    assert net.taken() == []
    net.clock.run_for(2_000)
    assert net.taken() == [1]


def test_broker_with_amnesia_forgets_sessions_and_retained_messages(net: Net) -> None:
    """What was confirmed to the sender is gone, and nobody is told but by `session_present`."""
    net.sender.publish("desired", b"\7", retain=True)
    net.send(1, 2)
    net.clock.run_for(200)
    assert net.sender.counters.published == 3
    assert net.taken(acknowledging=False) == [7, 1, 2]
    net.broker.crash(forget=True)
    net.clock.run_for(100)
    net.broker.restart()
    net.clock.run_for(4_000)
    assert net.taken() == []
    net.reader.poll_event()
    net.reader.poll_event()
    assert net.reader.poll_event() == Connected(False, "simulated")


def test_broker_with_an_older_memory_says_again_what_was_acknowledged(net: Net) -> None:
    """And knows nothing of what came since."""
    net.send(1, 2)
    net.clock.run_for(200)
    then = net.broker.checkpoint()
    assert net.taken() == [1, 2]
    net.send(3)
    net.clock.run_for(200)
    assert net.taken(acknowledging=False) == [3]
    net.broker.fall_back(then)
    net.broker.restart()
    net.clock.run_for(4_000)
    assert net.taken() == [1, 2]


def test_hostile_broker_repeats_lies_and_puts_back_old_orders(net: Net) -> None:
    """A node has to expect every one of these."""
    net.sender.publish("desired", b"\1", retain=True)
    net.sender.publish("desired", b"\2", retain=True)
    net.clock.run_for(200)
    assert net.taken() == [1, 2]
    net.broker.say_again(dice(3), 4)
    net.broker.lie("desired", b"\x09")
    net.clock.run_for(200)
    seen = net.taken()
    assert len(seen) == 5
    assert set(seen[:4]) <= {1, 2}
    assert seen[4] == 9
    assert net.broker.memory.retained["desired"].payload == b"\x09"
    net.broker.put_back("desired", dice(3))
    assert net.broker.memory.retained["desired"].payload in (b"\1", b"\2")


def test_two_publishers_may_be_reordered_but_neither_with_itself(net: Net) -> None:
    """Each connection has its own weather."""
    other = net.link("other")
    net.network.slow_down("sender", 300)
    net.clock.run_for(200)
    for number in range(20):
        net.send(number)
        other.publish("reading/attic", bytes([100 + number]))
    net.clock.run_for(2_000)
    seen = net.taken()
    assert [n for n in seen if n < 100] == list(range(20))
    assert [n for n in seen if n >= 100] == [100 + n for n in range(20)]
    assert seen != sorted(seen, key=lambda n: n % 100)


def test_same_seed_gives_the_same_weather_and_another_seed_another() -> None:
    """Two runs of one seed cannot be told apart."""

    def arrivals(seed: int) -> list[int]:
        net, seen = Net(seed), []
        net.send(*range(10))
        for _ in range(100):
            net.clock.run_for(1)
            seen.append(len(net.taken()))
        return seen

    assert arrivals(1) == arrivals(1) != arrivals(2)


def test_power_cut_takes_from_a_sensors_card_only_what_was_not_synced() -> None:
    """And says which numbers are gone, so that nobody waits for them."""
    medium = Medium()
    spool = MemorySpool(medium)
    for seq in range(1, 7):
        spool.append(ReadingNumber(5, seq), b"x")
        if seq == 3:
            spool.sync()
    spool.acknowledge(ReadingNumber(5, 2))
    gone = medium.power_cut(dice(1))
    kept = [number.seq for number, _ in medium.records]
    assert kept[:3] == [1, 2, 3]
    assert kept + [number.seq for number in gone] == [1, 2, 3, 4, 5, 6]
    again = MemorySpool(medium)
    first = again.read_next()
    assert first is not None
    assert first[0] == ReadingNumber(5, medium.mark.seq + 1)


def test_faults_can_be_written_down_and_read_back() -> None:
    """The line that is printed is the line that repeats it."""
    targets = Targets(("n1", "n2"), ("box",), ("gateway",))
    for seed in range(50):
        faults = faults_for(dice(seed), targets, 9_000)
        assert parsed(listed(faults)) == faults
        assert 3 <= len(faults) <= 15
        assert all(fault.at_ms + fault.for_ms <= 9_000 for fault in faults)


@pytest.mark.parametrize("needed", [(), (0,), (7,), (2, 9), (0, 5, 9)], ids=str)
def test_shrinking_keeps_what_is_needed_and_nothing_else(needed: tuple[int, ...]) -> None:
    """Wherever in the list it stands; and the search ends."""
    tries = []

    def fails(some: tuple[int, ...]) -> bool:
        tries.append(some)
        return set(needed) <= set(some)

    assert shrunk(range(10), fails) == needed
    assert len(tries) <= 40
