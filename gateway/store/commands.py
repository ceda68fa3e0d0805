"""What operators ask for: from the command line's process, through the database, to the gateway.

The command line submits and waits; the gateway reads the open commands, obeys, and settles each
with `done` or the sentence why not. A command survives the death of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy import Connection, delete, func, insert, select, update

from gateway.store.errors import RecordError
from gateway.store.rows import INTEGER_END, record_of, row_of
from gateway.store.tables import COMMANDS

FORGET = b"forget"
"""The payload of the command to forget a node: no event, and no event looks like it."""
RELEARN = b"relearn"
"""The payload of the command to give a node weights of what its group knows now."""
SETTLED_KEPT = 1_000
"""How many settled commands are remembered, for whoever still wants to know the outcome."""
OPEN_READ = 1_000
"""How many open commands are read at once; the others follow when these are settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A wish: an event or a label for a node, as the bytes of its message, `FORGET` or `RELEARN`.

    It is open while it has no outcome. A label is not taken before `at_ms`: until then whoever gave
    it can withdraw it.
    """

    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: int
    site: str
    node: str
    payload: bytes
    at_ms: int
    outcome: str = ""


def submit(connection: Connection, command: CommandRecord) -> int:
    """Store an open command; its `id` is given by the database, and returned."""
    row = row_of(command)
    del row["id"]
    statement = insert(COMMANDS).values(row).returning(COMMANDS.c.id)
    return int(connection.execute(statement).scalar_one())


def withdraw(
    connection: Connection, site: str, node: str, numbers: Iterable[int], after_ms: int
) -> int:
    """Delete those of these open commands to a node that are due after this; how many."""
    this = COMMANDS.c.site == site, COMMANDS.c.node == node, COMMANDS.c.id.in_(list(numbers))
    still = COMMANDS.c.settled.is_(None), COMMANDS.c.at_ms > after_ms
    return connection.execute(delete(COMMANDS).where(*this, *still)).rowcount


def open_commands(connection: Connection, site: str | None = None) -> list[CommandRecord]:
    """The oldest commands without an outcome, of one site or of all, by id."""
    still = select(COMMANDS).where(COMMANDS.c.settled.is_(None))
    if site is not None:
        still = still.where(COMMANDS.c.site == site)
    rows = connection.execute(still.order_by(COMMANDS.c.id).limit(OPEN_READ)).mappings()
    return [record_of(CommandRecord, COMMANDS, row) for row in rows]


def find(connection: Connection, number: int) -> CommandRecord | None:
    """One command, open or settled; None where it never was, or is long forgotten."""
    if number >= INTEGER_END:  # no database would even look for it
        return None
    row = connection.execute(select(COMMANDS).where(COMMANDS.c.id == number)).mappings().first()
    return None if row is None else record_of(CommandRecord, COMMANDS, row)


def settle(connection: Connection, outcomes: Mapping[int, str]) -> None:
    """Write down how open commands ended, and forget what was settled long ago.

    A settled command keeps its first outcome: a gateway that is not sure whether its transaction
    went through does it again.
    """
    for number, outcome in outcomes.items():
        if not outcome:
            raise RecordError(f"command {number} must be settled with `done` or a reason, got ''")
        row = row_of(
            CommandRecord(id=number, site="", node="", payload=b"", at_ms=0, outcome=outcome)
        )
        place = select(func.coalesce(func.max(COMMANDS.c.settled), 0) + 1).scalar_subquery()
        this = COMMANDS.c.id == row["id"], COMMANDS.c.settled.is_(None)
        after = {"outcome": row["outcome"], "settled": place}
        connection.execute(update(COMMANDS).where(*this).values(after))
    last = select(func.max(COMMANDS.c.settled)).scalar_subquery()
    connection.execute(delete(COMMANDS).where(COMMANDS.c.settled <= last - SETTLED_KEPT))
