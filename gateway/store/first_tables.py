"""Tables as the first release made them, where they have been altered since: see `migrations`."""

from __future__ import annotations

from sqlalchemy import MetaData, Table

from gateway.store.column_types import Number, Real, key, may, must

METADATA = MetaData()
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
    must("knots"),
    may("unit"),
    may("end_of_life_ms", Number),
    may("replaces"),
    must("reason"),
    must("announced_ms", Number),
    must("together", Number),
)
