"""The bytes of schema version 1, pinned: nodes in the field speak them and cannot be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from edge_opid.wire import (
    LIMITS,
    MESSAGES_ON,
    READABLE,
    SCHEMA_VERSION,
    Ack,
    AllReadings,
    Asked,
    Confirmed,
    Desired,
    Example,
    InstanceId,
    Introduction,
    Label,
    Matrix,
    Message,
    Prediction,
    Reading,
    ScaleMeasured,
    SensorDeployed,
    SensorDescription,
    SensorRemeasured,
    SensorRetired,
    SensorReturned,
    SensorSilent,
    Status,
    SummaryMessage,
    Undo,
    Weights,
    WireError,
    decode,
    encode,
    open_desired,
    seal_desired,
    to_bytes,
    to_json,
)

GOLDEN = Path(__file__).parent / "golden"
NOON_MS = 1_700_000_000_000
KEY = SigningKey(bytes(range(32)))
INSTANCE = InstanceId("attic", boot=3, seq=12)

SENSORS = (
    SensorDescription(id="t-1", role="temp", reference=20.0, scale=5.0, timeout_s=60.0, unit="°C"),
    SensorDescription(
        id="pm-2", role="pm25", reference=12.0, scale=4.5, timeout_s=60.0, knots=(-2.0, 0.0, 2.0)
    ),
)

EXAMPLES: dict[str, Message] = {
    "reading": Reading(3, 12, NOON_MS, {"attic-temp": 21.5, "attic-hum": 48.0}, label="frisch"),
    "reading_unlabelled": Reading(3, 13, NOON_MS + 1000, {"attic-temp": -0.25}),
    "label_by_number": Label("frisch", instance=INSTANCE),
    "label_by_time": Label("schwül", time_ms=NOON_MS),
    "label_now": Label("schwül"),
    "label_of_a_stretch": Label("schwül", from_ms=NOON_MS, until_ms=NOON_MS + 7_200_000),
    "undo": Undo(),
    "undo_by_number": Undo(INSTANCE),
    "asked": Asked(
        instance=INSTANCE,
        time_ms=NOON_MS,
        label="schwül",
        confidence=0.5625,
        scores={"schwül": 0.5625, "frisch": 0.4375},
    ),
    "ack": Ack(3, 12),
    "confirmed": Confirmed(("1d62f0d1b4bae4e386bb5354f902e65f", "0" * 32)),
    "ack_behind": Ack(3, 12, newest=9),
    "prediction": Prediction(
        instance=INSTANCE,
        time_ms=NOON_MS,
        label="frisch",
        scores={"frisch": 0.75, "schwül": 0.25},
        model_version=7,
        layout_version=2,
        predictor="bridge",
    ),
    "prediction_sure": Prediction(
        instance=INSTANCE,
        time_ms=NOON_MS,
        label="unknown",
        scores={"frisch": 0.5625, "schwül": 0.4375},
        model_version=0,
        layout_version=2,
        predictor="own",
        confidence=0.5625,
    ),
    "status": Status(
        online=True,
        layout_version=2,
        model_version=7,
        time_ms=NOON_MS,
        counts={"readings": 5000, "refused-size": 1},
        accuracy={"bridge": 0.875},
        degraded=("disk full",),
    ),
    "status_obeying": Status(
        online=True, layout_version=2, model_version=7, time_ms=NOON_MS, version=8
    ),
    "status_last_will": Status.last_will(2, 7, 0),
    "sensor_retired": SensorRetired("pm-1", NOON_MS, "end of life"),
    "sensor_silent": SensorSilent("pm-1", NOON_MS, NOON_MS - 60_000),
    "sensor_returned": SensorReturned("pm-1", NOON_MS),
    "sensor_remeasured": SensorRemeasured("pm-1", NOON_MS),
    "scale_measured": ScaleMeasured(
        "pm-1", at_ms=NOON_MS, reference=12.5, scale=4.0, knots=(-8.0, 0.5, 8.0)
    ),
    "sensor_deployed": SensorDeployed(
        "pm-2",
        role="pm25",
        at_ms=NOON_MS,
        unit="µg/m³",
        reference=12.0,
        scale=4.5,
        knots=(-2.0, 0.0, 2.0),
        timeout_s=60.0,
        replaces="pm-1",
    ),
    "introduction": Introduction(
        version=8,
        layout_version=3,
        sensors=SENSORS,
        vanishing=("t-1",),
        gate=8.0,
        classes=("frisch", "schwül"),
        window_ms=500,
    ),
    "example": Example(INSTANCE, 3, NOON_MS, {"t-1": 21.5, "pm-2": 11.0}, "frisch"),
    "summary": SummaryMessage(
        layout_version=2,
        width=2,
        classes=2,
        sensors=("pm-1",),
        vanishing=("pm-1",),
        lam=1.0,
        rho=0.01,
        readings=5000,
        evidence=4990.5,
        gram=to_bytes([4.0, 1.0, 3.0]),
        moment=to_bytes([[1.0, -1.0], [0.5, -0.5]]),
    ),
    "summary_of_all_readings": SummaryMessage(
        layout_version=2,
        width=2,
        classes=2,
        sensors=("pm-1",),
        vanishing=("pm-1",),
        lam=1.0,
        rho=0.01,
        readings=50,
        evidence=49.5,
        gram=to_bytes([4.0, 1.0, 3.0]),
        moment=to_bytes([[1.0, -1.0], [0.5, -0.5]]),
        everything=AllReadings(
            readings=5000, evidence=4990.5, gram=to_bytes([400.0, 100.0, 300.0])
        ),
    ),
    "desired": Desired(
        site="farm",
        node="n1",
        version=8,
        layout_version=3,
        sensors=SENSORS,
        vanishing=("t-1",),
        gate=8.0,
        classes=("frisch", "schwül"),
        weights=Weights(
            "opide",
            {
                "W_survivors": Matrix.of([[1.0, -1.0]]),
                "V": Matrix.of([[0.5, 0.0], [0.0, 0.5]], "float16"),
            },
        ),
    ),
    "desired_gathering": Desired(
        site="farm",
        node="n1",
        version=9,
        layout_version=3,
        sensors=SENSORS,
        vanishing=("t-1",),
        gate=8.0,
        classes=("frisch", "schwül"),
        gather=30,
    ),
}


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", EXAMPLES)
def test_new_code_writes_the_bytes_that_nodes_in_the_field_know(name: str) -> None:
    """Nodes in the field and readings in their spools are in these bytes: none may change."""
    assert encode(EXAMPLES[name]) == golden(name), (
        f"the bytes of {name!r} have changed: senders and receivers of schema {SCHEMA_VERSION} "
        f"no longer understand each other. Give a new field a default (then it is not sent), or "
        f"raise SCHEMA_VERSION. The bytes are now {encode(EXAMPLES[name]).hex()}"
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_new_code_reads_the_bytes_of_older_releases(name: str) -> None:
    """What an older release sent still means the same."""
    assert decode(golden(name), type(EXAMPLES[name])) == EXAMPLES[name]


def test_the_seal_stays_as_it_is() -> None:
    """A retained `desired` of an older gateway must still open: magic, purpose and order."""
    desired = EXAMPLES["desired"]
    assert isinstance(desired, Desired)
    assert seal_desired(desired, KEY) == golden("desired_sealed")
    assert open_desired(golden("desired_sealed"), [KEY.verify_key]) == desired


IN_JSON = sorted(name for name, message in EXAMPLES.items() if type(message) in READABLE)


@pytest.mark.parametrize("name", IN_JSON)
def test_the_json_that_the_world_reads_stays_as_it_is(name: str) -> None:
    """Dashboards, templates of Home Assistant and alert rules know these names."""
    pinned = (GOLDEN / f"{name}.json").read_text().rstrip("\n").encode()
    assert to_json(EXAMPLES[name]) == pinned


@pytest.mark.parametrize("name", IN_JSON)
def test_a_message_in_json_says_what_it_says_in_msgpack(name: str) -> None:
    """A gateway hears nodes of both forms on one topic."""
    message = EXAMPLES[name]
    assert decode(to_json(message), type(message)) == decode(encode(message), type(message))


@pytest.mark.parametrize("name", sorted({*EXAMPLES} - {*IN_JSON}))
def test_what_machines_exchange_is_not_taken_in_json(name: str) -> None:
    """One form each is enough there, and none that is hundreds of times slower to refuse."""
    message = EXAMPLES[name]
    with pytest.raises(WireError):
        decode(b'{"v": 1, "kind": "' + message.kind.encode() + b'"}', type(message), SensorSilent)


def test_every_message_has_a_golden_file() -> None:
    """Every kind that can travel is pinned, and every pinned file is checked."""
    pinned = {type(message) for message in EXAMPLES.values()}
    assert pinned == {kind for kinds in MESSAGES_ON.values() for kind in kinds} | {Desired}
    files = {path.stem for path in GOLDEN.glob("*.hex")}
    assert files == {*EXAMPLES, "desired_sealed"}
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*IN_JSON}


def test_a_summary_of_the_usual_size_needs_less_than_the_limit() -> None:
    """75 columns and 3 classes: 12.3 kB of numbers, a sixth of the largest payload, and names.

    The sums of all readings are 11.4 kB more.
    """
    numbers, names = 75 * 76 // 2 + 75 * 3, tuple(f"s-{i:02}" for i in range(74))
    gram, moment = bytes(4 * 75 * 76 // 2), bytes(4 * 75 * 3)
    summary = SummaryMessage(
        layout_version=1,
        width=75,
        classes=3,
        sensors=names,
        vanishing=(),
        lam=1.0,
        rho=1.0,
        readings=10,
        evidence=10.0,
        gram=gram,
        moment=moment,
    )
    named = 4 * numbers + 74 * len("-s-00")
    assert named < len(encode(summary)) < named + 200 < LIMITS.payload_bytes_max / 5
    everything = AllReadings(readings=10, evidence=10.0, gram=gram)
    with_all = replace(summary, everything=everything)
    added = len(encode(with_all)) - len(encode(summary))
    assert 2 * 75 * 76 == len(gram) < added < len(gram) + 60
