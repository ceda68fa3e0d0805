"""`kill -9` of a node, again and again, while a source sends through a real broker.

    KILLS=200 READINGS=20000 python -m pytest tests/test_node_kill.py

The moments are drawn from a seed and spread over the whole run: in the middle of readings, while
the node starts and reads its journal back, and while it writes a snapshot.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from support.mosquitto import Mosquitto
from support.node_process import WAIT_S, NodeProcess, listening, wait_until
from support.rig import CLASSES

from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, pack_state, unpack_state
from edge_opid.node.state import NodeState
from edge_opid.source import connect
from edge_opid.store.files import SNAPSHOT_TMP
from edge_opid.wire import Ack, Channel, Status
from firmware_sim.live.timeless import but_for_times
from firmware_sim.live.toml import toml_table

KILLS = int(os.environ.get("KILLS", "50"))
READINGS = int(os.environ.get("READINGS", "20000"))
KILLS_A_COPY = 10  # copies are answered once a second, so that few of the many are seen here
SEED = 20
UNHINDERED = {"rate_per_second": 1e6, "rate_burst": 10**6}
OFTEN = {"commit_s": 0.05, "commit_records": 2}
"""A page for each commit: a snapshot is due every thousand readings."""
SETTINGS = toml_table(
    "node", UNHINDERED | OFTEN, site="farm", node="n1", classes=CLASSES, vanishing=["c"]
) + "".join(
    toml_table("[sensors]", id=name, reference=0.0, scale=1.0, timeout_s=3600.0) for name in "abc"
)


def world():
    rng = np.random.default_rng(SEED)
    values = rng.normal(size=(READINGS, 3))
    labels = rng.integers(0, len(CLASSES), READINGS)
    rows = [dict(zip("abc", map(float, row), strict=True)) for row in values]
    return rows, [CLASSES[label] for label in labels]


class Fate:
    """Waits for the moment of each kill. The seed decides how long, and what to wait for."""

    def __init__(self, node: NodeProcess, acknowledged: Callable[[], int]) -> None:
        self._acknowledged = acknowledged
        self._unfinished = node.state_folder / SNAPSHOT_TMP
        self._chance = random.Random(SEED)
        self.snapshots = 0  # found unfinished when the moment came

    def wait(self, kill: int) -> None:
        """The moment of this kill has come."""
        begun, pause_s = self._acknowledged(), self._chance.uniform(0.0, 0.03)
        share = (READINGS - begun) / (KILLS - kill + 1)
        if kill % 10 in (2, 5, 8):
            time.sleep(30 * pause_s)  # while it starts: the longest is about as long as that takes
        elif kill % 10 in (4, 9):
            self._snapshot_or(lambda: self._acknowledged() >= begun + 4 * share)
        else:
            step = self._chance.uniform(0.1, 1.0) * share
            wait_until(lambda: self._acknowledged() >= begun + step, "the node gets on")
            time.sleep(pause_s)

    def _snapshot_or(self, enough: Callable[[], bool]) -> None:
        """While a snapshot is being written, if one is due before long."""
        deadline = time.monotonic() + WAIT_S
        while not (self._unfinished.exists() or enough()) and time.monotonic() < deadline:
            time.sleep(0.0005)
        self.snapshots += self._unfinished.exists()


def reference(config, boot: int, now_ms: int) -> bytes:
    """The same readings one after another in this process: no broker, no journal, no death.

    The node's clock is the one thing that a sender does not know. All of it that remains in the
    state is when each sensor was heard last: with the last reading.
    """
    state = NodeState(config)
    for seq, (row, label) in enumerate(zip(*world(), strict=True), 1):
        apply(state, Accepted(now_ms, "s", boot, seq, seq, row, label))
    return pack_state(state.state())


@pytest.mark.timeout(240 + 5 * KILLS + READINGS // 100)
def test_a_node_that_is_killed_again_and_again_loses_nothing_and_learns_nothing_twice(tmp_path):
    """Every reading is in the state once: to the bit what one undisturbed process would know."""
    rows, labels = world()
    more = ("max_queued_messages 100000",)
    with (
        Mosquitto(tmp_path / "broker", extra=more) as broker,
        listening(broker.port, "opid/1/farm/n1/ack/s", "opid/1/farm/n1/status") as listener,
        NodeProcess(tmp_path, broker.port, SETTINGS) as node,
        connect(
            *("farm", "n1", "s", tmp_path / "spool"),
            port=broker.port,
            resend_s=0.1,  # sooner than the fastest machine starts a node, so that copies come
            sync_every=500,
        ) as source,
    ):

        def status() -> Status | None:
            return listener.last(Channel.STATUS, Status)

        def send() -> None:
            for seq, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
                source.send(row, label, time_ms=seq)

        def acknowledged() -> int:
            ack = listener.last(Channel.ACK, Ack)
            return 0 if ack is None else ack.seq

        wait_until(status, "the node is there")
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        fate, at = Fate(node, acknowledged), []
        for kill in range(KILLS):
            fate.wait(kill)
            node.check()
            node.kill()
            at.append(acknowledged())
            said = len(listener.heard[Channel.STATUS])
            node.start()
        sender.join(WAIT_S)
        wait_until(lambda: source.drained() or node.check(), "it ends", READINGS / 100)
        wait_until(
            lambda: len(listener.heard[Channel.STATUS]) > said and status().online, "the last life"
        )
        assert node.stop() == 0
        acks = listener.all(Channel.ACK, Ack)
        lost = source.counters.lost + source.counters.refused

    kept = unpack_state(node.snapshot())
    assert kept["register"]["expected"] == {"s": [source.boot, READINGS + 1]}
    assert sum(kept["frequency"]) == READINGS
    now_ms = kept["last"]["heard"]["a"]
    once = unpack_state(reference(node.config.node, source.boot, now_ms))
    assert but_for_times(kept) == but_for_times(once)

    numbers = [ack.seq for ack in acks]
    copies = len(numbers) - len(set(numbers))  # answers to copies, which say the same number
    print(f"{node.lives} lives, {fate.snapshots} ended in a snapshot; {copies} duplicates")
    assert node.lives == KILLS + 1
    assert copies >= KILLS // KILLS_A_COPY
    assert at == sorted(at)  # what was acknowledged stayed so
    assert lost == 0
