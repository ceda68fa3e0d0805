"""The C-stage: two one-pass learners, and the contract both keep."""

from .contract import Learner, Scores
from .gram import GramLearner
from .settings import Settings, SettingsError
from .summary import Summary
from .woodbury import WoodburyLearner

__all__ = [
    "GramLearner",
    "Learner",
    "Scores",
    "Settings",
    "SettingsError",
    "Summary",
    "WoodburyLearner",
]
