"""A pushed kernel: as right as the gateway's, the same bits again, refused where it could harm."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from support.rig import KEY, TOPICS, Rig, desired, folded

from edge_opid.learner.settings import LIMIT
from edge_opid.models.landmark_kernel import KERNEL, LANDMARKS_MAX, LARGEST, CompactKernel, largest
from edge_opid.models.matrix import ModelError
from edge_opid.wire import LIMITS, Channel, Matrix, Weights, WireError, seal_desired
from gateway.estage import Kernel, KernelModel
from gateway.fitting.models import FittedKernel, kernel_parts

DESIRED = TOPICS.to(Channel.DESIRED)
GAUSSIAN, QUADRATIC = Kernel("rbf", 1.0), Kernel("poly", 2.0)
FOLDED = folded(np.ones((4, 3)))  # a, b, c and the bias, three classes


def exact(kernel=GAUSSIAN, c=3, new=2, landmarks=5, seed=0) -> KernelModel:
    """A kernel in float64, as the gateway fits one."""
    rng = np.random.default_rng(seed)
    both = c + new
    support, A_s, A_b = (rng.normal(size=(landmarks, width)) for width in (both, c, c))
    centre, scale = rng.normal(size=both), rng.uniform(0.2, 3.0, both)
    return KernelModel(
        kernel=kernel,
        centre=centre,
        scale=scale,
        support=support,
        A_s=A_s,
        A_b=A_b,
        bias=rng.normal(size=c),
    )


def matrices(**changes) -> dict[str, Matrix]:
    """The parts of a kernel for the rig's node, whose columns b and c are new; some of another."""
    model = exact()
    parts = {
        "W_s": np.vstack([np.ones((1, 3)), np.zeros((2, 3)), np.ones((1, 3))]),
        "new": [[1, 2]],
        "centre": model.centre[None],
        "scale": model.scale[None],
        "support": model.support,
        "A": np.vstack([model.A_s, model.A_b]),
        "bias": model.bias[None],
        "kernel": [[0, 1.0]],
        **changes,
    }
    return {name: Matrix.of(part) for name, part in parts.items() if part is not None}


def pushed(**changes) -> Weights:
    return Weights(KERNEL, matrices(**changes))


@pytest.fixture
def rig():
    """A node that serves a kernel since version 7."""
    rig = Rig.make()
    rig.order(desired(7, weights=pushed()))
    rig.commit(0)
    assert rig.node.counts["model-swapped"] == 1
    return rig


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [GAUSSIAN, Kernel("rbf", 0.5), QUADRATIC, Kernel("poly", 3.0)])
@pytest.mark.parametrize("new", [0, 1, 6])
def test_a_node_scores_a_kernel_as_the_gateway_does(kernel, new):
    """Every order of the columns, float32 against float64: 1e-5, of 1 or of the largest score."""
    rng = np.random.default_rng(new)
    names = [f"s{place}" for place in range(9 + new)]
    W_s = rng.normal(size=(9, 3))
    model = exact(kernel, new=new, landmarks=12, seed=new)
    X = rng.normal(size=(50, 9 + new))
    truth = model.scores(X[:, :9] @ W_s, X[:, 9:])
    made = FittedKernel(kernel_parts(W_s, model), names, names[:9], names[9:])
    order = rng.permutation(len(names))
    weights = made.weights([names[place] for place in order])
    node = CompactKernel.from_weights(weights, 1, len(names), 3)
    got = np.array([node.scores(x) for x in X[:, order].astype(np.float32)])
    assert got.dtype == np.float32
    assert np.abs(got - truth).max() <= 1e-5 * max(1.0, np.abs(truth).max())


def test_a_node_tells_a_parity_with_a_kernel():
    """Class 0 where the signs of two columns agree: no single matrix can say that."""
    corners = np.array([[0, 0, 0, i, j] for i in (-1, 1) for j in (-1, 1)], float)
    says = np.array([[i == j, i != j, 0] for i in (-1, 1) for j in (-1, 1)], float)
    flat = {"centre": np.zeros((1, 5)), "scale": np.ones((1, 5)), "bias": np.zeros((1, 3))}
    rig = Rig.make()
    A = np.vstack([0 * says, says])
    rig.order(desired(1, weights=pushed(support=corners, A=A, **flat)))
    for seq, (b, c) in enumerate([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)], 1):
        rig.read(seq, {"a": 0.0, "b": b, "c": c})
    made = rig.predictions()
    assert [each.label for each in made] == ["fresh", "stale", "fresh", "stale"]
    assert {each.model_version for each in made} == {1}


# -- what is kept ----------------------------------------------------------------------------------


def teach(rig, start, count=8):
    rng = np.random.default_rng(start)
    for seq in range(start, start + count):
        values = dict(zip("abc", rng.normal(size=3).round(3).tolist(), strict=True))
        rig.read(seq, values, label=("fresh", "stale", "bad")[seq % 3])
    rig.commit(100 * (start + count))


def test_a_restart_keeps_every_bit_of_a_kernel(rig):
    """From the journal alone, and from a snapshot and what came after it."""
    teach(rig, 1)
    snapshot, since = rig.frozen(), len(rig.durable)
    rig.order(desired(8, weights=pushed(kernel=[[1, 2.0]])), now_ms=900)
    teach(rig, 9)
    x = np.array([0.3, -1.2, 0.7, 1.0], np.float32)
    said = {slot: each.tobytes() for slot, each in rig.node.state.pushed_models.scores(x).items()}
    for again in (rig.reborn(), rig.reborn(snapshot, since)):
        assert again.frozen() == rig.frozen()
        slots = again.node.state.pushed_models
        assert {slot: each.tobytes() for slot, each in slots.scores(x).items()} == said
        assert (slots.version(), slots.version("previous")) == (8, 7)
        assert slots.matrices() == {}
        assert set(slots.parts()["model"]) == set(matrices())


def test_a_matrix_after_a_kernel_leaves_the_kernel_to_fall_back_to(rig):
    """The new model may be a bad one: the old one must come back, of whatever kind."""
    rig.order(desired(8, weights=FOLDED))
    rig.commit(0)
    slots = rig.node.state.pushed_models
    assert (slots.version(), slots.version("previous")) == (8, 7)
    assert set(slots.matrices()) == {"model"}
    assert set(slots.parts()["previous"]) == set(matrices())
    assert rig.reborn(rig.frozen(), since=len(rig.durable)).frozen() == rig.frozen()


def test_the_largest_kernel_takes_no_more_memory_than_promised():
    """160 columns, 159 of them new, 16 classes, 64 landmarks: 66 kB, and 80 kB for each score.

    NumPy 1.24 takes 113 for a score.
    """
    c, new, width = LIMITS.classes_max, 159, 160  # a kernel of more does not fit into an order
    names = [f"s{place}" for place in range(width)]
    model = exact(c=c, new=new, landmarks=LANDMARKS_MAX)
    made = FittedKernel(kernel_parts(np.ones((1, c)), model), names, names[-1:], names[:-1])
    node = CompactKernel.from_weights(made.weights(names), 1, width, c)
    assert sum(part.nbytes for part in node.parts().values()) < 66_000
    x = np.ones(width, np.float32)
    node.scores(x)
    tracemalloc.start()
    try:
        node.scores(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 120_000


# -- what is refused -------------------------------------------------------------------------------

MANY = LANDMARKS_MAX + 1
ATTACKS = {
    "a part is missing": ({"bias": None}, "form"),
    "a part too many": ({"V": np.ones((1, 1))}, "form"),
    "the matrix of a folded model instead": ({"W": np.ones((4, 3)), "W_s": None}, "form"),
    "more landmarks than promised": (
        {"support": np.ones((MANY, 5)), "A": np.ones((2 * MANY, 3))},
        "landmarks",
    ),
    "another layout": ({"W_s": np.ones((5, 3))}, "shape"),
    "other classes": ({"W_s": np.ones((4, 2))}, "shape"),
    "a landmark without weights": ({"A": np.ones((9, 3))}, "shape"),
    "landmarks of other columns": ({"support": np.ones((5, 6))}, "shape"),
    "scales of other columns": ({"scale": np.ones((1, 4))}, "shape"),
    "a centre in two rows": ({"centre": np.zeros((2, 5))}, "shape"),
    "new columns left out": ({"new": None}, "shape"),
    "more new columns than landmarks know": ({"new": [[0, 1, 2]]}, "shape"),
    "new columns in two rows": ({"new": [[1, 2], [1, 2]]}, "shape"),
    "a bias too short": ({"bias": np.zeros((1, 2))}, "shape"),
    "a kernel of three numbers": ({"kernel": [[0, 1, 1]]}, "shape"),
    "a new column beyond the layout": ({"new": [[1, 4]]}, "columns"),
    "a new column before it": ({"new": [[-1, 2]]}, "columns"),
    "half a column": ({"new": [[1, 1.5]]}, "columns"),
    "a column twice": ({"new": [[2, 2]]}, "columns"),
    "a column as large as a float": ({"new": [[1, 3e38]]}, "columns"),
    "scale zero": ({"scale": [[1, 1, 0, 1, 1]]}, "range"),
    "scale negative": ({"scale": [[1, 1, -1, 1, 1]]}, "range"),
    "a scale that makes it overflow": ({"scale": [[1, 1, 1, 1, 1e-30]]}, "range"),
    "a width that makes it overflow": (
        {"scale": [[1, 1, 1, 1, 3e-12]], "kernel": [[0, 0.01]]},
        "range",
    ),
    "weights that make it overflow": ({"A": np.full((10, 3), 1e36)}, "range"),
    "a bias that makes it overflow": ({"bias": [[0, 0, 3e38]]}, "range"),
    "landmarks that make it overflow": ({"support": np.full((5, 5), 1e20)}, "range"),
    "survivors that make it overflow": ({"W_s": np.full((4, 3), 1e20)}, "range"),
    "an unknown kind": ({"kernel": [[2, 1.0]]}, "range"),
    "half a kind": ({"kernel": [[0.5, 1.0]]}, "range"),
    "a width of nothing": ({"kernel": [[0, 0.0]]}, "range"),
    "a negative width": ({"kernel": [[0, -1.0]]}, "range"),
    "an endless width": ({"kernel": [[0, 3e38]]}, "range"),
    "half a degree": ({"kernel": [[1, 1.5]]}, "range"),
    "degree zero": ({"kernel": [[1, 0.0]]}, "range"),
    "a degree that takes for ever": ({"kernel": [[1, 3e38]]}, "range"),
    "a degree that overflows": ({"kernel": [[1, 4.0]], "support": np.full((5, 5), 1e9)}, "range"),
}


@pytest.mark.parametrize(("changes", "reason"), ATTACKS.values(), ids=ATTACKS)
def test_a_hostile_kernel_is_refused_counted_and_changes_nothing(rig, changes, reason):
    before, journal = rig.frozen(), list(rig.durable)
    payload = seal_desired(desired(8, weights=pushed(**changes)), KEY)
    rig.handle(DESIRED, payload, now_ms=5, token="attack")
    assert rig.node.counts[f"refused-{reason}"] == 1
    assert rig.released[-1] == "attack"
    assert not rig.pending
    assert rig.frozen() == before
    assert rig.durable == journal


def test_a_refused_kernel_is_told_what_was_wrong_with_it():
    """Too wide, too many landmarks, a column that is not there: both values are in the sentence."""
    with pytest.raises(ModelError, match="support must be 5×5, as the layout, got 5×6"):
        CompactKernel.from_weights(pushed(support=np.ones((5, 6))), 8, 4, 3)
    many = pushed(support=np.ones((MANY, 5)), A=np.ones((2 * MANY, 3)))
    with pytest.raises(ModelError, match="at most 64 landmarks, got 65"):
        CompactKernel.from_weights(many, 8, 4, 3)
    with pytest.raises(ModelError, match="new must be whole numbers from 0 to 3, got 4"):
        CompactKernel.from_weights(pushed(new=[[1, 4]]), 8, 4, 3)


@pytest.mark.parametrize("kernel", [GAUSSIAN, QUADRATIC, Kernel("poly", 4.0)])
def test_no_kernel_that_was_taken_overflows_at_the_gate(kernel):
    """Of models scaled up until they are refused, all that are taken stay finite, and bounded."""
    rng, taken, refused = np.random.default_rng(2), 0, 0
    names = ["s0", "s1", "s2", "s3"]
    for seed in range(300):
        power = rng.uniform(-12, 16, 4)
        model = exact(kernel, seed=seed)
        model = replace(
            model,
            scale=model.scale * 10 ** -power[0],
            support=model.support * 10 ** power[1],
            A_b=model.A_b * 10 ** power[2],
        )
        W_s = 10 ** power[3] * rng.normal(size=(2, 3))
        weights = FittedKernel(kernel_parts(W_s, model), names, names[:2], names[2:])
        try:
            node = CompactKernel.from_weights(weights.weights(names), 1, 4, 3)
        except (ModelError, WireError):  # or float32 cannot even hold it
            refused += 1
            continue
        taken += 1
        for x in LIMIT * np.float32([[1, 1, 1, 1], [-1, 1, -1, 1], [1, -1, -1, -1], [0, 0, 1, 0]]):
            assert np.abs(node.scores(x)).max() <= largest(node.parts()) <= LARGEST
    assert taken > 30
    assert refused > 30
