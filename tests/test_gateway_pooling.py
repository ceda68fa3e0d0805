"""Pooling: the sums of many nodes are those of one learner, and one bad summary spoils nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.oracle import Stream, disagreement, eq4, relative

from edge_opid import GramLearner, MismatchError, WoodburyLearner
from edge_opid.learner.statistics import solve
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


# -- readings without labels -----------------------------------------------------------------------


def with_everything(member, X):
    """The member says, too, how its sensors went together in all of these readings."""
    learner = GramLearner(0, X.shape[1], 1, dtype="float64")
    learner.learn_many(X, np.zeros(len(X), int))
    known = learner.summary("float32")
    return replace(member, everything=replace(known, moments=known.moments[:, :0]))


def sparsely_labelled(nodes=4, labels=30, each=500):
    """Nodes that know 30 labels each, and have read 500 times."""
    X, y = Stream(6, condition=1e2).take(nodes * each)
    X = X.astype(np.float64)
    mine = [slice(i, None, nodes) for i in range(nodes)]
    known = [taught(X[i][:labels], y[i][:labels], dtype="float64") for i in mine]
    members = [
        with_everything(Member(f"n{i}", ROLES, known[i]), X[rows]) for i, rows in enumerate(mine)
    ]
    labelled = np.concatenate([np.arange(len(y))[i][:labels] for i in mine])
    return X, y, labelled, members


def test_pooled_sums_of_all_readings_are_those_of_one_stream():
    """Four nodes' readings, each in one of the sums; W^(s) is what one node of all would distil."""
    X, y, labelled, members = sparsely_labelled()
    found = pool(members, ROLES[2:], 3, ROLES[:2])
    assert relative(found.everything.gram, X.T @ X) < 1e-6  # float32 sums, rounded once
    assert (found.everything.readings, found.known.readings) == (len(X), len(labelled))
    one = GramLearner(2, 4, 3, dtype="float64")
    one.learn_many(X[labelled], y[labelled])
    truth = one.distil(range(2, 6), X.T @ X)
    assert relative(found.survivors_weights(1.0, 1.0), truth) < 1e-5


def test_a_group_that_says_nothing_of_its_unlabelled_readings_is_pooled_as_ever():
    """Nodes of an older release, or without room: the same bits as before there was more to say."""
    _, _, _, members = sparsely_labelled()
    plain = [replace(member, everything=None) for member in members]
    found, both = (pool(each, ROLES[2:], 3, ROLES[:2]) for each in (plain, members))
    assert found.everything is None
    assert not found.is_distilled
    assert np.array_equal(found.known.gram, both.known.gram)
    assert np.array_equal(found.survivors_weights(1.0, 1.0), solve(both.known, 2, 1.0, 1.0)[1])


def test_who_says_only_what_was_labelled_has_read_at_least_that():
    """One of four nodes is of an older release: its labelled readings are readings, too."""
    X, _, labelled, members = sparsely_labelled()
    found = pool([replace(members[0], everything=None), *members[1:]], ROLES, 3)
    rows = [*labelled[:30], *(row for row in range(len(X)) if row % 4)]
    assert found.everything.readings == len(rows)
    assert relative(found.everything.gram, X[rows].T @ X[rows]) < 1e-6


def test_where_most_readings_have_labels_the_labels_decide():
    """All readings labelled: Eq. 4, to the bit."""
    X, _, names, members = group(1e2)
    told = [with_everything(each, X[i::4]) for i, each in enumerate(members)]
    found = pool(told, names[2:], 3, names[:2])
    assert not found.is_distilled
    expected = pool(members, names[2:], 3, names[:2])
    assert np.array_equal(found.survivors_weights(1.0, 1.0), expected.survivors_weights(1.0, 1.0))
    assert np.array_equal(found.survivors_gram(), expected.survivors_gram())


def test_a_lie_about_all_readings_is_bounded_like_one_about_labels():
    """One node says that its sensors always said the opposite of each other, a million times."""
    X, _, _, members = sparsely_labelled()
    turned = X[0::4] * np.array([1, -1, 1, -1, 1, -1])
    liar = with_everything(members[0], turned)
    million = replace(
        liar.everything,
        readings=1_000_000,
        evidence=1e6,
        gram=liar.everything.gram * 2_000,
    )
    found = pool([replace(liar, everything=million), *members[1:]], ROLES[2:], 3, ROLES[:2])
    honest = sum(float(np.trace(X[i::4].T @ X[i::4])) for i in (1, 2, 3))
    theirs = float(np.trace(found.everything.gram)) - honest
    assert theirs < 0.6 * honest  # 1.5 times the one in the middle: half of the three
    assert found.reduced["n0"] < 0.001
    assert found.nodes == ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"gram": np.full(21, np.nan)}, "finite"),
        ({"gram": np.zeros(20)}, "Gram entries"),
        ({"gram": np.full(21, 1e12)}, "sum of squares"),
        ({"gram": -np.ones(21)}, "eigenvalue"),
        ({"evidence": 1e5}, "evidence"),
    ],
)
def test_impossible_sums_of_all_readings_are_refused_by_name(change, word):
    """Who cannot be right there is not believed elsewhere; the others are pooled as without it."""
    _, _, _, members = sparsely_labelled()
    bad = replace(members[1], everything=replace(members[1].everything, **change), largest=8.0)
    found = pool([members[0], bad, *members[2:]], ROLES, 3)
    assert word in found.refused["n1"]
    assert "all readings" in found.refused["n1"]
    without = pool([members[0], *members[2:]], ROLES, 3)
    assert np.array_equal(found.everything.gram, without.everything.gram)


def archive_of(members, times, name="archive years #1"):
    """What a member knows, as an archive that has seen it so many times."""
    one = members[0]
    sums = {"gram": times * one.summary.gram, "moments": times * one.summary.moments}
    count = round(times * one.summary.readings)
    summary = replace(one.summary, readings=count, evidence=float(count), **sums)
    return replace(one, node=name, summary=summary, archive=True)


@pytest.mark.parametrize("times", [0.2, 4.0, 400.0])
def test_archives_count_for_twenty_readings_a_column_together_and_no_more(easy, times):
    """A hundred times as many readings as the fleet has, of a world that may have moved."""
    _, _, names, members = easy
    archives = [archive_of(members, times / 2, f"archive years #{n}") for n in (1, 2)]
    found = pool([*members, *archives], names, 3)
    most = min(20 * len(names), times * members[0].summary.readings)
    nodes = sum(each.summary.evidence for each in members)
    assert found.known.evidence == pytest.approx(nodes + most)
    assert found.archived == pytest.approx(most / (times * members[0].summary.readings))
    assert not found.reduced


def test_an_archive_is_no_measure_of_what_a_node_may_weigh(easy):
    """With many archives of millions, a lie of one node must be bounded as without them."""
    _, _, names, members = easy
    liar = replace(members[0], summary=archive_of(members, 1000.0).summary)
    alone = pool([liar, *members[1:]], names, 3)
    archives = [archive_of(members, 1e3, f"archive years #{number}") for number in range(20)]
    beside = pool([liar, *members[1:], *archives], names, 3)
    assert beside.reduced == alone.reduced
    assert set(alone.reduced) == {"n0"}


def test_a_fleet_that_knows_nothing_yet_starts_with_its_archive(easy):
    """Twenty readings a column count, though no node has any."""
    _, _, names, members = easy
    found = pool([archive_of(members, 1e3)], names, 3)
    assert found.known.evidence == pytest.approx(20 * len(names))
    assert found.nodes == ("archive years #1",)
    weaker = members[0].summary.readings / (20 * len(names))  # 500 readings that count for 120
    truth = pool(members[:1], names, 3).survivors_weights(1.0, weaker)
    assert relative(found.survivors_weights(1.0, 1.0), truth) < 1e-5


def test_an_archive_with_sums_that_cannot_be_right_is_refused_by_name(easy):
    """An operator vouches for the readings, not for a damaged row of the database."""
    _, _, names, members = easy
    bad = archive_of(members, 1.0)
    bad = replace(bad, summary=replace(bad.summary, gram=np.full_like(bad.summary.gram, np.nan)))
    found = pool([*members, bad], names, 3)
    assert found.refused == {"archive years #1": "its numbers must be finite, but are not"}
    assert np.array_equal(found.known.gram, pool(members, names, 3).known.gram)
