"""While two sensors speak side by side: how often a node's model says the same with either."""

from __future__ import annotations

import io
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from support.fleet_rig import POLICY, SITE, FleetRig, save_to_file
from support.inline_fitter import InlineFitter
from support.pages import shown_below

from edge_opid.service.systemd import Systemd
from edge_opid.testing import MemoryBroker, MemoryLink
from edge_opid.wire import (
    Channel,
    NodeTopics,
    Reading,
    SensorDeployed,
    SensorRetired,
    SummaryMessage,
    decode,
    encode,
    to_bytes,
)
from gateway.cli.nodes import SENSOR_HEADINGS, sensor_facts, sensor_row, sensors_of
from gateway.cli.output import Terminal
from gateway.clock import GatewayClock
from gateway.loop import GatewayLoop
from gateway.policy import Group
from gateway.reasons import GatewayReason
from gateway.registry import SensorRecord, SensorState, SummaryRecord
from gateway.registry.fleet import Fleet
from gateway.registry.measuring import OWN_MIN
from gateway.registry.overlap import RECALLED_AT_ONCE, SAVED_EVERY, Overlaps, takeover_sentence
from gateway.store import DatabaseError, FleetStore
from gateway.store.migrations import MIGRATIONS, add_agreement

TOGETHER = 60
POLICY = replace(POLICY, overlap_readings=TOGETHER)
KEY = (SITE, "n1")


def overlapping(labels: int = 120, **announced) -> FleetRig:
    """A node has learned, and `pm-2` was announced in the place of its `pm-n1`, which speaks."""
    fleet = FleetRig(names=("n1",), policy=announced.pop("policy", POLICY))
    fleet.learn_for_a_while(labels)
    announce(fleet, **announced)
    fleet.pass_s(1)
    return fleet


def announce(fleet: FleetRig, **announced) -> None:
    known = {"reference": 0.0, "scale": 1.0, **announced}
    new = SensorDeployed("pm-2", role="pm", at_ms=fleet.now_ms, replaces="pm-n1", **known)
    fleet.event("n1", new)


UNKNOWN = {"reference": None, "scale": None}


def hear(fleet: FleetRig, count: int, follow) -> list[dict[str, float]]:
    """Readings without labels in which the new sensor says what follows from the old one."""
    readings = []
    for _ in range(count):
        roles = {f"{role}-n1": role for role in fleet.sensors}
        values, _ = fleet.world.instance(roles)
        values["pm-2"] = follow(values["pm-n1"])
        fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))  # time stands still
        say(fleet, values)
        readings.append(values)
    return readings


def say(fleet: FleetRig, values: dict[str, float]) -> None:
    fleet.seq["n1"] = fleet.seq.get("n1", 0) + 1
    reading = Reading(1, fleet.seq["n1"], fleet.now_ms, values, None)
    fleet.publish(str(NodeTopics(*KEY).to(Channel.READING, "box")), encode(reading))
    fleet.deliver()


def counted(fleet: FleetRig) -> tuple[int, int, int]:
    record = fleet.gateway.fleet.sensors[KEY]["pm-2"]
    return record.together, record.judged, record.agreed


def sentence(fleet: FleetRig) -> str:
    record = fleet.gateway.fleet.sensors[KEY]["pm-2"]
    return takeover_sentence(fleet.gateway.fleet, record, TOGETHER)


def twin(value: float) -> float:
    return value


def upside_down(value: float) -> float:
    return -value


def noisy(value: float) -> float:
    return value + 0.8 * np.sin(1e6 * value)


def by_hand(fleet: FleetRig, readings) -> int:
    """How often the node's own learner says the same, its columns put together one by one."""
    local_models = fleet.nodes["n1"].node.state.local_models
    W = local_models.learner.weights()[0].astype(float)
    same = 0
    for values in readings:
        with_old, with_new = (
            np.array([*(values[each] for each in ("co-n1", "db-n1", "no-n1", pm)), 1.0])
            for pm in ("pm-n1", "pm-2")
        )
        same += (with_old @ W).argmax() == (with_new @ W).argmax()
    return same


# -- what is counted -------------------------------------------------------------------------------


def test_a_twin_agrees_in_every_reading_and_an_upside_down_sensor_does_not():
    """The first reading together asks for the model; those after it are judged."""
    shares = {}
    for follow in (twin, noisy, upside_down):
        fleet = overlapping()
        heard = hear(fleet, 51, follow)[1:]
        together, judged, agreed = counted(fleet)
        assert (together, judged) == (50, 49)  # written every ten
        assert agreed == by_hand(fleet, heard[:49])
        shares[follow] = agreed
    assert shares[twin] == 49 > shares[noisy] > shares[upside_down]


def test_the_sentence_says_how_far_the_answers_agree():
    fleet = overlapping()
    hear(fleet, 20, twin)
    assert sentence(fleet) == (
        "pm-2 takes over from pm-n1 after 40 more readings together; so far, the model answers the "
        "same with either sensor in 100 % of 19 readings"
    )


def test_the_page_shows_what_is_printed_during_an_overlap():
    """Nobody follows the page to this state: a node that has learned says thirty readings first."""
    north = {
        "site": "greenhouse",
        "node": "north",
        "role": "lux",
        "reference": 310.0,
        "scale": 90.0,
    }
    fleet = Fleet([Group("climate", "greenhouse", ("dry", "damp"), ("north",))])
    old = SensorRecord(**north, id="lux-north", state=SensorState.ACTIVE, since_ms=1)
    new = {"id": "lux-9", "state": SensorState.MEASURING, "since_ms": 2, "replaces": "lux-north"}
    fleet.put(old)
    fleet.put(SensorRecord(**north, **new, together=30, judged=29, agreed=28))
    screen = io.StringIO()
    every = sensors_of(fleet, ("greenhouse", "north"))
    rows = [["greenhouse/north", *sensor_row(sensor_facts(fleet, s, 50))] for s in every]
    Terminal(screen, screen).table(("node", *SENSOR_HEADINGS), rows)
    page = shown_below("docs/replace.md", "opid-gateway sensor list")
    assert page.pattern.fullmatch(screen.getvalue()), screen.getvalue()


def test_only_what_always_agreed_is_said_to_agree_in_100_percent():
    """199 of 200 would be rounded up."""
    fleet = overlapping()
    fleet.gateway.fleet.put(
        replace(fleet.gateway.fleet.sensors[KEY]["pm-2"], together=20, judged=200, agreed=199)
    )
    assert sentence(fleet).endswith("in 99 % of 200 readings")


def test_a_new_sensor_is_asked_in_its_own_units():
    """In degrees Fahrenheit beside Celsius: it says the same, and not the same number."""
    fleet = overlapping(reference=32.0, scale=1.8)
    hear(fleet, 31, lambda value: 32.0 + 1.8 * value)
    assert counted(fleet) == (30, 29, 29)


def test_a_sensor_that_is_being_measured_is_asked_by_what_its_values_suggest_so_far():
    fleet = overlapping(**UNKNOWN)
    heard = hear(fleet, 40, lambda value: 100.0 + 5.0 * value)
    together, judged, agreed = counted(fleet)
    assert (together, judged) == (40, 40 - OWN_MIN)
    upside = overlapping(**UNKNOWN)
    hear(upside, 40, lambda value: 100.0 - 5.0 * value)
    assert counted(upside)[2] < agreed <= judged
    assert len(heard) == 40


# -- what is not ----------------------------------------------------------------------------------


def test_where_the_node_has_not_said_what_it_knows_no_share_is_made_up():
    fleet = overlapping(labels=10)  # too few for a summary
    hear(fleet, 30, twin)
    assert counted(fleet) == (30, 0, 0)
    assert sentence(fleet) == "pm-2 takes over from pm-n1 after 30 more readings together"


def test_a_node_that_says_what_it_knows_during_the_overlap_is_asked_from_then_on():
    fleet = overlapping(labels=10)
    hear(fleet, 10, twin)
    fleet.read_all(100)  # of the old sensors alone, with labels
    fleet.pass_s(31)
    hear(fleet, 20, twin)
    together, judged, agreed = counted(fleet)
    assert together == 30
    assert judged == agreed == 19


def test_a_sensor_with_other_hats_is_not_compared():
    """It has columns of its own, and the model of the old ones says nothing of them."""
    fleet = overlapping(knots=(-2.0, 0.0, 2.0))
    hear(fleet, 30, twin)
    assert counted(fleet) == (30, 0, 0)


@pytest.mark.parametrize("value", [3e38, -3e38, 5e-324, 1e9])
def test_an_absurd_value_is_a_reading_like_any_other(value):
    """It is at the gate, or missing, as it is for the node. More than float32 holds never comes."""
    fleet = overlapping()
    hear(fleet, 15, twin)
    for _ in range(15):
        values, _ = fleet.world.instance({f"{role}-n1": role for role in fleet.sensors})
        say(fleet, {**values, "pm-2": value, "no-n1": -value, "nobody": value})
    together, judged, agreed = counted(fleet)
    assert (together, judged) == (30, 29)
    assert 14 <= agreed <= 29
    assert fleet.gateway.fleet.sensors[KEY].keys() == {f"{r}-n1" for r in fleet.sensors} | {"pm-2"}


def rewritten(record: SummaryRecord, **changes) -> SummaryRecord:
    message = replace(decode(record.payload, SummaryMessage), **changes)
    return replace(record, payload=encode(message))


LIES = {
    "moments without squares": lambda r: rewritten(r, moment=to_bytes(np.full(15, 1e30))),
    "no sum of squares": lambda r: rewritten(r, gram=to_bytes(-np.ones(15))),
    "other sensors": lambda r: rewritten(r, sensors=("pm-n1",), vanishing=()),
    "no message": lambda r: replace(r, payload=b"\xff\x00"),
    "a layout that nobody remembers": lambda r: replace(r, layout_version=77),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_summary_that_cannot_be_right_is_no_model(lie):
    """Its node lies, or the card under the database does."""
    fleet = overlapping()
    (saved,) = fleet.store.summaries([KEY])
    fleet.store.save([lie(saved)])
    fleet.revive()
    hear(fleet, 30, twin)
    assert counted(fleet) == (30, 0, 0)


# -- and it lasts ---------------------------------------------------------------------------------


def test_a_gateway_that_was_killed_goes_on_from_what_it_had_written():
    fleet = overlapping()
    heard = hear(fleet, 29, upside_down)
    fleet.revive()
    assert counted(fleet) == (20, 19, by_hand(fleet, heard[1:20]))
    heard += hear(fleet, SAVED_EVERY, upside_down)
    together, judged, agreed = counted(fleet)
    assert (together, judged) == (30, 28)  # the model was read again after the first of them
    assert agreed == by_hand(fleet, heard[1:20] + heard[30:])


def test_the_loop_reads_the_model_though_the_database_refuses_at_first(monkeypatch):
    """The first look falls into the minute in which somebody else has locked the file."""
    fleet, refusals = overlapping(), [DatabaseError("it is locked", transient=True)]
    summaries = fleet.store.summaries

    def stumbling(keys):
        if refusals:
            raise refusals.pop()
        return summaries(keys)

    monkeypatch.setattr(fleet.store, "summaries", stumbling)
    monkeypatch.setattr("gateway.loop.RETRY_S", 0.01)
    fleet.boot_gateway()
    broker = MemoryBroker()
    link, sensor = MemoryLink(broker, "gateway"), MemoryLink(broker, "box")
    clock = GatewayClock(*[lambda: fleet.now_ms / 1000] * 2)
    parts = link, fleet.store, clock, InlineFitter(), Systemd({})
    loop = GatewayLoop(fleet.gateway, *parts, poll_s=0.0)
    loop.start()
    sensor.start()
    topic = str(NodeTopics(*KEY).to(Channel.READING, "box"))
    for number in range(11 * SAVED_EVERY):
        fleet.now_ms += 1000
        values = {**{f"{role}-n1": 0.5 for role in fleet.sensors}, "pm-2": 0.5}
        sensor.publish(topic, encode(Reading(2, number + 1, fleet.now_ms, values, None)))
        loop.round()
        if counted(fleet)[0] == 3 * SAVED_EVERY:
            break
    together, judged, agreed = counted(fleet)
    assert (together, refusals, loop.counts[GatewayReason.DATABASE_REFUSES]) == (30, [], 1)
    assert 20 < judged == agreed < 30


def test_an_id_announced_again_is_judged_from_the_beginning():
    fleet = overlapping()
    hear(fleet, 30, upside_down)
    fleet.event("n1", SensorRetired("pm-2", fleet.now_ms, "another make"))
    fleet.pass_s(1)
    announce(fleet)
    fleet.pass_s(1)
    assert counted(fleet) == (0, 0, 0)
    hear(fleet, 10, twin)
    together, judged, agreed = counted(fleet)
    assert (together, judged) == (10, agreed)


def test_a_wave_of_replacements_reads_a_few_models_a_tick():
    """A thousand nodes get a new sensor at once: everybody else is to be answered meanwhile."""
    overlaps = Overlaps(TOGETHER)
    for number in range(2 * RECALLED_AT_ONCE + 1):
        overlaps._unread[SITE, f"n{number}"] = None
    sizes = [len(overlaps.take_unread()) for _ in range(4)]
    assert sizes == [RECALLED_AT_ONCE, RECALLED_AT_ONCE, 1, 0]


def test_in_a_wave_beyond_what_memory_has_room_for_the_others_are_told_no_share(monkeypatch):
    """Ten thousand nodes get a new sensor at once: their models would be 200 MB."""
    monkeypatch.setattr("gateway.registry.overlap.MODELS_MAX", 0)
    fleet = overlapping()
    hear(fleet, 30, twin)
    assert counted(fleet) == (30, 0, 0)


def test_a_database_of_before_is_brought_along_with_nothing_judged(tmp_path):
    """Made by the version before, in the middle of an overlap."""
    fleet = overlapping()
    hear(fleet, 30, twin)
    path = tmp_path / "gateway.sqlite"
    save_to_file(fleet.store, path)
    with sqlite3.connect(path) as database:
        for column in ("judged", "agreed"):
            database.execute(f"ALTER TABLE sensors DROP COLUMN {column}")
        database.execute("UPDATE schema_version SET version = version - 1")
    assert MIGRATIONS[-1] is add_agreement
    with FleetStore.open(f"sqlite:///{path}") as store:
        found = {each.id: each for each in store.fleet().sensors}
    before = fleet.gateway.fleet.sensors[KEY]
    assert found == {**before, "pm-2": replace(before["pm-2"], judged=0, agreed=0)}
