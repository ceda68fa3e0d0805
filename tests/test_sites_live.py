"""Several real gateways share the sites of a real PostgreSQL, and are killed, frozen and cut off.

The large version is `make sites` (`python -m benchmarks.sites`).
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import text
from support import store_records as some
from support.mosquitto import find_mosquitto
from support.node_process import wait_until

from benchmarks.sites.town import Town, story
from gateway.sites.lease import Lease
from gateway.store import DatabaseError, FleetStore, LeaderError, site_store
from gateway.store.database import Database
from gateway.store.site_store import SiteStore
from gateway.store.sites import MemberSession

SITES = ("bay", "hill", "mill")
LEASE_S = 2.0


@contextmanager
def member(url, sites=SITES, lease_s=LEASE_S):
    """A member of its own, in this process."""
    database = Database(url)
    session = MemberSession(database, "00", lease_s, sites)
    try:
        yield session
    finally:
        session.close()
        database.close()


def node_of(site, **fields):
    return replace(some.node(**fields), site=site)


@pytest.fixture
def url(postgres, request):
    name = f"sites_{abs(hash(request.node.name)) % 10**9}"
    found = postgres.database(name)
    FleetStore.open(found).close()
    return found


def test_two_gateways_share_three_sites_through_a_kill_and_a_freeze(tmp_path, postgres):
    """`kill -9` and SIGSTOP in the middle of changes: the same orders as with one gateway, none
    twice, and no two gateways for a site; a woken one does nothing for what it has lost.
    """
    find_mosquitto()
    rounds = story(3, SITES, 2, 2)
    with Town(tmp_path / "alone", postgres.database("alone"), SITES, 3, 1, LEASE_S) as alone:
        for changing in rounds:
            alone.round(changing)
    url = postgres.database("shared")
    with Town(tmp_path / "shared", url, SITES, 3, 2, LEASE_S) as town:
        town.round(rounds[0], lambda: town.kill(0, 0.4))
        town.settle()
        town.round(rounds[1], lambda: town.freeze(1, 0.4))
        town.settle()
        told = subprocess.run(
            [sys.executable, "-m", "gateway", "members", "--json", town.members[0].toml],
            capture_output=True,
            check=True,
            text=True,
        )
        assert town.members[0].stop() == 0
        town._until(lambda: len(town.held_by(1)) == len(SITES), "a stopped one's sites are taken")
        acts, contradictions, twice = town.acts(), town.contradictions(), town.orders_twice()
    found = json.loads(told.stdout)
    assert sorted(site for each in found["members"] for site in each["sites"]) == list(SITES)
    assert found["unserved"] == []
    assert acts.keys() == set(SITES)
    assert (contradictions, twice) == ([], [])
    assert town.states == alone.states


def test_of_two_gateways_that_want_a_site_one_gets_it_and_the_other_can_write_nothing(url):
    """Both saw it free. Later the site is taken over, and the former holder does not know."""
    with member(url) as first, member(url) as second:
        first.beat()
        _, rows = second.beat()
        row = rows[0]
        tenure = first.take(row)
        assert tenure is not None
        assert second.take(row) is None
        with SiteStore(url, tenure, ["air"]) as old:
            node = node_of(row.site)
            old.save([node])
            _, rows = second.beat()
            later = second.take(rows[0])
            assert later is not None
            assert later.epoch == tenure.epoch + 1
            for write in (
                lambda: old.save([node_of(row.site, seen_ms=9)]),
                lambda: old.forget_examples(1),
                old.forget_closed,
                lambda: old.tidy_history(0),
            ):
                with pytest.raises(
                    LeaderError, match=f"site '{row.site}' .* in epoch 2, .* epoch 1"
                ):
                    write()
            first.give(tenure)  # too late: it is another's
            assert old.fleet().nodes == (node,)
        assert first.beat()[1][0].member == second.name


def test_a_gateway_alone_and_gateways_that_share_exclude_each_other(url):
    """A tool that leads the whole database, as a restore would, and members that come meanwhile."""
    with FleetStore.open(url) as alone, member(url) as session:
        alone.claim()
        with pytest.raises(LeaderError, match="does not share it"):
            session.beat()
        alone.close()
        _, rows = session.beat()
        tenure = session.take(rows[0])
        with FleetStore.open(url) as other:
            with pytest.raises(LeaderError, match="is being served by"):
                other.claim()
            assert other.has_leader()
            session.close()  # its session is lost, and it has not noticed
            wait_until(lambda: not other.has_leader(), "PostgreSQL has noticed")
            other.claim()
        with (
            SiteStore(url, tenure, []) as site,
            pytest.raises(LeaderError, match="another gateway serves it"),
        ):
            site.save([node_of(rows[0].site)])
        with FleetStore.open(url) as looking:
            assert looking.fleet().nodes == ()


def test_a_site_is_read_alone_and_numbers_its_changes_apart_from_all_others(url):
    """Two gateways open a change at the same moment: one number for both would mix their nodes."""
    with FleetStore.open(url) as whole:
        whole.claim()
        whole.save(
            [
                node_of("bay"),
                node_of("hill"),
                replace(some.change(1), group="of-bay"),
                replace(some.change(2), group="of-hill"),
            ]
        )
        whole.submit("bay", "north", b"x", 1)
    taken = []
    with member(url) as session:
        _, rows = session.beat()
        for row in rows:
            tenure = session.take(row)
            with SiteStore(url, tenure, [f"of-{row.site}"]) as store:
                fleet = store.fleet()
                assert {each.site for each in fleet.nodes} <= {row.site}
                assert {each.group for each in fleet.changes} <= {f"of-{row.site}"}
                assert len(store.commands()) == (row.site == "bay")
                taken += [fleet.next_change + k * fleet.changes_apart for k in range(50)]
    assert len(set(taken)) == len(taken)
    assert min(taken) > 2


class Cut:
    """A wire to PostgreSQL that can go dead without a word: nothing is closed."""

    def __init__(self, folder, server):
        self.path, self._server = folder / ".s.PGSQL.5432", server / ".s.PGSQL.5432"
        self.is_dead = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.socket(socket.AF_UNIX)
                outer.connect(str(self._server))
                threading.Thread(target=self._pass, args=(inner, outer), daemon=True).start()

    def _pass(self, *ends):
        with suppress(OSError):
            while True:
                ready, _, _ = select.select(ends, [], [], 0.05)
                if self.is_dead.is_set():
                    continue
                for each in ready:
                    data = each.recv(65536)
                    if not data:
                        return
                    ends[1 - ends.index(each)].sendall(data)

    def close(self):
        self._listener.close()


def test_a_gateway_that_is_cut_off_silently_stops_before_another_may_begin(url, postgres, tmp_path):
    """The cable is cut and nobody says so: its words wait in a buffer. The lease ends by its own
    clock, not by an error.
    """
    wire = Cut(tmp_path, postgres.folder)
    behind = url.replace(f"host={postgres.folder}", f"host={tmp_path}")
    lease = Lease(LEASE_S)
    try:
        with member(behind) as cut_off, member(url) as other:
            sent_s = lease.now_s()
            _, rows = cut_off.beat()
            term = lease.renew(sent_s)
            tenure = cut_off.take(rows[0])
            with SiteStore(url, tenure, []) as store:
                store.save([node_of(rows[0].site)])
            wire.is_dead.set()
            beating = threading.Thread(target=lambda: suppressed(cut_off.beat), daemon=True)
            beating.start()
            other.beat()
            while True:
                asked_s = lease.now_s()
                if not lease.is_valid(term):
                    break
                assert asked_s - sent_s <= LEASE_S
            with pytest.raises(LeaderError, match="no heartbeat has reached the database for 2 s"):
                lease.check(term, rows[0].site)
            taken = other.take(next(row for row in other.beat()[1] if row.site == rows[0].site))
            assert taken.epoch == tenure.epoch + 1
            wire.is_dead.clear()  # the late heartbeat gets through: it revives nothing
            beating.join(30)
            lease.renew(sent_s + LEASE_S)
            assert not lease.is_valid(term)
    finally:
        wire.close()


def suppressed(call):
    with suppress(Exception):
        call()


def test_a_transaction_of_a_frozen_gateway_is_ended_by_the_server(url, monkeypatch):
    """Stopped within a transaction, it would keep its site locked from whoever takes over."""
    monkeypatch.setattr(site_store, "FROZEN_S", 1)
    with member(url) as first, member(url) as second:
        _, rows = first.beat()
        with SiteStore(url, first.take(rows[0]), []) as store:
            held = store._leading("a test")
            held.__enter__()  # and now nothing more is heard of it
            _, rows = second.beat()
            wait_until(lambda: take_if_free(second, rows[0]), "the server ends it")
            with pytest.raises(DatabaseError, match="idle-in-transaction"):
                held.__exit__(None, None, None)


def test_a_gateway_frozen_in_the_middle_of_a_statement_keeps_no_site(url):
    """Half of a COPY was sent when it was stopped: no timeout for idle transactions ends that."""
    with member(url) as first, member(url) as second:
        _, rows = first.beat()
        tenure = first.take(rows[0])
        frozen = psycopg.connect(url, application_name=tenure.sessions)
        frozen.execute("SELECT FROM sites WHERE site = %s FOR SHARE", [tenure.site])
        frozen.pgconn.send_query(b"COPY lives FROM STDIN")  # and now nothing more is heard of it
        _, rows = second.beat()
        with pytest.raises(DatabaseError, match="lock timeout"):
            second.take(rows[0])
        second.bury([first.name])
        wait_until(lambda: take_if_free(second, rows[0]), "the site is free")
        frozen.pgconn.finish()
        with FleetStore.open(url) as looking:
            assert [each.name for each in looking.membership()[0]] == [second.name]


def take_if_free(session, row):
    try:
        return session.take(row)
    except DatabaseError:
        return None


def test_keepalives_reach_both_ends_of_a_connection(url):
    """Whoever lost its power says no goodbye: both ends must ask."""
    database = Database(url)
    with database.reading("a test") as connection:
        names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
        configured = {
            name: connection.execute(
                text("SELECT reset_val FROM pg_settings WHERE name = :name"), {"name": name}
            ).scalar_one()
            for name in (*names, "tcp_user_timeout")
        }
        client = connection.connection.driver_connection.info.get_parameters()
    database.close()
    assert list(configured.values()) == ["5", "2", "3", "10000"]
    assert client["keepalives_idle"] == "5"
    assert client["tcp_user_timeout"] == "10000"
