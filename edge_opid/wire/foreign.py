"""Readings of devices that know nothing of us: what zigbee2mqtt, Tasmota and ESPHome publish.

The configuration says which topics, which fields, and which sensors those are. Names come from it
and from the topic, never from a payload. The rules, in order: the size; the text; then each field
by itself, because one dead probe must not take its neighbours with it:

- a number, `true` or `false`, a text like `21.5`, `on` or `OFF` has a value;
- a field that is not there, or null, is skipped (the caller counts how many);
- one that is something else, NaN or infinite is skipped as well.

When nothing is left, that is an error, with the reason of the first field that was unfit. These
senders keep no spool and count nothing: what is lost on the way is lost, but nothing comes twice
from us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from edge_opid.errors import WireError, shown
from edge_opid.wire.ids import check_id
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.schema import Text
from edge_opid.wire.topics import Filter

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
NUMBER_CHARS_MAX = 64  # no sensor has more digits, and the pattern is slow on thousands of them
WORDS = {"on": 1.0, "off": 0.0, "true": 1.0, "false": 0.0}
STEP = re.compile(r"(?:^|(?<!^)\.)([^.\[\]{}]+)|\[([0-9]{1,4})\]")
STEPS_MAX = 16  # deeper than any device's message
PLACE = re.compile(r"\{([0-9]{1,2})\}")


@dataclass(frozen=True)
class ForeignTopic:
    """Where a device publishes, and which of our sensors its fields are.

    `fields` maps paths into a JSON object to sensor ids, or is one sensor id if the payload is a
    plain number. In the ids and in `source`, `{1}` stands for what the first `+` matched.

    >>> attic = ForeignTopic("zigbee2mqtt/+", "{1}", {"temperature": "{1}-temp"})
    >>> attic.source_of("zigbee2mqtt/attic")
    'attic'
    >>> parse(b'{"temperature": 21.5, "linkquality": 90}', "zigbee2mqtt/attic", attic)
    ({'attic-temp': 21.5}, None)
    >>> ForeignTopic("zigbee2mqtt/attic", "attic", {"temperature": "{1}-temp"})
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: sensor '{1}-temp' must use {1} to {0}, one for each + in \
'zigbee2mqtt/attic'
    """

    topic_filter: str
    source: str
    fields: Mapping[str, str] | str
    label_field: str | None = None
    availability: str = ""
    places: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", Filter(self.topic_filter).text.split("/").count("+"))
        self._check_name(self.source, "source")
        sensors = list(self.sensors.values())
        if not 0 < len(sensors) <= LIMITS.sensors_max or len(set(sensors)) < len(sensors):
            raise WireError(
                "content",
                f"fields of {self.topic_filter!r} must name 1 to {LIMITS.sensors_max} sensors, "
                f"each once, got {shown(sensors)}",
            )
        for path, sensor in self.sensors.items():
            self._check_name(sensor, "sensor")
            if path or not self.plain:
                steps(path)
        if self.label_field is not None:
            steps(self.label_field)
        if self.availability and Filter(self.availability).text.split("/").count("+") < self.used:
            raise WireError(
                "topic",
                f"availability {shown(self.availability)} must have a + for each that the ids of "
                f"{shown(self.topic_filter)} use",
            )

    @property
    def used(self) -> int:
        """How many of the + the ids of sensors refer to."""
        places = [int(each) for name in self.sensors.values() for each in PLACE.findall(name)]
        return max(places, default=0)

    def sensors_of(self, topic: str) -> list[str]:
        """Whose availability is told on this topic."""
        wanted = self.availability.split("/")
        matched = [
            level for want, level in zip(wanted, topic.split("/"), strict=False) if want == "+"
        ]
        return [fill(name, matched, "sensor") for name in self.sensors.values()]

    @property
    def plain(self) -> bool:
        """Whether the payload is one number rather than JSON."""
        return isinstance(self.fields, str)

    @property
    def sensors(self) -> Mapping[str, str]:
        """Path → sensor; the path of a plain number is empty."""
        return {"": self.fields} if isinstance(self.fields, str) else self.fields

    def source_of(self, topic: str) -> str:
        """Whose reading it is: numbers and rate limits are per source."""
        return fill(self.source, self.matched(topic), "source")

    def matched(self, topic: str) -> list[str]:
        """What each `+` stands for in this topic, or a WireError."""
        if not Filter(self.topic_filter).matches(topic):
            raise WireError("topic", f"topic {shown(topic)} does not match {self.topic_filter!r}")
        wanted = self.topic_filter.split("/")
        return [level for want, level in zip(wanted, topic.split("/"), strict=False) if want == "+"]

    def _check_name(self, template: str, what: str) -> None:
        if any(not 1 <= int(place) <= self.places for place in PLACE.findall(template)):
            raise WireError(
                "id",
                f"{what} {shown(template)} must use {{1}} to {{{self.places}}}, one for each + "
                f"in {shown(self.topic_filter)}",
            )
        check_id(PLACE.sub("x", template), what)


@dataclass(frozen=True)
class TruthTopic:
    """Where somebody publishes what is so, and which class each value means.

    >>> door = TruthTopic("stat/door/STATE", "", {"on": "open", "off": "shut"})
    >>> door.label_in(b"ON")
    'open'
    >>> TruthTopic("home/mode", "mode", {}).label_in(b'{"battery": 97}') is None
    True
    >>> door.label_in(b"unavailable")
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: 'unavailable' of 'stat/door/STATE' is no class; known are \
['on', 'off']
    """

    topic_filter: str
    field: str
    values: Mapping[str, str]

    def __post_init__(self) -> None:
        Filter(self.topic_filter)
        if self.field:
            steps(self.field)

    def label_in(self, payload: bytes) -> str | None:
        """The class that this message means; None where the field is not in it.

        A value is compared as it would be written in JSON, without quotes; where that is not among
        the values, without regard to capitals: devices say on, On and ON.
        """
        found = look_up(read(payload, plain=not self.field), self.field)
        if found is None:
            return None
        text = found.strip() if isinstance(found, str) else _spelled(found, self.field)
        if not self.values:
            Text().check(text, f"truth in {self.topic_filter}")
            return text
        for wanted in (text, text.lower()):
            if wanted in self.values:
                return self.values[wanted]
        raise WireError(
            "truth-value",
            f"{shown(text)} of {self.topic_filter!r} is no class; known are {list(self.values)}",
        )


ONLINE = ("online", "available", "connected", "true")
OFFLINE = ("offline", "unavailable", "disconnected", "false")


def is_online(payload: bytes) -> bool:
    """Whether a device says that it is there: a word, or JSON with one under `state`.

    Devices say so on a topic beside their values (zigbee2mqtt's `<name>/availability`, Tasmota's
    `LWT`, ESPHome's `status`), and the broker says it for them when they die.

    >>> is_online(b'{"state": "online"}'), is_online(b"Offline")
    (True, False)
    """
    said = read(payload, plain=payload[:1] != b"{")
    found = look_up(said, "state") if isinstance(said, dict) else said
    text = json.dumps(found) if isinstance(found, bool) else found
    text = text.strip().lower() if isinstance(text, str) else ""
    if text not in (*ONLINE, *OFFLINE):
        known = f"{', '.join(ONLINE)} or {', '.join(OFFLINE)}"
        raise WireError("content", f"{described(found)} must be one of {known}")
    return text in ONLINE


def _spelled(value: Any, where: str) -> str:
    if not isinstance(value, (int, float)):
        raise WireError("type", f"{where} must be a word, a number or a truth, got a JSON object")
    return json.dumps(value)


def parse(
    payload: bytes, topic: str, mapping: ForeignTopic, unfit: list[WireError] | None = None
) -> tuple[dict[str, float], str | None]:
    """The values by sensor, and the label if there is one. Raises WireError and nothing else.

    What is wrong with the fields that were skipped, though they were there, goes to `unfit`.

    >>> heating = ForeignTopic("tele/+/SENSOR", "heating", {"AM2301.Temperature": "{1}"}, "Mode")
    >>> parse(b'{"Mode": "eco", "AM2301": {"Temperature": "19.5"}}', "tele/hall/SENSOR", heating)
    ({'hall': 19.5}, 'eco')
    >>> parse(b"ON", "stat/pump/POWER", ForeignTopic("stat/pump/POWER", "pump", "pump"))
    ({'pump': 1.0}, None)
    """
    matched = mapping.matched(topic)
    document = read(payload, plain=mapping.plain)
    values: dict[str, float] = {}
    unfit = [] if unfit is None else unfit
    for path, template in mapping.sensors.items():
        try:
            sensor = fill(template, matched, "sensor")
            found = look_up(document, path)
            if found is not None:
                values.setdefault(sensor, to_number(found, path or "payload"))
        except WireError as error:
            unfit.append(error)
    if not values:
        raise (
            unfit[0]
            if unfit
            else WireError("missing", f"none of {shown(list(mapping.sensors))} in {topic!r}")
        )
    return values, label_of(document, mapping.label_field)


def read(payload: bytes, *, plain: bool) -> Any:
    """The payload as text, or as what its JSON says. Size first."""
    if len(payload) > LIMITS.small_payload_bytes_max:
        raise WireError(
            "size", f"payload must be at most {LIMITS.small_payload_bytes_max}, got {len(payload)}"
        )
    try:
        text = payload.decode()
        return text if plain else json.loads(text)
    except RecursionError:
        raise WireError("nesting", "payload is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise WireError("format", f"payload cannot be read: {shown(str(error))}") from None


@lru_cache(maxsize=256)
def steps(path: str) -> tuple[str | int, ...]:
    """The way into a document, step by step.

    >>> steps("readings[0].value")
    ('readings', 0, 'value')
    """
    found = list(STEP.finditer(path))
    if "".join(each[0] for each in found) != path or not 0 < len(found) <= STEPS_MAX:
        raise WireError("text", f"field path must be like a.b[0].c, got {shown(path)}")
    return tuple(each[1] if each[2] is None else int(each[2]) for each in found)


def look_up(document: Any, path: str) -> Any:
    """What is at the end of the path; None if the way is barred. An empty path is all of it."""
    for step in steps(path) if path else ():
        if isinstance(step, str) and isinstance(document, dict):
            document = document.get(step)
        elif isinstance(step, int) and isinstance(document, list) and step < len(document):
            document = document[step]
        else:
            return None
    return document


def to_number(value: Any, where: str) -> float:
    """A value as float32 can hold it.

    >>> [to_number(each, "battery") for each in (87, True, " 3.5e1", "OFF")]
    [87.0, 1.0, 35.0, 0.0]
    """
    if isinstance(value, str):
        value = _from_text(value.strip())
    if not isinstance(value, (float, int)):
        raise WireError("type", f"{where} must be a number, on or off, got {described(value)}")
    if not -LIMITS.number_max <= value <= LIMITS.number_max:  # false for NaN, too
        raise WireError("nonfinite", f"{where} must be finite in float32, got {described(value)}")
    return float(value)


def _from_text(text: str) -> float | str:
    if len(text) <= NUMBER_CHARS_MAX and NUMBER.fullmatch(text):
        return float(text)
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float("nan")  # ESPHome says so of a sensor that has no value
    return WORDS.get(text.lower(), text)


def described(value: Any) -> str:
    """A value for an error's sentence. Never the repr of what is nested: it may recurse too far."""
    return shown(value) if isinstance(value, (str, float)) else f"a JSON {type(value).__name__}"


def label_of(document: Any, path: str | None) -> str | None:
    """The label, if the device knows it: one line of text, or a whole number or truth as JSON."""
    found = None if path is None else look_up(document, path)
    if isinstance(found, int):
        found = json.dumps(found)
    if found is None:
        return None
    if not isinstance(found, str):
        raise WireError("type", f"label field {path} must be text, got {described(found)}")
    Text().check(found, f"label field {path}")
    return found


def fill(template: str, matched: list[str], what: str) -> str:
    """An id with what the topic says in the places; checked, because anyone may name a topic."""
    return check_id(PLACE.sub(lambda place: matched[int(place[1]) - 1], template), what)
