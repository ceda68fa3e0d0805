"""A fit of a large group: read in portions, answered meanwhile, and the same to the bit."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import suppress

import pytest
from support.fleet_rig import CLASSES, SITE
from support.rig import KEY

from benchmarks.gateway.fleet import summary
from edge_opid.service.systemd import Systemd
from edge_opid.testing import MemoryBroker, MemoryLink
from edge_opid.wire import Channel, NodeTopics, SensorDescription, Status, encode
from gateway import recall
from gateway.clock import GatewayClock
from gateway.decisions.actions import Fit
from gateway.decisions.gateway import Gateway
from gateway.fitting import job, pooling
from gateway.fitting.pooling import fault_of
from gateway.fitting.worker import attempt
from gateway.loop import GatewayLoop
from gateway.policy import Group, Policy
from gateway.reasons import GatewayReason
from gateway.recall import MEMBERS_AT_ONCE, FitPreparation
from gateway.registry import (
    ChangeRecord,
    FitRecord,
    LayoutRecord,
    NodeRecord,
    SensorRecord,
    SensorState,
    SummaryRecord,
)
from gateway.registry.columns import columns_of
from gateway.store import DatabaseError, FleetStore

NAMES = tuple(f"n{number}" for number in range(3 * MEMBERS_AT_ONCE + 10))
BEFORE, AFTER = ("co", "no", "pm"), ("co", "no", "voc")
CHANGE, ROUNDS_MAX = 1, 20


class WatchedStore(FleetStore):
    """Counts what a fit reads, and may refuse once."""

    def __init__(self, database):
        super().__init__(database)
        self.rows, self.refusals = 0, 0

    def summaries(self, keys):
        return self._counted(super().summaries(keys))

    def layouts(self, keys):
        if self.refusals and keys:
            self.refusals -= 1
            raise DatabaseError("the card stumbles", transient=True)
        return self._counted(super().layouts(keys))

    def _counted(self, found):
        self.rows += len(found)
        return found


class KeepingFitter:
    """Makes no fit: it keeps the jobs."""

    def __init__(self):
        self.jobs = []

    def submit(self, job, _now_ms):
        self.jobs.append(job)

    def take_finished(self):
        return []

    def stop(self):
        pass


def layout_of(number, version, roles):
    sensors = tuple(  # each node has scales of its own
        SensorDescription(id=f"{role}-1", role=role, reference=number / 1000, scale=1.0)
        for role in roles
    )
    place = {"site": SITE, "node": NAMES[number], "version": version, "change": version - 1}
    return LayoutRecord(**place, sensors=sensors, vanishing=(), gate=8.0, at_ms=0)


@pytest.fixture
def store():
    """Everybody has obeyed the layout of a change, and said what it knew before."""
    ids = [f"{role}-1" for role in BEFORE]
    with WatchedStore.open("sqlite://") as store:
        store.claim()
        payload = summary(ids, 1)
        columns = tuple(sorted(columns_of(layout_of(0, 2, AFTER))))
        change = {"group": "air", "retired": ("pm",), "arrived": ("voc",), "opened_ms": 0}
        records = [ChangeRecord(id=CHANGE, columns=columns, **change)]
        for number, node in enumerate(NAMES):
            place = {"site": SITE, "node": node}
            records += [
                NodeRecord(**place, group="air", gate=8.0, reported_layout=2),
                SummaryRecord(**place, layout_version=1, payload=payload, at_ms=0),
                layout_of(number, 1, BEFORE),
                now := layout_of(number, 2, AFTER),
            ]
            records += [
                SensorRecord(
                    **place,
                    id=each.id,
                    role=each.role,
                    state=SensorState.ACTIVE,
                    since_ms=0,
                    reference=each.reference,
                    scale=each.scale,
                )
                for each in now.sensors
            ]
        store.save(records)
        yield store


@pytest.fixture
def gateway(store):
    return Gateway(Policy(), [Group("air", SITE, CLASSES, NAMES)], KEY, store.fleet(), {})


def test_a_round_reads_no_more_for_a_fit_than_its_portion_and_answers_messages(store, gateway):
    """Ten thousand members were read in one round: for minutes nothing was heard, and the broker
    ended the connection.
    """
    broker, fitter = MemoryBroker(), KeepingFitter()
    link, node = MemoryLink(broker, "gateway"), MemoryLink(broker, "n1")
    parts = link, store, GatewayClock(), fitter, Systemd({})
    loop = GatewayLoop(gateway, *parts, poll_s=0.0)
    loop.start()
    node.start()
    read = []
    for turn in range(1, ROUNDS_MAX):
        status = Status(online=True, layout_version=2, model_version=0, time_ms=turn)
        node.publish(str(NodeTopics(SITE, "n1").to(Channel.STATUS)), encode(status))
        store.rows = 0
        loop.round()
        read.append(store.rows)
        assert link.counters.acknowledged == turn
        if fitter.jobs:
            break
    [prepared] = fitter.jobs
    assert set(gateway.counts) == {GatewayReason.CLOCK, GatewayReason.ORDERS}  # nothing is refused
    assert max(read) <= 2 * MEMBERS_AT_ONCE  # a summary and its layout each
    assert len(read) >= len(NAMES) / MEMBERS_AT_ONCE
    assert len(prepared.summaries) == len(prepared.layouts) == len(prepared.newest) == len(NAMES)


def whole_job(store, gateway):
    """The job of the change, however many portions it takes; what is refused is asked for again."""
    prepared = FitPreparation(store, gateway, Fit(CHANGE, 0))
    for _ in range(ROUNDS_MAX):
        with suppress(DatabaseError):
            job = prepared.read_some()
            if job is not None:
                return job
    raise AssertionError("a job without end")


def test_a_job_that_was_read_in_portions_is_the_one_that_is_read_at_once(
    store, gateway, monkeypatch
):
    """A portion that the database refuses is read again, and nobody's word counts twice."""
    store.refusals = 2
    in_portions = whole_job(store, gateway)
    assert store.refusals == 0
    monkeypatch.setattr(recall, "MEMBERS_AT_ONCE", len(NAMES))
    assert pickle.dumps(in_portions) == pickle.dumps(whole_job(store, gateway))


def test_a_fit_judges_every_summary_once(store, gateway, monkeypatch):
    """It pools them two or three times, with other columns each time: most of its time went into
    the same verdicts again.
    """
    judged = Counter()

    def counting(member, classes):
        judged[member.node] += 1
        return fault_of(member, classes)

    for module in (job, pooling):
        monkeypatch.setattr(module, "fault_of", counting)
    fit = attempt(whole_job(store, gateway), 0)
    assert isinstance(fit, FitRecord)
    assert fit.pooled == tuple(sorted(f"{SITE}/{node}" for node in NAMES))
    assert judged == dict.fromkeys(fit.pooled, 1)
