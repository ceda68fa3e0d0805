"""Named sensors in, columns out."""

from edge_opid.layout.change import Change
from edge_opid.layout.layout import Cost, Layout
from edge_opid.layout.sensor import Pair, Sensor
from edge_opid.layout.warmup import WarmUp

__all__ = ["Change", "Cost", "Layout", "Pair", "Sensor", "WarmUp"]
