"""What was: one sample a minute, bounded for ever. And labels, kept until they have arrived."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support import store_records as some
from support.fleet_rig import SITE, FleetRig
from support.inline_fitter import InlineFitter

from edge_opid.reasons import LinkReason
from edge_opid.service.systemd import Systemd
from edge_opid.testing.memory_link import MemoryBroker, MemoryLink
from edge_opid.wire import Channel, InstanceId, Label, NodeTopics, Status, Undo, decode_on, encode
from gateway.clock import GatewayClock
from gateway.decisions.timekeeping import AWAY_MS
from gateway.label_courier import LabelCourier
from gateway.loop import GatewayLoop
from gateway.registry import ForgottenRecord, SensorState
from gateway.registry.heard import Heard, HeardRecord
from gateway.registry.history import (
    HOURS_KEPT_H,
    LIVES_KEPT,
    MINUTES_KEPT_H,
    Chronicle,
    LifeRecord,
    MinutesRecord,
    Sample,
)
from gateway.store import FleetStore
from gateway.store.history import TIDIED_AT_ONCE

KEY = ("street", "north")
HOUR_MS = 3_600_000
NOW_H = 500_000


def status(readings=0, learned=0, **fields):
    counts = {"readings": readings, "learned": learned, "rate-limited": 2}
    base = {"online": True, "layout_version": 1, "model_version": 0, "time_ms": 0}
    return Status(**{**base, "counts": counts, "accuracy": {"own": 0.5, "long": 0.9}, **fields})


def an_hour(hour, node="north", minutes=60):
    found = MinutesRecord(site="street", node=node, hour=hour)
    for minute in range(minutes):
        found = found.with_sample(minute, Sample(0.5 + minute / 1000, minute, 1, 0))
    return found


# -- samples ---------------------------------------------------------------------------------------


def samples(chronicle, *said):
    """The last record after these statuses, each with its moment."""
    for now_ms, each in said:
        chronicle.note(KEY, each, now_ms)
    return chronicle.take(KEY)[-1]


def test_a_minute_has_one_sample_however_often_a_node_speaks():
    """A node in trouble sends a status at every change: the database must not follow each."""
    said = [(1_000 * second, status(readings=second)) for second in range(320)]
    kept = samples(Chronicle({}), *said)
    assert [minute for minute, _ in kept.samples()] == [0, 1, 2, 3, 4, 5]
    assert kept.readings == 300, "nothing between two samples is lost"
    assert kept.accuracy == 0.5, "of those who may be served: `long` is not"


def test_samples_that_waited_over_the_hour_are_in_both():
    chronicle = Chronicle({})
    for minute in (58, 59, 60, 61):
        chronicle.note(KEY, status(), 60_000 * minute)
    first, second = chronicle.take(KEY)
    assert [[minute for minute, _ in each.samples()] for each in (first, second)] == [
        [58, 59], [0, 1],
    ]  # fmt: skip
    assert chronicle.take(KEY) == []


# -- still here ------------------------------------------------------------------------------------


def town(size):
    return [("street", f"n{number:05}") for number in range(size)]


def test_a_small_fleet_is_saved_once_a_minute():
    heard, counted = Heard(), Counter()
    for second in range(610):
        for key in town(100):
            heard.note(key, b"", 1_000 * second)
        counted.update(key for key, _, _ in heard.take_due(1_000 * second, busy=False))
    assert set(counted) == set(town(100))
    assert set(counted.values()) <= {9, 10}


def test_a_large_fleet_is_saved_once_an_hour_in_the_order_of_its_keys():
    """Neighbours lie in the same pages: what is written at once is one stretch of the table."""
    names, heard, taken = town(12_240), Heard(), []
    for sweep in range(361):
        for key in names if sweep % 30 == 0 else ():
            heard.note(key, b"", 10_000 * sweep)
        taken.append([key for key, _, _ in heard.take_due(10_000 * sweep, busy=False)])
    assert Counter(key for each in taken for key in each) == dict.fromkeys(names, 1)
    assert max(map(len, taken)) == 34
    for each in filter(None, taken):
        start = names.index(each[0])
        assert each == names[start : start + len(each)]


def test_somebody_heard_is_always_saved_within_minutes():
    """What a gateway that was killed knows of when it was last alive; AWAY_MS is ten minutes."""
    heard, saved_ms = Heard(), 0
    for second in range(3_600):
        if second % 30 == 0:
            heard.note(KEY, b"", 1_000 * second)
        for _, seen_ms, _ in heard.take_due(1_000 * second, busy=second % 600 < 300):
            saved_ms = seen_ms
        assert 1_000 * second - saved_ms <= 200_000 < AWAY_MS


def test_a_wave_of_reports_does_not_wait_for_its_history():
    """A thousand nodes speak in one second: of that little is written before the wave is over."""
    heard = Heard()
    heard.take_due(0, busy=True)
    for key in town(1_000):
        heard.note(key, b"", 1_000)
    assert sum(len(heard.take_due(1_000 * s, busy=True)) for s in range(1, 60)) == 0
    assert 0 < len(heard.take_due(60_000, busy=True)) <= 204


def test_of_a_large_fleet_it_is_known_when_each_node_was_last_heard(database_url):
    """An alarm goes off after fifteen minutes: a sweep that takes an hour must not set it off."""
    heard, small = Heard(), Heard()
    for some_town, size in ((heard, 300), (small, 200)):
        assert some_town.take_times(0) == []
        for key in town(size):
            some_town.note(key, b"", 90_500)
    assert small.take_times(10**9) == [], "it is swept within a minute"
    assert heard.take_times(119_999) == []
    (times,) = heard.take_times(120_000)
    damaged = HeardRecord(site="lane", seconds=b"\xff")
    with FleetStore.open(database_url) as store:
        store.claim()
        early, late = town(2)
        nodes = [some.node(key[1], seen_ms=at) for key, at in ((early, 7), (late, 95_000))]
        store.save([*nodes, times, damaged])
        assert [each.seen_ms for each in store.fleet().nodes] == [90_000, 95_000]


def test_a_clock_set_back_keeps_nobody_waiting_and_no_time_in_the_future():
    heard = Heard()
    assert heard.take_due(10**12, busy=False) == []
    heard.note(KEY, b"", 10**12)
    assert heard.take_due(1_000, busy=False) == [(KEY, 1_000, b"")]
    heard.note(KEY, b"", 2_000)
    heard.forget(KEY)
    assert heard.take_all(3_000) == []


def test_a_gateway_that_is_stopped_has_saved_that_everybody_is_still_here():
    desk = Desk()
    said = desk.rig.status("n1")
    topic = str(NodeTopics(SITE, "n1").to(Channel.STATUS))
    desk.loop.gateway.handle(topic, encode(replace(said, counts={"readings": 7})), 1_007_000)
    desk.loop.drain()
    (node,) = desk.rig.store.fleet().nodes
    assert decode_on(Channel.STATUS, node.status).counts == {"readings": 7}


def test_the_past_of_one_node_is_found_among_that_of_many(database_url):
    """Its rows lie by the hour, not by the node: each hour that there is, is one step."""
    with FleetStore.open(database_url) as store:
        store.claim()
        hours = (1, 2, 500, 501, 10**6)  # a gateway that was off, and one whose clock was wrong
        store.save([an_hour(hour, node) for hour in hours for node in ("north", "south", "east")])
        assert [each.hour for each in store.minutes_of(KEY, 2)] == [2, 500, 501, 10**6]
        assert {each.node for each in store.minutes_of(KEY, 0)} == {"north"}
        assert store.row_counts(KEY)["minutes"] == len(hours)
        store.save([ForgottenRecord(*KEY)])
        assert store.minutes_of(KEY, 0) == []
        assert [each.hour for each in store.minutes_of(("street", "south"), 0)] == list(hours)


# -- samples ---------------------------------------------------------------------------------------


def test_a_process_that_began_anew_has_counted_from_nothing():
    before, after = status(readings=1_000, learned=50), status(readings=7, learned=1)
    found = samples(Chronicle({}), (0, before), (60_000, after))
    assert dict(found.samples())[1] == Sample(0.5, 7, 1, 2)


def test_a_gateway_that_is_started_again_goes_on_with_the_hour():
    before = samples(Chronicle({}), (60_000, status()))
    found = samples(Chronicle({KEY: before}), (120_000, status()))
    assert [minute for minute, _ in found.samples()] == [1, 2]


def test_a_sample_comes_back_as_it_was_to_a_hundredth_of_a_per_cent():
    samples = [Sample(n / 59, 65_534, n, 0) for n in range(59)] + [Sample(None, 0, 0, 0)]
    hour = MinutesRecord(site="s", node="n", hour=1)
    for minute, sample in enumerate(samples):
        hour = hour.with_sample(minute, sample)
    for (minute, found), sample in zip(hour.samples(), samples, strict=True):
        assert found[1:] == sample[1:], minute
        assert found.accuracy == pytest.approx(sample.accuracy, abs=0.5 / 10_000)


# -- bounds ----------------------------------------------------------------------------------------


def test_minutes_become_hours_and_hours_end(database_url):
    """Years of a node: what is kept does not grow."""
    new, old = NOW_H - 10, NOW_H - MINUTES_KEPT_H - 10
    with FleetStore.open(database_url) as store:
        store.claim()
        store.save([an_hour(new), an_hour(old)])
        assert store.tidy_history(NOW_H * HOUR_MS) == 1
        assert store.tidy_history(NOW_H * HOUR_MS) == 0
        assert [each.hour for each in store.minutes_of(KEY, 0)] == [new]
        kept = store.hours_of(KEY, 0)
        assert [each.hour for each in kept] == [old, new]
        assert kept[0] == an_hour(old).whole()
        later_ms = (old + HOURS_KEPT_H + 1) * HOUR_MS
        while store.tidy_history(later_ms):
            pass
        assert [each.hour for each in store.hours_of(KEY, 0)] == [new]


def test_a_long_absence_is_tidied_a_little_at_a_time():
    """Nobody waits for a thousand rows in one round."""
    with FleetStore.open("sqlite://") as store:
        store.claim()
        count = TIDIED_AT_ONCE + 100
        store.save([an_hour(hour, minutes=1) for hour in range(count)])
        late_ms = (MINUTES_KEPT_H + count + 1) * HOUR_MS
        assert store.tidy_history(late_ms) == TIDIED_AT_ONCE
        assert store.tidy_history(late_ms) == 100
        assert len(store.hours_of(KEY, 0)) == count


def test_a_sensor_that_comes_and_goes_all_day_does_not_fill_the_disk(database_url):
    flaps = LIVES_KEPT + 50
    with FleetStore.open(database_url) as store:
        store.claim()
        for start in range(0, flaps, 350):
            store.save(
                LifeRecord(
                    site="street", node="north", sensor="t1", at_ms=at, role="temp",
                    state=SensorState.SILENT if at % 2 else SensorState.ACTIVE,
                )
                for at in range(start, min(start + 350, flaps))
            )  # fmt: skip
        kept = store.lives_of(KEY)
        assert [each.at_ms for each in kept] == list(range(flaps - LIVES_KEPT, flaps))


def test_a_year_of_a_node_has_a_size_that_is_known(tmp_path):
    """90 days by the minute of a lively node; the page of figures has what it was."""
    with FleetStore.open(f"sqlite:///{tmp_path / 'g.sqlite'}") as store:
        store.claim()
        store.save([an_hour(hour) for hour in range(100)])
    size = sum(each.stat().st_size for each in tmp_path.glob("g.sqlite*"))
    with FleetStore.open(f"sqlite:///{tmp_path / 'g.sqlite'}") as store:
        store.claim()
        store.save([an_hour(hour) for hour in range(100, 1_100)])
        assert len(store.minutes_of(KEY, 0)) == 1_100
    grown = sum(each.stat().st_size for each in tmp_path.glob("g.sqlite")) - size
    assert grown / 1_000 < 1_000, "bytes an hour of a node"


def test_a_forgotten_node_has_no_past(database_url):
    with FleetStore.open(database_url) as store:
        store.claim()
        store.save([some.node(), an_hour(1)])
        store.save([ForgottenRecord(*KEY)])
        assert store.minutes_of(KEY, 0) == []


def test_every_turn_of_a_sensors_life_is_noted_once():
    rig = FleetRig(names=("n1",))
    rig.pass_s(2)
    rig.gateway.fleet.take_unsaved()
    sensor = next(iter(rig.gateway.fleet.sensors[SITE, "n1"].values()))
    for state in (SensorState.SILENT, SensorState.SILENT, SensorState.ACTIVE):
        rig.gateway.fleet.put(replace(sensor, state=state, since_ms=5))
    noted = [e for e in rig.gateway.fleet.take_unsaved() if isinstance(e, LifeRecord)]
    assert [str(each.state) for each in noted] == ["silent", "active"]


# -- labels ----------------------------------------------------------------------------------------


class Desk:
    """A gateway's loop on a broker in memory, and whoever hears its labels."""

    def __init__(self):
        self.rig = FleetRig(names=("n1",))
        self.rig.pass_s(2)
        self.broker = MemoryBroker()
        self.ear = MemoryLink(self.broker, "node")
        self.ear.start()
        self.ear.subscribe([str(NodeTopics(SITE, "n1").to(Channel.LABEL))])
        self.wall_s = 1_000.0
        self.live()

    def live(self):
        """Another process of the gateway, on the same database."""
        link = MemoryLink(self.broker, "gateway", persistent=False)
        clock = GatewayClock(lambda: self.wall_s, lambda: self.wall_s)
        parts = self.rig.store, clock, InlineFitter(), Systemd({})
        self.rig.boot_gateway()
        self.loop = GatewayLoop(self.rig.gateway, link, *parts, poll_s=0.0)
        self.loop.start()

    def rounds(self, count=6):
        for _ in range(count):
            self.wall_s += 0.6
            self.loop.round()

    def submit(self, message, after_s=0.0):
        at_ms = int(1000 * (self.wall_s + after_s))
        return self.rig.store.submit(SITE, "n1", encode(message), at_ms)

    def outcome(self, number):
        return self.rig.store.command(number).outcome

    def heard(self):
        found = []
        while (delivery := self.ear.poll()) is not None:
            found.append(decode_on(Channel.LABEL, delivery.payload))
            self.ear.acknowledge(delivery)
        return found


CALM = Label("calm", InstanceId("box", 1, 7))


def test_a_label_is_published_once_and_settled_when_it_has_arrived():
    desk = Desk()
    number = desk.submit(CALM)
    desk.rounds()
    assert desk.heard() == [CALM]
    assert desk.outcome(number) == "done"
    desk.rounds()
    assert desk.heard() == []


def test_a_label_outlives_the_broker_and_the_gateway():
    """The broker is down, then the gateway is killed: the label is still open, and arrives."""
    desk = Desk()
    desk.rounds(1)
    desk.broker.crash(forget=True)
    number = desk.submit(CALM)
    desk.rounds()
    assert desk.outcome(number) == ""
    desk.live()  # what the former process had queued is gone with it
    desk.rounds()
    desk.broker.restart()
    desk.ear.poll()
    desk.rounds()
    assert desk.heard() == [CALM]
    assert desk.outcome(number) == "done"


def test_a_label_waits_for_its_time_and_can_be_withdrawn_until_then():
    desk = Desk()
    kept, withdrawn = desk.submit(CALM, after_s=4.0), desk.submit(CALM, after_s=4.0)
    desk.rounds(2)
    assert desk.heard() == []
    soon_ms = int(1000 * desk.wall_s) + 1_000
    assert desk.rig.store.withdraw(SITE, "n1", [withdrawn], soon_ms) == 1
    desk.rounds(10)
    assert desk.heard() == [CALM]
    assert desk.outcome(kept) == "done"
    assert desk.rig.store.withdraw(SITE, "n1", [kept], 0) == 0, "it has been sent"
    assert desk.rig.store.command(withdrawn) is None


def test_what_was_learned_by_mistake_is_undone_on_the_same_way():
    desk = Desk()
    desk.submit(Undo(InstanceId("box", 1, 7)))
    desk.rounds()
    assert desk.heard() == [Undo(InstanceId("box", 1, 7))]


def test_a_label_that_no_node_would_take_is_refused_in_a_sentence():
    desk = Desk()
    number = desk.submit(Label("wet", InstanceId("box", 1, 7)))
    stranger = desk.rig.store.submit(SITE, "nobody", encode(CALM), 0)
    desk.rounds()
    assert "is not a class of group air: calm, busy, alarm" in desk.outcome(number)
    assert "is in no group" in desk.outcome(stranger)
    assert desk.heard() == []


def test_a_broker_that_throws_a_label_away_is_told_to_whoever_gave_it():
    """The broker's rules are of before the gateway had labels to say."""
    link = MemoryLink(MemoryBroker(), "gateway")
    courier = LabelCourier(link)
    courier.count()
    courier.await_confirmation(1, "a/label")
    courier.count()
    courier.await_confirmation(2, "b/label")
    link.counters.refuse(LinkReason.UNSENT_BY_BROKER)
    courier.refuse("b/label", "not authorized")
    assert courier.take_settled() == {
        1: "done", 2: "the broker refuses labels on b/label: not authorized"
    }  # fmt: skip
    courier.forget({1: "", 2: ""})
    assert not courier.holds(1)
