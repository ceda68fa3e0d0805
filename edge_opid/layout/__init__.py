"""Named sensors in, columns out."""

from edge_opid.layout.change import Change, Move
from edge_opid.layout.first_values import FirstValues
from edge_opid.layout.layout import Cost, Layout
from edge_opid.layout.scale_watch import ScaleWatch
from edge_opid.layout.sensor import Pair, Sensor
from edge_opid.layout.warmup import WarmUp

__all__ = [
    "Change",
    "Cost",
    "FirstValues",
    "Layout",
    "Move",
    "Pair",
    "ScaleWatch",
    "Sensor",
    "WarmUp",
]
