"""The tables by which several gateways share sites: see `sites.py`."""

from __future__ import annotations

from sqlalchemy import MetaData, Table

from gateway.store.column_types import Number, Real, key, must

METADATA = MetaData()
SITES = Table(
    "sites",
    METADATA,
    key("site"),
    must("number", Number),
    must("epoch", Number),
    must("member"),
)
MEMBERS = Table(
    "members",
    METADATA,
    key("name"),
    must("host"),
    must("pid", Number),
    must("key"),
    must("lease_s", Real),
    must("sites"),
    must("since_ms", Number),
    must("seen_ms", Number),
    must("beat", Number),
)
