"""A power cut at every disk operation of a node's first 300 readings, with the real service.

One world: two sensors' senders, somebody who labels late, a gateway that orders another layout, a
broker that stays up, and a node on a disk that tears. After every cut the node is started again on
what the disk may hold. `EVERY=1` cuts at each operation with more seeds; without it the test takes
strides if there are too many operations for a test run.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from random import Random

import numpy as np
import pytest
from rig import CLASSES, KEY, TOPICS, config, description, desired, folded
from torn_disk import SMALL, PowerCut, TornDisk

from edge_opid.link import MemoryBroker, MemoryLink
from edge_opid.node import inputs
from edge_opid.node.actions import Commit, Release
from edge_opid.node.config import SensorConfig
from edge_opid.node.edge_node import EdgeNode
from edge_opid.node.inputs import Accepted, Closed, Labelled, Ordered, Silenced
from edge_opid.notify import Notify
from edge_opid.service import Service
from edge_opid.store import Store
from edge_opid.wire import (
    Ack,
    Channel,
    InstanceId,
    Label,
    Reading,
    Topic,
    decode,
    encode,
    seal_desired,
)

READINGS = 300
ORDER_AT = 160  # the gateway's document comes after so many readings
CUTS_MAX = 400
STEP_MS = 100
TIMEOUT_S = 2.0
BEFORE, AFTER = ("a", "b", "c", "d"), ("a", "b", "d", "e")  # c dies, e is deployed
SPOILING = ("quarantined", "damaged")


def node_config(**changes):
    sensors = tuple(
        SensorConfig(name, reference=0.0, scale=1.0, timeout_s=TIMEOUT_S) for name in BEFORE
    )
    options = {"sensors": sensors, "vanishing": ("c",), "recent": 24, "commit_records": 7}
    return config(**{**options, **changes})


# --- what the world sends ---------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """One message of the story, and its number if it is a reading."""

    topic: Topic
    payload: bytes
    retain: bool = False
    source: str = ""
    seq: int = 0


@cache
def story() -> tuple[Sent, ...]:
    """300 readings of two sources, late labels between them, one order in the middle."""
    rng, sent, numbers = np.random.default_rng(3), [], Counter()
    for place in range(1, READINGS + 1):
        x = rng.normal(size=5)
        source = "porch" if place % 2 else "roof"
        numbers[source] += 1
        values = spoken(source, place, dict(zip("abcde", map(float, x), strict=True)))
        label = None if place % 5 == 0 else CLASSES[int(np.argmax([x[0], x[1], x[3]]))]
        reading = Reading(1, numbers[source], place * STEP_MS, values, label)
        topic = TOPICS.to(Channel.READING, source)
        sent.append(Sent(topic, encode(reading), source=source, seq=numbers[source]))
        if place % 30 == 0:  # by number or by time, five readings after the one that lacks a label
            late = InstanceId("porch", 1, (place - 5 + 1) // 2)
            by_time = Label(CLASSES[0], time_ms=(place - 5) * STEP_MS)
            label = by_time if place % 60 == 0 else Label(CLASSES[0], late)
            sent.append(Sent(TOPICS.to(Channel.LABEL), encode(label)))
        if place == ORDER_AT:
            sent.append(Sent(TOPICS.to(Channel.DESIRED), the_order(), retain=True))
    return tuple(sent)


def spoken(source: str, place: int, values: dict[str, float]) -> dict[str, float]:
    """Who says what: c falls silent after 80 readings, e speaks once it was deployed."""
    said = "ab" if source == "porch" else ("cd" if place <= 80 else "d")
    if source == "roof" and place > ORDER_AT:
        said = "de"
    return {name: values[name] for name in said}


def the_order() -> bytes:
    W = np.random.default_rng(4).normal(size=(len(AFTER) + 1, len(CLASSES)))
    sensors = tuple(description(name, timeout_s=TIMEOUT_S) for name in AFTER)
    return seal_desired(desired(5, 1, weights=folded(W), **{"sensors": ()} and {}), KEY) if (
        not sensors
    ) else seal_desired(desired_of(sensors, W), KEY)


LABELLED = READINGS - READINGS // 5 + READINGS // 30
