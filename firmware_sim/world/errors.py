"""What can be wrong with a simulated world or a sensor in it."""

from __future__ import annotations

from edge_opid.errors import OpidError


class WorldError(OpidError, ValueError):
    """The description of a world or of a sensor is at fault: a name, a number, a quantity."""
