"""The tables by which several gateways share sites: see `sites.py`."""

from __future__ import annotations

from sqlalchemy import Column, MetaData, Table, Text

from gateway.store.column_types import Number, Real

METADATA = MetaData()
SITES = Table(
    "sites",
    METADATA,
    Column("site", Text, primary_key=True),
    Column("number", Number, nullable=False),
    Column("epoch", Number, nullable=False),
    Column("member", Text, nullable=False),
)
MEMBERS = Table(
    "members",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Number, nullable=False),
    Column("key", Text, nullable=False),
    Column("lease_s", Real, nullable=False),
    Column("sites", Text, nullable=False),
    Column("since_ms", Number, nullable=False),
    Column("seen_ms", Number, nullable=False),
    Column("beat", Number, nullable=False),
)
