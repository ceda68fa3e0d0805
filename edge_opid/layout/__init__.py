"""Named sensors in, columns out."""

from .change import Change
from .cost import Cost
from .layout import Layout
from .sensor import Pair, Sensor
from .warmup import WarmUp

__all__ = ["Change", "Cost", "Layout", "Pair", "Sensor", "WarmUp"]
