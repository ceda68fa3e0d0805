"""The two kernels: the same mathematics, the same bytes, and bits that can be relied on."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from support.oracle import Stream, relative

from edge_opid import WoodburyLearner, native
from edge_opid.learner.golden_bits import DIGESTS, digest_of
from edge_opid.native import numpy_twin, packing
from edge_opid.node import golden_bits
from edge_opid.node.time_layer import TimeLayer

compiled = pytest.mark.skipif(
    "compiled" not in native.available and not os.environ.get("CI"),
    reason="no C file in this install: no compiler was found",
)


@compiled
@pytest.mark.parametrize(
    "case", DIGESTS, ids=lambda case: f"{case[0].__name__}-{case[1]}-{case[2]}"
)
def test_the_compiled_kernel_gives_the_same_bits_on_every_cpu(case):
    """Pinned digests, the same on x86-64 with and without AVX2, on arm64 and on armhf (`make arm`).

    They may change only with the algorithm, and then a stored state no longer replays to the bit:
    that is a change users must be told about.
    """
    assert digest_of(*case) == DIGESTS[case]


@compiled
def test_the_steps_of_a_node_give_the_same_bits_on_every_cpu():
    """Layout, logistic memory, bridge, blend and time layer are pinned, too, and the last's twin.

    A journal that is replayed elsewhere must end in the state that was acknowledged.
    """
    assert golden_bits.found() == golden_bits.DIGESTS
    twin = golden_bits.digest_of_time_layer(TimeLayer)
    assert twin == golden_bits.DIGESTS["time layer"]


@compiled
@pytest.mark.parametrize(
    ("vanishing", "surviving"), [(0, 1), (1, 1), (3, 5), (8, 8), (13, 36), (0, 70)]
)
def test_both_kernels_agree_to_rounding(learner_class, vanishing, surviving):
    """For widths around every edge of lanes (8) and slabs (32)."""
    X, y = Stream(vanishing + surviving, condition=10.0).take(200)
    states = []
    for name in ("compiled", "numpy"):
        learner = learner_class(vanishing, surviving, 3, forgetting=0.999, native=name)
        for x, label in zip(X, y, strict=True):
            learner.learn_one(x, label)
        states.append(learner.inverse())
    # 200 roundings of 6e-8 at condition 10, and a hundredfold margin for sums in another order
    assert relative(states[1], states[0].astype(float)) < 1e-4


@compiled
def test_the_compiled_prediction_is_the_score_of_learning_to_the_bit():
    X, y = Stream(75, condition=1e2).take(300)
    learner = WoodburyLearner(25, 50, 3, native="compiled")
    for x, label in zip(X, y, strict=True):
        expected = learner.predict_one(x), learner.predict_survivors(x[25:].copy())
        scores = learner.score_then_learn(x, label)
        assert np.array_equal(scores.all_sensors, expected[0])
        assert np.array_equal(scores.survivors, expected[1])


@compiled
def test_the_compiled_kernel_refuses_arrays_of_the_wrong_size_or_type():
    """It is given raw memory: a wrong size must be an error, never a write beyond the end."""
    module = native.available["compiled"]
    columns = np.zeros(packing.packed_size(5), np.float32)
    arrays = [columns, np.ones(5), np.zeros((5, 3), np.float32), np.zeros(32, np.float32)]
    good = [*arrays, 1, 2, 1.0, 1.0, 1.0, 1e6]
    spoiled = {
        0: (columns[:-1], columns.astype(float), columns[::2]),
        1: (np.ones(4), np.ones(5, np.float32)),
        2: (np.zeros((4, 3), np.float32), np.zeros(0, np.float32)),
        3: (np.zeros(31, np.float32), b"read-only"),
        4: (-1, 2, 10**17),
        5: (0, "two", 10**30),
        6: ("one",),
    }
    for place, values in spoiled.items():
        for value in values:
            with pytest.raises((TypeError, ValueError, BufferError, OverflowError)):
                module.hold_ridge(*good[:place], value, *good[place + 1 :])
    ridge = module.hold_ridge(*good)
    for bad in ([np.ones(2), 0], [np.ones(3, int), 0], [np.ones(3), 3], [np.ones(3), -1]):
        with pytest.raises(ValueError, match=r"expected 3 values|label must be"):
            module.learn(ridge, *bad, None)
    with pytest.raises(TypeError, match="learn takes 4 arguments, got 2"):
        module.learn(ridge, columns)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        module.learn(columns, np.ones(3), 0, None)
    sums = np.zeros(6, np.float32), np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    for place, wrong in enumerate((np.zeros(5, np.float32), np.zeros(5, np.float32), np.zeros(3))):
        with pytest.raises((ValueError, TypeError)):
            module.hold_gram(*sums[:place], wrong, *sums[place + 1 :], 1.0, 1e6)
    gram = module.hold_gram(*sums, 1.0, 1e6)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        module.learn_gram(ridge, np.ones(3), 0)
    with pytest.raises(ValueError, match=r"label must be 0\.\.1, got 2"):
        module.learn_gram(gram, np.ones(3), 2)
    assert not columns.any()
    assert not any(each.any() for each in sums)


@compiled
def test_what_is_held_for_the_c_file_lives_as_long_as_it_is_used_and_is_never_copied():
    """A capsule keeps its arrays alive, and no pickle or copy may carry its pointers along."""
    learner = WoodburyLearner(1, 2, 2, native="compiled")
    learner.learn_one([1, 2, 3], 0)
    held = learner.held
    for copied in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert copied.held is not held
        copied.learn_one([3, 2, 1], 1)
    with pytest.raises(TypeError, match="PyCapsule"):
        pickle.dumps(held)
    before = learner.predict_one([1, 1, 1])
    learner.merge(copied)  # which makes other arrays
    assert learner.held is not held
    module, scores = native.available["compiled"], np.empty(2)
    module.predict(held, np.ones(3), False, scores)  # the arrays of before, still there
    assert np.array_equal(scores.astype(np.float32), before)


def test_packing_and_unpacking_a_factor_lose_nothing():
    for size in (1, 7, 8, 9, 31, 32, 33, 64, 65, 130):
        U = np.triu(np.random.default_rng(size).normal(size=(size, size))).astype(np.float32)
        packed = packing.pack(U, np.float32)
        assert packed.shape == (packing.packed_size(size),)
        assert np.array_equal(packing.unpack(packed, size), U.astype(float))


def test_a_batch_wider_than_the_learner_is_absorbed_as_well():
    """40 readings of 3 columns in one step: more rows than A has."""
    X, y = Stream(3, condition=10.0).take(40)
    one, many = (WoodburyLearner(1, 2, 3, dtype="float64") for _ in range(2))
    one.learn_many(X, y, batch=1)
    many.learn_many(X, y, batch=40)
    assert relative(many.inverse(), one.inverse()) < 1e-10


def test_the_inner_matrix_is_the_inverse_of_the_coupling():
    """K = [1+λ, −λ; −λ, 1+λ], and M = K⁻¹ for each reading of a batch."""
    M = numpy_twin.inner(2.0, 3, together=False)
    K = np.kron(np.array([[3.0, -2.0], [-2.0, 3.0]]), np.eye(3))
    assert relative(M @ K, np.eye(6)) < 1e-12


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,  # emulated, and on a busy machine
        check=False,
    )


def test_the_kernel_says_which_one_runs_and_can_be_chosen():
    code = "import edge_opid as e; print(e.native.name, e.WoodburyLearner(1, 1, 2).native)"
    assert run(code).stdout.split() == [native.name] * 2
    assert run(code, EDGE_OPID_NATIVE="numpy").stdout.split() == ["numpy", "numpy"]
    refused = run(code, EDGE_OPID_NATIVE="fortran")
    assert "EDGE_OPID_NATIVE='fortran': this install has" in refused.stderr
    with pytest.raises(ValueError, match="works in float32, not in float64"):
        native.choose("compiled", np.float64) if "compiled" in native.available else native.choose(
            "compiled", np.float32
        )
