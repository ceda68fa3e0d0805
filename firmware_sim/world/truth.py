"""What is so, at one place: the physical quantities that sensors look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firmware_sim.world.chance import Array


@dataclass(frozen=True, slots=True)
class Truth:
    """Every physical quantity of one place at one time, by name."""

    time_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Truths:
    """The same for many times: one array a quantity."""

    times_s: Array
    values: Mapping[str, Array]
