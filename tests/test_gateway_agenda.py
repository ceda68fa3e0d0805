"""A tick that looks only at what is due does what one does that looks at everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.full_scan import FullScan, ScanningPublisher
from support.rig import KEY

from edge_opid.wire import (
    Channel,
    Example,
    InstanceId,
    NodeTopics,
    Reading,
    ScaleMeasured,
    SensorDeployed,
    SensorRemeasured,
    SensorRetired,
    SensorReturned,
    SensorSilent,
    Status,
    encode,
    to_bytes,
)
from firmware_sim.live.introductions import first_introduction
from gateway.decisions import cohorts, gateway
from gateway.decisions.actions import Fit, Publish
from gateway.decisions.gateway import Gateway
from gateway.policy import Group, Policy
from gateway.registry import ChangeState, EventError, FitRecord, SensorState
from gateway.registry.due import DueTimes
from gateway.registry.fleet import StoredFleet
from gateway.store.rows import key_of

SITE, CLASSES = "street", ("calm", "busy")
NAMES = ("n1", "n2", "n3", "n4", "n5")
GROUPS = [Group("air", SITE, CLASSES, NAMES[:4]), Group("water", SITE, CLASSES, NAMES[4:])]
ROLES = ("pm", "no", "co")
POLICY = Policy(
    settle_s=1,
    silence_s=15,
    measure_readings=3,
    overlap_readings=2,
    summary_wait_s=3,
    first_batch=6,
    batch_max=12,
    gather_s=90,
    retry_s=3,
    retry_max_s=10,
)
WAITS_MS = (0, 200, 200, 1_000, 1_500, 6_000, 20_000, 100_000)


class Twins:
    """One gateway with the index, one without: told the same, they must do the same."""

    def __init__(self, patch):
        self.patch, self.now_ms = patch, 1_000_000
        self.asked: list[Fit] = []
        self.seq = 0
        self.boot(None, {})
        self.both("on_connected", True, self.now_ms)

    def boot(self, stored, pushed):
        scan = FullScan()
        self.indexed = Gateway(POLICY, GROUPS, KEY, stored, pushed)
        with self.patch.context() as patch:
            patch.setattr(gateway, "OrderPublisher", ScanningPublisher)
            self.scanning = Gateway(POLICY, GROUPS, KEY, stored, pushed, scan)
        scan.fleet = self.scanning.fleet

    @property
    def fleet(self):
        return self.indexed.fleet

    def both(self, what, *said):
        """Tell both; what they do and what they would save is the same."""
        outcomes = []
        for each in (self.indexed, self.scanning):
            try:
                outcomes.append(getattr(each, what)(*said))
            except EventError as error:
                outcomes.append(str(error))
        assert ordered(outcomes[0]) == ordered(outcomes[1]), what
        assert in_tables(self.indexed.fleet) == in_tables(self.scanning.fleet), what
        assert self.indexed.counts == self.scanning.counts
        assert self.indexed.busy == self.scanning.busy
        assert self.indexed.publisher.waiting == self.scanning.publisher.waiting
        return outcomes[0]

    def say(self, node, channel, message, source=None):
        topic = NodeTopics(SITE, node).to(channel, source)
        self.both("handle", str(topic), encode(message), self.now_ms)

    def tick(self, wait_ms):
        self.now_ms += wait_ms
        actions = self.both("tick", self.now_ms)
        self.asked += [each for each in actions if isinstance(each, Fit)]

    def restart(self):
        """Another life, from what a store would have."""
        fleet = self.fleet
        pushed = {number: fit for number, fit in self.fits().items() if number in fleet.changes}
        stored = StoredFleet(
            nodes=sorted(fleet.nodes.values(), key=lambda each: each.key),
            sensors=[
                s for key in sorted(fleet.nodes) for _, s in sorted(fleet.sensors[key].items())
            ],
            layouts=[fleet.layouts[key] for key in sorted(fleet.layouts)],
            orders=[fleet.orders[key] for key in sorted(fleet.orders)],
            changes=[
                each
                for number, each in sorted(fleet.changes.items())
                if each.state == ChangeState.GATHERING or fleet.size_of(number)
            ],
            examples={number: list(batch) for number, batch in fleet.examples.items()},
            next_change=fleet.next_change,
            doubts=list(fleet.doubts.values()),
            issued=list(fleet._issued.values()),
        )
        self.boot(stored, pushed)
        self.both("on_connected", True, self.now_ms)

    def fits(self):
        """The fit in force of every change that has one, made again."""
        changes = self.fleet.changes.values()
        return {each.id: a_fit(each, each.pushed) for each in changes if each.pushed >= 0}


def ordered(outcome):
    """Two orders that are published again in the same tick may come in any order."""
    if not isinstance(outcome, list):
        return outcome
    publications = sorted((e for e in outcome if isinstance(e, Publish)), key=lambda e: e.topic)
    return publications, [each for each in outcome if not isinstance(each, Publish)]


def in_tables(fleet):
    """What is to be saved, by key; taken."""
    return {(type(each), key_of(each)): each for each in fleet.take_unsaved()}


def a_fit(change, size, *, pushed=True):
    W = to_bytes(np.full((len(change.columns), len(CLASSES)), size + 2.0))
    return FitRecord(
        change=change.id, size=size, at_ms=0, chosen="x", why="", pushed=pushed, candidates=(),
        pooled=(), refused={}, readings=0, rounding_loss=0.0, parts={"W": W},
    )  # fmt: skip


# -- what may happen: (twins, node, a number to choose by) -----------------------------------------


def a_sensor(twins, node, number):
    known = sorted(twins.fleet.sensors[SITE, node]) or ["nothing"]
    return known[number % len(known)]


def introduce(twins, node, number):
    message = first_introduction({f"{role}-{node}": role for role in ROLES}, CLASSES)
    if number % 4 == 0 and (SITE, node) in twins.fleet.orders:
        message = replace(message, version=twins.fleet.orders[SITE, node].version)
    twins.say(node, Channel.EVENT, message)


def report(twins, node, number):
    """It obeys, or not yet; some of its sensors are silent; its clock may be wrong."""
    order = twins.fleet.orders.get((SITE, node))
    obeys = order is not None and number % 4 != 0
    known = sorted(twins.fleet.sensors[SITE, node])
    silent = tuple(each for place, each in enumerate(known) if number >> (4 + place) & 1)
    status = Status(
        online=True,
        layout_version=order.layout_version if obeys else 0,
        model_version=0,
        version=order.version if obeys else 0,
        time_ms=twins.now_ms + (10**9 if number % 7 == 0 else 0),
        silent=silent,
    )
    twins.say(node, Channel.STATUS, status)


def report_all(twins, _, number):
    for node in NAMES:
        report(twins, node, number | 1)


def die(twins, node, _):
    twins.say(node, Channel.STATUS, Status.last_will(0, 0, 0))


def retire(twins, node, number):
    sensor = a_sensor(twins, node, number)
    twins.say(node, Channel.EVENT, SensorRetired(sensor, twins.now_ms, "walk"))


def retire_everywhere(twins, _, number):
    for node in NAMES:
        retire(twins, node, number)


def fall_silent(twins, node, number):
    said = SensorReturned if number % 3 == 0 else SensorSilent
    fields = () if number % 3 == 0 else (0,)
    twins.say(node, Channel.EVENT, said(a_sensor(twins, node, number), twins.now_ms, *fields))


def deploy(twins, node, number):
    old = twins.fleet.sensors[SITE, node].get(a_sensor(twins, node, number))
    replaces = old.id if old is not None and number & 1 else None
    known = {"reference": 0.0, "scale": 1.0} if number & 2 else {}
    role = old.role if replaces else f"r{number % 3}"
    event = SensorDeployed(
        f"s{number % 5}",
        role=role,
        at_ms=twins.now_ms,
        replaces=None if replaces == f"s{number % 5}" else replaces,
        end_of_life_ms=twins.now_ms + 1000 * (number % 60) + 1 if number & 4 else None,
        **known,
    )
    twins.say(node, Channel.EVENT, event)


def deploy_everywhere(twins, _, number):
    for node in NAMES:
        deploy(twins, node, number)


def measure_again(twins, node, number):
    sensor = a_sensor(twins, node, number)
    if number & 1:
        twins.say(node, Channel.EVENT, SensorRemeasured(sensor, twins.now_ms))
    else:
        event = ScaleMeasured(sensor, at_ms=twins.now_ms, reference=1.0 + number, scale=2.0)
        twins.say(node, Channel.EVENT, event)


def read(twins, node, number):
    """Values of every sensor, or of those that are measured."""
    for turn in range(1 + number % 4):
        twins.seq += 1
        known = twins.fleet.sensors[SITE, node].values()
        some = [e.id for e in known if number & 8 or e.state == SensorState.MEASURING]
        values = {each: float((turn + number) % 5) for each in some} or {"x": 1.0}
        reading = Reading(1, twins.seq, twins.now_ms, values)
        twins.say(node, Channel.READING, reading, "box")


def label(twins, node, number):
    layout = twins.fleet.layouts.get((SITE, node))
    for _ in range(1 + number % 6 if layout else 0):
        twins.seq += 1
        example = Example(
            instance=InstanceId("box", 1, twins.seq),
            layout_version=layout.version,
            time_ms=twins.now_ms,
            values={layout.sensors[0].id: 1.0},
            label=CLASSES[number % 2],
        )
        twins.say(node, Channel.EVENT, example)


def finish_fit(twins, _, number):
    """A fit comes back: better, not better, or not at all."""
    for asked in twins.asked[: 1 + number % 2]:
        change = twins.fleet.changes.get(asked.change)
        if change is None or number % 5 == 0:
            twins.both("on_fit_failed", asked.change, "no")
        else:
            twins.both("on_fitted", a_fit(change, asked.size, pushed=number % 3 > 0))
    twins.asked = twins.asked[1 + number % 2 :]


def set_clock(twins, _, number):
    step_ms = (-70_000, 70_000, 3_600_000, -(10**7), 2 * 86_400_000)[number % 5]
    if number % 4 == 0 and twins.now_ms + step_ms > 0:
        twins.now_ms += step_ms
        twins.both("on_clock_set", step_ms, twins.now_ms)


def connect(twins, _, number):
    if number % 3 == 0:
        twins.both("on_disconnected")
    else:
        twins.both("on_connected", number % 3 == 1, twins.now_ms)


def forget(twins, node, number):
    if number % 4 == 0:
        twins.both("forget", (SITE, node), twins.now_ms)


def restart(twins, _, number):
    if number % 3 == 0:
        twins.restart()


def wait(twins, _, number):
    twins.tick(WAITS_MS[number % len(WAITS_MS)])


DEEDS: tuple[Callable, ...] = (
    wait, wait, wait, report, report_all, report_all, introduce, die, retire, retire_everywhere,
    fall_silent, fall_silent, deploy, deploy, deploy_everywhere, measure_again, read, read, label,
    label, finish_fit, finish_fit, set_clock, connect, forget, restart,
)  # fmt: skip
STEPS = st.tuples(st.sampled_from(DEEDS), st.sampled_from(NAMES), st.integers(0, 2**8))


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=120), at_once=st.sampled_from([1, 2, 200]))
def test_whatever_happened_the_index_finds_what_a_look_at_everything_finds(steps, at_once):
    """Sensors that stay though their time is over, clocks set back, nodes forgotten, restarts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cohorts, "SETTLED_AT_ONCE", at_once)
        twins = Twins(patch)
        for node in NAMES:
            introduce(twins, node, 1)
        for deed, node, number in steps:
            deed(twins, node, number)
            twins.tick(0)
        for wait_ms in (200, 1_000, 5_000, 20_000, 100_000):
            report_all(twins, "", 1)
            twins.tick(wait_ms)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "discard", "take", "shift"]),
            st.integers(0, 8),
            st.integers(-50, 50),
        ),
        max_size=200,
    )
)
def test_due_times_are_those_of_a_plain_dict(steps):
    due: DueTimes[int] = DueTimes()
    times: dict[int, int] = {}
    for what, key, number in steps:
        match what:
            case "set":
                due.set(key, number)
                times[key] = number
            case "discard":
                due.discard(key)
                times.pop(key, None)
            case "shift":
                due.shift(number)
                times = {each: at + number for each, at in times.items()}
            case _:
                expected = sorted((at, each) for each, at in times.items() if at < number)
                first = due.first(number)
                assert first == (expected[0] if expected else None)
                assert due.take(number) == [each for _, each in expected]
                times = {each: at for each, at in times.items() if at >= number}
        assert len(due) == len(times)
        assert len(due._heap) <= 64 + 2 * len(times) + 1


def test_a_key_that_is_set_for_ever_does_not_grow_the_heap():
    due: DueTimes[str] = DueTimes()
    for number in range(10_000):
        due.set("n1", number)
    assert len(due._heap) < 100
    assert due.take(10_000) == ["n1"]
