"""Open a world by its name, as scenarios do."""

from __future__ import annotations

from edge_opid.errors import shown
from firmware_sim.world.base import BLOCK_S, World
from firmware_sim.world.errors import WorldError
from firmware_sim.world.greenhouse import Greenhouse
from firmware_sim.world.machine import Machine
from firmware_sim.world.room import Room
from firmware_sim.world.street import Street
from firmware_sim.world.truth import Truth, Truths

__all__ = [
    "BLOCK_S",
    "WORLDS",
    "Greenhouse",
    "Machine",
    "Room",
    "Street",
    "Truth",
    "Truths",
    "World",
    "WorldError",
    "open_world",
]

WORLDS: dict[str, type[World]] = {
    world.name: world for world in (Street, Machine, Greenhouse, Room)
}


def open_world(name: str, seed: int, node: int = 0) -> World:
    """The world of this name, as its `node`-th node sees it.

    >>> machine = open_world("machine", seed=7, node=3)
    >>> machine.classes, len(machine.catalogue)
    (('normal', 'idle', 'imbalance', 'bearing'), 12)
    >>> open_world("ocean", seed=7)
    Traceback (most recent call last):
    firmware_sim.world.errors.WorldError: world must be one of ['greenhouse', 'machine', \
'room', 'street'], got 'ocean'
    """
    if name not in WORLDS:
        raise WorldError(f"world must be one of {sorted(WORLDS)}, got {shown(name)}")
    return WORLDS[name](seed, node)
