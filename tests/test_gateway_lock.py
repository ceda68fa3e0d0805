"""The gateway's lock after the database server was restarted, and who may take it at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time

import pytest
from support import store_records as some
from support.gateway_process import GatewayProcess
from support.mosquitto import Mosquitto
from support.node_process import wait_until
from support.postgres import Postgres

from gateway.store import DatabaseError, FleetStore, LeaderError

AWAY_S = 5.0  # longer than the lease: its sites end, and are opened again


def served(url) -> bool:
    with FleetStore.open(url) as store:
        return store.has_leader()


@pytest.fixture
def own_postgres():
    """A server of one's own: it is restarted under its clients."""
    with Postgres() as server:
        yield server


@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill], ids=["stopped", "crashed"])
def test_a_gateway_whose_server_was_restarted_takes_its_lock_again(tmp_path, own_postgres, end):
    """Nobody saw it any more: every command said that no gateway serves, and a second one began."""
    url = own_postgres.database("fleet")
    with Mosquitto(tmp_path / "broker") as broker:
        gateway = GatewayProcess(tmp_path / "gateway", broker.port, ["n1"], url)
        gateway.start()
        try:
            wait_until(lambda: "event=connected" in gateway.log(), "it runs")
            assert served(url)
            before = gateway.log().count("event=connected")
            end(own_postgres)
            time.sleep(AWAY_S)
            own_postgres.start()
            wait_until(lambda: served(url), "the lock is taken again")
            with FleetStore.open(url) as alone, pytest.raises(LeaderError, match="is being served"):
                alone.claim()
            wait_until(lambda: gateway.log().count("event=connected") > before, "it serves again")
            gateway.check()
            assert gateway.stop() == 0
            assert not served(url)
        finally:
            gateway.kill()


def test_a_gateway_that_finds_another_in_its_place_stops_and_writes_nothing(own_postgres):
    """While its server was away, an operator had started another; two would contradict each other.

    The other holds the lock, or has come and gone: what we remember may be out of date.
    """
    url = own_postgres.database("fleet")
    with FleetStore.open(url) as first, FleetStore.open(url) as second:
        first.claim()
        first.save([some.node(seen_ms=1)])
        own_postgres.stop()
        own_postgres.start()
        assert not first.is_leader()
        second.claim()
        with pytest.raises(LeaderError, match="is being served by"):
            first.reclaim()
        second.save([some.node(seen_ms=2)])
        second.close()
        with pytest.raises(LeaderError, match="was taken over by"):
            first.reclaim()
        with pytest.raises(LeaderError):
            first.save([some.node(seen_ms=3)])
    with FleetStore.open(url) as looking:
        assert looking.fleet().nodes[0].seen_ms == 2
        assert not looking.has_leader()


# -- files -----------------------------------------------------------------------------------------

SHARE = """
import fcntl, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_SH)
print("shared", flush=True)
sys.stdin.readline()
"""


def modes(folder) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_the_database_and_its_lock_are_their_owners_alone(tmp_path):
    """Under a generous umask they were readable by everybody, and what others opened up stayed."""
    before = os.umask(0)
    try:
        with FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite") as store:
            store.claim()
            store.save([some.node()])
            found = modes(tmp_path)
        assert set(found.values()) == {0o600}
        assert {"gateway.sqlite", "gateway.sqlite.lock", "gateway.sqlite-wal"} <= set(found)
        for path in tmp_path.iterdir():
            path.chmod(0o644)  # as a version before this one left it
        with FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite") as store:
            store.claim()
            assert set(modes(tmp_path).values()) == {0o600}
            assert store.fleet().nodes == (some.node(),)
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_nobody_else_can_hold_a_share_of_the_lock(tmp_path):
    """A share of the lock, taken by any user of the machine, kept the gateway from starting."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    url, lock = f"sqlite:///{tmp_path}/gateway.sqlite", tmp_path / "gateway.sqlite.lock"
    with FleetStore.open(url) as store:
        store.claim()
    command = [sys.executable, "-I", "-S", "-c", SHARE, str(lock)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as somebody:
        try:
            said = somebody.stdout.readline()
            with FleetStore.open(url) as store:
                store.claim()
                assert store.is_leader()
            assert said == ""
            assert "Permission denied" in somebody.stderr.read()
        finally:
            somebody.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_lock_that_somebody_else_has_laid_out_is_refused(tmp_path):
    """In a folder where others may write, one of them was first."""
    lock = tmp_path / "gateway.sqlite.lock"
    with FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite") as store:
        lock.touch()
        os.chown(lock, 65534, 65534)
        with pytest.raises(DatabaseError, match="belongs to user 65534") as caught:
            store.claim()
        assert not caught.value.transient
        lock.unlink()
        lock.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(DatabaseError, match="symbolic link"):
            store.claim()
        assert not (tmp_path / "elsewhere").exists()
        lock.unlink()
        store.claim()
        assert store.is_leader()
