"""The tables, one for each class of records, written out: the newest version of the schema.

A column has the name of its field. Tuples and dicts are JSON text, so that a person can read them
with any SQL client; moments and versions need 64 bits. Those of the history are in `history.py`.
Whoever changes a table adds a migration, see `migrations.py`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

from gateway.registry import (
    ChangeRecord,
    DoubtRecord,
    ExampleRecord,
    FitRecord,
    IssuedRecord,
    LayoutRecord,
    NodeRecord,
    OrderRecord,
    SensorRecord,
    SummaryRecord,
)
from gateway.store import history
from gateway.store.column_types import Number, Real

METADATA = MetaData()
Serial = BigInteger().with_variant(Integer(), "sqlite")  # only an INTEGER counts up by itself there
Json = Text()


def _key(name: str, kind: Any = Text) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _must(name: str, kind: Any = Text) -> Column[Any]:
    return Column(name, kind, nullable=False)


def _may(name: str, kind: Any = Text) -> Column[Any]:
    return Column(name, kind, nullable=True)


def _of_change() -> Column[Any]:
    return Column("change", Number, ForeignKey("changes.id"), primary_key=True, autoincrement=False)


NODES = Table(
    "nodes",
    METADATA,
    _key("site"),
    _key("node"),
    _must("group"),
    _must("gate", Real),
    _must("online", Boolean),
    _must("seen_ms", Number),
    _must("reported_version", Number),
    _must("reported_layout", Number),
    _must("reported_model", Number),
    _must("status", LargeBinary),
    sqlite_with_rowid=False,  # neighbours by key lie together: what a sweep writes is few pages
)
SENSORS = Table(
    "sensors",
    METADATA,
    _key("site"),
    _key("node"),
    _key("id"),
    _must("role"),
    _must("state"),
    _must("since_ms", Number),
    _may("timeout_s", Real),
    _may("reference", Real),
    _may("scale", Real),
    _must("knots", Json),
    _may("unit"),
    _may("end_of_life_ms", Number),
    _may("replaces"),
    _must("reason"),
    _must("announced_ms", Number),
    _must("together", Number),
)
LAYOUTS = Table(
    "layouts",
    METADATA,
    _key("site"),
    _key("node"),
    _key("version", Number),
    _must("sensors", Json),
    _must("vanishing", Json),
    _must("gate", Real),
    _must("change", Number),  # 0 where a node brought its own: no foreign key
    _must("at_ms", Number),
    Index("layouts_by_change", "change"),
)
ORDERS = Table(
    "orders",
    METADATA,
    _key("site"),
    _key("node"),
    _must("version", Number),
    _must("layout_version", Number),
    _must("payload", LargeBinary),
    _must("at_ms", Number),
    _must("fit", Number),
)
SUMMARIES = Table(
    "summaries",
    METADATA,
    _key("site"),
    _key("node"),
    _key("layout_version", Number),
    _must("payload", LargeBinary),
    _must("at_ms", Number),
)
CHANGES = Table(
    "changes",
    METADATA,
    _key("id", Number),
    _must("group"),
    _must("retired", Json),
    _must("arrived", Json),
    _must("columns", Json),
    _must("opened_ms", Number),
    _must("state"),
    _must("fitted", Number),
    _must("pushed", Number),
    _may("closed_ms", Number),
    Index("changes_by_state", "state"),
)
EXAMPLES = Table(
    "examples",
    METADATA,
    _of_change(),
    _key("site"),
    _key("node"),
    _key("source"),
    _key("boot", Number),
    _key("seq", Number),
    _must("layout_version", Number),
    _must("label"),
    _must("values", Json),
    _must("place", Number),
)
FITS = Table(
    "fits",
    METADATA,
    _of_change(),
    _key("size", Number),
    _must("at_ms", Number),
    _must("chosen"),
    _must("why"),
    _must("pushed", Boolean),
    _must("candidates", Json),
    _must("pooled", Json),
    _must("refused", Json),
    _must("readings", Number),
    _must("rounding_loss", Real),
    _must("parts", Json),  # base64 within
    _must("survivors", Json),
    _must("new", Json),
    _must("compact_loss", Real),
)
COMMANDS = Table(
    "commands",
    METADATA,
    Column("id", Serial, primary_key=True),
    _must("site"),
    _must("node"),
    _must("payload", LargeBinary),
    _must("at_ms", Number),
    _must("outcome"),
    _may("settled", Number),  # the how-manieth to be settled; NULL as long as it is open
    Index("commands_by_settled", "settled"),
    sqlite_autoincrement=True,  # the number of a forgotten command is not given out again
)
LEADER = Table(
    "leader",
    METADATA,
    _key("id", Number),  # one row: 1
    _must("epoch", Number),  # how many leaders there have been; the highest one may write
    _must("host"),
    _must("pid", Number),
)
DOUBTS = Table(
    "doubts",
    METADATA,
    _key("site"),
    _key("node"),
    _key("kind"),
    _must("sentence"),
    _must("count", Number),
    _must("at_ms", Number),
)
ISSUED = Table("issued", METADATA, _key("site"), _key("node"), _must("version", Number))

TABLES: dict[type[Any], Table] = {
    NodeRecord: NODES,
    SensorRecord: SENSORS,
    LayoutRecord: LAYOUTS,
    OrderRecord: ORDERS,
    SummaryRecord: SUMMARIES,
    ChangeRecord: CHANGES,  # before the two that point to it
    ExampleRecord: EXAMPLES,
    FitRecord: FITS,
    DoubtRecord: DOUBTS,
    IssuedRecord: ISSUED,
    **history.TABLES,
}
