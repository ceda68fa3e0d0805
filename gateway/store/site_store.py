"""One site's part of a PostgreSQL database, for the gateway that holds the site.

What it reads at its start is of its site alone, and every transaction that writes is checked
against the site's epoch (`sites.check_site`): a gateway that has lost the site writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection, delete, select

from gateway.registry import ChangeState
from gateway.registry.fleet import StoredFleet
from gateway.registry.history import MinutesRecord
from gateway.store import commands, history, queries
from gateway.store.commands import CommandRecord
from gateway.store.database import Database, parse_url
from gateway.store.sites import CHANGES_APART, Tenure, check_site
from gateway.store.store import FleetStore
from gateway.store.tables import CHANGES, EXAMPLES

FROZEN_S = 5
"""A transaction between whose statements nothing is heard for so long is ended by the server: the
next gateway may be one that has not seen this one alive, and so does not know it to be dead."""


class SiteStore(FleetStore):
    """A `FleetStore` that knows one site. It is opened with a tenure, and needs no `claim`."""

    def __init__(self, url: str, tenure: Tenure, groups: Iterable[str]) -> None:
        named = parse_url(url).update_query_dict({"application_name": tenure.sessions})
        settings = {"idle_in_transaction_session_timeout": f"{FROZEN_S}s"}
        super().__init__(Database(named.render_as_string(hide_password=False), settings))
        self._tenure, self._groups = tenure, tuple(groups)

    def claim(self) -> None:
        """The tenure is the claim."""

    def reclaim(self) -> bool:
        """A tenure that is lost is not taken again: the lease decides, see `gateway.sites`."""
        return False

    def fleet(self) -> StoredFleet:
        """What a gateway needs to go on where another stood."""
        tenure = self._tenure
        with self._database.reading(f"reading site {tenure.site!r}") as connection:
            found = queries.fleet_of_site(connection, tenure.site, self._groups)
            next_change = tenure.next_change(queries.highest_change(connection))
        return replace(found, next_change=next_change, changes_apart=CHANGES_APART)

    def commands(self) -> list[CommandRecord]:
        """The open commands of the site, by id."""
        with self._database.reading("reading the open commands") as connection:
            return commands.open_commands(connection, self._tenure.site)

    def minutes_since(self, hour: int) -> list[MinutesRecord]:
        """The site's hours from this one on, by the minute."""
        with self._database.reading("reading the last hours") as connection:
            return history.minutes_since(connection, hour, self._tenure.site)

    def forget_closed(self) -> None:
        """Delete the labelled instances of the site's closed changes."""
        closed = select(CHANGES.c.id).where(CHANGES.c.state == str(ChangeState.CLOSED))
        this = EXAMPLES.c.site == self._tenure.site, EXAMPLES.c.change.in_(closed)
        with self._leading("forgetting the examples of closed changes") as connection:
            connection.execute(delete(EXAMPLES).where(*this))

    def tidy_history(self, now_ms: int) -> int:
        """Thin out some of what is old of the site; how many rows there were, 0: none."""
        with self._leading("tidying the history") as connection:
            return history.tidy(connection, now_ms, self._tenure.site)

    @contextmanager
    def _leading(self, doing: str) -> Iterator[Connection]:
        with self._database.writing(doing) as connection:
            check_site(connection, self._database.name, self._tenure)
            yield connection
