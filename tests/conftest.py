"""Fixtures of many tests: every learner compiled and in NumPy, and every kind of database."""

from __future__ import annotations

import logging
import os
import signal

# Small matrices: a second BLAS thread only waits for the first, and slows the suite threefold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from support.postgres import Postgres

from edge_opid import GramLearner, WoodburyLearner, native

# What a shell runs in the background is deaf to Ctrl-C, and so are its children and theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is slow now and then: no example is judged by its time.
settings.register_profile("edge-opid", settings.default, deadline=None)
settings.load_profile("edge-opid")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NUMBERS = count()


def pytest_xdist_auto_num_workers() -> int:
    """Two workers a core: most tests wait for a broker, a process or a disk half of the time."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2


@pytest.fixture(autouse=True)
def log_as_before():
    """Commands that run in this process set up the log: the next test finds it as it was."""
    logger = logging.getLogger("edge_opid")
    before = list(logger.handlers), logger.level, logger.propagate, logger.disabled
    yield
    logger.handlers, logger.level, logger.propagate, logger.disabled = before
    logger.manager._clear_cache()


@pytest.fixture(params=[WoodburyLearner, GramLearner], ids=["woodbury", "gram"])
def learner_class(request):
    return request.param


@pytest.fixture(params=sorted(native.available))
def native_name(request):
    return request.param


@pytest.fixture
def make(learner_class, native_name):
    """A float32 learner of either kind, compiled or in NumPy."""
    return partial(learner_class, native=native_name)


@pytest.fixture
def exact(learner_class):
    """A float64 learner of either kind: the one that must equal the direct solve."""
    return partial(learner_class, dtype="float64")


@pytest.fixture(scope="session")
def data_folder():
    if not DATA.is_dir():
        pytest.skip("the real data sets are not here: see CONTRIBUTING.md")
    return DATA


@pytest.fixture(scope="session")
def postgres():
    """One PostgreSQL for all tests; each of them gets a database of its own."""
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gateway.sqlite"
    return request.getfixturevalue("postgres").database(f"test_{next(NUMBERS)}")
