"""Tasmota: `tasmota/discovery/<MAC>/config` says who and where, `/sensors` what it measures.

`ft` is the full topic with `%prefix%` and `%topic%`, `tp` the prefixes for commands, answers and
telemetry; `sn` is a message of the kind that comes on `tele/<topic>/SENSOR`.
"""

from __future__ import annotations

from collections import Counter
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
)

SYSTEM = "Tasmota"
ROOT, CONFIG, SENSORS = "tasmota/discovery/", "/config", "/sensors"
UNITS = {
    "apparentpower": "VA", "carbondioxide": "ppm", "current": "A", "energy": "kWh",
    "humidity": "%", "illuminance": "lx", "power": "W", "reactivepower": "var", "today": "kWh",
    "total": "kWh", "voltage": "V", "yesterday": "kWh",
}  # fmt: skip
DEPTH_MAX, FIELDS_MAX = 4, 64


def find(heard: Heard) -> Iterator[Finding]:
    """Every number of every device that has announced itself."""
    for topic, said in heard.topics.items():
        config = said.document
        if not (topic.startswith(ROOT) and topic.endswith(CONFIG) and isinstance(config, dict)):
            continue
        sensors = heard.topics.get(topic.removesuffix(CONFIG) + SENSORS)
        found = None if sensors is None else sensors.document
        sample = found.get("sn") if isinstance(found, dict) else None
        name, where = config.get("dn") or config.get("t"), _telemetry(config)
        if not isinstance(name, str) or where is None:
            yield Unmapped(topic, "", "it does not say its name and its topic (dn, t, ft, tp)")
        elif isinstance(sample, dict):
            yield from _values(f"{where}SENSOR", name, sample)


def _telemetry(config: dict[str, Any]) -> str | None:
    full, topic, prefixes = config.get("ft"), config.get("t"), config.get("tp")
    if not isinstance(full, str) or not isinstance(topic, str) or not isinstance(prefixes, list):
        return None
    if len(prefixes) < 3 or not isinstance(prefixes[2], str):
        return None
    return full.replace("%prefix%", prefixes[2]).replace("%topic%", topic)


def _values(topic: str, name: str, sample: dict[str, Any]) -> Iterator[Finding]:
    degrees = f"°{sample.get('TempUnit', 'C')}"
    pressure = str(sample.get("PressureUnit", "hPa"))
    units = {"temperature": degrees, "dewpoint": degrees, "pressure": pressure, **UNITS}
    leaves = flattened(sample)
    times = Counter(path.rpartition(".")[2] for path, _ in leaves)
    for path, said in leaves:
        measure = path.rpartition(".")[2]
        if measure.lower() in DIAGNOSTIC:
            yield diagnostic(topic, path)
        elif is_word(said):
            yield Value(
                system=SYSTEM,
                topic=topic,
                path=path,
                device=name,
                measure=measure if times[measure] == 1 else path,
                unit=units.get(measure.lower(), ""),
                binary=is_switch(said),
                words=("on", "off") if isinstance(said, str) else ("true", "false"),
            )
        elif not measure.lower().endswith(("unit", "time")):
            yield Unmapped(topic, path, "it is not a number")


def is_switch(said: object) -> bool:
    """Whether a value says yes or no, as JSON or as a word."""
    return isinstance(said, bool) or str(said).strip().lower() in ("on", "off", "true", "false")


def flattened(document: Any, path: str = "", depth: int = 0) -> list[tuple[str, Any]]:
    """Every leaf of a JSON object with its path; lists and what is nested too deeply are left out.

    >>> flattened({"t": 21.5, "AM2301": {"Humidity": 40}})
    [('t', 21.5), ('AM2301.Humidity', 40)]
    """
    found: list[tuple[str, Any]] = []
    for key, said in document.items():
        whole = joined(path, key)
        if whole is None or len(found) >= FIELDS_MAX:
            continue
        if isinstance(said, dict) and depth < DEPTH_MAX:
            found += flattened(said, whole, depth + 1)
        elif not isinstance(said, dict | list) and said is not None:
            found.append((whole, said))
    return found[:FIELDS_MAX]
