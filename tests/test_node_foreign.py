"""What devices that know nothing of us may send, and what becomes of it."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_opid.wire import LIMITS, WireError, check_id
from edge_opid.wire.foreign import ForeignTopic, parse

PLAIN = ForeignTopic("stat/pump/POWER", "pump", "pump")
CLIMATE = ForeignTopic(
    "zigbee2mqtt/+", "zigbee", {"temperature": "{1}-temp", "battery": "{1}-battery"}, "mode"
)
NESTED = ForeignTopic("tele/x", "x", {"AM2301.Temperature": "t", "readings[1].value": "r"})


def plain(payload: bytes) -> dict[str, float]:
    return parse(payload, "stat/pump/POWER", PLAIN)[0]


def climate(payload: bytes) -> tuple[dict[str, float], str | None]:
    return parse(payload, "zigbee2mqtt/attic", CLIMATE)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"21.5", 21.5),
        (b" -3\n", -3.0),
        (b"1e3", 1000.0),
        (b".5", 0.5),
        (b"on", 1.0),
        (b"OFF", 0.0),
        (b"true", 1.0),
        (b"False", 0.0),
    ],
)
def test_plain_numbers_and_switches_are_read(payload: bytes, value: float) -> None:
    """What ESPHome states and Tasmota power topics look like."""
    assert plain(payload) == {"pump": value}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"nan", "nonfinite"),
        (b"-Infinity", "nonfinite"),
        (b"1e39", "nonfinite"),
        (b"1e99999", "nonfinite"),
        (b"1_000", "type"),
        ("٣".encode(), "type"),
        (b"21.5 C", "type"),
        (b"0x10", "type"),
        (b"", "type"),
        (b"9" * 8_000, "type"),
        (b"\xff\xfe", "format"),
        (b"1" * (LIMITS.small_payload_bytes_max + 1), "size"),
    ],
)
def test_plain_payload_that_is_no_number_is_refused(payload: bytes, reason: str) -> None:
    """Python's own float() would take some of these."""
    with pytest.raises(WireError) as caught:
        plain(payload)
    assert caught.value.reason == reason


def test_real_messages_of_zigbee_and_tasmota_are_understood() -> None:
    """Numbers, truths and texts; nested objects and lists; fields nobody asked for."""
    zigbee = b'{"battery":97,"linkquality":120,"temperature":"21.53","mode":"eco"}'
    assert climate(zigbee) == ({"attic-temp": 21.53, "attic-battery": 97.0}, "eco")
    tasmota = b'{"Time":"2026-01-01","AM2301":{"Temperature":3},"readings":[{},{"value":true}]}'
    assert parse(tasmota, "tele/x", NESTED) == ({"t": 3.0, "r": 1.0}, None)


@pytest.mark.parametrize("dead", [b"null", b"NaN", b"Infinity", b'"nan"', b"[]", b"1e999", b"{}"])
def test_dead_probe_does_not_take_its_neighbour_with_it(dead: bytes) -> None:
    """One field is unfit: the others of the message are still values."""
    values, label = climate(b'{"temperature": %s, "battery": 9}' % dead)
    assert values == {"attic-battery": 9.0}
    assert label is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{}", "missing"),
        (b"21.5", "missing"),
        (b'[{"temperature": 1}]', "missing"),
        (b'{"temperature": null}', "missing"),
        (b'{"temperature": NaN}', "nonfinite"),
        (b'{"temperature": ' + b"9" * 400 + b"}", "nonfinite"),
        (b'{"temperature": ' + b"9" * 5_000 + b"}", "format"),
        (b'{"temperature": [1]}', "type"),
        (b'{"temperature": 1', "format"),
        (b'{"temperature": 1, "mode": {}}', "type"),
        (b'{"temperature": 1, "mode": "a\\nb"}', "text"),
        (b'{"temperature": 1, "mode": "\\ud800"}', "text"),
        (b'{"temperature": 1, "mode": "' + b"x" * 65 + b'"}', "length"),
    ],
)
def test_json_without_a_usable_field_is_refused(payload: bytes, reason: str) -> None:
    """The reason is what a person needs to mend the configuration."""
    with pytest.raises(WireError) as caught:
        climate(payload)
    assert caught.value.reason == reason


@pytest.mark.parametrize("opening", [b'{"temperature":', b'{"battery":1,"mode":'])
def test_depth_bomb_is_refused_at_every_depth(opening: bytes) -> None:
    """Also at the depths that can be read, but not be quoted in an error."""
    for depth in [*range(1, 1_100), 2_000, 4_000, 8_000]:
        bomb = opening + b"[" * depth
        with pytest.raises(WireError):
            climate(bomb)
        with pytest.raises(WireError):
            climate(bomb + b"]" * depth + b"}")
    assert climate(b'{"battery": 1}') == ({"attic-battery": 1.0}, None)


def test_long_text_of_digits_costs_no_time() -> None:
    """A pattern that backtracks over 8,000 digits would stop the node for a second."""
    started = time.perf_counter()
    for _ in range(50):
        with pytest.raises(WireError):
            plain(b"1" * 8_000 + b"x")
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("level", ["Attic", "a b", "", "x" * 33, "ü", "{1}"])
def test_topic_that_makes_no_id_is_refused(level: str) -> None:
    """Anyone may publish under any name; ours are built from ids alone."""
    with pytest.raises(WireError) as caught:
        parse(b'{"temperature": 1}', f"zigbee2mqtt/{level}", CLIMATE)
    assert caught.value.reason == "id"


def test_topic_of_somebody_else_is_refused() -> None:
    """A filter is checked again here, whatever the broker delivered."""
    with pytest.raises(WireError) as caught:
        parse(b'{"temperature": 1}', "zigbee2mqtt/attic/availability", CLIMATE)
    assert caught.value.reason == "topic"


def test_two_fields_that_become_one_sensor_keep_the_first() -> None:
    """`{1}` may turn into the name of a sensor that is spelled out."""
    mapping = ForeignTopic("z/+", "z", {"a": "attic", "b": "{1}"})
    assert parse(b'{"b": 2, "a": 1}', "z/attic", mapping) == ({"attic": 1.0}, None)
    assert parse(b'{"b": 2, "a": 1}', "z/hall", mapping) == ({"attic": 1.0, "hall": 2.0}, None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic_filter": "a/#/b"}, "topic"),
        ({"source": "A"}, "id"),
        ({"fields": {"a": "{2}"}}, "id"),
        ({"fields": {"a": "{0}"}}, "id"),
        ({"fields": {"a": "{}"}}, "id"),
        ({"fields": "a/b"}, "id"),
        ({"fields": {}}, "content"),
        ({"fields": {"a": "t", "b": "t"}}, "content"),
        ({"fields": {"": "t"}}, "text"),
        ({"fields": {".a": "t"}}, "text"),
        ({"fields": {"a..b": "t"}}, "text"),
        ({"fields": {"a[x]": "t"}}, "text"),
        ({"fields": {"a[0]b": "t"}}, "text"),
        ({"fields": {".".join("a" * 17): "t"}}, "text"),
        ({"label_field": "a."}, "text"),
    ],
    ids=str,
)
def test_mistaken_configuration_is_refused_before_anything_arrives(
    options: dict[str, object], reason: str
) -> None:
    """A wrong path would otherwise be a sensor that is silent for ever."""
    good: dict[str, object] = {"topic_filter": "z/+", "source": "z", "fields": {"a": "t"}}
    with pytest.raises(WireError) as caught:
        ForeignTopic(**{**good, **options})  # type: ignore[arg-type]
    assert caught.value.reason == reason
    ForeignTopic(**good)  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["temperature", "battery", "mode", "AM2301", "value"]), inner
        )
    ),
    max_leaves=8,
)
PAYLOADS = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())


def parsed(
    payload: bytes, topic: str, mapping: ForeignTopic
) -> tuple[dict[str, float], str | None] | WireError:
    try:
        return parse(payload, topic, mapping)
    except WireError as error:
        return error


@settings(max_examples=400, deadline=None)
@given(PAYLOADS, st.text(max_size=8))
@example(b'{"temperature":' + b"[" * 990, "attic")
def test_any_bytes_give_finite_values_or_a_wire_error(payload: bytes, level: str) -> None:
    """Whatever arrives, under whatever name."""
    for mapping, topic in [
        (PLAIN, "stat/pump/POWER"),
        (CLIMATE, f"zigbee2mqtt/{level}"),
        (CLIMATE, "zigbee2mqtt/attic"),
        (NESTED, "tele/x"),
        (NESTED, level),
    ]:
        outcome = parsed(payload, topic, mapping)
        if isinstance(outcome, WireError):
            assert outcome.reason
            assert str(outcome).isprintable()
        else:
            values, label = outcome
            assert values
            assert all(type(value) is float and math.isfinite(value) for value in values.values())
            assert all(check_id(sensor, "sensor") for sensor in values)
            assert label is None or label.isprintable()
