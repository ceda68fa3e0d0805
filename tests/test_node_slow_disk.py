"""A card that takes its time: the loop waits for it, and the broker must not give the node up."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from support.links import WAIT_S, take, visitor
from support.mosquitto import Mosquitto

from edge_opid.config.service import load_config
from edge_opid.service.systemd import Systemd
from edge_opid.service.wiring import open_loop
from edge_opid.store import RealDisk
from edge_opid.wire import Ack, Channel, NodeTopics, Reading, Status, decode, encode
from firmware_sim.live.toml import toml_table

TOPICS = NodeTopics("farm", "n1")
READINGS = 60


def node_toml(folder: Path, port: int, keepalive_s: int) -> Path:
    file = folder / "node.toml"
    often = {"commit_s": 0.1, "rate_burst": 10_000}
    file.write_text(
        toml_table("node", often, site="farm", node="n1", classes=["fine", "dry"])
        + toml_table("[sensors]", id="t", reference=0.0, scale=1.0)
        + toml_table("broker", host="127.0.0.1", port=port, keepalive_s=keepalive_s)
        + toml_table("state", folder="state")
    )
    return file


@pytest.mark.parametrize(("sync_s", "keepalive_s"), [(0.2, 3), (2.0, 3)])
def test_a_slow_card_costs_time_and_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_s: float, keepalive_s: int
) -> None:
    """Every sync of the card takes 0.2 or 2 s; the broker hangs up after 1.5 keep-alives."""
    plain, slow = RealDisk.sync, []

    def sync(disk: RealDisk, name: str) -> None:
        slow.append(name)
        time.sleep(sync_s)
        plain(disk, name)

    with Mosquitto(tmp_path / "broker") as broker:
        config = load_config(node_toml(tmp_path, broker.port, keepalive_s), {})
        acks, status = str(TOPICS.to(Channel.ACK, "s")), str(TOPICS.to(Channel.STATUS))
        with visitor(broker.port, acks, status) as person, open_loop(config, Systemd({})) as loop:
            runner = threading.Thread(target=loop.run)
            runner.start()
            (first,) = take(person, 1)  # it speaks after it has subscribed
            assert decode(first.payload, Status).online
            monkeypatch.setattr(RealDisk, "sync", sync)
            topic, last = str(TOPICS.to(Channel.READING, "s")), 0
            for seq in range(1, READINGS + 1):
                person.publish(topic, encode(Reading(1, seq, seq, {"t": 1.0}, "dry")))
                time.sleep(0.02)
            deadline = time.monotonic() + WAIT_S
            while last < READINGS and time.monotonic() < deadline:
                delivery = person.poll(0.1)
                if delivery is not None and delivery.topic == acks:
                    last = max(last, decode(delivery.payload, Ack).seq)
            health = loop.health(0)
            monkeypatch.setattr(RealDisk, "sync", plain)
            loop.stop()
            runner.join(WAIT_S)
    assert last == READINGS
    assert slow
    assert (health["reconnects"], health["faults"], health["unconfirmed"]) == (0, 0, 0)
    assert health["counts"].get("copies", 0) == 0
