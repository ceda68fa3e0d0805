"""Machine learning for sensor networks that keeps working when sensors die and new ones join.

>>> from edge_opid import Classifier
>>> classifier = Classifier()
>>> for co2, room in [(420, "empty"), (600, "full"), (410, "empty"), (550, "full")]:
...     classifier.learn_one({"co2": co2}, room)
>>> classifier.predict_one({"co2": 590})
'full'
"""

from typing import TYPE_CHECKING, Any

from edge_opid import native
from edge_opid.errors import LayoutError, MismatchError, OpidError, ReadingError, Refusal
from edge_opid.layout import Change, Layout, Pair, Sensor, WarmUp
from edge_opid.learner import GramLearner, Learner, Scores, Summary, WoodburyLearner

if TYPE_CHECKING:
    from edge_opid.classifier import Classifier

__all__ = [
    "Change",
    "Classifier",
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
    "native",
]


def __getattr__(name: str) -> Any:
    """Classifier, when somebody asks for it: a node does not, and is spared the import."""
    if name == "Classifier":
        from edge_opid.classifier import Classifier  # noqa: PLC0415 - see above

        return Classifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
