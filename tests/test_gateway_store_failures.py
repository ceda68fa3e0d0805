"""When the database fails: which failures pass, what is said, and that nothing is half done."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text
from support import store_records as some
from support.postgres import Postgres

from edge_opid.errors import SettingError
from gateway.store import DatabaseError, FleetStore, database

SECRET = "hunter2"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gateway.sqlite"


def test_a_database_that_another_writer_holds_is_asked_again(path, monkeypatch):
    monkeypatch.setattr(database, "PRAGMAS", ("busy_timeout = 1", *database.PRAGMAS[1:]))
    with FleetStore.open(f"sqlite:///{path}") as store:
        store.save([some.node(seen_ms=1)])
        before = store.fleet()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="saving 1 records failed: database is locked") as e:
            store.save([some.node(seen_ms=2)])
        assert e.value.transient
        assert store.fleet() == before  # whoever reads does not have to wait
        other.execute("ROLLBACK")
        other.close()
        store.save([some.node(seen_ms=3)])
        assert store.fleet().nodes[0].seen_ms == 3


def test_a_full_disk_is_asked_again_and_has_taken_nothing(path, monkeypatch):
    with FleetStore.open(f"sqlite:///{path}") as store:
        store.save([some.node(), some.order()])
        before = store.fleet()
    full = (*database.PRAGMAS, "max_page_count = 1")  # never below what is in use
    monkeypatch.setattr(database, "PRAGMAS", full)
    with FleetStore.open(f"sqlite:///{path}") as store:
        with pytest.raises(DatabaseError, match="disk is full; try again") as caught:
            store.save([some.node(seen_ms=2), some.order(payload=bytes(1_000_000))])
        assert caught.value.transient
        assert store.fleet() == before
        store.save([some.node(seen_ms=3)])  # there is room for this
        assert store.fleet().nodes[0].seen_ms == 3


def test_a_file_that_is_no_database_is_refused_and_not_overwritten(path):
    path.write_bytes(b"somebody's holiday pictures" * 1000)
    with pytest.raises(DatabaseError, match="file is not a database; nothing was stored") as caught:
        FleetStore.open(f"sqlite:///{path}")
    assert not caught.value.transient
    assert path.read_bytes() == b"somebody's holiday pictures" * 1000


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DatabaseError, match=r"nowhere/gateway\.sqlite: .*unable to open") as caught:
        FleetStore.open(f"sqlite:///{tmp_path}/nowhere/gateway.sqlite")
    assert not caught.value.transient
    assert list(tmp_path.iterdir()) == []


def test_every_commit_to_a_file_is_synced_and_waits_for_other_writers(path):
    opened = database.Database(f"sqlite:///{path}")
    with opened.reading("a test") as connection:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        found = [connection.execute(text(f"PRAGMA {name}")).scalar_one() for name in names]
    opened.close()
    assert found == ["wal", 2, 1, 5_000]


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://opid:{SECRET}@pi4/fleet",
        f"postgresql+asyncpg://opid:{SECRET}@pi4/fleet",
        f"{SECRET} is no address",
        f"postgresql://opid:{SECRET}@pi4:port/fleet",
        "sqlite:///file:gateway.sqlite?uri=true",
        "gateway.sqlite",
        "",
    ],
)
def test_an_address_that_is_none_is_refused_without_telling_its_password(
    url, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=r"gateway\.database must ") as caught:
        FleetStore.open(url)
    assert SECRET not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_asked_again_without_telling_the_password(tmp_path):
    with pytest.raises(
        DatabaseError, match=r"postgresql://opid:\*\*\*@/fleet: .* failed"
    ) as caught:
        FleetStore.open(f"postgresql://opid:{SECRET}@/fleet?host={tmp_path}")
    assert caught.value.transient
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill], ids=["stopped", "crashed"])
def test_a_server_that_was_restarted_is_used_again_without_being_opened_again(postgres, end):
    url = postgres.database(f"restart_{end.__name__}")
    with FleetStore.open(url) as store:
        store.claim()
        store.save([some.node(seen_ms=1), some.order()])
        end(postgres)
        try:
            for doing in (lambda: store.save([some.node(seen_ms=2)]), store.fleet, store.claim):
                with pytest.raises(DatabaseError) as caught:
                    doing()
                assert caught.value.transient, caught.value
            assert not store.is_leader()
        finally:
            postgres.start()
        assert [each.seen_ms for each in store.fleet().nodes] == [1]
        store.save([some.node(seen_ms=3)])
        store.claim()
        assert store.is_leader()
        end(postgres)
        postgres.start()  # and this time nobody noticed
        store.save([some.node(seen_ms=4)])
        assert [each.seen_ms for each in store.fleet().nodes] == [4]
        assert store.fleet().orders == (some.order(),)
        assert not store.is_leader()


def test_a_row_that_another_session_holds_is_asked_again(postgres, monkeypatch):
    url = postgres.database("row_lock")
    quick = {**database.POSTGRESQL_OPTIONS, "options": "-c lock_timeout=50ms"}
    monkeypatch.setattr(database, "POSTGRESQL_OPTIONS", quick)
    other = database.Database(url)
    with FleetStore.open(url) as store:
        store.save([some.node(seen_ms=1)])
        with other.writing("a test") as connection:
            connection.execute(text("SELECT * FROM nodes FOR UPDATE"))
            with pytest.raises(DatabaseError, match="lock timeout") as caught:
                store.save([some.order(), some.node(seen_ms=2)])
        assert caught.value.transient
        assert store.fleet().nodes[0].seen_ms == 1
        assert store.fleet().orders == ()
    other.close()


def test_a_user_without_rights_is_told_and_not_retried(postgres):
    url = postgres.database("no_rights")
    postgres.sql("no_rights", "CREATE ROLE guest LOGIN")
    with pytest.raises(DatabaseError, match="permission denied for schema public") as caught:
        FleetStore.open(url.replace("opid@", "guest@"))
    assert not caught.value.transient
    tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
    assert postgres.sql("no_rights", tables) == "0"


def test_a_copy_made_of_the_file_and_its_log_is_a_whole_database(path, tmp_path):
    with FleetStore.open(f"sqlite:///{path}") as store:
        store.save(some.one_of_each())
        before = store.fleet()
        for each in (path, Path(f"{path}-wal")):
            shutil.copy(each, tmp_path / each.name.replace("gateway", "copy"))
    with FleetStore.open(f"sqlite:///{tmp_path}/copy.sqlite") as store:
        assert store.fleet() == before
    with FleetStore.open(f"sqlite:///{path}") as store:
        assert store.fleet() == before
