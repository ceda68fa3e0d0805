"""Many nodes behind a network that resets connections: small runs of `firmware_sim.resets.run`."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from support.mosquitto import find_mosquitto
from support.pages import shown_below

from edge_opid.node import journal_records
from edge_opid.node.journal_records import Accepted
from edge_opid.store import RealDisk, Store
from firmware_sim.live.processes import WAIT_S
from firmware_sim.resets.job import SOURCE, Job
from firmware_sim.resets.judge import JudgeError, Verdict, judge
from firmware_sim.resets.relay import HOST, Relay
from firmware_sim.resets.run import main, run

SEED = 195  # its first break, after three seconds, spares nobody
BOOT = 9
READINGS = 5


def small(folder, nodes: int, seconds: float, plant: str | None = None):
    find_mosquitto()
    return run(folder, nodes, seconds, SEED, rate=4.0, plant=plant, commit_s=1.0)


def test_resets_every_few_seconds_lose_no_reading_and_repeat_none(tmp_path):
    """What sources took is in the journals once, and the states are those of a quiet network."""
    outcome = small(tmp_path, nodes=20, seconds=6.0)
    print(outcome.told())
    assert outcome.verdict == Verdict(readings=20 * 24)
    assert outcome.counts["resets"] > outcome.counts["mid_packet"] > 0
    assert outcome.counts["duplicates"] > 0, "nothing came twice, so nothing was proved"
    assert outcome.counts["given_up"] == 0
    page = shown_below("docs/scenarios.md", "python -m firmware_sim.resets.run")
    assert page.pattern.fullmatch(f"{outcome.told()}\n"), "docs/scenarios.md shows another report"


def test_a_node_that_does_not_know_copies_is_found_out(tmp_path):
    """With the planted fault the same run must fail, and by that promise."""
    outcome = small(tmp_path, nodes=20, seconds=4.0, plant="no-deduplication")
    print(outcome.told())
    assert outcome.verdict.twice > 0
    assert outcome.verdict.unlike > 0
    assert not outcome.verdict.well


# --- the judge ------------------------------------------------------------------------------------


def left_behind(job: Job, numbers: list[int], **other) -> None:
    """The disk of a node that was killed after it had accepted these numbers, in this order."""
    sent = job.sent(0)
    with RealDisk(job.config(0).state_folder) as disk:
        store, _ = Store.open(disk)
        for seq in numbers:
            values, label = sent[seq - 1]
            fields = {"values": values, "label": label, "boot": BOOT, **other}
            store.append(
                journal_records.pack_record(
                    Accepted(100 + seq, SOURCE, seq=seq, time_ms=seq, **fields)
                )
            )
        store.commit()


@pytest.mark.parametrize(
    ("numbers", "other", "lost", "twice", "strange", "unlike"),
    [
        ([1, 2, 3, 4, 5], {}, 0, 0, 0, 0),
        ([1, 2, 4, 5], {}, 1, 0, 0, 1),
        ([1, 2, 3, 4], {}, 1, 0, 0, 1),
        ([], {}, READINGS, 0, 0, 1),
        ([1, 2, 2, 3, 4, 5], {}, 0, 1, 0, 1),
        ([1, 2, 3, 4, 4], {}, 1, 1, 0, 1),  # as many as were sent, and yet
        ([1, 3, 2, 4, 5], {}, 0, 0, 0, 1),
        ([1, 2, 3, 4, 5], {"values": {}}, 0, 0, READINGS, 1),  # given up by the source
        ([1, 2, 3, 4, 5], {"label": None}, 0, 0, READINGS, 1),
        ([1, 2, 3, 4, 5], {"boot": BOOT + 1}, READINGS, 0, READINGS, 1),
    ],
    ids=[
        "well",
        "one missing",
        "last missing",
        "all missing",
        "one twice",
        "one twice for one missing",
        "out of order",
        "given up",
        "without label",
        "of another boot",
    ],
)
def test_the_judge_counts_what_is_wrong(tmp_path, numbers, other, lost, twice, strange, unlike):
    """Readings that are missing, repeated, in another order or altered, each under its name."""
    job = Job(str(tmp_path), port=1, seed=SEED, nodes=1, readings=READINGS, rate=1.0)
    left_behind(job, numbers, **other)
    verdict = judge(job, 0, {"boot": BOOT, "sent": READINGS})
    assert verdict == Verdict(READINGS, lost, twice, strange, unlike)
    assert verdict.well == (numbers == [1, 2, 3, 4, 5] and not other)


def test_a_journal_without_its_beginning_is_not_judged(tmp_path):
    """A snapshot hides the numbers before it: nobody may call that well."""
    job = Job(str(tmp_path), port=1, seed=SEED, nodes=1, readings=READINGS, rate=1.0)
    left_behind(job, [1, 2, 3, 4, 5])
    with RealDisk(job.config(0).state_folder) as disk:
        Store.open(disk)[0].snapshot(b"anything")
    with pytest.raises(JudgeError, match="node 0 has given up its first records"):
        judge(job, 0, {"boot": BOOT, "sent": READINGS})


@pytest.mark.parametrize(
    "given", [["--nodes", "0"], ["--seconds", "3600"], ["--rate", "0"]], ids=" ".join
)
def test_a_run_that_could_not_be_judged_is_not_begun(given, capsys):
    """Nobody, nothing, or more than a journal holds: an error of whoever typed it."""
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert "at most 400 seconds" in capsys.readouterr().err


# --- the relay ------------------------------------------------------------------------------------


class _Keeper(socketserver.BaseRequestHandler):
    """Keeps what arrives, and says it back."""

    kept: list[bytearray]

    def handle(self) -> None:
        mine = bytearray()
        self.kept.append(mine)
        try:
            while data := self.request.recv(4_096):
                mine += data
                self.request.sendall(data)
        except OSError:
            return


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def keeping() -> Iterator[tuple[int, list[bytearray]]]:
    """A server that keeps and repeats everything: its port, and what each connection brought."""
    kept: list[bytearray] = []
    with _Server((HOST, 0), type("Keeper", (_Keeper,), {"kept": kept})) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1], kept
        server.shutdown()


def received(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := client.recv(size - len(found))):
        found += data
    return found


def test_bytes_pass_the_relay_unchanged_until_it_resets():
    """Both ways; and what arrived of a connection that was reset is the beginning of what went."""
    message = bytes(range(256)) * 256
    with ExitStack() as stack:
        port, kept = stack.enter_context(keeping())
        relay = stack.enter_context(Relay(port, seed=4))
        clients = [
            stack.enter_context(socket.create_connection((HOST, relay.port), WAIT_S))
            for _ in range(20)
        ]
        clients[0].sendall(message)
        assert received(clients[0], len(message)) == message
        ended, deadline = set(), time.monotonic() + WAIT_S
        while not (relay.mid_packet and relay.resets > relay.mid_packet and len(ended) > 1):
            assert time.monotonic() < deadline
            for client in set(clients) - ended:
                try:
                    client.sendall(message[:512])
                    assert received(client, 512) in (message[:512], b"")
                except ConnectionError:
                    ended.add(client)
        relay.calm()
        while relay.connections > len(clients) - len(ended):  # its thread sees an end after us
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert all((message[:512] * len(mine)).startswith(mine) for mine in kept)
