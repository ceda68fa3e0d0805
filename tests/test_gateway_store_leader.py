"""One leader for a database, whatever dies; and what was saved is there, whenever it dies."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from support import store_records as some
from support.node_process import WAIT_S

from gateway.store import DatabaseError, FleetStore, LeaderError
from gateway.store.database import Database
from gateway.store.migrations import ADVISORY

KILLS = 5

SERVE = """
import sys
from gateway.store import FleetStore
store = FleetStore.open(sys.argv[1])
store.claim()
print("serving", flush=True)
sys.stdin.read()
"""
SERVE_WITH_A_CHILD = """
import os, sys
from gateway.store import FleetStore
store = FleetStore.open(sys.argv[1])
store.claim()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print("serving", child, flush=True)
sys.stdin.read()
"""
SAVE_IN_PAIRS = """
import sys
from gateway.registry import NodeRecord, OrderRecord
from gateway.store import FleetStore
with FleetStore.open(sys.argv[1]) as store:
    store.claim()
    start = max((each.seen_ms for each in store.fleet().nodes), default=0) + 1
    for number in range(start, start + 100_000):
        node = NodeRecord(site="street", node="north", group="air", gate=0.5, seen_ms=number)
        where = {"site": "street", "node": "north", "version": number, "layout_version": 1}
        store.save([node, OrderRecord(**where, payload=b"x" * 1000, at_ms=number)])
        print(number, flush=True)
"""


@contextmanager
def process(program, url):
    """A process that runs until its input ends; killed at the end in any case."""
    started = subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=WAIT_S)


def said(started):
    """The next line of a process, or what it complained of."""
    line = started.stdout.readline()
    if not line:
        raise RuntimeError(f"it ended: {started.communicate(timeout=WAIT_S)[1]}")
    return line.split()


def claim_soon(store):
    """Claim as soon as the server has noticed the end of the last leader."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return store.claim()
        except LeaderError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_a_second_gateway_is_told_who_serves_and_changes_nothing(database_url):
    with FleetStore.open(database_url) as store:
        store.save([some.node(), some.order()])
        before = store.fleet()
        with process(SERVE, database_url) as leader:
            assert said(leader) == ["serving"]
            whose = f"is being served by process {leader.pid} on '{socket.gethostname()}'"
            for _ in range(2):
                with pytest.raises(LeaderError, match=f"{whose}: stop it, or use another"):
                    store.claim()
            assert not store.is_leader()
            assert store.fleet() == before


def test_two_stores_of_one_process_are_two_gateways_as_well(database_url):
    with FleetStore.open(database_url) as first, FleetStore.open(database_url) as second:
        first.claim()
        first.claim()
        with pytest.raises(LeaderError, match=f"process {os.getpid()} on"):
            second.claim()
        assert first.is_leader()
        first.close()
        assert not first.is_leader()
        claim_soon(second)
        second.save([some.node()])
        assert second.is_leader()


@pytest.mark.parametrize("program", [SERVE, SERVE_WITH_A_CHILD], ids=["alone", "with a child"])
def test_a_leader_that_was_killed_holds_nothing_even_if_a_child_of_it_lives_on(
    database_url, program
):
    with process(program, database_url) as leader, FleetStore.open(database_url) as store:
        _, *child = map(str, said(leader))
        leader.send_signal(signal.SIGKILL)
        leader.wait(WAIT_S)
        for pid in child:
            os.kill(int(pid), 0)  # it is there: or this would raise
        claim_soon(store)
        assert store.is_leader()


def lose_the_lock(url):
    """What nobody should do to a running gateway."""
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///") + ".lock").unlink()
        return
    end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    database = Database(url)
    with database.writing("a test") as connection:
        sql = f"{end} AND classid = {ADVISORY} AND pid <> pg_backend_pid()"
        assert connection.execute(text(sql)).all() == [(True,)]
    database.close()


def test_a_leader_that_lost_its_lock_and_its_place_can_write_nothing_more(database_url):
    with FleetStore.open(database_url) as old, FleetStore.open(database_url) as new:
        old.claim()
        old.save([some.node(seen_ms=1), some.change(), some.example()])
        number = old.submit("street", "north", b"x", 1)
        lose_the_lock(database_url)
        old.save([some.node(seen_ms=2)])  # nobody else has come: no harm
        claim_soon(new)
        assert not old.is_leader()
        before = new.fleet()
        sentence = f"was taken over by process {os.getpid()} on .*epoch 2, .* epoch 1"
        for write in (
            lambda: old.save([some.node(seen_ms=3)]),
            lambda: old.forget_examples(1),
            lambda: old.settle(number, "done"),
        ):
            with pytest.raises(LeaderError, match=sentence):
                write()
        assert old.fleet() == new.fleet() == before
        assert new.commands()[0].id == number
        assert new.is_leader()


def test_a_leader_that_lost_its_lock_may_claim_again(database_url):
    with FleetStore.open(database_url) as store:
        store.claim()
        lose_the_lock(database_url)
        assert not store.is_leader()
        claim_soon(store)
        assert store.is_leader()
        store.save([some.node()])
        with FleetStore.open(database_url) as other, pytest.raises(LeaderError):
            other.claim()


def test_looking_for_a_leader_takes_nothing_from_it(database_url):
    with FleetStore.open(database_url) as store, FleetStore.open(database_url) as line:
        assert not line.has_leader()
        store.claim()
        assert [line.has_leader(), store.has_leader()] == [True, True]
        store.save([some.node()])
        assert store.is_leader()
        store.close()
        claim_soon(line)
        assert len(line.fleet().nodes) == 1


def test_another_name_of_the_same_file_is_the_same_database(tmp_path):
    (tmp_path / "other.sqlite").symlink_to(tmp_path / "gateway.sqlite")
    first = FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite")
    with first, FleetStore.open(f"sqlite:///{tmp_path}/other.sqlite") as second:
        first.claim()
        with pytest.raises(LeaderError, match=r"other\.sqlite is being served by process"):
            second.claim()
        assert first.is_leader()


def test_a_database_in_memory_is_nobody_elses():
    with FleetStore.open("sqlite://") as first, FleetStore.open("sqlite://") as second:
        first.claim()
        second.claim()
        first.save([some.node()])
        assert len(first.fleet().nodes) == 1
        assert second.fleet().nodes == ()


def test_a_lock_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "gateway.sqlite.lock").mkdir()
    with FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite") as store:
        with pytest.raises(DatabaseError, match=r"gateway\.sqlite\.lock: Is a directory") as caught:
            store.claim()
        assert not caught.value.transient
        assert not store.is_leader()
        assert store.fleet().next_change == 1


def test_killed_at_any_moment_nothing_that_was_saved_is_missing_and_no_pair_is_torn(database_url):
    moments = random.Random(7)
    saved = 0
    for _ in range(KILLS):
        with process(SAVE_IN_PAIRS, database_url) as leader:
            for _ in range(moments.randrange(1, 60)):
                saved = int(said(leader)[0])
            time.sleep(moments.random() * 0.01)  # somewhere within a transaction
            leader.send_signal(signal.SIGKILL)
            saved = max([saved, *map(int, leader.stdout.read().split("\n")[:-1])])
            leader.wait(WAIT_S)
        with FleetStore.open(database_url) as store:
            claim_soon(store)
            fleet = store.fleet()
        assert fleet.nodes[0].seen_ms == fleet.orders[0].version
        assert saved <= fleet.orders[0].version <= saved + 1
    assert len(fleet.nodes) == len(fleet.orders) == 1
