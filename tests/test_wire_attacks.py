"""Named attacks on the codec: each is refused for its reason, in little memory, without a trace."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from test_wire_golden import EXAMPLES, NOON_MS, golden

from edge_opid.wire import (
    LIMITS,
    MESSAGES_ON,
    Ack,
    Channel,
    Desired,
    Example,
    InstanceId,
    Introduction,
    Label,
    Matrix,
    Message,
    Prediction,
    Reading,
    SensorDeployed,
    SensorDescription,
    Status,
    SummaryMessage,
    Weights,
    WireError,
    decode,
    decode_on,
    encode,
    to_bytes,
)

ALL_KINDS = [*dict.fromkeys(kind for kinds in MESSAGES_ON.values() for kind in kinds), Desired]


def refusal(payload: bytes, *kinds: type[Message]) -> str:
    """Why `payload` is refused; after which the good message still decodes to the same."""
    with pytest.raises(WireError) as caught:
        decode(payload, *(kinds or (Reading,)))
    sentence = str(caught.value)
    assert sentence.isprintable()  # no forged log line
    assert len(sentence) < 400
    assert decode(golden("reading"), Reading) == EXAMPLES["reading"]
    return caught.value.reason


def changed(name: str = "reading", **fields: Any) -> bytes:
    """A golden message with some of its fields replaced, or dropped with `...`."""
    plain = {**msgpack.unpackb(golden(name)), **fields}
    return msgpack.packb({key: value for key, value in plain.items() if value is not ...})


def raw(*pairs: tuple[bytes, bytes]) -> bytes:
    """A map of raw msgpack keys and values after a valid header, duplicates and all."""
    header = msgpack.packb("v") + b"\x01" + msgpack.packb("kind") + msgpack.packb("reading")
    body = b"".join(key + value for key, value in pairs)
    return bytes([0x80 | (2 + len(pairs))]) + header + body


# -- bombs ---------------------------------------------------------------------------------------

EIGHT_KB_OF_HEADERS = b"\xdd\x00\x00\x20\x00" * 1600  # arrays of 8,192 in arrays of 8,192 in ...
BOMBS = {
    "arrays that claim 8,192 items": EIGHT_KB_OF_HEADERS,
    "arrays that claim 4 billion items": b"\xdd\xff\xff\xff\xff" * 1600,
    "maps that claim 4 billion keys": b"\xdf\xff\xff\xff\xff" * 1600,
    "a thousand nested arrays": b"\x91" * 1000 + b"\xc0",
    "nested deeper than the stack": b"\x91" * 8000,
    "many empty arrays": b"\xdc\x20\x00" + b"\x90" * 0x2000,
    "many small maps": b"\xdc\x0a\x00" + b"\x81\xa0\x90" * 0x0A00,
    "many short strings": b"\xdc\x0a\x00" + b"\xa2ab" * 0x0A00,
    "a string of 4 gigabytes": b"\xdb\xff\xff\xff\xff",
    "bytes of 4 gigabytes": b"\xc6\xff\xff\xff\xff",
    "an extension of 4 gigabytes": b"\xc9\xff\xff\xff\xff\x01",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize(
    "place", ["alone", "as a value", "as a key", "in values", "under a new key"]
)
def test_a_msgpack_bomb_is_refused_before_it_costs_memory(name: str, place: str) -> None:
    """8 kB that msgpack would turn into 47 MB cost less than 1 MB, wherever they stand."""
    bomb = BOMBS[name][: LIMITS.small_payload_bytes_max - 64]
    payload = {
        "alone": bomb,
        "as a value": raw((msgpack.packb("seq"), bomb)),
        "as a key": raw((bomb, b"\x01")),
        "in values": raw((msgpack.packb("values"), b"\x81\xa1t" + bomb)),
        "under a new key": raw((msgpack.packb("new"), bomb)),
    }[place]
    refusal(b"\xc1")  # what the first refusal of a process imports is not the bomb's
    tracemalloc.start()
    try:
        refusal(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
def test_a_bomb_as_large_as_the_largest_payload_is_refused_in_little_memory(
    kind: type[Message],
) -> None:
    """73 kB of tiny containers would be megabytes of objects; they are skipped, not built."""
    header = (
        b"\x83" + msgpack.packb("v") + b"\x01" + msgpack.packb("kind") + msgpack.packb(kind.kind)
    )
    room = kind.bytes_max - len(header) - 8
    payload = header + msgpack.packb("new") + b"\xdd" + struct.pack(">I", room) + b"\x90" * room
    tracemalloc.start()
    try:
        assert refusal(payload, kind) in ("missing", "size", "format")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("field", "claim", "name"),
    [("values", b"\xde\x00\xa1", "reading"), ("vanishing", b"\xdc\x00\xa1", "summary")],
)
def test_a_container_that_claims_more_than_its_limit_is_refused_unread(
    field: str, claim: bytes, name: str
) -> None:
    """The claim of 161 is refused as such, before one item of it is read."""
    header = msgpack.packb({"v": 1, "kind": name})
    payload = b"\x83" + header[1:] + msgpack.packb(field) + claim
    assert refusal(payload, type(EXAMPLES[name])) == "length"


# -- bytes that are no message -------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_truncated_message_is_refused(name: str) -> None:
    """Every prefix of every message is refused, including nothing at all."""
    kind = type(EXAMPLES[name])
    for length in range(len(golden(name))):
        with pytest.raises(WireError) as caught:
            decode(golden(name)[:length], kind)
        assert caught.value.reason == "truncated"
    assert decode(golden(name), kind) == EXAMPLES[name]


def test_a_second_message_behind_the_first_is_refused() -> None:
    """What follows a message is neither read nor ignored."""
    assert refusal(golden("reading") * 2) == "trailing"
    assert refusal(golden("reading") + b"\x00") == "trailing"


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
def test_an_oversized_payload_is_refused_before_it_is_read(kind: type[Message]) -> None:
    """Size comes first: not one byte is looked at."""
    assert refusal(b"\xc1" * (kind.bytes_max + 1), kind) == "size"


def test_a_small_message_padded_to_the_size_of_a_large_one_is_refused() -> None:
    """Where a large message may come, a small one still has its own limit."""
    assert refusal(changed(junk=bytes(9_000)), Reading, SummaryMessage) == "size"


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\xc0", b"\x90", b"21.5", b"{}", b'{"v":1}'])
def test_bytes_that_are_no_message_of_ours_are_refused(payload: bytes) -> None:
    """Plain numbers and JSON belong to foreign topics, not to ours."""
    assert refusal(payload) in ("truncated", "type")


def test_text_that_is_not_utf8_is_refused() -> None:
    """Neither a key nor a value may be broken text."""
    assert refusal(raw((b"\xa2\xff\xfe", b"\x01"))) == "text"
    assert refusal(raw((msgpack.packb("label"), b"\xa2\xff\xfe"))) == "text"


# -- another version, another kind ---------------------------------------------------------------


def test_a_message_of_another_schema_is_refused() -> None:
    """Not guessed at, even if it looks the same."""
    assert refusal(changed(v=2)) == "schema"
    assert refusal(changed(v=0)) == "schema"
    assert refusal(changed(v=True)) == "type"
    assert refusal(changed(v=...)) == "missing"


def test_an_ack_where_a_reading_belongs_is_refused() -> None:
    """A topic carries its own kinds and no other."""
    assert refusal(golden("ack")) == "kind"
    assert refusal(changed(kind="\n" * 100)) == "kind"
    with pytest.raises(WireError, match="got 'sensor-silent'"):
        decode_on(Channel.STATUS, golden("sensor_silent"))
    assert decode_on(Channel.EVENT, golden("sensor_silent")) == EXAMPLES["sensor_silent"]


def test_desired_without_its_envelope_is_refused() -> None:
    """The codec refuses to look into what nobody has verified."""
    with pytest.raises(WireError) as caught:
        decode_on(Channel.DESIRED, golden("desired"))
    assert caught.value.reason == "signature"


# -- keys ----------------------------------------------------------------------------------------


def test_a_duplicate_key_is_refused() -> None:
    """Two values for one key: refused at the top, among the values, and among unknown keys."""
    seq = msgpack.packb("seq")
    twice = msgpack.packb("t") + b"\x01" + msgpack.packb("t") + b"\x02"
    assert refusal(raw((seq, b"\x01"), (seq, b"\x02"))) == "duplicate"
    assert refusal(raw((msgpack.packb("values"), b"\x82" + twice))) == "duplicate"
    assert (
        refusal(raw((msgpack.packb("new"), b"\x01"), (msgpack.packb("new"), b"\x01")))
        == "duplicate"
    )
    assert refusal(raw((msgpack.packb("v"), b"\x01"))) == "duplicate"


@pytest.mark.parametrize("key", [b"\x01", b"\xc0", b"\xc4\x01a", b"\x90", b"\x80"])
def test_a_key_that_is_not_text_is_refused(key: bytes) -> None:
    """Numbers, bytes and containers are no keys."""
    assert refusal(raw((key, b"\x01"))) == "type"


@pytest.mark.parametrize("key", ["boot", "seq", "time_ms", "values"])
def test_a_missing_key_is_refused_by_name(key: str) -> None:
    """The sentence names it."""
    with pytest.raises(WireError, match=rf"reading\.{key} must be given") as caught:
        decode(changed(**{key: ...}), Reading)
    assert caught.value.reason == "missing"


def test_a_newer_sender_is_understood() -> None:
    """A key that this version does not know is skipped, whatever is below it."""
    newer = changed(battery=0.5, radio={"rssi": [-70, None, {"x": float("nan")}]})
    assert decode(newer, Reading) == EXAMPLES["reading"]


def test_a_sender_that_sorts_its_keys_is_understood() -> None:
    """The order of the keys means nothing."""
    plain = msgpack.unpackb(golden("reading"))
    backwards = msgpack.packb(dict(reversed(plain.items())))
    assert decode(backwards, Reading) == EXAMPLES["reading"]


# -- values --------------------------------------------------------------------------------------

WRONG_VALUES = [
    ("bool as seq", {"seq": True}, "type"),
    ("bool as boot", {"boot": False}, "type"),
    ("float as seq", {"seq": 1.0}, "type"),
    ("text as seq", {"seq": "1"}, "type"),
    ("nil as seq", {"seq": None}, "type"),
    ("list as seq", {"seq": [1]}, "type"),
    ("seq zero", {"seq": 0}, "range"),
    ("negative seq", {"seq": -1}, "range"),
    ("negative boot", {"boot": -(2**63)}, "range"),
    ("seq beyond JSON", {"seq": 2**53}, "range"),
    ("time beyond int64", {"time_ms": 2**64 - 1}, "range"),
    ("extension as seq", {"seq": msgpack.ExtType(5, b"x")}, "ext"),
    ("empty extension", {"seq": msgpack.ExtType(5, b"")}, "ext"),
    ("timestamp as time", {"time_ms": msgpack.Timestamp(1, 2)}, "ext"),
    ("values as list", {"values": [1.0]}, "type"),
    ("too many values", {"values": {f"s{i}": 0 for i in range(161)}}, "length"),
    ("NaN", {"values": {"t": float("nan")}}, "nonfinite"),
    ("Inf", {"values": {"t": float("inf")}}, "nonfinite"),
    ("minus Inf", {"values": {"t": float("-inf")}}, "nonfinite"),
    ("Inf in float32", {"values": {"t": 1e39}}, "nonfinite"),
    ("bool as value", {"values": {"t": True}}, "type"),
    ("text as value", {"values": {"t": "21.5"}}, "type"),
    ("map as value", {"values": {"t": {}}}, "type"),
    ("id with slash", {"values": {"a/b": 1.0}}, "id"),
    ("id with wildcard", {"values": {"+": 1.0}}, "id"),
    ("id with newline", {"values": {"a\n": 1.0}}, "id"),
    ("endless id", {"values": {"a" * 5000: 1.0}}, "id"),
    ("empty label", {"label": ""}, "text"),
    ("label of two lines", {"label": "a\nb"}, "text"),
    ("label with terminal codes", {"label": "\x1b[2J"}, "text"),
    ("endless label", {"label": "x" * 65}, "length"),
    ("label as number", {"label": 3}, "type"),
    ("label as bytes", {"label": b"a"}, "type"),
]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [each[1:] for each in WRONG_VALUES],
    ids=[each[0] for each in WRONG_VALUES],
)
def test_a_wrong_value_in_a_reading_is_refused_for_its_own_reason(
    fields: dict[str, Any], reason: str
) -> None:
    """Wrong types, numbers that are not finite, ids and labels that could do harm."""
    assert refusal(changed(**fields)) == reason


def test_a_whole_number_is_taken_as_a_value() -> None:
    """Small controllers send 21, not 21.0, and in 32 bits: both are numbers."""
    assert decode(changed(values={"t": 21}), Reading).values == {"t": 21.0}
    single = msgpack.packb({"t": 21.5}, use_single_float=True)
    payload = changed(values=...)
    payload = bytes([payload[0] + 1]) + payload[1:] + msgpack.packb("values") + single
    assert decode(payload, Reading).values == {"t": 21.5}


def test_a_nan_hidden_in_the_bytes_of_an_array_is_refused() -> None:
    """Arrays are looked through, in float32 and in float16."""
    assert (
        refusal(changed("summary", gram=to_bytes([4.0, np.nan, 3.0])), SummaryMessage)
        == "nonfinite"
    )
    assert (
        refusal(changed("summary", moment=b"\x00\x00\x80\x7f" * 4), SummaryMessage) == "nonfinite"
    )
    plain = msgpack.unpackb(golden("desired"))
    plain["weights"]["matrices"]["V"]["data"] = b"\x00\x7c" * 4
    assert refusal(msgpack.packb(plain), Desired) == "nonfinite"


@pytest.mark.parametrize(
    "fields",
    [{"width": 3}, {"classes": 3}, {"gram": b""}, {"moment": bytes(15)}, {"gram": bytes(16)}],
    ids=["wider", "more classes", "no gram", "a byte of moment short", "gram too long"],
)
def test_an_array_of_another_shape_is_refused(fields: dict[str, Any]) -> None:
    """A shape is a length check."""
    assert refusal(changed("summary", **fields), SummaryMessage) == "shape"


def test_a_shape_that_would_overflow_is_refused() -> None:
    """The size is computed in whole numbers, and compared before anything is allocated."""
    plain = msgpack.unpackb(golden("desired"))
    plain["weights"]["matrices"]["V"].update(rows=2**32, cols=2**32)
    assert refusal(msgpack.packb(plain), Desired) == "shape"
    plain["weights"]["matrices"]["V"].update(rows=2, cols=2, dtype="float64")
    assert refusal(msgpack.packb(plain), Desired) == "text"


def test_a_matrix_without_numbers_is_refused() -> None:
    """What a model does not have is left out, not sent empty."""
    plain = msgpack.unpackb(golden("desired"))
    plain["weights"]["matrices"]["V"].update(rows=1, cols=0, data=b"")
    assert refusal(msgpack.packb(plain), Desired) == "range"


SENSOR = {"id": "t-1", "role": "temp", "reference": 0.0, "scale": 1.0, "timeout_s": 60.0}
CONTRADICTIONS = [
    ("label", "label_by_time", Label, {"from_ms": NOON_MS}, "content"),
    ("backwards", "label_of_a_stretch", Label, {"until_ms": 1}, "content"),
    ("label twice", "label_by_number", Label, {"time_ms": 1}, "content"),
    ("class not scored", "prediction", Prediction, {"label": "neu"}, "content"),
    ("negative accuracy", "status", Status, {"accuracy": {"bridge": -0.1}}, "range"),
    ("scale zero", "sensor_deployed", SensorDeployed, {"scale": 0.0}, "range"),
    ("scale zero in float32", "sensor_deployed", SensorDeployed, {"scale": 1e-60}, "range"),
    ("one knot", "sensor_deployed", SensorDeployed, {"knots": [1.0]}, "content"),
    ("falling knots", "sensor_deployed", SensorDeployed, {"knots": [1.0, 0.0]}, "content"),
    (
        "equal in float32",
        "sensor_deployed",
        SensorDeployed,
        {"knots": [1.0, 1.0 + 1e-12]},
        "content",
    ),
    ("replaces itself", "sensor_deployed", SensorDeployed, {"replaces": "pm-2"}, "content"),
    ("rho zero", "summary", SummaryMessage, {"rho": 0.0}, "range"),
    ("too wide", "summary", SummaryMessage, {"width": 321}, "range"),
    ("summed over twice", "summary", SummaryMessage, {"sensors": ["pm-1", "pm-1"]}, "content"),
    ("vanishes unsummed", "summary", SummaryMessage, {"sensors": ["pm-2"]}, "content"),
    ("summed over nobody knows what", "summary", SummaryMessage, {"sensors": ...}, "missing"),
    ("introduced twice", "introduction", Introduction, {"sensors": [SENSOR, SENSOR]}, "content"),
    ("a stranger vanishes", "introduction", Introduction, {"vanishing": ["b"]}, "content"),
    ("nobody introduced", "introduction", Introduction, {"sensors": []}, "content"),
    ("no label", "example", Example, {"label": ...}, "missing"),
    ("an endless wish", "desired_gathering", Desired, {"gather": 100_001}, "range"),
    ("a negative wish", "desired_gathering", Desired, {"gather": -1}, "range"),
    ("sensor twice", "desired", Desired, {"sensors": [SENSOR, {**SENSOR, "role": "b"}]}, "content"),
    ("role twice", "desired", Desired, {"sensors": [SENSOR, {**SENSOR, "id": "b"}]}, "content"),
    ("unknown vanishing", "desired", Desired, {"vanishing": ["b"]}, "content"),
    ("no sensors", "desired", Desired, {"sensors": [], "vanishing": []}, "content"),
    ("one class", "desired", Desired, {"classes": ["a"]}, "content"),
    ("class twice", "desired", Desired, {"classes": ["a", "a"]}, "content"),
    ("version zero", "desired", Desired, {"version": 0}, "range"),
    ("site with slash", "desired", Desired, {"site": "a/b"}, "id"),
    ("sensor as list", "desired", Desired, {"sensors": [[]]}, "type"),
    ("weights as text", "desired", Desired, {"weights": "none"}, "type"),
]


@pytest.mark.parametrize(
    ("name", "kind", "fields", "reason"),
    [each[1:] for each in CONTRADICTIONS],
    ids=[each[0] for each in CONTRADICTIONS],
)
def test_fields_that_contradict_each_other_are_refused(
    name: str, kind: type[Message], fields: dict[str, Any], reason: str
) -> None:
    """A message that exists is a message that is valid."""
    assert refusal(changed(name, **fields), kind) == reason


def test_a_layout_wider_than_promised_is_refused() -> None:
    """Eleven sensors with 32 hats each are 352 columns, although they are only eleven."""
    knots = [float(knot) for knot in range(32)]
    sensors = [{**SENSOR, "id": f"s{i}", "role": f"r{i}", "knots": knots} for i in range(11)]
    assert refusal(changed("desired", sensors=sensors, vanishing=[]), Desired) == "content"


# -- the sender's own mistakes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda: Reading(1, True, NOON_MS, {"t": 1.0}),
        lambda: Reading(1, 1, NOON_MS, {"t": np.float32(1.0)}),
        lambda: Reading(1, 1, NOON_MS, [("t", 1.0)]),
        lambda: Status(online=1, layout_version=0, model_version=0),
        lambda: Status(online=True, layout_version=0, model_version=0, degraded=["a list"]),
        lambda: Label("a", instance=("attic", 1, 2)),
        lambda: Ack("1", 2),
        lambda: Matrix(1, 1, bytearray(4)),
        lambda: SensorDescription(id="t", role="temp", reference=None, scale=1.0, timeout_s=1.0),
    ],
    ids=[
        "bool as number",
        "NumPy value",
        "pairs as values",
        "number as bool",
        "list as tuple",
        "tuple as instance",
        "text as boot",
        "bytearray as bytes",
        "no reference",
    ],
)
def test_a_message_of_nonsense_cannot_be_built(build: Any) -> None:
    """It fails where it is built, not at the other end of the network."""
    with pytest.raises(WireError) as caught:
        build()
    assert caught.value.reason == "type"


def test_a_matrix_that_overflows_float32_is_refused() -> None:
    """1e39 would travel as Inf, and is refused before it does."""
    with pytest.raises(WireError) as caught:
        Matrix.of([[1e39]])
    assert caught.value.reason == "nonfinite"
    with pytest.raises(WireError):
        Matrix.of([[70_000.0]], "float16")
    assert Matrix.of([[70_000.0]]).array() == 70_000.0


def test_a_message_that_is_too_large_to_send_is_refused_with_both_sizes() -> None:
    """The sender hears it, with both sizes."""
    names = tuple(f"{i:064}" for i in range(16))
    counts = {f"{i:032}": i for i in range(64)}
    status = Status(
        online=True,
        layout_version=1,
        model_version=1,
        counts=counts,
        accuracy={n[:32]: 0.5 for n in names},
        degraded=names,
    )
    assert len(encode(status)) < LIMITS.small_payload_bytes_max
    matrices = {f"M{i}": Matrix(64, 64, bytes(4 * 64 * 64)) for i in range(16)}
    desired = EXAMPLES["desired"]
    assert isinstance(desired, Desired)
    with pytest.raises(WireError, match="at most 81920 bytes, got 26"):
        encode(_with_matrices(desired, matrices))


def test_the_largest_promised_messages_fit() -> None:
    """Every limit at once: 160 sensors, 160 columns, 16 classes, the longest names."""
    ids = tuple(f"{i:032}" for i in range(160))
    classes = tuple(f"{i:064}" for i in range(16))
    gram, moment = bytes(4 * 160 * 161 // 2), bytes(4 * 160 * 16)
    top = LIMITS.integer_max
    sensors = tuple(
        SensorDescription(id=i, role=i, reference=0.5, scale=0.5, timeout_s=0.5, unit=classes[0])
        for i in ids
    )
    desired = Desired(
        site=ids[0],
        node=ids[1],
        version=top,
        layout_version=top,
        sensors=sensors,
        vanishing=ids[:80],
        gate=8.0,
        classes=classes,
    )
    model = {"W": Matrix(80, 16, bytes(5120)), "V": Matrix(96, 16, bytes(6144))}
    kernel = {"W_s": (160, 16), "new": (1, 159), "centre": (1, 175), "scale": (1, 175)}
    kernel |= {"support": (36, 175), "A": (72, 16), "bias": (1, 16), "kernel": (1, 2)}
    landmarks = {name: Matrix(m, n, bytes(4 * m * n)) for name, (m, n) in kernel.items()}
    for message in (
        Reading(top, top, top, dict.fromkeys(ids, 0.5), classes[0]),
        Prediction(
            instance=EXAMPLES["prediction"].instance,  # type: ignore[attr-defined]
            time_ms=top,
            label=classes[0],
            scores=dict.fromkeys(classes, 0.5),
            model_version=top,
            layout_version=top,
        ),
        Example(InstanceId(ids[0], top, top), top, top, dict.fromkeys(ids, 0.5), classes[0]),
        Introduction(
            version=top,
            layout_version=top,
            sensors=sensors,
            vanishing=ids,
            gate=8.0,
            classes=classes,
            window_ms=top,
        ),
        SummaryMessage(
            layout_version=top,
            width=160,
            classes=16,
            sensors=ids,
            vanishing=ids,
            lam=0.5,
            rho=0.5,
            readings=top,
            evidence=0.5,
            gram=gram,
            moment=moment,
        ),
        _with_matrices(desired, model),
        _with_matrices(desired, landmarks),
    ):
        assert decode(encode(message), type(message)) == message


def _with_matrices(desired: Desired, matrices: dict[str, Matrix]) -> Desired:
    return replace(desired, weights=Weights("residual", matrices))


@pytest.mark.parametrize(
    ("count", "reason"),
    [(True, "type"), (1.0, "type"), ("1", "type"), (-1, "range"), (2**53, "range")],
)
def test_one_bad_count_among_good_ones_is_refused_by_name(count: Any, reason: str) -> None:
    """Counts are checked together first: the one that does not fit must not hide among them."""
    good: dict[str, Any] = {"readings": 7, "learned": 2**53 - 1, "duplicates": 0}
    with pytest.raises(WireError, match=r"status\.counts\.stale") as caught:
        Status(online=True, layout_version=1, model_version=1, counts={**good, "stale": count})
    assert caught.value.reason == reason
    assert Status(online=True, layout_version=1, model_version=1, counts=good).counts == good
