"""Labels as people write them: each form means what the page says, anything else is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_wire_golden import EXAMPLES, INSTANCE, NOON_MS

from edge_opid.wire import (
    InstanceId,
    Label,
    Topic,
    Undo,
    WireError,
    encode,
    read_label,
    read_word,
)
from edge_opid.wire.labels import label_json

NUMBER = {"source": "attic", "boot": 3, "seq": 12}


def of(**said: Any) -> bytes:
    return json.dumps(said).encode()


@pytest.mark.parametrize(
    ("payload", "meant"),
    [
        (of(label="damp"), Label("damp")),
        (of(label="damp", instance=NUMBER), Label("damp", INSTANCE)),
        (of(label="damp", instance="attic/3/12"), Label("damp", INSTANCE)),
        (of(label="damp", time=1_700_000_000), Label("damp", time_ms=NOON_MS)),
        (of(label="damp", time=1_700_000_000.25), Label("damp", time_ms=NOON_MS + 250)),
        (of(label="damp", time=NOON_MS), Label("damp", time_ms=NOON_MS)),
        (of(label="damp", time="2023-11-14T22:13:20Z"), Label("damp", time_ms=NOON_MS)),
        (of(label="damp", time="2023-11-14 23:13:20+01:00"), Label("damp", time_ms=NOON_MS)),
        (
            of(label="damp", **{"from": 1_700_000_000, "until": 1_700_007_200}),
            Label("damp", from_ms=NOON_MS, until_ms=NOON_MS + 7_200_000),
        ),
        (of(label="damp", **{"from": 1_700_000_000}), Label("damp", from_ms=NOON_MS)),
        (of(label="damp", instance=None, time=None), Label("damp")),
        (of(undo=True), Undo()),
        (of(undo=True, instance=NUMBER), Undo(INSTANCE)),
        (of(undo=True, time=NOON_MS), Undo(time_ms=NOON_MS)),
    ],
)
def test_every_form_on_the_page_means_what_it_says(payload: bytes, meant: Label | Undo) -> None:
    """A phone, Home Assistant and a shell each write what is easiest for them."""
    assert read_label(payload) == meant


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (of(), "missing"),
        (of(label="damp", undo=True), "missing"),
        (of(label=None), "missing"),
        (of(label=3), "type"),
        (of(label=""), "text"),
        (of(label="damp\nforged"), "text"),
        (of(label="x" * 65), "length"),
        (of(label="damp", instence=NUMBER), "content"),
        (of(label="damp", instance=NUMBER, time=5), "content"),
        (of(label="damp", until=5), "content"),
        (of(label="damp", **{"from": 7, "until": 5}), "content"),
        (of(label="damp", instance="attic/3"), "content"),
        (of(label="damp", instance="attic/3/-1"), "content"),
        (of(label="damp", instance=["attic", 3, 12]), "type"),
        (of(label="damp", instance={**NUMBER, "more": 1}), "type"),
        (of(label="damp", instance={**NUMBER, "seq": 1.5}), "type"),
        (of(label="damp", instance={**NUMBER, "source": "a/#"}), "id"),
        (of(label="damp", time="14:00"), "content"),
        (of(label="damp", time="2026-11-17T14:00:00"), "content"),
        (of(label="damp", time="1960-01-01T00:00Z"), "range"),
        (of(label="damp", time=-1), "type"),
        (of(label="damp", time=True), "type"),
        (of(label="damp", time=1e300), "range"),
        (of(undo="damp"), "type"),
        (b'{"label": "damp", "label": "dry"}', "format"),
        (b'{"label": "damp", "time": NaN}', "format"),
        (b'{"label": ' + b"[" * 4_000, "format nesting"),
        (b'{"label": ' + b"[" * 3_000 + b"]" * 3_000 + b"}", "type nesting"),
        (b'{"label": "damp", "time": ' + b"9" * 5_000 + b"}", "format"),
        (b'{"label": "d\xff"}', "format"),
        (b'{"label": "damp"} ' + b" " * 10_000, "size"),
        (b'["damp"]', "type"),
        (b"damp", "type"),
        (b"", "truncated"),
    ],
)
def test_what_is_no_label_is_refused_with_its_reason(payload: bytes, reason: str) -> None:
    """A misspelled key above all: it would make a label about now of one about last night."""
    with pytest.raises(WireError) as caught:
        read_label(payload)
    assert caught.value.reason in reason.split()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["label_by_number", "label_by_time", "undo", "undo_by_number"])
def test_msgpack_on_the_same_topic_is_still_understood(name: str) -> None:
    """The first byte tells the two apart."""
    assert read_label(encode(EXAMPLES[name])) == EXAMPLES[name]


def test_a_bare_word_is_a_label_about_now() -> None:
    """`mosquitto_pub -m damp` is all that somebody in the cellar wants to type."""
    for payload in (b"damp", b" damp\n", b'"damp"', b'{"label": "damp"}'):
        assert read_word(payload) == Label("damp")
    for payload in (b"", b"\xff", b"a\nb", b"x" * 300):
        with pytest.raises(WireError):
            read_word(payload)
    topic = Topic.parse("opid/1/farm/n1/label/now")
    assert str(topic) == "opid/1/farm/n1/label/now"
    for wrong in ("opid/1/farm/n1/label/then", "opid/1/farm/n1/label/now/now"):
        with pytest.raises(WireError):
            Topic.parse(wrong)


labels = st.builds(
    Label,
    st.text(min_size=1, max_size=12).filter(str.isprintable),
    st.none()
    | st.builds(InstanceId, st.just("attic"), st.integers(0, 9), st.integers(1, 2**53 - 1)),
)
times = st.builds(Label, st.just("damp"), time_ms=st.integers(0, 2**53 - 1))
stretches = st.builds(
    lambda a, b: Label("damp", from_ms=min(a, b), until_ms=max(a, b)),
    st.integers(0, 10**15),
    st.integers(0, 10**15),
)


@settings(max_examples=200, deadline=None, database=None)
@given(labels | times | stretches)
def test_what_we_write_as_json_is_what_we_read(label: Label) -> None:
    """The gateway and `opid-node label` write; the node reads."""
    assert read_label(label_json(label)) == label


def test_damaged_json_is_refused_and_nothing_else_happens() -> None:
    """Twenty thousand damaged labels: a WireError each, or a label."""
    rng = random.Random(7)
    seeds = [
        of(label="damp", instance=NUMBER),
        of(label="damp", time="2026-11-17T14:00:00+01:00"),
        of(undo=True, **{"from": 5, "until": 7.5}),
    ]
    for _ in range(20_000):
        payload = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            payload[rng.randrange(len(payload))] = rng.choice(
                b'{}[]",:0123456789-.eE\\u\xff\x00 tfn'
            )
        try:
            found = read_label(bytes(payload))
        except WireError:
            continue
        assert isinstance(found, Label | Undo)
