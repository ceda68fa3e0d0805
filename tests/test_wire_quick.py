"""The quick way to decode must never take what the careful one refuses, nor read it otherwise."""

from __future__ import annotations

import math
import random
import tracemalloc

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.wire import (
    Ack,
    Example,
    InstanceId,
    Label,
    Prediction,
    Reading,
    Status,
    WireError,
    decode,
    encode,
    encode_as,
    encode_prediction,
)
from edge_opid.wire.codec import QUICK_BYTES_MAX, read_carefully, read_quickly
from edge_opid.wire.usual_reading import Frames

NUMBER = InstanceId("attic", 3, 12)
USUAL = (
    Reading(3, 12, 1_700_000_000_000, {"temp": 21.5, "co2": 400, "rh": -0.0}, "fresh"),
    Reading(3, 13, 1_700_000_000_000, {}),
    Reading(3, 300, 1_700_000_000_000, {"temp": 21.5, "rh": -0.0}, "fresh"),
    Reading(3, 70_000, 1_700_000_000_000, {"temp": 21.5, "rh": 1e-9}),
    Label("fresh", NUMBER),
    Label("fresh", time_ms=7),
    Ack(3, 0),
    Example(NUMBER, 2, 7, {"temp": 1e30}, "stale"),
    Prediction(
        instance=NUMBER,
        time_ms=7,
        label="fresh",
        scores={"fresh": 0.7, "stale": 0.3},
        model_version=4,
        layout_version=2,
        predictor="own",
        confidence=0.7,
    ),
    Status(
        online=True,
        layout_version=2,
        model_version=200,
        version=70_000,
        time_ms=1_700_000_000_000,
        counts={"readings": 12, "learned": 3_000, "refused-stale": 0},
        accuracy={"own": 0.9, "model": 1, "lately": 0.0},
    ),
    Status(online=True, layout_version=2, model_version=7, time_ms=7, counts={"readings": 1}),
)
BY_KIND = {type(each).kind: type(each) for each in USUAL}
MUTANTS = 6_000


def quickly(payload: bytes) -> object:
    """What the quick way makes of it: None, or a message."""
    return read_quickly(payload, BY_KIND)


def carefully(payload: bytes) -> object:
    """What the reader makes of it: an error, or a message."""
    return read_carefully(payload, BY_KIND, " or ".join(BY_KIND))


@pytest.mark.parametrize("message", USUAL, ids=lambda each: type(each).kind)
def test_usual_message_is_taken_as_the_reader_takes_it(message) -> None:
    """If it were not, every reading would be decoded twice."""
    payload = encode(message)
    assert quickly(payload) == message == carefully(payload)
    assert repr(quickly(payload)) == repr(carefully(payload)), "a float, and not an int like it"


def mutated(chance: random.Random, payload: bytes) -> bytes:
    """A few bytes changed, cut out or doubled."""
    data = bytearray(payload)
    for _ in range(chance.choice((1, 1, 2))):
        place = chance.randrange(len(data))
        match chance.choice((0, 1, 1, 1, 2, 3)):
            case 0:
                data[place] = chance.choice((0x00, 0x80, 0x90, 0xC0, 0xC3, 0xCA, 0xCB, 0xD9, 0xFF))
            case 1:
                data[place] ^= 1 << chance.randrange(8)
            case 2:
                del data[place : place + chance.randint(1, 4)]
                data = data or bytearray(b"\x80")
            case 3:
                data[place:place] = data[place : place + chance.randint(1, 12)]
    return bytes(data)


def test_no_mutant_is_taken_that_the_reader_refuses_or_reads_otherwise() -> None:
    """Types, duplicates, ranges, missing and trailing bytes: all as the reader has them."""
    chance, taken, refused = random.Random(7), 0, 0
    for _ in range(MUTANTS):
        payload = mutated(chance, encode(chance.choice(USUAL)))
        found = quickly(payload)
        if found is None:
            refused += 1
            continue
        taken += 1
        assert repr(found) == repr(carefully(payload)), payload.hex()
    assert taken > MUTANTS // 20, "the test has lost its point"
    assert refused > MUTANTS // 2


FRAMED = [
    Reading(boot, seq, 1_700_000_000_000, {"temp": 21.5, "rh": -0.0}, label)
    for boot in (3, 1_700_000_000)
    for seq in (128, 300, 70_000, 2**40)
    for label in ("fresh", "öd", None)
]


def framed(payload: bytes, frames: Frames) -> object:
    """What is read by the frame of an earlier reading: None, or a reading."""
    try:
        return frames.read(payload)
    except ValueError:  # its label is not as usual: `read_quickly` goes on with the careful way
        return None


def test_no_mutant_of_a_reading_whose_frame_is_known_is_read_otherwise() -> None:
    """A byte that looks like part of a number, and says that another kind of value follows."""
    chance, frames, taken = random.Random(8), Frames(), 0
    for each in FRAMED:
        assert frames.read(encode(each)) is None, "nothing is known yet"
        frames.keep(encode(each), each)
        assert repr(frames.read(encode(each))) == repr(each), "a float, and not an int like it"
    for _ in range(MUTANTS):
        payload = mutated(chance, encode(chance.choice(FRAMED)))
        found = framed(payload, frames)
        if found is not None:
            taken += 1
            assert repr(found) == repr(carefully(payload)), payload.hex()
    assert taken > MUTANTS // 20, "the test has lost its point"


@pytest.mark.parametrize(
    ("later", "same"),
    [
        (Reading(3, 301, 5_000_000_000, {"temp": 1e38, "rh": 0.0}, "stale"), True),
        (Reading(3, 301, 5_000_000_000, {"temp": 1.0, "rx": 0.0}, "fresh"), False),
        (Reading(4, 301, 5_000_000_000, {"temp": 1.0, "rh": 0.0}, "fresh"), False),
        (Reading(3, 127, 5_000_000_000, {"temp": 1.0, "rh": 0.0}, "fresh"), False),
        (Reading(3, 301, 5_000_000_000, {"temp": 1.0}, "fresh"), False),
    ],
)
def test_reading_of_another_sensor_boot_or_width_has_another_frame(later, same) -> None:
    """Two sources with names of the same length, and a source that was replaced."""
    first, frames = Reading(3, 300, 5_000_000_000, {"temp": 2.0, "rh": 0.0}, "fresh"), Frames()
    frames.keep(encode(first), first)
    assert frames.read(encode(later)) == (later if same else None)
    assert decode(encode(later), Reading) == later
    assert frames.read(encode(first)) == first


def test_numbers_out_of_range_are_left_to_the_careful_way() -> None:
    """A frame says where numbers are, not that they may be."""
    plain = {"v": 1, "kind": "reading", "boot": 3, "seq": 2**40, "time_ms": 2**40}
    usual = msgpack.packb({**plain, "values": {"temp": 1.0, "rh": 2.0}})
    frames = Frames()
    frames.keep(usual, decode(usual, Reading))
    assert frames.read(usual) is not None
    for change in (
        {"seq": 2**53}, {"time_ms": 2**53}, {"values": {"temp": math.nan, "rh": 2.0}},
        {"values": {"temp": 1.0, "rh": -math.inf}}, {"values": {"temp": 1e39, "rh": 1.0}},
    ):  # fmt: skip
        payload = msgpack.packb({**plain, "values": {"temp": 1.0, "rh": 2.0}, **change})
        assert len(payload) == len(usual), "it would not have been looked at"
        assert frames.read(payload) is None
        with pytest.raises(WireError):
            decode(payload, Reading)


def test_frames_of_invented_sources_take_a_bounded_memory() -> None:
    """Whoever may write readings may invent boots: each looks like a source of its own."""
    values = {f"s{place}-{'x' * 24}": float(place) for place in range(160)}
    frames = Frames()
    tracemalloc.start()
    try:
        for boot in range(200):
            large = Reading(10**9 + boot, 300, 1_700_000_000_000, values)
            frames.keep(encode(large), large)
        now = tracemalloc.get_traced_memory()[0]
        assert frames.read(encode(large)) == large
    finally:
        tracemalloc.stop()
    assert now < 1_500_000, now


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": True}, "type"),
        ({"v": 2}, "schema"),
        ({"kind": "status"}, "kind"),
        ({"seq": 12.0}, "type"),
        ({"seq": 0}, "range"),
        ({"values": {"temp": True}}, "type"),
        ({"values": {"temp": float("nan"), "co2": 1.0}}, "nonfinite"),
        ({"values": {"co2": 1.0, "temp": float("nan")}}, "nonfinite"),
        ({"values": {"temp": float("-inf")}}, "nonfinite"),
        ({"values": {"a/b": 1.0}}, "id"),
        ({"values": {"temp\n": 1.0}}, "id"),
        ({"values": []}, "type"),
        ({"label": b""}, "type"),
        ({"label": "two\nlines"}, "text"),
    ],
    ids=str,
)
def test_bad_field_is_refused_with_the_readers_reason(change, reason: str) -> None:
    """Who sent it must be told what is wrong, in the same words as ever; and again next time."""
    plain = {"v": 1, "kind": "reading", "boot": 3, "seq": 12, "time_ms": 7, "values": {"temp": 1.0}}
    payload = msgpack.packb({**plain, **change})
    for _ in range(2):
        with pytest.raises(WireError) as caught:
            decode(payload, Reading)
        assert caught.value.reason == reason
    assert decode(msgpack.packb(plain), Reading).seq == 12


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": True}, "type"),
        ({"v": 2}, "schema"),
        ({"online": 1}, "type"),
        ({"version": True}, "type"),
        ({"version": -1}, "range"),
        ({"layout_version": 2.0}, "type"),
        ({"time_ms": 2**53}, "range"),
        ({"counts": {"readings": -1}}, "range"),
        ({"counts": {"readings": 1.0}}, "type"),
        ({"counts": {"a/b": 1}}, "id"),
        ({"counts": {f"c{place}": 1 for place in range(161)}}, "length"),
        ({"accuracy": None}, "type"),
        ({"accuracy": {"own": -0.5}}, "range"),
        ({"accuracy": {"own": float("nan")}}, "nonfinite"),
        ({"accuracy": {f"c{place}": 0.5 for place in range(17)}}, "length"),
    ],
    ids=str,
)
def test_bad_field_of_a_status_is_refused_with_the_readers_reason(change, reason: str) -> None:
    """A status is not signed: whatever looks usual is still looked at, field by field."""
    plain = msgpack.unpackb(encode(USUAL[-2]))
    assert plain.keys() >= change.keys()
    with pytest.raises(WireError) as caught:
        decode(msgpack.packb({**plain, **change}), Status)
    assert caught.value.reason == reason
    assert decode(msgpack.packb(plain), Status) == USUAL[-2]


def test_unknown_key_is_ignored_and_a_key_twice_is_refused() -> None:
    """Newer senders may say more; two values under one name are nobody's message."""
    plain = {"v": 1, "kind": "ack", "boot": 3, "seq": 12}
    assert decode(msgpack.packb({**plain, "mood": {"a": [1, 2]}}), Ack) == Ack(3, 12)
    twice = b"\x85" + msgpack.packb(plain)[1:] + msgpack.packb("seq") + msgpack.packb(13)
    with pytest.raises(WireError) as caught:
        decode(twice, Ack)
    assert caught.value.reason == "duplicate"


def test_the_largest_reading_is_read_quickly_and_what_is_larger_or_has_arrays_is_not() -> None:
    """Bytes that could be made to build much are looked at one by one."""
    values = {f"s{place}-{'x' * 24}": float(place) for place in range(160)}
    large = Reading(1, 1, 1, values, "fresh")
    assert quickly(encode(large)) == large
    counts = {f"{'y' * 27}-{place}": 10**9 for place in range(160)}
    status = Status(online=True, layout_version=1, model_version=1, counts=counts)
    roomy = Status(online=True, layout_version=1, model_version=1, counts=counts, silent=("temp",))
    longer = msgpack.packb({**msgpack.unpackb(encode(status)), "more": "z" * 4000})
    assert len(longer) > QUICK_BYTES_MAX
    for payload in (longer, encode(roomy)):
        assert read_quickly(payload, {"status": Status}) is None
        assert decode(payload, Status).counts == counts


def nested(depth: int) -> bytes:
    """Maps in maps, and in each as many short keys as fit."""
    inner = b"".join(b"\xa1" + bytes([97 + k]) + b"\x80" for k in range(14))
    return b"\x8f" + inner + b"\xa1z" + (nested(depth - 1) if depth else b"\x80")


def test_what_the_quick_way_can_be_made_to_build_is_small() -> None:
    """8 kB of maps in maps: a decoder that builds whatever it is told to would make megabytes."""
    payload = nested(170)
    assert QUICK_BYTES_MAX - 600 < len(payload) <= QUICK_BYTES_MAX
    tracemalloc.start()
    try:
        assert quickly(payload) is None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1_000_000, most


IDS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,10}", fullmatch=True)
LINES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=16)
SHARES = st.floats(0.0, 1.0)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["json", "msgpack"]),
    st.builds(InstanceId, IDS, st.integers(0, 2**53 - 1), st.integers(1, 2**53 - 1)),
    st.integers(0, 2**53 - 1),
    st.dictionaries(LINES, SHARES, min_size=1, max_size=8),
    st.tuples(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1)),
    SHARES,
)
def test_a_prediction_written_at_once_has_the_bytes_of_one_that_is_checked(
    form, instance, time_ms, scores, versions, confidence
) -> None:
    """Quotes, backslashes and letters of any script in a class, and every float."""
    label = next(iter(scores))
    message = Prediction(
        instance=instance,
        time_ms=time_ms,
        label=label,
        scores=scores,
        model_version=versions[0],
        layout_version=versions[1],
        predictor="own",
        confidence=confidence,
    )
    said = tuple(scores), list(scores.values())
    written = encode_prediction(form, instance, time_ms, label, *said, versions, "own", confidence)
    assert written == encode_as(form, message)
    assert decode(written, Prediction) == message


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_prediction_that_is_not_finite_is_refused_and_not_written(form) -> None:
    for bad in (float("nan"), float("inf")):
        with pytest.raises(WireError, match="finite"):
            encode_prediction(form, NUMBER, 7, "a", ("a", "b"), [bad, 0.5], (0, 0), "own", 0.5)
