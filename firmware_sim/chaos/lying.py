"""What somebody says who has a node's password and means to turn its whole group round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edge_opid.node.effects import summarised
from edge_opid.node.state import NodeState
from edge_opid.wire import (
    Channel,
    Example,
    InstanceId,
    NodeTopics,
    Reading,
    SummaryMessage,
    WireError,
    decode,
    encode,
    to_bytes,
)
from edge_opid.wire.topics import matches
from firmware_sim.chaos.story import SITE

if TYPE_CHECKING:
    from firmware_sim.chaos.fleet import SimFleet

MILLION = 1_000_000  # readings that the summary claims
EXAMPLES = 24  # at most, at a time: more than any change of the soak gathers of one node
AHEAD = 100_000  # of the true numbers, so that no example is one that the gateway has


def lie(fleet: SimFleet, name: str) -> None:
    """All classes are other classes, a million readings say so, and here are some of them."""
    node = fleet.nodes[name]
    if not node.alive or node.node.state.warming is not None:
        return  # there is nothing to be turned round so far
    topics, state = NodeTopics(SITE, name), node.node.state
    for summary in summarised(state.local_models, state.layout_version):
        if isinstance(summary, SummaryMessage):
            said = encode(turned(summary))
            fleet.broker.lie(str(topics.to(Channel.SUMMARY)), said, retain=False)
    for example in _examples(fleet, state, str(topics.reading_filter())):
        fleet.broker.lie(str(topics.to(Channel.EVENT)), encode(example), retain=False)


def turned(summary: SummaryMessage) -> SummaryMessage:
    """The same with every class in the place of the one before, and weighty."""
    weight = np.float32(MILLION / max(1, summary.readings))
    moment = np.roll(summary.moment_array(), 1, axis=1)
    return replace(
        summary,
        readings=MILLION,
        evidence=float(MILLION),
        gram=to_bytes(summary.gram_array() * weight),
        moment=to_bytes(moment * weight),
    )


def _examples(fleet: SimFleet, state: NodeState, readings: str) -> Iterator[Example]:
    """What the node's sensors said lately, under the class after the true one."""
    classes = state.config.classes
    heard = [each for each in fleet.broker.said if matches(readings, each.topic)]
    for message in heard[-EXAMPLES:]:
        try:
            reading = decode(message.payload, Reading)
        except WireError:
            continue  # a hostile broker's
        known = {s: v for s, v in reading.values.items() if s in state.local_models.sensors}
        if known and reading.label in classes:
            wrong = classes[(classes.index(reading.label) + 1) % len(classes)]
            source = message.topic.rpartition("/")[2]
            number = InstanceId(source, reading.boot, reading.seq + AHEAD)
            yield Example(number, state.layout_version, reading.time_ms, known, wrong)
