"""The gateway's database as a few dicts: what `gateway.store.FleetStore` promises, in microseconds.

A transaction of the real one takes a millisecond or two, which is nothing for a gateway and most of
the time of a simulation. So one run in sixteen has the real one, and a test holds the two to the
same digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from gateway.registry import records as kinds
from gateway.registry.archives import ArchiveRecord
from gateway.registry.fleet import StoredFleet, node_of
from gateway.registry.records import NodeKey, Record
from gateway.store import CommandRecord, FleetStore
from gateway.store.store import SUMMARIES_KEPT

Kind = TypeVar("Kind")


class MemoryRecords(FleetStore):
    """A `FleetStore` without a database. A transaction cannot fail half-way: it is one `update`."""

    def __init__(self) -> None:
        self._rows: dict[type[Any], dict[tuple[Any, ...], Any]] = {}
        self._commands: dict[int, CommandRecord] = {}

    def claim(self) -> None:
        """Nobody else can reach it."""

    def reclaim(self) -> bool:
        """Nobody could take it away."""
        return False

    def close(self) -> None:
        """There is nothing to let go of."""

    def save(self, records: Iterable[Record], outcomes: Mapping[int, str] | None = None) -> None:
        """As `FleetStore`."""
        for record in records:
            if isinstance(record, kinds.ForgottenRecord):
                self._forget((record.site, record.node))
                continue
            key = tuple(getattr(record, name) for name in record.KEY)
            self._rows.setdefault(type(record), {})[key] = record
            if isinstance(record, kinds.SummaryRecord):
                self._drop_old_summaries(record)
        for number, outcome in (outcomes or {}).items():
            if not self._commands[number].outcome:
                self._commands[number] = replace(self._commands[number], outcome=outcome)

    def _forget(self, node: NodeKey) -> None:
        for table in self._rows.values():
            for key in [k for k, record in table.items() if node_of(record) == node]:
                del table[key]

    def _drop_old_summaries(self, record: kinds.SummaryRecord) -> None:
        summaries = self._table(kinds.SummaryRecord)
        mine = [key for key in summaries if key[:2] == (record.site, record.node)]
        for key in sorted(mine)[:-SUMMARIES_KEPT]:
            del summaries[key]

    def _table(self, kind: type[Kind]) -> dict[tuple[Any, ...], Kind]:
        return self._rows.setdefault(kind, {})

    def _all(self, kind: type[Kind]) -> list[Kind]:
        """By key, as the database has them."""
        return [record for _, record in sorted(self._table(kind).items(), key=lambda row: row[0])]

    # --- questions --------------------------------------------------------------------------------

    def fleet(self) -> StoredFleet:
        """As `FleetStore`."""
        newest = {(each.site, each.node): each for each in self._all(kinds.LayoutRecord)}
        owners = {each.change for each in newest.values()}
        changes = [
            each
            for each in self._all(kinds.ChangeRecord)
            if each.state == kinds.ChangeState.GATHERING or each.id in owners
        ]
        return StoredFleet(
            self._all(kinds.NodeRecord),
            self._all(kinds.SensorRecord),
            list(newest.values()),
            self._all(kinds.OrderRecord),
            changes,
            next_change=max((each.id for each in self._all(kinds.ChangeRecord)), default=0) + 1,
            doubts=self._all(kinds.DoubtRecord),
            issued=self._all(kinds.IssuedRecord),
        )

    def summaries(self, keys: Iterable[NodeKey]) -> list[kinds.SummaryRecord]:
        """As `FleetStore`."""
        wanted = set(keys)
        return [each for each in self._all(kinds.SummaryRecord) if (each.site, each.node) in wanted]

    def layouts(self, keys: Iterable[tuple[str, str, int]]) -> list[kinds.LayoutRecord]:
        """As `FleetStore`."""
        wanted = set(keys)
        return [each for each in self._all(kinds.LayoutRecord) if each.key in wanted]

    def fits(self, change: int) -> list[kinds.FitRecord]:
        """As `FleetStore`."""
        return [each for each in self._all(kinds.FitRecord) if each.change == change]

    def examples(self, change: int) -> list[kinds.ExampleRecord]:
        """As `FleetStore`."""
        found = [each for each in self._all(kinds.ExampleRecord) if each.change == change]
        return sorted(found, key=lambda example: example.place)

    def forget_examples(self, change: int) -> None:
        """As `FleetStore`."""
        for key in [key for key in self._table(kinds.ExampleRecord) if key[0] == change]:
            del self._table(kinds.ExampleRecord)[key]

    def forget_closed(self) -> None:
        """As `FleetStore`."""
        for change in self._all(kinds.ChangeRecord):
            if change.state == kinds.ChangeState.CLOSED:
                self.forget_examples(change.id)

    def tidy_history(self, now_ms: int) -> int:  # noqa: ARG002
        """No simulation is long enough for anything to be old."""
        return 0

    def archives(self, group: str | None = None) -> list[ArchiveRecord]:  # noqa: ARG002
        """No simulated operator has one."""
        return []

    # --- commands ---------------------------------------------------------------------------------

    def submit(self, site: str, node: str, payload: bytes, at_ms: int) -> int:
        """As `FleetStore`."""
        number = len(self._commands) + 1
        self._commands[number] = CommandRecord(
            id=number, site=site, node=node, payload=payload, at_ms=at_ms
        )
        return number

    def commands(self) -> list[CommandRecord]:
        """As `FleetStore`."""
        return [command for command in self._commands.values() if not command.outcome]

    def command(self, number: int) -> CommandRecord | None:
        """As `FleetStore`."""
        return self._commands.get(number)
