"""Home Assistant's discovery: `<prefix>/<component>/[<node>/]<object>/config`, by anybody.

ESPHome, Tasmota, Shelly and many others announce so. Keys may be abbreviated, `~` in a topic stands
for a common beginning, and `<prefix>/device/<object>/config` announces several at once. Where the
value stands in the payload is a template; nearly all of them are a path with a filter behind it
(`{{ value_json.temperature | round(1) }}`), and those are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from edge_opid.discovery.heard import Heard
from edge_opid.discovery.values import (
    Finding,
    Unmapped,
    Value,
    diagnostic,
    is_word,
    joined,
    quoted_words,
    spelled,
)
from edge_opid.errors import shown
from edge_opid.wire.foreign import OFFLINE, ONLINE

SYSTEM = "Home Assistant discovery"
TOPIC = re.compile(r"[^/]+/([a-z_]+)/(?:([^/]+)/)?([^/]+)/config")
ABBREVIATED = {
    "avty": "availability",
    "avty_t": "availability_topic",
    "cmps": "components",
    "dev": "device",
    "dev_cla": "device_class",
    "ent_cat": "entity_category",
    "p": "platform",
    "pl_avail": "payload_available",
    "pl_not_avail": "payload_not_available",
    "pl_off": "payload_off",
    "pl_on": "payload_on",
    "stat_t": "state_topic",
    "unit_of_meas": "unit_of_measurement",
    "val_tpl": "value_template",
}
OURS = "opid_"
"""What nodes begin with that announce themselves: no sensor of another node."""
MEASURING = ("sensor", "binary_sensor")
NO_NUMBERS = ("date", "enum", "timestamp")
TEMPLATE_CHARS_MAX = 300  # a longer one is a program, and the pattern must not be slow on it
HARMLESS = r"(?:\s*\|\s*(?:round|float|int|default|is_defined)(?:\([^()]*\))?)*"
PLAIN_TEMPLATE = re.compile(rf"\{{\{{\s*value{HARMLESS}\s*\}}\}}")
PATH_TEMPLATE = re.compile(
    rf"\{{\{{\s*value_json((?:\.\w+|\[(?:'[^']+'|\"[^\"]+\"|\d+)\])+){HARMLESS}\s*\}}\}}"
)
STEP = re.compile(r"\.(\w+)|\['([^']+)'\]|\[\"([^\"]+)\"\]|\[(\d+)\]")


def is_announcement(topic: str) -> bool:
    """Whether devices announce themselves there."""
    found = TOPIC.fullmatch(topic)
    return found is not None and (found[1] in (*MEASURING, "device") or found[2] is not None)


def is_node(topic: str) -> bool:
    """Whether a node of ours announces itself, or tells what has happened, there."""
    levels = topic.split("/")
    return len(levels) == 4 and levels[1] == "device" and levels[2].startswith(OURS)


def find(heard: Heard) -> Iterator[Finding]:
    """Every value that was announced."""
    for topic, said in heard.topics.items():
        place = TOPIC.fullmatch(topic)
        config = said.document if place is not None and is_announcement(topic) else None
        if place is None or not isinstance(config, dict) or is_node(topic):
            continue
        config = _spelled_out(config)
        if place[1] == "device":
            components = config.get("components")
            for key, each in components.items() if isinstance(components, dict) else ():
                if isinstance(each, dict):
                    one = {**config, **_spelled_out(each)}
                    yield from _component(str(one.get("platform")), one, "", str(key))
        else:
            yield from _component(place[1], config, place[2] or "", place[3])


def _component(kind: str, config: dict[str, Any], node: str, name: str) -> Iterator[Finding]:
    topic = config.get("state_topic")
    if kind not in MEASURING or not isinstance(topic, str):
        return  # lights, buttons, updates: nothing is measured there
    topic = _with_base(topic, config.get("~"))
    path = _path(config.get("value_template"))
    if path is None:
        template = shown(config["value_template"])
        yield Unmapped(topic, f"({name})", f"its template {template} is more than a path")
    elif config.get("entity_category") in ("diagnostic", "config"):
        yield diagnostic(topic, path or f"({name})")
    elif config.get("device_class") in NO_NUMBERS:
        yield Unmapped(topic, path, f"a value of class {config['device_class']} is no number")
    else:
        yield _value(kind, config, topic, path, node, name)


def _value(
    kind: str, config: dict[str, Any], topic: str, path: str, node: str, name: str
) -> Finding:
    device = config.get("device")
    whose = device.get("name") if isinstance(device, dict) else None
    called, unit = config.get("name"), config.get("unit_of_measurement")
    on, off = config.get("payload_on", "ON"), config.get("payload_off", "OFF")
    binary = kind == "binary_sensor"
    if binary and not (is_word(on) and is_word(off)):
        return Unmapped(topic, path or f"({name})", quoted_words(on, off))
    words = (spelled(on).lower(), spelled(off).lower())
    measure = called if isinstance(called, str) and called else config.get("device_class") or name
    return Value(
        system=SYSTEM,
        topic=topic,
        path=path,
        device=whose if isinstance(whose, str) and whose else node or name,
        measure=str(measure),
        unit=unit if isinstance(unit, str) else "",
        binary=binary,
        words=words,
        availability=_availability(config),
    )


def _availability(config: dict[str, Any]) -> str:
    """Where the device is said to be there; empty where it is said in words we do not know."""
    listed = config.get("availability")
    given = (
        listed
        if isinstance(listed, list)
        else [{**config, "topic": config.get("availability_topic")}]
    )
    for each in given:
        said = _spelled_out(each) if isinstance(each, dict) else {}
        topic = said.get("topic", said.get("t"))
        words = (
            said.get("payload_available", "online"),
            said.get("payload_not_available", "offline"),
        )
        if isinstance(topic, str) and _are_known(*words):
            return _with_base(topic, config.get("~"))
    return ""


def _are_known(there: Any, gone: Any) -> bool:
    """Whether a node understands these two words."""
    return str(there).lower() in ONLINE and str(gone).lower() in OFFLINE


def _spelled_out(config: dict[str, Any]) -> dict[str, Any]:
    return {ABBREVIATED.get(key, key): value for key, value in config.items()}


def _with_base(topic: str, base: Any) -> str:
    if isinstance(base, str) and topic.startswith("~"):
        return base + topic[1:]
    return base.join(topic.rsplit("~", 1)) if isinstance(base, str) and topic[-1:] == "~" else topic


def _path(template: Any) -> str | None:
    """The path of a template; empty for the whole payload, None where it is more than that.

    >>> _path("{{ value_json['AM2301'].Temperature | float | round(1) }}"), _path("{{ value }}")
    ('AM2301.Temperature', '')
    >>> _path("{{ value_json.list[0]['1'] }}")
    'list[0].1'
    >>> _path("{{ 'ON' if value_json.contact else 'OFF' }}") is None
    True
    """
    if template is None:
        return ""
    if not isinstance(template, str) or len(template) > TEMPLATE_CHARS_MAX:
        return None
    text = template.strip()
    if PLAIN_TEMPLATE.fullmatch(text):
        return ""
    found = PATH_TEMPLATE.fullmatch(text)
    if found is None:
        return None
    path: str | None = ""
    for *names, place in STEP.findall(found[1]):
        if path is not None:
            path = f"{path}[{place}]" if place else joined(path, "".join(names))
    return path
