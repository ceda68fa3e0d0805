"""The gateway's store, as one contract: every test runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import dataclasses
import re
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import text
from support import store_records as some

from gateway.registry import (
    ChangeRecord,
    ChangeState,
    LayoutRecord,
    NodeRecord,
    OrderRecord,
    SensorRecord,
)
from gateway.store import (
    SUMMARIES_KEPT,
    CommandRecord,
    DatabaseError,
    FleetStore,
    RecordError,
    commands,
)
from gateway.store.database import Database
from gateway.store.rows import key_of
from gateway.store.tables import TABLES


@pytest.fixture
def store(database_url):
    with FleetStore.open(database_url) as opened:
        yield opened


def statements(url, *sqls):
    """What a person with an SQL client would do to the database."""
    database = Database(url)
    with database.writing("a test") as connection:
        for sql in sqls:
            connection.execute(text(sql))
    database.close()


def everything(store):
    """All that the store knows of changes 1 to 3, to compare before and after."""
    nodes = [each.key for each in store.fleet().nodes]
    of_changes = [(store.examples(n), store.fits(n), store.members(n)) for n in (0, 1, 2, 3)]
    return store.fleet(), store.summaries(nodes), of_changes, store.changes(9), store.commands()


def test_what_was_saved_comes_back_to_the_bit_after_the_store_was_opened_again(database_url):
    records = some.one_of_each()
    with FleetStore.open(database_url) as store:
        store.save(records)
    with FleetStore.open(database_url) as store:
        fleet = store.fleet()
        found = [*fleet.nodes, *fleet.sensors, *fleet.layouts, *fleet.orders]
        found += store.summaries([("street", "north")])
        found += [*fleet.changes, *store.examples(1), *store.fits(1)]
    assert found == records
    assert repr(found) == repr(records)  # tells -0.0 from 0.0, and 1 from 1.0 and True


def test_a_record_replaces_the_one_with_its_key_also_within_one_save(store):
    store.save([some.node(seen_ms=1), some.node("south")])
    store.save([some.node(seen_ms=2), some.node(seen_ms=3), some.order(version=7)])
    store.save([])
    assert [(each.node, each.seen_ms) for each in store.fleet().nodes] == [
        ("north", 3),
        ("south", 0),
    ]
    assert [each.version for each in store.fleet().orders] == [7]


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (some.node(gate=float("nan")), "gate cannot be stored: must be a number, got nan"),
        (some.node(group="a\0b"), "group cannot be stored: must be text without NUL"),
        (some.node(group="\ud800"), "group cannot be stored: .*surrogates"),
        (some.node(seen_ms=2**63), "seen_ms cannot be stored: must fit into 64 bits"),
        (some.node(seen_ms=True), "seen_ms cannot be stored: must be int, got bool"),
        (some.node(gate=np.float32(1)), "gate cannot be stored: must be float, got float32"),
        (some.node(status=bytearray(3)), "status cannot be stored: must be bytes, got bytearray"),
        (dataclasses.replace(some.hard_sensor(), state="ill"), "state cannot be stored: 'ill'"),
        (
            dataclasses.replace(some.fit(), candidates=({"a": np.float32(1)},)),
            "candidates cannot be stored",
        ),
        (
            CommandRecord(id=1, site="street", node="north", payload=b"", at_ms=0),
            "a CommandRecord cannot be saved",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_record_that_no_column_can_hold_is_refused_and_nothing_of_the_save_is_stored(
    store, record, complaint
):
    store.save([some.node(), some.change()])
    before = everything(store)
    with pytest.raises(RecordError, match=complaint):
        store.save([some.node(seen_ms=5), some.order(), record])
    assert everything(store) == before


def test_a_save_that_the_database_refuses_half_way_has_not_happened(store):
    store.save([some.node(), some.change()])
    before = everything(store)
    with pytest.raises(DatabaseError, match="saving 3 records failed") as caught:
        store.save([some.node(seen_ms=5), some.change(2), some.example(change=3)])  # no change 3
    assert not caught.value.transient
    assert everything(store) == before
    store.save([some.node(seen_ms=6)])
    assert store.fleet().nodes[0].seen_ms == 6


def test_of_history_the_fleet_holds_only_what_is_in_force(store):
    closed = {"state": ChangeState.CLOSED, "closed_ms": 9}
    store.save([some.change(1, **closed), some.change(2, **closed), some.change(3), some.change(7)])
    store.save([some.layout(version=1), some.layout(version=3, change=2)])
    store.save([some.layout(version=2, change=1), some.layout("south", 9)])
    store.save([some.example(3, place=1), some.example(3, place=0), some.example(7)])
    fleet = store.fleet()
    assert [(each.node, each.version) for each in fleet.layouts] == [("north", 3), ("south", 9)]
    assert [each.id for each in fleet.changes] == [2, 3, 7]
    assert [(number, len(batch)) for number, batch in fleet.examples.items()] == [(3, 2), (7, 1)]
    assert fleet.examples[3][1] == ("street", "north", "s", 1, 1)
    assert fleet.next_change == 8
    assert [each.id for each in store.changes(3)] == [7, 3, 2]
    assert store.changes(0) == store.changes(-1) == []


def test_an_empty_database_is_an_empty_fleet(store):
    fleet = store.fleet()
    assert [*fleet.nodes, *fleet.sensors, *fleet.layouts, *fleet.orders, *fleet.changes] == []
    assert (dict(fleet.examples), fleet.next_change) == ({}, 1)
    assert store.commands() == store.summaries([]) == store.layouts([]) == store.fits(1) == []


def test_old_summaries_of_a_node_go_and_those_of_others_stay(store):
    store.save([some.summary("south", 1)])
    store.save([some.summary(version=version) for version in (7, 2, 9, 3, 8, 5)])
    store.save([some.summary(version=1)])  # late, and older than what is kept
    found = store.summaries([("street", "north"), ("street", "south"), ("street", "west")])
    versions = [(each.node, each.layout_version) for each in found]
    assert versions == [*(("north", version) for version in (5, 7, 8, 9)), ("south", 1)]
    assert SUMMARIES_KEPT == 4


def test_more_keys_than_one_statement_takes_are_found_once_each_and_in_order(store):
    keys = [("street", "north", version) for version in range(1, 1_001)]
    store.save([some.layout(version=version) for _, _, version in keys])
    asked = [*reversed(keys), keys[0], ("street", "west", 1), ("field", "north", 1)]
    assert [each.key for each in store.layouts(iter(asked))] == keys


def test_examples_come_by_place_and_are_forgotten_with_their_change_alone(store):
    store.save([some.change(1), some.change(2)])
    store.save([some.example(1, place=2, name="a"), some.example(1, place=10, name="b")])
    store.save([some.example(1, place=1, name="c"), some.example(2, place=0)])
    assert [each.place for each in store.examples(1)] == [1, 2, 10]
    store.forget_examples(1)
    assert store.examples(1) == []
    assert store.examples(2) == [some.example(2, place=0)]
    assert [each.id for each in store.changes(9)] == [2, 1]


def test_fits_and_members_belong_to_their_change(store):
    store.save([some.change(1), some.change(2)])
    store.save([some.fit(1, size) for size in (120, 0, 30)] + [some.fit(2, 60)])
    store.save([some.layout("north", 2, change=1), some.layout("south", 5, change=1)])
    store.save([some.layout("north", 3, change=2)])
    assert [each.size for each in store.fits(1)] == [0, 30, 120]
    assert [each.key[1:] for each in store.members(1)] == [("north", 2), ("south", 5)]
    assert [each.key[1:] for each in store.members(2)] == [("north", 3)]


def test_a_command_reaches_the_gateway_once_and_its_outcome_the_operator(store, database_url):
    with FleetStore.open(database_url) as line:
        first = line.submit("street", "north", b"\0retire", 1_700_000_000_000)
        second = line.submit("street", "south", b"", 2)
        expected = CommandRecord(
            id=first, site="street", node="north", payload=b"\0retire", at_ms=1_700_000_000_000
        )
        assert store.commands() == [expected, line.command(second)]
        store.settle(first, "done")
        store.save([some.node(seen_ms=4)], {second: "no such sensor: 't9'"})
        assert line.commands() == []
        assert line.command(first) == dataclasses.replace(expected, outcome="done")
        assert line.command(second).outcome == "no such sensor: 't9'"
        assert line.command(second + 1) is None
    assert store.fleet().nodes[0].seen_ms == 4


def test_a_settled_command_keeps_its_first_outcome_and_needs_one(store):
    number = store.submit("street", "north", b"x", 1)
    with pytest.raises(RecordError, match=f"command {number} must be settled with"):
        store.save([some.node()], {number: ""})
    assert store.fleet().nodes == ()
    store.settle(number, "done")
    store.settle(number, "refused")
    store.settle(number + 1, "done")  # never was
    assert store.command(number).outcome == "done"
    assert store.command(number + 1) is None


def test_settled_commands_are_forgotten_in_the_order_of_their_settling_and_open_ones_never(
    store, monkeypatch
):
    monkeypatch.setattr(commands, "SETTLED_KEPT", 5)
    late, open_, *others = (store.submit("street", "north", b"x", 1) for _ in range(6))
    store.save([], dict.fromkeys(others, "done"))
    store.settle(late, "done")  # the oldest of all, and the last to be settled
    assert store.command(late).outcome == store.command(others[0]).outcome == "done"
    newest = store.submit("street", "north", b"x", 1)
    store.settle(newest, "done")
    assert store.command(others[0]) is None
    assert store.command(others[1]).outcome == store.command(late).outcome == "done"
    assert [each.id for each in store.commands()] == [open_]
    assert newest == others[-1] + 1


DAMAGE = {
    "no JSON": ("sensors", "knots", "[1.0,", "Expecting value"),
    "other JSON": ("sensors", "knots", '{"a": 1}', "must be list, got dict"),
    "NaN": ("sensors", "knots", "[NaN]", "must be a number, got nan"),
    "deep JSON": ("fits", "candidates", "[" * 100_000, "recursion"),
    "no such state": ("sensors", "state", "ill", "'ill' is not a valid SensorState"),
    "no base64": ("fits", "parts", '{"W_s": "*"}', "base64"),
    "no sensor": ("layouts", "sensors", '[{"id": "t1"}]', "missing"),
    "impossible sensor": (
        "layouts",
        "sensors",
        '[{"id":"t1","role":"t","reference":0.0,"scale":-1.0,"timeout_s":1.0}]',
        "sensor.scale must be at least",
    ),
}


@pytest.mark.parametrize(("table", "column", "value", "why"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_row_is_named_and_neither_believed_nor_touched(
    store, database_url, table, column, value, why
):
    store.save(some.one_of_each())
    statements(
        database_url, f"UPDATE {table} SET \"{column}\" = '{value.replace(':', chr(92) + ':')}'"
    )
    key = {"fits": "change=1, size=30", "sensors": "site='street', node='north', id='t1'"}
    where = key.get(table, "site='street', node='north', version=1")
    sentence = f"table {table}, row {re.escape(where)}: {column} cannot be read: .*{why}"
    for _ in range(2):
        with pytest.raises(DatabaseError, match=sentence):
            everything(store)
    assert store.examples(1) == [some.example()]
    store.save(some.one_of_each())
    everything(store)


def test_a_reader_sees_one_moment_while_the_gateway_saves(store, database_url):
    store.save([some.node(), some.order()])
    reader = Database(database_url)
    count = text("SELECT count(*) FROM nodes")
    with reader.reading("a long report") as connection:
        assert connection.execute(count).scalar_one() == 1
        store.save([some.node("south")])
        assert connection.execute(count).scalar_one() == 1
    with reader.reading("the next one") as connection:
        assert connection.execute(count).scalar_one() == 2
    reader.close()


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(transactions=some.saves)
def test_any_sequence_of_saves_is_what_a_dictionary_would_remember(database_url, transactions):
    model = {}
    with tempfile.TemporaryDirectory() as folder:
        url = database_url
        if url.startswith("sqlite"):
            url = f"sqlite:///{folder}/gateway.sqlite"
        with FleetStore.open(url) as store:
            emptied = reversed(TABLES.values())  # those that point to others first
            statements(url, *(f"DELETE FROM {table.name}" for table in emptied))
            for records in transactions:
                store.save(records)
                model |= {(type(each), key_of(each)): each for each in records}
        with FleetStore.open(url) as store:
            found = store.fleet()
    assert repr(listed(found)) == repr(expected(model.values()))


def listed(fleet):
    parts = fleet.nodes, fleet.sensors, fleet.layouts, fleet.orders, fleet.changes
    return [list(part) for part in parts], fleet.next_change


def expected(records):
    """The rules of `fleet`, in the words of a list."""
    by_class = {kind: [] for kind in TABLES}
    for each in records:
        by_class[type(each)].append(each)
    for some_records in by_class.values():
        some_records.sort(key=key_of)
    newest = {each.key[:2]: each for each in by_class[LayoutRecord]}
    owners = {each.change for each in newest.values()}
    changes = by_class[ChangeRecord]
    current = [each for each in changes if each.state == "gathering" or each.id in owners]
    parts = by_class[NodeRecord], by_class[SensorRecord], [*newest.values()], by_class[OrderRecord]
    return [*parts, current], max((each.id for each in changes), default=0) + 1
