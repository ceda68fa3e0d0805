"""The schema: every field has its column, older databases are brought along, newer ones refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect, text
from support import store_records as some

from gateway.__main__ import main
from gateway.registry.archives import ArchiveRecord
from gateway.store import (
    CommandRecord,
    DatabaseError,
    FleetStore,
    StoreVersionError,
    archives,
    history,
    site_tables,
)
from gateway.store.database import Database
from gateway.store.migrations import FIRST, MIGRATIONS
from gateway.store.tables import COMMANDS, METADATA, TABLES

GOLDEN = Path(__file__).parent / "golden" / "gateway_schema.txt"
NEWEST = FIRST + len(MIGRATIONS) - 1
OPENERS = 4
OPEN_S = 120.0


def schema(url):
    """Every column of every table of a database, as lines."""
    database = Database(url)
    lines = []
    with database.reading("a test") as connection:
        found = inspect(connection)
        for table in sorted(found.get_table_names()):
            key = found.get_pk_constraint(table)["constrained_columns"]
            for column in found.get_columns(table):
                empty = "null" if column["nullable"] else "not null"
                mark = "key" if column["name"] in key else empty
                lines.append(f"{table}.{column['name']} {mark}")
    database.close()
    return [line for line in lines if not line.startswith("sqlite_")]


def value(url, sql):
    database = Database(url)
    with database.reading("a test") as connection:
        found = connection.execute(text(sql)).scalar_one()
    database.close()
    return found


def add_altitude(connection):
    """What a next version might do: a column more, filled from what is there."""
    connection.execute(text("ALTER TABLE nodes ADD COLUMN altitude BIGINT NOT NULL DEFAULT 0"))
    connection.execute(text("UPDATE nodes SET altitude = seen_ms * 2"))


def test_every_field_of_a_record_has_its_column():
    """A field without a column would be forgotten at the next restart."""
    kinds = {**TABLES, CommandRecord: COMMANDS, ArchiveRecord: archives.ARCHIVES}
    for kind, table in kinds.items():
        columns = [column.name for column in table.c if column.name != "settled"]
        assert columns == [each.name for each in dataclasses.fields(kind)]
        assert {each.name for each in table.primary_key} == set(kind.KEY)


def test_the_tables_that_migrations_make_are_the_pinned_ones(database_url):
    """After a change: a migration first (gateway/store/migrations.py), then the golden file."""
    with FleetStore.open(database_url):
        assert schema(database_url) == GOLDEN.read_text().splitlines()
    assert value(database_url, "SELECT version FROM schema_version") == NEWEST


def test_an_older_database_is_brought_along_once_with_its_rows(database_url):
    with FleetStore.open(database_url) as store:
        store.save([*some.one_of_each(), some.node(seen_ms=21)])
        before = store.fleet()
    for _ in range(2):
        with FleetStore.open(database_url, (*MIGRATIONS, add_altitude)) as store:
            assert store.fleet() == before
    assert value(database_url, "SELECT altitude FROM nodes") == 42
    assert value(database_url, "SELECT version FROM schema_version") == NEWEST + 1


def test_a_database_from_before_the_first_release_is_refused_with_one_sentence(tmp_path, capsys):
    """Its orders and summaries are in the words of then: no node would understand them."""
    folder, url = tmp_path / "fleet", f"sqlite:///{tmp_path}/fleet/gateway.sqlite"
    init = ["--site=street", "--group=air", "--class=fresh", "--class=stale", "--node=north"]
    assert main(["init", str(folder), *init]) == 0
    database = Database(url)
    with database.writing("a test") as connection:
        for sql in OF_THE_COMMIT_BEFORE:
            connection.execute(text(sql))
    database.close()
    before = schema(url)
    for verb in (["run"], ["node", "list"]):
        capsys.readouterr()
        assert main([*verb, str(folder / "gateway.toml")]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert "gateway.sqlite has schema version 2, from before the first release" in said.err
        assert "use another database, and each node introduces itself again" in said.err
    assert schema(url) == before
    assert value(url, "SELECT epoch FROM master") == 7


OF_THE_COMMIT_BEFORE = (
    "CREATE TABLE schema_version (version INTEGER NOT NULL)",
    "INSERT INTO schema_version VALUES (2)",
    "CREATE TABLE master (id BIGINT PRIMARY KEY, epoch BIGINT NOT NULL)",
    "INSERT INTO master VALUES (1, 7)",
)


def test_a_database_of_a_newer_program_is_refused_and_stays_as_it_is(database_url):
    with FleetStore.open(database_url, (*MIGRATIONS, add_altitude)) as store:
        store.save(some.one_of_each()[5:])
        before = schema(database_url), store.fleet()
    sentence = (
        f"has schema version {NEWEST + 1}, but this program knows versions up to {NEWEST}: inst"
    )
    with pytest.raises(StoreVersionError, match=sentence):
        FleetStore.open(database_url)
    with FleetStore.open(database_url, (*MIGRATIONS, add_altitude)) as store:
        assert (schema(database_url), store.fleet()) == before


def fails_in_sql(connection):
    connection.execute(text("UPDATE nodes SET no_such_column = 1"))


def fails_in_python(_):
    raise ZeroDivisionError("a mistake in a migration")


@pytest.mark.parametrize(
    ("step", "error"), [(fails_in_sql, DatabaseError), (fails_in_python, ZeroDivisionError)]
)
def test_a_migration_that_fails_leaves_the_database_as_it_was(database_url, step, error):
    with FleetStore.open(database_url) as store:
        store.save(some.one_of_each())
        before = store.fleet()
    columns = schema(database_url)
    with pytest.raises(error) as caught:
        FleetStore.open(database_url, (*MIGRATIONS, add_altitude, step))
    assert not getattr(caught.value, "transient", False)
    assert schema(database_url) == columns
    with FleetStore.open(database_url) as store:
        assert store.fleet() == before


def test_the_first_migration_that_fails_leaves_an_empty_database(database_url):
    with pytest.raises(ZeroDivisionError):
        FleetStore.open(database_url, (*MIGRATIONS, fails_in_python))
    assert schema(database_url) == []
    with FleetStore.open(database_url) as store:
        assert store.fleet().next_change == 1


OPEN = """
import sys
from gateway.store import FleetStore
print("ready", flush=True)
sys.stdin.readline()
with FleetStore.open(sys.argv[1]) as store:
    print(store.submit("street", "north", b"x", 1))
"""


def test_many_processes_that_open_an_empty_database_at_one_instant_make_it_once(database_url):
    command = [sys.executable, "-c", OPEN, database_url]
    pipe = subprocess.PIPE
    openers = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(OPENERS)
    ]
    try:
        assert [opener.stdout.readline() for opener in openers] == ["ready\n"] * OPENERS
        for opener in openers:
            opener.stdin.write("go\n")
            opener.stdin.flush()
        said = [opener.communicate(timeout=OPEN_S) for opener in openers]
    finally:
        for opener in openers:
            opener.kill()
            opener.wait(OPEN_S)
    assert [error for _, error in said if error] == []
    assert sorted(int(number) for number, _ in said) == list(range(1, OPENERS + 1))
    assert schema(database_url) == GOLDEN.read_text().splitlines()
    assert {line.split(".")[0] for line in schema(database_url)} == {
        "schema_version",
        *METADATA.tables,
        *history.METADATA.tables,
        *archives.METADATA.tables,
        *history.HEARD_METADATA.tables,
        *site_tables.METADATA.tables,
    }
