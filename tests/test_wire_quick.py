"""The quick way to decode must never take what the careful one refuses, nor read it otherwise."""

from __future__ import annotations

import random

import msgpack
import pytest

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
)
from edge_opid.wire.codec import QUICK_BYTES_MAX, read_carefully, read_quickly

NUMBER = InstanceId("attic", 3, 12)
USUAL = (
    Reading(3, 12, 1_700_000_000_000, {"temp": 21.5, "co2": 400, "rh": -0.0}, "fresh"),
    Reading(3, 13, 1_700_000_000_000, {}),
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
    ),
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


def test_unknown_key_is_ignored_and_a_key_twice_is_refused() -> None:
    """Newer senders may say more; two values under one name are nobody's message."""
    plain = {"v": 1, "kind": "ack", "boot": 3, "seq": 12}
    assert decode(msgpack.packb({**plain, "mood": {"a": [1, 2]}}), Ack) == Ack(3, 12)
    twice = b"\x85" + msgpack.packb(plain)[1:] + msgpack.packb("seq") + msgpack.packb(13)
    with pytest.raises(WireError) as caught:
        decode(twice, Ack)
    assert caught.value.reason == "duplicate"


def test_what_is_large_or_has_arrays_is_left_to_the_reader() -> None:
    """Bytes that could be made to build much are looked at one by one."""
    values = {f"s{place}": float(place) for place in range(160)}
    large = encode(Reading(1, 1, 1, {**{f"{k}-{'x' * 24}": v for k, v in values.items()}}))
    assert len(large) > QUICK_BYTES_MAX
    assert quickly(large) is None
    assert len(decode(large, Reading).values) == 160
    status = encode(Status(online=True, layout_version=1, model_version=1, silent=("temp",)))
    assert read_quickly(status, {"status": Status}) is None
    assert decode(status, Status).silent == ("temp",)
