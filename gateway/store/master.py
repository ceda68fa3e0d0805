"""Exactly one gateway serves a database: two would give the same node different orders.

1. A lock that ends with its holder: see `locks.py`. Who lost it takes it again (`Store.reclaim`).
2. An epoch in the database, one higher with every master. Each transaction of a master checks that
   it is still the newest, so that one which lost its lock without noticing (PostgreSQL was
   restarted, somebody deleted the file) can write nothing once another has taken over.
"""

from __future__ import annotations

import os
import socket

from sqlalchemy import Connection, select, update

from gateway.store.errors import MasterError
from gateway.store.locks import process
from gateway.store.tables import MASTER


def refused(name: str, holder: str) -> MasterError:
    """The error for whoever came second."""
    return MasterError(f"{name} is being served by {holder}: stop it, or use another database")


def take_over(connection: Connection) -> int:
    """Begin the epoch of a new master, this process; returns its number."""
    after = {"epoch": MASTER.c.epoch + 1, "host": socket.gethostname(), "pid": os.getpid()}
    connection.execute(update(MASTER).values(after))
    return int(connection.execute(select(MASTER.c.epoch)).scalar_one())


def check_epoch(connection: Connection, name: str, epoch: int) -> None:
    """Refuse to write for a master that is not the newest; hold off a newer one until we are done.

    The row is locked until the transaction ends: whoever wants to take over waits for that.
    """
    found = connection.execute(select(MASTER).with_for_update(read=True)).mappings().one()
    if found["epoch"] != epoch:
        raise MasterError(
            f"{name} was taken over by {process(found['pid'], found['host'])} (master number "
            f"{found['epoch']}, this process was number {epoch}): stop one of them"
        )
