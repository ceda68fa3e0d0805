"""What every verb that looks at a fleet begins with: its configuration, its database, its nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url

from edge_opid.errors import RefusedError
from gateway.config import GatewayConfig, load_config
from gateway.registry import NodeKey
from gateway.registry.fleet import Fleet
from gateway.registry.text import listed
from gateway.store import FleetStore


class OperatorError(RefusedError, ValueError):
    """What was asked for cannot be done, and nothing was changed."""

    def __init__(self, sentence: str) -> None:
        super().__init__("operator", sentence)


@dataclass(frozen=True)
class CommandContext:
    """A configuration and its open database. It is nobody's leader: it reads, and submits."""

    config: GatewayConfig
    store: FleetStore

    def fleet(self) -> Fleet:
        """The fleet as the database has it now: a copy, to look at and to rehearse on."""
        return Fleet(self.config.groups, self.store.fleet())


@contextmanager
def open_context(path: Path) -> Iterator[CommandContext]:
    """The database that this configuration names; one that is not there is not made."""
    config = load_config(path, os.environ)
    _refuse_without_file(config)
    with FleetStore.open(config.database) as store:
        yield CommandContext(config, store)


def _refuse_without_file(config: GatewayConfig) -> None:
    """SQLite would make an empty file of any name it is given, also of a misspelt one."""
    url = make_url(config.database)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise OperatorError(
            f"no gateway has run with this configuration yet: {url.database} does not exist: run "
            "opid-gateway run first, or name the right database"
        )


def all_keys(fleet: Fleet) -> list[NodeKey]:
    """Nodes that introduced themselves, and nodes that the configuration expects."""
    expected = (key for group in fleet.groups.values() for key in group.keys)
    return sorted({*fleet.nodes, *expected})


def find_node(fleet: Fleet, text: str) -> NodeKey:
    """The node that SITE/NODE means; NODE will do where no other site has one of that name.

    >>> from gateway.policy import Group
    >>> names = ("fresh", "stale"), ("north", "south")
    >>> fleet = Fleet([Group("air", "street", *names), Group("roof", "hall", *names)])
    >>> find_node(fleet, "hall/north")
    ('hall', 'north')
    >>> find_node(fleet, "north")
    Traceback (most recent call last):
    ...
    gateway.cli.context.OperatorError: node 'north' could be hall/north, street/north: say which
    """
    keys = all_keys(fleet)
    site, slash, node = text.rpartition("/")
    found = [key for key in keys if key[1] == node and (not slash or key[0] == site)]
    if not found:
        raise OperatorError(f"no node {text!r} is known; known: {listed(map('/'.join, keys))}")
    if len(found) > 1:
        raise OperatorError(f"node {text!r} could be {listed(map('/'.join, found))}: say which")
    return found[0]
