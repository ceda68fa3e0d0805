"""The packets of `make fuzz`, a few thousand of them, and bugs that it must find."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.fuzz import fleet
from benchmarks.fuzz.link import LyingBroker
from benchmarks.fuzz.messages import Finding, corpus
from edge_opid.link import LinkError
from edge_opid.link.connection import Connection
from edge_opid.link.exchange import Exchange
from edge_opid.link.packets import Framer, PacketError


@pytest.mark.parametrize("seed", range(3))
def test_no_packet_of_a_broker_ends_the_link_or_leaves_it_stuck(seed):
    """A broker that lies in every part of a packet: at worst the link reconnects."""
    words = Counter()
    LyingBroker(f"test/{seed}", words, corpus()).run(700)
    assert words["a stranger's PUBLISH: one message"] > 0
    assert words["connections"] > 10
    assert sum(words.values()) > 700


def test_no_packet_of_a_stranger_ends_a_node_or_a_gateway():
    """Through a real mosquitto, to real processes: both still do their work, and stop with 0."""
    words = Counter()
    assert fleet.run(250, "test", words) == ""
    assert words["to mosquitto: taken and confirmed"] > 40
    assert sum(words.values()) == 250


def ends_at_odd_text(plain):
    """What a client library did: text that it finds odd ends the connection."""

    def publish(self, first, body, end):
        if b"\xef\xbb\xbf" in self._buffer[body:end]:
            raise PacketError("malformed")
        return plain(self, first, body, end)

    return publish


def test_poison_would_be_found(monkeypatch):
    """U+FEFF in a property, which ended every connection until somebody cleared it."""
    monkeypatch.setattr(Framer, "_publish", ends_at_odd_text(Framer._publish))
    with pytest.raises(Finding, match="publications ended the connection"):
        LyingBroker("test/poison", Counter(), corpus()).run(3_000)


def test_a_dead_thread_would_be_found(monkeypatch):
    """The network's thread ends, the process goes on."""
    plain = Connection._take_in

    def take_in(self, item):
        if isinstance(item, bytes) and item[0] >> 4 == 5:
            raise SystemExit
        plain(self, item)

    monkeypatch.setattr(Connection, "_take_in", take_in)
    with pytest.raises(LinkError, match="has ended"):
        LyingBroker("test/dead", Counter(), corpus()).run(3_000)


def test_a_stuck_session_would_be_found(monkeypatch):
    """A refused message is not acknowledged, and everything after it waits for ever."""
    monkeypatch.setattr("benchmarks.fuzz.link.PATIENCE_S", 2.0)
    plain = Exchange.drop

    def drop(self, refusal):
        if refusal.qos:
            self._order.add(refusal.packet_id)
        else:
            plain(self, refusal)

    monkeypatch.setattr(Exchange, "drop", drop)
    with pytest.raises(Finding, match="acknowledged False"):
        LyingBroker("test/stuck", Counter(), corpus()).run(3_000)
