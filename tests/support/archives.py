"""A small fleet with a database, and years of its readings as an owner may have kept them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firmware_sim.live.toml import toml_table
from support.fleet_rig import CLASSES, SITE, FleetRig, SeenWorld, save_to_file

ROLES = ("co", "db", "no", "pm")
COLUMNS = {f"{role}_value": role for role in ROLES}
START_MS = 1_600_000_000_000
MINUTE_MS = 60_000
GROUP_ROWS = 150


def rows(count: int = 1_800, seed: int = 5) -> dict[str, list]:
    """Two nodes in turn; n2 has no co in the second half; a third of the rows has a label."""
    world, table = SeenWorld(seed), {name: [] for name in (*COLUMNS, "device", "state", "at")}
    rng = np.random.default_rng(seed)
    for number in range(count):
        device = ("n1", "n2")[number % 2]
        values, label = world.instance({role: role for role in ROLES})
        for role in ROLES:
            gone = role == "co" and device == "n2" and number >= count // 2
            table[f"{role}_value"].append(None if gone else values[role])
        table["device"].append(device)
        table["state"].append(f"is {label}" if rng.random() < 1 / 3 else None)
        table["at"].append(START_MS + number * MINUTE_MS)
    return table


def arrow_table(table: dict[str, list]) -> pa.Table:
    arrays = {name: pa.array(values) for name, values in table.items()}
    arrays["at"] = pa.array(table["at"], pa.timestamp("ms"))
    return pa.table(arrays)


def write_parquet(folder: Path, table: dict[str, list]) -> Path:
    """Two files with row groups of 150 rows."""
    folder.mkdir(exist_ok=True)
    whole = arrow_table(table)
    half = len(whole) // 2
    pq.write_table(whole.slice(0, half), folder / "2020.parquet", row_group_size=GROUP_ROWS)
    pq.write_table(whole.slice(half), folder / "2021.parquet", row_group_size=GROUP_ROWS)
    return folder


MAPPING = """\
label = "state"
node = "device"
time = "at"

[columns]
co_value = "co"
db_value = "db"
no_value = "no"
pm_value = "pm"

[labels]
"is calm" = "calm"
"is busy" = "busy"
"is alarm" = "alarm"
"""


def write_fleet(folder: Path, rig: FleetRig | None = None) -> Path:
    """A configuration and the database of a fleet that has introduced itself."""
    if rig is None:
        rig = FleetRig(names=("n1", "n2"))
        rig.pass_s(2)
    save_to_file(rig.store, folder / "gateway.sqlite")
    (folder / "key").write_text("5" * 64 + "\n")
    (folder / "key").chmod(0o600)
    (folder / "mapping.toml").write_text(MAPPING)
    config = folder / "gateway.toml"
    config.write_text(
        toml_table("gateway", database="sqlite:///gateway.sqlite", key="key")
        + toml_table("[groups]", id="air", site=SITE, classes=list(CLASSES), nodes=list(rig.names))
    )
    return config


# -- Home Assistant's recorder ---------------------------------------------------------------------

RECORDER = """
CREATE TABLE states_meta (metadata_id INTEGER PRIMARY KEY, entity_id VARCHAR(255));
CREATE TABLE states (
  state_id INTEGER PRIMARY KEY, entity_id CHAR(0), state VARCHAR(255), attributes CHAR(0),
  event_id SMALLINT, last_changed CHAR(0), last_changed_ts FLOAT, last_reported_ts FLOAT,
  last_updated CHAR(0), last_updated_ts FLOAT, old_state_id INTEGER, attributes_id INTEGER,
  context_id CHAR(0), context_user_id CHAR(0), context_parent_id CHAR(0), origin_idx SMALLINT,
  context_id_bin BLOB, context_user_id_bin BLOB, context_parent_id_bin BLOB, metadata_id INTEGER
);
CREATE INDEX ix_states_metadata_id_last_updated_ts ON states (metadata_id, last_updated_ts);
CREATE TABLE statistics_meta (
  id INTEGER PRIMARY KEY, statistic_id VARCHAR(255), source VARCHAR(32),
  unit_of_measurement VARCHAR(255), has_mean BOOLEAN, has_sum BOOLEAN, name VARCHAR(255)
);
CREATE TABLE statistics (
  id INTEGER PRIMARY KEY, created CHAR(0), created_ts FLOAT, metadata_id INTEGER,
  start CHAR(0), start_ts FLOAT, mean FLOAT, min FLOAT, max FLOAT, last_reset CHAR(0),
  last_reset_ts FLOAT, state FLOAT, sum FLOAT
);
"""
"""The tables that are read, with the columns of Home Assistant's schema 43 and later."""


def write_recorder(path: Path, states: dict[str, list], means: dict[str, list]) -> Path:
    """States and hourly means, each by entity: (seconds since 1970, state or mean)."""
    with sqlite3.connect(path) as connection:
        connection.executescript(RECORDER)
        for number, (entity, said) in enumerate(states.items(), 1):
            connection.execute("INSERT INTO states_meta VALUES (?, ?)", (number, entity))
            connection.executemany(
                "INSERT INTO states (metadata_id, last_updated_ts, state) VALUES (?, ?, ?)",
                [(number, at, state) for at, state in said],
            )
        for number, (entity, said) in enumerate(means.items(), 1):
            connection.execute(
                "INSERT INTO statistics_meta (id, statistic_id, has_mean) VALUES (?, ?, 1)",
                (number, entity),
            )
            connection.executemany(
                "INSERT INTO statistics (metadata_id, start_ts, mean) VALUES (?, ?, ?)",
                [(number, at, mean) for at, mean in said],
            )
    connection.close()
    return path
