"""Round trips of any valid message, and any bytes at all: only WireError may come out."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_wire_golden import EXAMPLES, KEY, golden

from edge_opid.wire import (
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
    NodeTopics,
    Prediction,
    Reading,
    SensorDeployed,
    SensorDescription,
    SensorRetired,
    SensorReturned,
    SensorSilent,
    Status,
    SummaryMessage,
    Topic,
    Weights,
    WireError,
    decode,
    encode,
    open_desired,
    to_bytes,
)

# No database: a failing example is printed, and a test leaves no files behind.
BOUNDED = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
THOROUGH = settings(BOUNDED, max_examples=300)
ALL_KINDS: list[type[Message]] = [
    *{kind for kinds in MESSAGES_ON.values() for kind in kinds},
    Desired,
]

ids = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True)
lines = st.text(min_size=1, max_size=16).filter(str.isprintable)
counts = st.integers(0, 2**53 - 1)
ordinals = st.integers(1, 2**53 - 1)
numbers = st.floats(-3e38, 3e38)
positives = st.floats(1e-30, 1e30)
knots = st.lists(st.integers(-1000, 1000), min_size=2, max_size=8, unique=True).map(
    lambda found: tuple(float(knot) for knot in sorted(found))
)
instances = st.builds(InstanceId, ids, counts, ordinals)
scores = st.dictionaries(lines, numbers, min_size=1, max_size=4)
name_tuples = st.lists(ids, max_size=4, unique=True).map(tuple)


@st.composite
def predictions(draw: st.DrawFn) -> Prediction:
    found = draw(scores)
    best = max(found, key=found.__getitem__)
    return Prediction(
        instance=draw(instances),
        time_ms=draw(counts),
        label=best,
        scores=found,
        model_version=draw(counts),
        layout_version=draw(counts),
    )


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    rows, cols = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    row = st.lists(st.floats(-6e4, 6e4), min_size=cols, max_size=cols)
    values = draw(st.lists(row, min_size=rows, max_size=rows))
    return Matrix.of(values, draw(st.sampled_from(["float32", "float16"])))


@st.composite
def summaries(draw: st.DrawFn) -> SummaryMessage:
    width, classes = draw(st.integers(1, 6)), draw(st.integers(2, 4))
    single = st.floats(width=32, allow_nan=False, allow_infinity=False)
    size = width * (width + 1) // 2
    gram = to_bytes(draw(st.lists(single, min_size=size, max_size=size)))
    size = width * classes
    moment = to_bytes(draw(st.lists(single, min_size=size, max_size=size)))
    sensors = draw(name_tuples)
    vanishing = tuple(each for each in sensors if draw(st.booleans()))
    return SummaryMessage(
        layout_version=draw(counts),
        width=width,
        classes=classes,
        sensors=sensors,
        vanishing=vanishing,
        lam=draw(positives),
        rho=draw(positives),
        readings=draw(counts),
        evidence=draw(positives),
        gram=gram,
        moment=moment,
    )


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    """Sensors, those that vanish, the gate and the classes."""
    sensors = tuple(
        SensorDescription(
            id=name,
            role=f"r{position}",
            reference=draw(numbers),
            scale=draw(positives),
            timeout_s=draw(positives),
            knots=draw(st.just(()) | knots),
            unit=draw(st.none() | lines),
        )
        for position, name in enumerate(draw(st.lists(ids, min_size=1, max_size=4, unique=True)))
    )
    classes = tuple(draw(st.lists(lines, min_size=2, max_size=4, unique=True)))
    vanishing = tuple(each.id for each in sensors if draw(st.booleans()))
    return {
        "sensors": sensors,
        "vanishing": vanishing,
        "gate": draw(positives),
        "classes": classes,
    }


@st.composite
def desireds(draw: st.DrawFn) -> Desired:
    model = st.builds(
        Weights, ids, st.dictionaries(st.sampled_from("WVBw"), matrices(), max_size=3)
    )
    return Desired(
        draw(ids),
        draw(ids),
        version=draw(ordinals),
        layout_version=draw(ordinals),
        **draw(layouts()),
        weights=draw(st.none() | model),
        gather=draw(st.integers(0, 100_000)),
    )


@st.composite
def introductions(draw: st.DrawFn) -> Introduction:
    return Introduction(
        version=draw(counts),
        layout_version=draw(counts),
        **draw(layouts()),
        window_ms=draw(counts),
    )


valid_messages = st.one_of(
    st.builds(
        Reading,
        boot=counts,
        seq=ordinals,
        time_ms=counts,
        values=st.dictionaries(ids, numbers, min_size=1, max_size=8),
        label=st.none() | lines,
    ),
    st.builds(Label, label=lines, instance=instances),
    st.builds(Label, label=lines, time_ms=counts),
    st.builds(Ack, counts, counts),
    predictions(),
    st.builds(
        Status,
        online=st.booleans(),
        layout_version=counts,
        model_version=counts,
        time_ms=st.none() | counts,
        counts=st.dictionaries(ids, counts, max_size=4),
        accuracy=st.dictionaries(ids, st.floats(0, 1), max_size=3),
        degraded=st.lists(lines, max_size=3).map(tuple),
        version=counts,
    ),
    st.builds(SensorRetired, ids, counts, lines),
    st.builds(SensorSilent, ids, counts, counts),
    st.builds(SensorReturned, ids, counts),
    st.builds(
        SensorDeployed,
        ids,
        role=ids,
        at_ms=counts,
        unit=st.none() | lines,
        reference=st.none() | numbers,
        scale=st.none() | positives,
        knots=st.just(()) | knots,
        timeout_s=st.none() | positives,
        replaces=st.none() | st.just("the-one-before"),
    ),
    st.builds(Example, instances, counts, counts, st.dictionaries(ids, numbers, max_size=8), lines),
    introductions(),
    summaries(),
    desireds(),
)


@THOROUGH
@given(valid_messages)
def test_a_valid_message_survives_the_journey(message: Message) -> None:
    """Encoded and decoded it is equal, and its bytes are the same again."""
    payload = encode(message)
    again = decode(payload, type(message))
    assert again == message
    assert encode(again) == payload


@BOUNDED
@given(ids, ids, st.sampled_from(Channel), ids)
def test_a_topic_of_valid_ids_parses_back(
    site: str, node: str, channel: Channel, source: str
) -> None:
    """Built from ids, it parses back to the same ids and to nobody else's."""
    topic = NodeTopics(site, node).to(channel, source if channel.per_source else None)
    assert Topic.parse(str(topic)) == topic


@THOROUGH
@given(st.text() | st.builds("opid/1/{}/{}/{}".format, st.text(), st.text(), st.text()))
def test_any_text_is_a_topic_or_refused(text: str) -> None:
    """It is a topic that spells itself, or a WireError."""
    reason = "none"
    try:
        assert str(Topic.parse(text)) == text
    except WireError as error:
        reason = error.reason
    assert reason in ("none", "topic", "id")


def survives(payload: bytes, kinds: list[type[Message]]) -> None:
    """Decoded to something that encodes, or refused with a countable word; nothing else."""
    for kind in kinds:
        said = ""
        try:
            encode(decode(payload, kind))
        except WireError as error:
            said = f"{error.reason}: {error}"
        assert said.isprintable()
        assert len(said) < 400
    with pytest.raises(WireError):  # nobody signs by accident
        open_desired(payload, [KEY.verify_key])


def test_random_bytes_are_decoded_or_refused() -> None:
    """2,000 payloads of noise, to every kind of message."""
    noise = random.Random(1)
    for _ in range(2_000):
        survives(noise.randbytes(noise.randrange(80)), ALL_KINDS)


def mutated(payload: bytes, chance: random.Random) -> bytes:
    """A few bytes overwritten, removed, repeated or inserted."""
    altered = bytearray(payload)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(altered) + 1)
        stop = min(len(altered), start + chance.randrange(8))
        fresh = chance.choice([b"", chance.randbytes(1), bytes(altered[start:stop]) * 2])
        altered[start : chance.choice([start, start + 1, stop])] = fresh
    return bytes(altered)


@pytest.mark.parametrize("name", EXAMPLES)
def test_mutated_messages_are_decoded_or_refused(name: str) -> None:
    """1,500 damaged copies of each golden message, read as what they were."""
    chance = random.Random(name)
    for _ in range(1_500):
        survives(mutated(golden(name), chance), [type(EXAMPLES[name])])
    assert decode(golden(name), type(EXAMPLES[name])) == EXAMPLES[name]
