"""A value that a node could use, or the reason why it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge_opid.errors import WireError, shown
from edge_opid.wire.foreign import STEP, look_up, read, steps, to_number
from edge_opid.wire.topics import ROOT, check_filter

DIAGNOSTIC = frozenset(
    {
        "battery", "battery_low", "battery_state", "heap", "id", "last_seen", "linkquality", "lqi",
        "rssi", "signal", "snr", "time", "timestamp", "update_available", "uptime", "uptimesec",
        "wifi", "wifi_signal",
    }
)  # fmt: skip
"""Names of what a device says about itself: its radio, its battery, its clock."""
PRESENCE = frozenset({"motion", "occupancy", "presence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of one topic. `path` leads to it in the JSON; empty, the payload is the value."""

    system: str  # who announced it: zigbee2mqtt, Home Assistant, Tasmota, ESPHome, nobody
    topic: str
    path: str
    device: str  # what people call the device
    measure: str  # what it measures
    unit: str = ""
    binary: bool = False
    words: tuple[str, str] = ("true", "false")  # what a binary value says for yes and no
    availability: str = ""  # the topic on which the device is said to be there, if it was announced

    @property
    def presence(self) -> bool:
        """Whether it says that somebody is there: then it may be the truth rather than a sensor."""
        return self.binary and any(each in self.measure.lower() for each in PRESENCE)


@dataclass(frozen=True, slots=True)
class Unmapped:
    """What was there, and why it is not among the proposals."""

    topic: str
    path: str
    why: str

    @property
    def what(self) -> str:
        """Topic and field."""
        return f"{self.topic}: {self.path}" if self.path else self.topic


Finding = Value | Unmapped


def checked(found: Finding, payload: bytes | None) -> Finding:
    """The value, if a node could subscribe to it and read what was last said there."""
    if isinstance(found, Unmapped):
        return found
    try:
        _check_topic(found.topic)
        if found.path:
            _check_path(found.path)
        said = None if payload is None else look_up(_read(found, payload), found.path)
        if said is not None:  # what is missing or null now may come later
            to_number(said, "it")
    except WireError as error:
        if error.reason != "nonfinite":  # so ESPHome says that there is no value right now
            return Unmapped(found.topic, found.path, str(error))
    return found


def _check_topic(topic: str) -> None:
    if "+" in topic or "#" in topic:
        raise WireError("topic", "a topic with + or # in its name cannot be subscribed to")
    check_filter(topic)
    if topic.partition("/")[0] == ROOT.partition("/")[0]:
        raise WireError("topic", "it belongs to edge-opid")


def _check_path(path: str) -> None:
    steps(path)
    if any("\ud800" <= each <= "\udfff" for each in path):  # JSON may escape half a character
        raise WireError("text", "its name is not text that a file can hold")


def _read(value: Value, payload: bytes) -> Any:
    return read(payload, plain=not value.path)


def example(value: Value, payload: bytes) -> float | None:
    """What it last said, as a node would read it."""
    try:
        found = look_up(_read(value, payload), value.path)
        return None if found is None else to_number(found, "it")
    except WireError:
        return None


def is_word(said: Any) -> bool:
    """Whether a node can read this: 21.5, true, ON, nan (no value right now), but not LOCK."""
    try:
        to_number(said, "it")
    except WireError as error:
        return error.reason == "nonfinite"
    return True


def spelled(said: Any) -> str:
    """A word as the values of a truth spell it: true and not True."""
    return str(said).lower() if isinstance(said, bool) else str(said)


def joined(path: str, step: str) -> str | None:
    """A path one step further; None where the name cannot be a step."""
    found = STEP.fullmatch(step)
    if found is None or found[2] is not None:  # a name like [0] would be taken for a place
        return None
    return f"{path}.{step}" if path else step


def diagnostic(topic: str, path: str) -> Unmapped:
    """What a device says about itself says nothing about the place it is in."""
    return Unmapped(topic, path, "it is about the device itself, not its surroundings")


def quoted_words(on: Any, off: Any) -> str:
    """Two words in a reason."""
    return f"it says {shown(on)} and {shown(off)}, a node reads numbers, on, off, true and false"
