"""The gateway's lock after the database server was restarted, and who may take it at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest
import store_records as some
from gateway_process import GatewayProcess
from mosquitto import Mosquitto
from node_process import WAIT_S, wait_until
from postgres import Postgres

from gateway.store import MasterError, Store


def served(url) -> bool:
    with Store.open(url) as store:
        return store.has_master()


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
            end(own_postgres)
            own_postgres.start()
            wait_until(lambda: served(url), "the lock is taken again", 20.0)
            second = subprocess.run(
                [sys.executable, "-m", "gateway", "run", gateway.toml],
                capture_output=True,
                text=True,
                check=False,
                timeout=WAIT_S,
            )
            assert second.returncode == 2
            assert f"is being served by process {gateway.process.pid} on" in second.stderr
            gateway.check_alive()
            assert gateway.stop() == 0
            assert not served(url)
        finally:
            gateway.kill()


def test_a_gateway_that_finds_another_in_its_place_stops_and_writes_nothing(tmp_path, own_postgres):
    """While its server was away, an operator had started another; two would contradict each other.

    The other holds the lock, or has come and gone: what we remember may be out of date.
    """
    url = own_postgres.database("fleet")
    with Store.open(url) as first, Store.open(url) as second:
        first.claim()
        first.save([some.node(seen_ms=1)])
        own_postgres.stop()
        own_postgres.start()
        assert not first.still_master()
        second.claim()
        with pytest.raises(MasterError, match="is being served by"):
            first.reclaim()
        second.save([some.node(seen_ms=2)])
        second.close()
        with pytest.raises(MasterError, match="was taken over by"):
            first.reclaim()
        with pytest.raises(MasterError):
            first.save([some.node(seen_ms=3)])
    with Store.open(url) as looking:
        assert looking.fleet().nodes[0].seen_ms == 2
        assert not looking.has_master()
