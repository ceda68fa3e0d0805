"""A private mosquitto for one test (`firmware_sim.live.mosquitto`), which tells of every packet.

Where mosquitto is missing the test is skipped with a reason; where the variable CI is set a missing
broker is a failure, for a test that never runs proves nothing.
"""

from __future__ import annotations

import os

import pytest

from firmware_sim.live import mosquitto
from firmware_sim.live.mosquitto import HOST, free_port

__all__ = ["HOST", "Mosquitto", "find_mosquitto", "free_port", "needed"]


def needed(found: str | None, reason: str) -> str:
    """What was found; where nothing was, a skipped (in CI: failed) test."""
    if found is None and os.environ.get("CI"):
        pytest.fail(reason)
    if found is None:
        pytest.skip(reason)
    return found


def find_mosquitto() -> str:
    """The broker's program, or a skipped (in CI: failed) test."""
    reason = "mosquitto is not installed: apt-get install mosquitto"
    return needed(mosquitto.find_mosquitto(), reason)


class Mosquitto(mosquitto.Mosquitto):
    """Skips the test where there is none, and logs every packet."""

    def __init__(self, *arguments, **options) -> None:
        find_mosquitto()
        super().__init__(*arguments, verbose=True, **options)
