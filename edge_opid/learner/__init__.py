"""The C-stage: two one-pass learners, and the contract both keep."""

from edge_opid.learner.contract import Learner, Scores
from edge_opid.learner.gram import GramLearner
from edge_opid.learner.settings import Settings
from edge_opid.learner.summary import Summary
from edge_opid.learner.woodbury import WoodburyLearner

__all__ = [
    "GramLearner",
    "Learner",
    "Scores",
    "Settings",
    "Summary",
    "WoodburyLearner",
]
