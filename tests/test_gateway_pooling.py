"""Pooling: the sums of many nodes are those of one learner, and one bad summary spoils nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.oracle import Stream, disagreement, eq4, relative

from edge_opid import MismatchError, WoodburyLearner
from gateway.fitting.pooling import Member, pool

ROLES = ("a", "b", "c", "d", "e", "f")


def taught(X, y, vanishing=2, dtype="float32"):
    learner = WoodburyLearner(
        vanishing=vanishing, surviving=X.shape[1] - vanishing, classes=3, dtype=dtype
    )
    learner.learn_many(X, y)
    return learner.summary("float32")


def group(condition, nodes=4, each=500, width=6, dtype="float64"):
    X, y = Stream(width, condition=condition).take(nodes * each)
    names = tuple(f"r{i:02}" for i in range(width)) if width > len(ROLES) else ROLES[:width]
    members = [
        Member(f"n{i}", names, taught(X[i::nodes], y[i::nodes], dtype=dtype)) for i in range(nodes)
    ]
    return X, y, names, members


@pytest.fixture
def easy():
    return group(1e2)


def test_pooled_weights_are_those_of_one_learner_over_all_readings():
    """Condition 1e2, float32 summaries: every sum was rounded once, 6e-8, hence 1e-6 and room."""
    X, y, names, members = group(1e2, width=20)
    found = pool(members, names[2:], 3, names[:2])
    truth = eq4(X, y, 3, 2, 1.0, 1.0)[1]
    assert relative(found.survivors_weights(1.0, 1.0), truth) < 1e-6
    assert found.known.readings == len(y)


def test_the_survivors_gram_is_the_block_of_the_survivors():
    """The vanishing columns stand first: a wrong block would say how sure others' weights are."""
    X, _, names, members = group(1e2)
    gram = pool(members, names[2:], 3, names[:2]).survivors_gram()
    assert relative(gram, X[:, 2:].T @ X[:, 2:]) < 1e-6


@pytest.mark.parametrize("rho", [1e-3, 1.0])
def test_rounding_at_condition_1e6_changes_at_most_one_label_in_a_thousand(rho):
    """The weights then carry 6e-8·1e6 in the directions that hardly vary: labels do not care."""
    X, y, names, members = group(1e6, width=20)
    weights = pool(members, names[2:], 3, names[:2]).survivors_weights(1.0, rho)
    truth = eq4(X, y, 3, 2, 1.0, rho)[1]
    assert relative(weights, truth) < 5e-2
    assert relative(X[:, 2:] @ weights, X[:, 2:] @ truth) < 1e-3
    assert disagreement(X[:, 2:], weights, truth) <= 0.001


def test_columns_in_another_order_are_pooled_by_their_names(easy):
    """One of four nodes has its six columns in another order."""
    X, y, names, members = easy
    turned = [3, 5, 0, 1, 4, 2]
    other = Member("n0", tuple(names[i] for i in turned), taught(X[0::4][:, turned], y[0::4]))
    expected = pool(members, names[2:], 3, names[:2]).survivors_weights(1.0, 1.0)
    got = pool([other, *members[1:]], names[2:], 3, names[:2]).survivors_weights(1.0, 1.0)
    assert relative(got, expected) < 1e-6


def test_a_split_that_nobody_planned_is_pooled_exactly(easy):
    """Nodes planned to lose a and b; in fact d died."""
    X, y, names, members = easy
    kept = ("a", "b", "c", "e", "f")
    found = pool(members, kept, 3, ("d",))
    order = [names.index(role) for role in ("d", *kept)]
    truth = eq4(X[:, order], y, 3, 1, 1.0, 1.0)[1]
    assert relative(found.survivors_weights(1.0, 1.0), truth) < 2e-6


def test_a_node_without_the_role_is_left_out_and_named(easy):
    """One of four nodes has never had the sensor."""
    _, _, names, members = easy
    stranger = replace(members[0], roles=("x", *names[1:]))
    found = pool([stranger, *members[1:]], names, 3)
    assert found.lacking == {"n0": ("a",)}
    assert found.nodes == ("n1", "n2", "n3")
    assert not found.refused


def broken(summary, what):
    gram, moments = summary.gram.copy(), summary.moments.copy()
    if what == "nan":
        gram[3] = np.nan
    elif what == "inf moments":
        moments[0, 0] = np.inf
    elif what == "indefinite":
        gram[0] = -1.0
    elif what == "slightly indefinite":
        gram[1] *= 40
    elif what == "short":
        gram = gram[:-1]
    elif what == "narrow":
        moments = moments[:-1]
    elif what == "classes":
        moments = moments[:, :2]
    return replace(summary, gram=gram, moments=moments)


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("nan", "finite"),
        ("inf moments", "finite"),
        ("indefinite", "eigenvalue"),
        ("slightly indefinite", "eigenvalue"),
        ("short", "Gram entries"),
        ("narrow", "rows"),
        ("classes", "classes"),
    ],
)
def test_one_bad_summary_is_refused_by_name_and_the_rest_is_pooled_as_without_it(easy, what, word):
    """A summary that cannot be right, in each way that there is."""
    _, _, names, members = easy
    bad = replace(members[1], summary=broken(members[1].summary, what))
    found = pool([members[0], bad, *members[2:]], names, 3)
    assert list(found.refused) == ["n1"]
    assert word in found.refused["n1"]
    without = pool([members[0], *members[2:]], names, 3)
    assert np.array_equal(found.known.gram, without.known.gram)
    assert np.array_equal(found.known.moments, without.known.moments)


def test_a_float32_summary_of_a_hard_stream_is_accepted():
    """Condition 1e12 leaves eigenvalues far below float32's rounding: still a sum of squares."""
    _, _, names, members = group(1e12, dtype="float32")
    found = pool(members, names, 3)
    assert not found.refused
    assert np.isfinite(found.survivors_weights(1.0, 1e-3)).all()
    assert len(found.nodes) == 4


def test_a_summary_that_names_a_role_twice_is_refused(easy):
    """Which of the two columns is meant nobody can know."""
    _, _, names, members = easy
    twin = replace(members[0], roles=("a", "a", *names[2:]))
    assert "different" in pool([twin], names, 3).refused["n0"]


def test_a_node_that_came_twice_is_refused(easy):
    """Counted twice, it would be twice as sure as it may be."""
    _, _, names, members = easy
    with pytest.raises(MismatchError, match="came twice"):
        pool([members[0], members[0]], names, 3)


def test_an_empty_pool_has_no_readings_and_zero_weights():
    """Everybody was refused or lacks the role: the caller can see it."""
    found = pool([], ROLES, 3)
    assert found.known.readings == 0
    assert not found.survivors_weights(1.0, 1.0).any()
