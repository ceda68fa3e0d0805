"""What can be wrong with a simulated world, a sensor in it, or a recording of a real one."""

from __future__ import annotations

from edge_opid.errors import OpidError


class WorldError(OpidError, ValueError):
    """The description of a world or of a sensor is at fault: a name, a number, a quantity."""


class RecordingError(OpidError, ValueError):
    """A recording, or what was asked of it, is at fault. The sentence names file, line, column."""
