"""Topics that nobody announces: a number, a word like ON, or JSON with numbers in it.

ESPHome's are such (`<node>/sensor/<object>/state`), and whatever somebody has built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from edge_opid.discovery.heard import Heard, HeardTopic
from edge_opid.discovery.homeassistant import is_announcement, is_node
from edge_opid.discovery.tasmota import ROOT as TASMOTA
from edge_opid.discovery.tasmota import flattened, is_switch
from edge_opid.discovery.values import DIAGNOSTIC, Finding, Unmapped, Value, diagnostic, is_word
from edge_opid.errors import shown
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.topics import ROOT

ESPHOME = re.compile(r"(?:.*/)?([^/]+)/(binary_sensor|sensor)/([^/]+)/state")
NOT_MEASURED = frozenset({"availability", "command", "config", "get", "lwt", "set", "status"})
"""Last levels of topics on which devices are told something, or say that they are there."""


def find(heard: Heard) -> Iterator[Finding]:
    """Every value of topics that hold values, also those that somebody has announced."""
    for topic, said in heard.topics.items():
        if not _is_apart(topic):
            yield from _topic(topic, said)


def _is_apart(topic: str) -> bool:
    """Whether something else than values is said there: orders, announcements, our own messages."""
    first, last = topic.partition("/")[0], topic.rpartition("/")[2]
    return (
        first.startswith("$")
        or first in (ROOT.partition("/")[0], "cmnd")
        or topic.startswith(TASMOTA)
        or "/bridge/" in topic
        or last.lower() in NOT_MEASURED
        or is_announcement(topic)
        or is_node(topic)
    )


def _topic(topic: str, said: HeardTopic) -> Iterator[Finding]:
    text, document = said.text, said.document
    if len(said.payload) > LIMITS.small_payload_bytes_max:
        yield Unmapped(topic, "", f"{len(said.payload)} bytes are too many for a reading")
    elif text is None:
        yield Unmapped(topic, "", "its payload is not text")
    elif isinstance(document, dict):
        yield from _fields(topic, document)
    elif text.strip() and is_word(text):
        yield _plain(topic, text.strip())
    elif text.strip():
        yield Unmapped(topic, "", f"{shown(text)} is neither a number, on nor off")


def _plain(topic: str, text: str) -> Value:
    esphome = ESPHOME.fullmatch(topic)
    device, _, measure = topic.rpartition("/")
    if measure.lower() in ("state", "value"):
        device, _, measure = device.rpartition("/")
    binary = is_switch(text)
    if esphome:
        device, measure, binary = esphome[1], esphome[3], esphome[2] == "binary_sensor"
    return Value(
        system="ESPHome" if esphome else "plain topic",
        topic=topic,
        path="",
        device=device or measure,
        measure=measure,
        binary=binary,
        words=("on", "off"),
    )


def _fields(topic: str, document: dict[str, object]) -> Iterator[Finding]:
    for path, said in flattened(document):
        measure = path.rpartition(".")[2]
        if measure.lower() in DIAGNOSTIC:
            yield diagnostic(topic, path)
        elif is_word(said):
            yield Value(
                system="plain topic",
                topic=topic,
                path=path,
                device=topic,
                measure=path,
                binary=is_switch(said),
                words=("on", "off") if isinstance(said, str) else ("true", "false"),
            )
        else:
            yield Unmapped(topic, path, f"{shown(said)} is neither a number, on nor off")
