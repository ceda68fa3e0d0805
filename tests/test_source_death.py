"""A source whose link will never work again takes nothing more, and says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edge_opid.link import LinkError, MqttOptions
from edge_opid.link.versions import Versions
from edge_opid.source import SourceError, connect
from firmware_sim.live.processes import WAIT_S


def ended(*_: object) -> str:
    raise SystemExit


def test_source_whose_link_thread_ended_says_so(tmp_path: Path, monkeypatch) -> None:
    """`send` went on succeeding, nothing was sent, and nothing said so."""
    monkeypatch.setattr(Versions, "choose", ended)
    broker = MqttOptions(client_id="box", host="127.0.0.1", port=1)
    with connect("farm", "n1", "box", folder=tmp_path, broker=broker, connect_s=0) as source:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            try:
                source._link.check()
            except LinkError:
                break
            time.sleep(0.01)
        with pytest.raises(SourceError, match="was not stored, start the script again: link 'box'"):
            source.send({"t": 21.3})
        assert source.counters.sent == 0
