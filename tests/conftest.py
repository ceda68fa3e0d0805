"""Fixtures shared by the learners' tests: every learner on every kernel of this install."""

from __future__ import annotations

import os

# Small matrices: a second BLAS thread only waits for the first, and slows the suite threefold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from functools import partial
from pathlib import Path

import pytest

from edge_opid import GramLearner, WoodburyLearner, kernel

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(params=[WoodburyLearner, GramLearner], ids=["woodbury", "gram"])
def learner_class(request):
    return request.param


@pytest.fixture(params=sorted(kernel.available))
def kernel_name(request):
    return request.param


@pytest.fixture
def make(learner_class, kernel_name):
    """A float32 learner of either kind, on either kernel."""
    return partial(learner_class, kernel=kernel_name)


@pytest.fixture
def exact(learner_class):
    """A float64 learner of either kind: the one that must equal the direct solve."""
    return partial(learner_class, dtype="float64")


@pytest.fixture(scope="session")
def data_folder():
    if not DATA.is_dir():
        pytest.skip("the real data sets are not here: see CONTRIBUTING.md")
    return DATA
