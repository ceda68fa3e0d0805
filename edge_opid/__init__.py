"""Machine learning for sensor networks that survives the death and birth of sensors.

>>> from edge_opid import WoodburyLearner
>>> learner = WoodburyLearner(vanishing=1, surviving=1, classes=2)
>>> learner.learn_one([0.5, -1.0], 1)
"""

from . import kernel
from .errors import LayoutError, MismatchError, OpidError, ReadingError, Refusal
from .layout import Change, Layout, Pair, Sensor, WarmUp
from .learner import GramLearner, Learner, Scores, Summary, WoodburyLearner

__all__ = [
    "Change",
    "GramLearner",
    "Layout",
    "LayoutError",
    "Learner",
    "MismatchError",
    "OpidError",
    "Pair",
    "ReadingError",
    "Refusal",
    "Scores",
    "Sensor",
    "Summary",
    "WarmUp",
    "WoodburyLearner",
    "kernel",
]
