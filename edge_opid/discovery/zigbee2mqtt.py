"""zigbee2mqtt: `<base>/bridge/devices` says what every device exposes, with unit and kind.

The state of a device is JSON on `<base>/<friendly name>`: capitals and blanks are usual there, and
a slash is allowed. An exposed value with `features` is a light, a lock or the like, whose features
are values themselves; those of a `composite` stand one level deeper in the JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edge_opid.discovery.heard import Heard
from edge_opid.discovery.values import (
    DIAGNOSTIC,
    Finding,
    Unmapped,
    Value,
    diagnostic,
    is_word,
    joined,
    quoted_words,
    spelled,
)

SYSTEM = "zigbee2mqtt"
DEVICES = "/bridge/devices"
PUBLISHED = 1  # a bit of `access`: the value is in the state
DEPTH_MAX = 8  # of features in features; a light has two levels, and anybody may publish this


def find(heard: Heard) -> Iterator[Finding]:
    """Every value of every device of every bridge."""
    for topic, said in heard.topics.items():
        devices = said.document if topic.endswith(DEVICES) else None
        for each in devices if isinstance(devices, list) else ():
            if isinstance(each, dict):
                yield from _device(topic.removesuffix(DEVICES), each)


def _device(base: str, device: dict[str, Any]) -> Iterator[Finding]:
    name, definition = device.get("friendly_name"), device.get("definition")
    if not isinstance(name, str) or device.get("type") == "Coordinator":
        return
    exposes = definition.get("exposes") if isinstance(definition, dict) else None
    for each in exposes if isinstance(exposes, list) else ():
        yield from _exposed(base, name, "", each, DEPTH_MAX)


def _exposed(base: str, name: str, path: str, expose: Any, depth: int) -> Iterator[Finding]:
    """One exposed value, or the values within it, so many levels down."""
    if not isinstance(expose, dict) or not depth:
        return
    key, kind, features = expose.get("property"), expose.get("type"), expose.get("features")
    if isinstance(features, list):
        within = joined(path, key) if kind == "composite" and isinstance(key, str) else path
        for each in features:
            yield from _exposed(base, name, within or path, each, depth - 1)
    elif isinstance(key, str):
        yield _value(f"{base}/{name}", name, path, expose)


def _value(topic: str, name: str, path: str, expose: dict[str, Any]) -> Finding:
    key, unit = str(expose["property"]), expose.get("unit")
    whole = joined(path, key)
    if whole is None:
        return Unmapped(topic, key, "its name holds . [ ] { or }, a field's may not")
    if expose.get("category") == "diagnostic" or key in DIAGNOSTIC:
        return diagnostic(topic, whole)
    why = _obstacle(expose)
    if why:
        return Unmapped(topic, whole, why)
    return Value(
        system=SYSTEM,
        topic=topic,
        path=whole,
        device=name,
        measure=key,
        unit=unit if isinstance(unit, str) else "",
        binary=expose["type"] == "binary",
        words=(spelled(expose.get("value_on")), spelled(expose.get("value_off"))),
    )


def _obstacle(expose: dict[str, Any]) -> str:
    """Why it is no value for a node; empty where it is one."""
    access, kind = expose.get("access"), expose.get("type")
    on, off = expose.get("value_on"), expose.get("value_off")
    if not isinstance(access, int) or not access & PUBLISHED:
        return "it can be set but is not published"
    if expose.get("category") == "config":
        return "it is a setting of the device"
    if kind == "binary":
        return "" if is_word(on) and is_word(off) else quoted_words(on, off)
    return "" if kind == "numeric" else f"a value of type {kind} is no number"
