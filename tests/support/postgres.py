"""A private PostgreSQL for the tests (`firmware_sim.live.postgres`).

Where PostgreSQL is missing the test is skipped with a reason; where the variable CI is set that is
a failure, for a test that never runs proves nothing.
"""

from __future__ import annotations

from firmware_sim.live import postgres
from firmware_sim.live.postgres import FAST, OWNER
from support.mosquitto import needed

__all__ = ["FAST", "OWNER", "Postgres", "find_program"]


def find_program(name: str) -> str:
    """A program of the server, or a skipped (in CI: failed) test."""
    reason = "PostgreSQL is not installed: apt-get install postgresql"
    return needed(postgres.find_program(name), reason)


class Postgres(postgres.Postgres):
    """Skips the test where there is none."""

    def __init__(self, settings: tuple[str, ...] = FAST) -> None:
        find_program("postgres")
        super().__init__(settings)
