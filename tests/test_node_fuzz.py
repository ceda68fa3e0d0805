"""Whatever arrives, in whatever order, while the disk refuses and the network fails.

The deliveries come from `benchmarks.fuzz.messages`, whose long run is a verb of the Makefile; here
are messages that Hypothesis makes, a short run over bytes, and what both have found so far.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.rig import KEY, TOPICS, Rig, config, desired, folded
from test_wire_fuzz import valid_messages

from benchmarks.fuzz import messages as fuzz
from benchmarks.fuzz.messages import Driven, Finding, Generation
from edge_opid.config.node import ForeignConfig, SensorConfig, TruthConfig
from edge_opid.node.actions import Append, Release
from edge_opid.node.node import Node
from edge_opid.wire import LIMITS, Channel, InstanceId, Label, Reading, encode, seal_desired

GOLDEN = [bytes.fromhex(p.read_text()) for p in (Path(__file__).parent / "golden").glob("*.hex")]
FOREIGN = (ForeignConfig("zigbee2mqtt/+", "{1}", {"temperature": "a", "AM.Humidity": "b"}, "mode"),)
TOPICS_ALL = [
    *(str(TOPICS.to(each)) for each in Channel if not each.per_source),
    *(str(TOPICS.to(Channel.READING, source)) for source in ("s", "t")),
    *(
        str(TOPICS.to(Channel.ACK, "s")),
        "opid/1/farm/n2/label",
        "zigbee2mqtt/s",
        "zigbee2mqtt/A",
        "x",
    ),
]

VALUES = {"true": "fresh", "false": "stale", "1": "bad"}
TOLD = ["true", "false", "1", "null", "[]", '"ON"', "1e999", "{"]
TRUTH = (
    TruthConfig(filter="home/presence", field="present", values=VALUES, valid_s=30.0),
    TruthConfig(filter="home/button", field="mode"),
    TruthConfig(filter="zigbee2mqtt/s", field="mode", valid_s=5.0, delay_s=3.0),
)

# --- messages, valid and nearly so ------------------------------------------------------------

numbers = st.floats(-9, 9) | st.sampled_from([n for n in fuzz.NUMBERS if abs(n) < 3e38])
names = st.sampled_from(["a", "b", "c", "d", "zz"])
truths = st.sampled_from(["fresh", "stale", "bad", "purple"])
few = st.integers(-2, 3)


@st.composite
def orders(draw):
    """A signed document: mostly the next one, of sensors that may be silent, new or mad."""
    sensors = tuple(draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)))
    rows, weights = len(sensors) + 1 + draw(st.sampled_from([0, 0, 0, 1])), None
    if draw(st.booleans()):
        cells = draw(st.lists(numbers, min_size=3 * rows, max_size=3 * rows))
        weights = folded(np.array(cells, np.float32).reshape(rows, 3))
    gate = draw(st.sampled_from([8.0, 8.0, 0.5, 1e30]))
    return "order", draw(few), draw(st.integers(0, 1)), sensors, weights, gate


steps = st.one_of(
    st.tuples(
        st.just("reading"),
        st.sampled_from("st"),
        st.sampled_from([0, 0, 0, 0, 1, 2, -1]),
        st.sampled_from([0] * 9 + [1]),
        st.dictionaries(names, numbers, max_size=4),
        st.none() | truths,
    ),
    st.tuples(st.just("label"), st.sampled_from("st"), few, truths),
    orders(),
    st.tuples(st.just("message"), st.sampled_from(TOPICS_ALL), valid_messages.map(encode)),
    st.tuples(st.just("message"), st.sampled_from(TOPICS_ALL), st.sampled_from(GOLDEN)),
    st.tuples(st.just("message"), st.text(max_size=30), st.binary(max_size=40)),
    st.tuples(
        st.just("message"),
        st.sampled_from(["zigbee2mqtt/s", "zigbee2mqtt/t"]),
        st.builds('{{"temperature": {!r}, "mode": "{}"}}'.format, numbers, truths).map(str.encode),
    ),
    st.tuples(
        st.just("message"),
        st.sampled_from(["home/presence", "home/button", "zigbee2mqtt/s"]),
        st.builds('{{"present": {}, "mode": "{}"}}'.format, st.sampled_from(TOLD), truths).map(
            str.encode
        ),
    ),
    st.tuples(st.just("tick"), st.sampled_from([0, 100, 2_000, 12_000, 70_000])),
    st.tuples(st.sampled_from(["disk", "reconnect", "snapshot"])),
)
setups = st.fixed_dictionaries(
    {
        "window_ms": st.sampled_from([0, 500]),
        "instances": st.sampled_from(["readings", "readings", "labels", "beat"]),
        "every_s": st.sampled_from([0.1, 5.0]),
        "commit_records": st.sampled_from([1, 3, 100]),
        "rate_burst": st.sampled_from([5, 1000]),
        "recent": st.sampled_from([2, 50]),
        "vanishing": st.sampled_from([(), ("a",)]),
        "sensors": st.sampled_from(
            [
                tuple(SensorConfig(s, reference=0.0, scale=1.0, timeout_s=10.0) for s in "abc"),
                tuple(SensorConfig(s, knots=3, timeout_s=10.0) for s in "abc"),
                tuple(SensorConfig(s, reference=0.0, scale=1.0, hold_s=1.0) for s in "abc"),
                tuple(SensorConfig(s, reference=0.0, scale=1.0) for s in "abc"),
            ]
        ),
    }
)


def do(driven: Driven, step: tuple) -> list:
    """One step; the actions it led to."""
    what, *how = step
    node, state = driven.node, driven.node.state
    match what:
        case "reading":
            source, ahead, boots, values, label = how
            boot, seq = state.expected.get(source, (1, 1))
            number = min(max(1, seq + ahead), LIMITS.integer_max)
            reading = Reading(boot + boots, number, driven.now_ms, values, label)
            return driven.handle(str(TOPICS.to(Channel.READING, source)), encode(reading))
        case "label":
            source, back, truth = how
            boot, seq = state.expected.get(source, (1, 1))
            label = Label(truth, InstanceId(source, boot, max(1, seq + back)))
            return driven.handle(str(TOPICS.to(Channel.LABEL)), encode(label))
        case "order":
            newer, newer_layout, sensors, weights, gate = how
            version = max(1, state.version + newer)
            layout_version = max(1, state.layout_version + newer_layout)
            document = desired(version, layout_version, sensors, weights, gate=gate)
            return driven.handle(str(TOPICS.to(Channel.DESIRED)), seal_desired(document, KEY))
        case "message":
            return driven.handle(*how)
        case "tick":
            return driven.tick(*how)
        case "disk":
            driven.disk_refuses = not driven.disk_refuses
        case "reconnect":
            driven.reconnect()
        case "snapshot":
            driven.remember()
    assert node is driven.node
    return []


@settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(setups, st.lists(steps, min_size=5, max_size=60))
def test_no_message_in_any_order_raises_or_changes_what_it_may_not(setup, story):
    """None raises; what is not accepted changes nothing; the journal gives the same bits."""
    driven = Driven(config(foreign=FOREIGN, truth=TRUTH, **setup))
    for step in story:
        before = driven.node.snapshot()
        actions = do(driven, step)
        if not any(isinstance(action, Append) for action in actions):
            assert driven.node.snapshot() == before, step
    driven.check_replay()


# --- bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_damaged_bytes_on_every_topic_are_refused_and_released(seed):
    """The long run in small: nothing but refusals comes out, and every delivery is released."""
    words: Counter[str] = Counter()
    Generation(f"test/{seed}").run(4_000, words)
    assert sum(times for word, times in words.items() if "counted" not in word) == 4_000
    assert words["node: accepted"] > 100
    assert len([word for word in words if word.startswith("node counted: refused")]) > 8


CALLS = (
    "handle",
    "tick",
    "on_committed",
    "on_commit_failed",
    "on_connected",
    "on_disconnected",
)


class Taped(Node):
    """Keeps every call, so that another node can be asked the same."""

    def __init__(self, *options):
        super().__init__(*options)
        self.tape = []

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name not in CALLS:
            return found
        return lambda *given: (self.tape.append((name, given)), found(*given))[1]


def allowed() -> int:
    """Two megabytes; msgpack in pure Python, as pip makes of 1.0.3, leaves room in each record."""
    compiled = msgpack.Packer.__module__ != "msgpack.fallback"
    return 2_000_000 if compiled else 2_200_000


def taken_to_pack() -> int:
    """What msgpack takes for the smallest message: a megabyte before 1.1.0, and gives it back."""
    tracemalloc.start()
    try:
        msgpack.packb({})
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_node_under_fire_needs_less_than_two_megabytes(monkeypatch):
    """20,000 inputs after a warm-up: what they leave, and need at any moment, is below 2 MB."""
    monkeypatch.setattr(fuzz, "Node", Taped)
    fire = Generation("memory")
    for _ in range(23_000):
        fire.node()
    tape = fire.driven.node.tape
    node = Node(fire.driven.config, [fuzz.KEY.verify_key])
    for name, asked in tape[:-20_000]:
        getattr(node, name)(*asked)
    gc.collect()
    tracemalloc.start()
    try:
        for name, asked in tape[-20_000:]:
            getattr(node, name)(*asked)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert node.snapshot() == fire.driven.node.snapshot()
    assert peak < allowed() + taken_to_pack()


class Crashing(Node):
    """Falls over a label that it does not know."""

    def handle(self, topic, payload, now_ms, token, retained=False):
        if b"purple" in payload:
            raise KeyError("purple")
        return super().handle(topic, payload, now_ms, token, retained)


class Eager(Node):
    """Releases what the commit will release again."""

    def handle(self, topic, payload, now_ms, token, retained=False):
        actions = super().handle(topic, payload, now_ms, token, retained)
        return actions if Release(token) in actions else [*actions, Release(token)]


class Divergent(Node):
    """Applies what it does not write down."""

    def tick(self, now_ms):
        return [each for each in super().tick(now_ms) if not isinstance(each, Append)]


@pytest.mark.parametrize(
    ("kind", "error", "complaint"),
    [(Crashing, KeyError, "purple"), (Eager, Finding, "not owed"), (Divergent, Finding, "replay")],
)
def test_a_node_with_a_bug_would_be_caught(monkeypatch, kind, error, complaint):
    """The same run, and three ways to be wrong."""
    monkeypatch.setattr(fuzz, "Node", kind)
    with pytest.raises(error, match=complaint):
        Generation("test/0").run(4_000, Counter())


def test_the_long_run_says_how_to_repeat_what_it_found(monkeypatch, capsys):
    """It ends with 1, and prints the seed and the bytes."""
    monkeypatch.setattr(fuzz, "Node", Crashing)
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--inputs", "4000", "--seed", "s", "--first", "2"])
    assert fuzz.main() == 1
    said = capsys.readouterr().out
    assert "--seed s --first 2" in said
    assert b"purple".hex() in said


# --- what was found ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (desired(1, weights=folded(np.full((4, 3), 3e38))), "range"),
        (desired(1, gate=1e30), "range"),
    ],
    ids=["scores that overflow", "a gate that lets everything through"],
)
def test_a_signed_order_with_numbers_too_large_for_float32_is_refused(document, reason):
    """Obeyed, the next reading was applied and acknowledged, but never written down."""
    rig = Rig.make()
    before = rig.frozen()
    rig.order(document)
    assert rig.node.counts[f"refused-{reason}"] == 1
    assert rig.frozen() == before
    rig.read(1, {"a": 5.0, "b": 1e29, "c": 1.0}, "fresh")
    rig.commit(1_000)
    assert rig.reborn().frozen() == rig.frozen()


def test_an_order_that_leaves_only_silent_sensors_is_obeyed_and_waits_for_them():
    """No layout is empty: the node waits for them again, and notices again if they are gone."""
    rig = Rig.make()
    for seq in range(1, 200):
        rig.read(seq, {"a": 0.5, "b": 1.0} if seq < 20 else {"b": 1.0}, "fresh")
        rig.tick(seq * 100)
    assert "a" in rig.node.state.local_models.silent
    rig.order(desired(1, sensors=("a",)), now_ms=20_000)
    assert rig.node.state.layout_version == 1
    assert list(rig.node.state.local_models.alive) == ["a"]
    rig.read(200, {"a": 0.5}, "fresh", now_ms=20_100)
    rig.commit(20_200)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_count_beyond_what_a_status_can_say_stays_at_the_largest_number():
    """Two boots that begin at the last number there is: the count stays at its end."""
    rig, now_ms = Rig.make(), 0
    for boot in (1, 2):
        for _ in range(12):
            now_ms += 20_000
            rig.read(LIMITS.integer_max, {"a": 0.1}, now_ms=now_ms, boot=boot)
            rig.tick(now_ms)
    assert rig.node.counted()["numbers-skipped"] > LIMITS.integer_max
    assert rig.statuses()[-1].counts["numbers-skipped"] == LIMITS.integer_max
    rig.commit(now_ms)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_foreign_sender_whose_numbers_have_run_out_is_refused():
    """Somebody used its name up to the last number: refused, and nothing changed."""
    rig = Rig.make(foreign=FOREIGN)
    for now_ms in range(20_000, 240_000, 20_000):
        rig.read(LIMITS.integer_max, {"a": 0.1}, now_ms=now_ms)
        rig.tick(now_ms)
    assert rig.node.state.expected["s"] == (1, LIMITS.integer_max + 1)
    before = rig.frozen()
    rig.handle("zigbee2mqtt/s", b'{"temperature": 1.5}', 250_000, "late")
    assert rig.released[-1] == "late"
    assert rig.node.counts["refused-range"] == 1
    assert rig.frozen() == before


@pytest.mark.parametrize("unit", [1e-45, 1e-40, 1e37])
@pytest.mark.parametrize("knots", [1, 5])
def test_sensors_that_hardly_move_or_move_wildly_are_learned_from(unit, knots):
    """A scale that float32 takes for 0: no reading was learned, and the journal was unreadable."""
    sensors = tuple(SensorConfig(name, knots=knots) for name in "abc")
    rig = Rig.make(sensors=sensors, warmup_readings=30)
    for seq in range(1, 40):
        rig.read(seq, {"a": unit * (seq % 7), "b": 1.0, "c": float(seq)}, "fresh")
    rig.commit(0)
    assert rig.node.state.warmup is None
    assert rig.node.counts["learned"] == 39
    assert rig.reborn().frozen() == rig.frozen()


def test_knots_that_float32_cannot_tell_apart_become_one():
    """A given scale much larger than what the sensor does: such knots become one."""
    sensors = (SensorConfig("a", reference=0.0, scale=100.0, knots=8), SensorConfig("b"))
    rig = Rig.make(sensors=sensors, warmup_readings=30)
    for seq in range(1, 40):
        rig.read(seq, {"a": 500 + 1e-5 * (seq % 9), "b": 1.0}, "fresh")
    rig.commit(0)
    knots = rig.node.state.local_models.sensors["a"].knots
    assert len(knots) == len({float(np.float32(knot)) for knot in knots}) >= 2
    assert rig.reborn().frozen() == rig.frozen()
