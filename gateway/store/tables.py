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
from gateway.store.column_types import Number, Real, key, may, must

METADATA = MetaData()
Serial = BigInteger().with_variant(Integer(), "sqlite")  # only an INTEGER counts up by itself there
Json = Text()


def _of_change() -> Column[Any]:
    return Column("change", Number, ForeignKey("changes.id"), primary_key=True, autoincrement=False)


NODES = Table(
    "nodes",
    METADATA,
    key("site"),
    key("node"),
    must("group"),
    must("gate", Real),
    must("online", Boolean),
    must("seen_ms", Number),
    must("reported_version", Number),
    must("reported_layout", Number),
    must("reported_model", Number),
    must("status", LargeBinary),
    sqlite_with_rowid=False,  # neighbours by key lie together: what a sweep writes is few pages
)
SENSORS = Table(
    "sensors",
    METADATA,
    key("site"),
    key("node"),
    key("id"),
    must("role"),
    must("state"),
    must("since_ms", Number),
    may("timeout_s", Real),
    may("reference", Real),
    may("scale", Real),
    must("knots", Json),
    may("unit"),
    may("end_of_life_ms", Number),
    may("replaces"),
    must("reason"),
    must("announced_ms", Number),
    must("together", Number),
    must("judged", Number),
    must("agreed", Number),
)
LAYOUTS = Table(
    "layouts",
    METADATA,
    key("site"),
    key("node"),
    key("version", Number),
    must("sensors", Json),
    must("vanishing", Json),
    must("gate", Real),
    must("change", Number),  # 0 where a node brought its own: no foreign key
    must("at_ms", Number),
    Index("layouts_by_change", "change"),
)
ORDERS = Table(
    "orders",
    METADATA,
    key("site"),
    key("node"),
    must("version", Number),
    must("layout_version", Number),
    must("payload", LargeBinary),
    must("at_ms", Number),
    must("fit", Number),
)
SUMMARIES = Table(
    "summaries",
    METADATA,
    key("site"),
    key("node"),
    key("layout_version", Number),
    must("payload", LargeBinary),
    must("at_ms", Number),
)
CHANGES = Table(
    "changes",
    METADATA,
    key("id", Number),
    must("group"),
    must("retired", Json),
    must("arrived", Json),
    must("columns", Json),
    must("opened_ms", Number),
    must("state"),
    must("fitted", Number),
    must("pushed", Number),
    may("closed_ms", Number),
    Index("changes_by_state", "state"),
)
EXAMPLES = Table(
    "examples",
    METADATA,
    _of_change(),
    key("site"),
    key("node"),
    key("source"),
    key("boot", Number),
    key("seq", Number),
    must("layout_version", Number),
    must("label"),
    must("values", Json),
    must("place", Number),
)
FITS = Table(
    "fits",
    METADATA,
    _of_change(),
    key("size", Number),
    must("at_ms", Number),
    must("chosen"),
    must("why"),
    must("pushed", Boolean),
    must("candidates", Json),
    must("pooled", Json),
    must("refused", Json),
    must("readings", Number),
    must("rounding_loss", Real),
    must("parts", Json),  # base64 within
    must("survivors", Json),
    must("new", Json),
    must("compact_loss", Real),
)
COMMANDS = Table(
    "commands",
    METADATA,
    Column("id", Serial, primary_key=True),
    must("site"),
    must("node"),
    must("payload", LargeBinary),
    must("at_ms", Number),
    must("outcome"),
    may("settled", Number),  # the how-manieth to be settled; NULL as long as it is open
    Index("commands_by_settled", "settled"),
    sqlite_autoincrement=True,  # the number of a forgotten command is not given out again
)
LEADER = Table(
    "leader",
    METADATA,
    key("id", Number),  # one row: 1
    must("epoch", Number),  # how many leaders there have been; the highest one may write
    must("host"),
    must("pid", Number),
)
DOUBTS = Table(
    "doubts",
    METADATA,
    key("site"),
    key("node"),
    key("kind"),
    must("sentence"),
    must("count", Number),
    must("at_ms", Number),
)
ISSUED = Table("issued", METADATA, key("site"), key("node"), must("version", Number))

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
