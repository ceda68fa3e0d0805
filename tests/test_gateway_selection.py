"""Choosing a form: batches too small, too strange or too clean to learn from, and honest tuning."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support.oracle import one_hot
from test_gateway_estage import continued, world

pytest.importorskip("sklearn", reason="the gateway extra is not installed")

from benchmarks.paper.baselines import imputed_ridge, raw_logistic, survivors_ridge
from edge_opid.learner.statistics import Statistics, solve
from gateway.estage import (
    LINEAR,
    Batch,
    BatchError,
    Row,
    SurvivorColumns,
    column_weights,
    fit_best,
    fit_kernel_opid,
    fit_opid,
    fit_opide,
    fit_update,
)
from gateway.estage.batch import standard_errors, stratified_folds
from gateway.estage.selection import choice


def thirty_readings(Z):
    """A C-stage whose survivors were Z's columns themselves."""
    return SurvivorColumns.of(Z, 10.0 * np.eye(Z.shape[1]), rho=1.0)


def update(Z, Xa, y, classes):
    return Seeing(fit_update(Z, Xa, y, classes, thirty_readings(Z)))


def best_update(Z, Xa, y, classes):
    known = thirty_readings(Z)
    return Seeing(fit_best(Z, Xa, y, classes, survivors=known, candidates=LINEAR, repeats=1))


class Seeing:
    """A model that gets Z as its survivors' columns, too."""

    def __init__(self, model):
        self.model = model

    def scores(self, Z, Xa):
        return self.model.scores(Z, Xa, Z)


FITS = [
    pytest.param(update, id="fit_update"),
    pytest.param(best_update, id="fit_best with survivors"),
    fit_opid,
    fit_opide,
    fit_kernel_opid,
    pytest.param(partial(fit_best, repeats=1), id="fit_best"),
]


def strange(what):
    """A batch that something is wrong with, or nearly."""
    Z, Xa, y = world(n=24, d_a=4)
    if what == "one class":
        y = np.zeros_like(y)
    elif what == "a class with one example":
        y = np.append(np.arange(23) % 2, 2)
    elif what == "a class with no example":
        y = y % 2
    elif what == "constant columns":
        Xa[:, :] = 5.0
    elif what == "everything constant":
        Z[:, :], Xa[:, :] = 0.3, 5.0
    elif what == "copies":
        Z, Xa, y = (np.repeat(part[:8], 3, axis=0) for part in (Z, Xa, y))
    elif what == "one row, 24 times":
        Z, Xa, y = (np.repeat(part[:1], 24, axis=0) for part in (Z, Xa, y))
    elif what == "no new column":
        Xa = Xa[:, :0]
    elif what == "huge scale":
        Xa = 1e8 * Xa + 1e9
    elif what == "tiny scale":
        Xa = 1e-9 * Xa
    return Z, Xa, y


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    "what",
    [
        "one class",
        "a class with one example",
        "a class with no example",
        "constant columns",
        "everything constant",
        "copies",
        "one row, 24 times",
        "no new column",
        "huge scale",
        "tiny scale",
    ],
)
def test_a_strange_batch_gives_finite_scores(fit, what):
    """One class, constants, copies, no new column, huge and tiny scales."""
    Z, Xa, y = strange(what)
    scores = fit(Z, Xa, y, 3).scores(Z, Xa)
    assert scores.shape == Z.shape
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("fit", FITS)
def test_a_tiny_batch_gives_finite_scores(fit, n):
    """One to seven instances of three classes."""
    Z, Xa, y = world(n=n)
    assert np.isfinite(fit(Z, Xa, y, 3).scores(Z, Xa)).all()


def test_an_empty_batch_leaves_z_as_it_is():
    """Nobody has labelled anything yet."""
    best = fit_best(np.zeros((0, 3)), np.zeros((0, 2)), [], 3)
    assert best.chosen == "z"
    assert "0 different" in best.why
    assert best.scores([[0.1, 0.7, 0.2]], [[9.0, 9.0]]).argmax() == 1


def test_24_copies_of_one_row_count_as_one():
    """A sensor that hangs and is labelled again and again teaches nothing."""
    assert fit_best(*strange("one row, 24 times"), 3).chosen == "z"


@pytest.mark.parametrize("fit", [fit_opid, fit_opide, update])
def test_a_class_that_nobody_labelled_is_not_forgotten(fit):
    """An instance that the C-stage is sure of keeps its class, though the batch had none."""
    Z, Xa, y = strange("a class with no example")
    Z[:, 2] = 0.0
    sure = fit(Z, Xa, y, 3).scores([[0.0, 0.0, 4.0]], Xa[:1])
    assert sure.argmax() == 2


def test_copies_of_a_row_are_never_in_both_training_and_test():
    """A copy in training would answer for the one in the test."""
    Z, Xa, y = strange("copies")
    batch = Batch.of(Z, Xa, y, 3)
    folds = stratified_folds(batch, 5, seed=3)
    assert sorted(np.concatenate(folds).tolist()) == list(range(24))
    for held in folds:
        assert not set(batch.groups[held]) & set(np.delete(batch.groups, held))


def test_every_fold_has_its_share_of_every_class():
    """80, 10 and 10 examples in five folds: 16, 2 and 2 in each."""
    Z, Xa, _ = world(n=100)
    y = np.repeat([0, 1, 2], [80, 10, 10])
    for seed in range(5):
        folds = stratified_folds(Batch.of(Z, Xa, y, 3), 5, seed)
        shares = [np.bincount(y[held], minlength=3).tolist() for held in folds]
        assert shares == [[16, 2, 2]] * 5


def test_no_candidate_beats_chance_where_labels_are_random():
    """Labels that nothing can know: no candidate may look better than chance plus three errors."""
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, 200)
    best = fit_best(rng.normal(size=(200, 2)), rng.normal(size=(200, 20)), y, 2, candidates=LINEAR)
    assert [row.name for row in best.table] == ["z", "mixture"]
    for row in best.table:
        assert row.accuracy < 0.5 + 3 * 0.5 / np.sqrt(200)


def test_z_is_kept_where_new_sensors_know_nothing():
    """The survivors know nearly all, and the new sensors say nothing."""
    Z, Xa, y = world(n=100, noise=0.2)
    Xa[:, 0] = 0.0
    best = fit_best(Z, Xa, y, 3, candidates=LINEAR)
    assert best.chosen == "z"
    assert best.table[0].name == "z"
    assert best.why.startswith("z is right in")


def test_a_new_sensor_that_knows_is_used():
    """The survivors know little: fresh instances must show what it is worth."""
    Z, Xa, y = world(n=100, noise=1.5)
    fresh_Z, fresh_Xa, fresh_y = world(n=1000, noise=1.5, seed=9)
    best = fit_best(Z, Xa, y, 3)
    assert best.chosen != "z"
    lift = np.mean(best.scores(fresh_Z, fresh_Xa).argmax(1) == fresh_y)
    assert lift > np.mean(fresh_Z.argmax(1) == fresh_y) + 0.1
    assert [row.name for row in best.table] == ["z", "mixture", "kernel"]


def test_hits_are_of_held_out_instances():
    """Labels that nothing can know, many columns: a fitted model knows them, a held-out one not."""
    rng = np.random.default_rng(5)
    Z, Xa, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 80)), rng.integers(0, 2, 60)
    Z[:, 0] -= 3.0 * (y == 0) * (rng.random(60) < 0.5)  # Z is worse than chance, so it is left
    best = fit_best(Z, Xa, y, 2, candidates=LINEAR)
    assert best.chosen != "z"
    assert best.hits.shape == (60,)
    assert set(best.hits) <= {0.0, 0.5, 1.0}
    row = next(row for row in best.table if row.name == best.chosen)
    assert best.hits.mean() == pytest.approx(row.accuracy)
    assert best.hits.mean() < np.mean(best.scores(Z, Xa).argmax(1) == y)


@pytest.mark.parametrize("n", [4, 100])
def test_hits_of_z_are_whether_z_is_right(n):
    """Z is not fitted, so nothing has to be held out from it."""
    Z, Xa, y = world(n=n, noise=0.2)
    Xa[:, 0] = 0.0
    best = fit_best(Z, Xa, y, 3, candidates=LINEAR)
    assert best.chosen == "z"
    assert np.array_equal(best.hits, Z.argmax(1) == y)


def test_labels_that_teach_the_survivors_are_used():
    """A C-stage of 30 readings, a batch of 200: the update is right more often than Z."""
    W_s, gram, _, Xs, Xa, y = continued(n=400, readings=30)
    Xa = np.zeros_like(Xa)
    fit, test = np.arange(200), np.arange(200, 400)
    known = SurvivorColumns.of(Xs[fit], gram, 0.5)
    best = fit_best(Xs[fit] @ W_s, Xa[fit], y[fit], 3, survivors=known, candidates=LINEAR)
    scores = best.scores(Xs[test] @ W_s, Xa[test], Xs[test])
    assert best.chosen == "mixture"
    assert best.model.details["update"] > 0
    assert np.mean(scores.argmax(1) == y[test]) > 0.03 + np.mean(
        (Xs[test] @ W_s).argmax(1) == y[test]
    )


def test_an_update_that_does_harm_is_not_chosen():
    """A C-stage of 2,000 readings that claims to know nothing: an update would forget them."""
    W_s, gram, _, Xs, Xa, y = continued(n=560, d_s=40, readings=2000)
    Z, Xa, fit, test = Xs @ W_s, np.zeros_like(Xa), np.arange(60), np.arange(60, 560)
    modest = SurvivorColumns.of(Xs[fit], 1e-6 * gram, 1e-6)
    best = fit_best(Z[fit], Xa[fit], y[fit], 3, survivors=modest, candidates=LINEAR)
    forgot = fit_update(Z[fit], Xa[fit], y[fit], 3, modest)
    right, harmed, kept = (
        np.mean(scores.argmax(1) == y[test])
        for scores in (
            best.scores(Z[test], Xa[test], Xs[test]),
            forgot.scores(Z[test], Xa[test], Xs[test]),
            Z[test],
        )
    )
    assert harmed < kept - 0.1
    assert right > kept - 0.04


def test_a_mixture_uses_a_new_sensor_that_knows():
    """The survivors' statistics are known too: the sensor must not be lost beside them."""
    W_s, gram, _, Xs, Xa, y = continued(n=240, readings=300)
    fit, test = np.arange(120), np.arange(120, 240)
    known = SurvivorColumns.of(Xs[fit], gram, 0.5)
    Xa = Xa + 2 * one_hot(y, 3)
    best = fit_best(Xs[fit] @ W_s, Xa[fit], y[fit], 3, survivors=known, candidates=LINEAR)
    right = np.mean(best.scores(Xs[test] @ W_s, Xa[test], Xs[test]).argmax(1) == y[test])
    assert right > np.mean((Xs[test] @ W_s).argmax(1) == y[test]) + 0.1
    assert set(best.model.details) == {"z", "update", "opide"}


def test_without_the_survivors_statistics_no_update_is_tried():
    """Nodes that sent no summary: there is nothing to update from."""
    Z, Xa, y = world(n=40)
    best = fit_best(Z, Xa, y, 3, candidates=LINEAR, repeats=1)
    assert set(best.model.details) == {"z", "opide"}
    assert best.scores(Z, Xa).shape == Z.shape


def forty_labels(seed):
    """SurvivorColumns that are right in 85 % of cases, and one new sensor that makes it 95 %."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 3040)
    Xs = np.column_stack([(y[:, None] - 0.5) + 0.84 * rng.normal(size=(3040, 3)), np.ones(3040)])
    Xa = (y[:, None] - 0.5) + 0.38 * rng.normal(size=(3040, 1))
    gram, moments = Xs[:1000].T @ Xs[:1000], Xs[:1000].T @ one_hot(y[:1000], 2)
    return Xs, Xa, y, gram, np.linalg.solve(gram + np.eye(4), moments)


def test_forty_labels_are_enough_to_use_a_plainly_useful_sensor():
    """Eight draws: in each at least half of the ten points that the sensor is worth are taken."""
    batch, test = slice(1000, 1040), slice(1040, None)
    for seed in range(8):
        Xs, Xa, y, gram, W_s = forty_labels(seed)
        known = SurvivorColumns.of(Xs[batch], gram, 1.0)
        given = Xs[batch] @ W_s, Xa[batch], y[batch], 2
        best = fit_best(*given, survivors=known, seed=seed, candidates=LINEAR)
        right = np.mean(column_weights(best.model, W_s).scores(Xs, Xa)[test].argmax(1) == y[test])
        alone = np.mean((Xs @ W_s)[test].argmax(1) == y[test])
        assert 0.83 < alone < 0.87
        assert right > alone + 0.05


def test_a_kernel_is_taken_only_for_a_lead_beyond_chance():
    """One matrix may be behind by 1.5 standard errors, whichever it is."""
    behind = [
        Row(name="z", accuracy=0.8, behind=0.06, error=0.02, tier=0),
        Row(name="mixture", accuracy=0.83, behind=0.03, error=0.02, tier=1),
    ]
    table = [*behind, Row(name="kernel", accuracy=0.86, behind=0.0, error=0.0, tier=2)]
    assert choice(table, learned=True)[0] == "mixture"
    assert "leads by 3.0 ± 2.0 points, not enough" in choice(table, learned=True)[1]
    assert choice(table, learned=False)[0] == "kernel"


def test_the_same_seed_gives_the_same_model():
    """Folds are drawn by chance: a fit that cannot be repeated cannot be explained."""
    Z, Xa, y = world(n=60)
    first, second = (fit_best(Z, Xa, y, 3, seed=4, repeats=2) for _ in range(2))
    assert first.table == second.table
    assert np.array_equal(first.scores(Z, Xa), second.scores(Z, Xa))


def test_copies_do_not_make_the_standard_error_smaller():
    """Three copies of each row are as much evidence as one: the standard error stays."""
    Z, Xa, y = world(n=30)
    difference = np.random.default_rng(0).normal(size=30)
    single = standard_errors(difference, Batch.of(Z, Xa, y, 3))
    triple = Batch.of(*(np.repeat(part, 3, axis=0) for part in (Z, Xa, y)), 3)
    assert single == pytest.approx(difference.std(ddof=1) / np.sqrt(30))
    assert standard_errors(np.repeat(difference, 3), triple) == pytest.approx(single)


@pytest.mark.parametrize(
    ("Z", "Xa", "y", "word"),
    [
        (np.zeros((3, 2)), np.zeros((2, 1)), [0, 1, 0], "need Z"),
        (np.zeros((3, 3)), np.zeros((3, 1)), [0, 1, 0], "need Z"),
        (np.zeros((2, 2)), np.full((2, 1), np.nan), [0, 1], "finite"),
        (np.zeros((2, 2)), np.zeros((2, 1)), [0, 2], "labels"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(Z, Xa, y, word):
    """Lengths that differ, labels that are no class, values that are not finite."""
    with pytest.raises(BatchError, match=word):
        fit_best(Z, Xa, y, 2)


def test_baselines_read_only_the_columns_they_should():
    """A baseline that peeps at the other columns is no baseline."""
    Z, Xa, y = world()
    assert not raw_logistic(Z, Xa, y, 3, "survivors").new.any()
    assert not raw_logistic(Z, Xa, y, 3, "new").survivors.any()
    both = raw_logistic(Z, Xa, y, 3)
    assert np.abs(both.new).max() > 0
    assert np.abs(both.survivors).max() > 0


def test_ridges_are_those_of_a_direct_solve():
    """On the survivors alone, and on all columns with the dead ones at their mean."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(50, 5)), rng.integers(0, 2, 50)
    Y, kept = one_hot(y, 2), [2, 3, 4]
    known = Statistics(X.T @ X, X.T @ Y, 50, 50.0)
    direct = np.linalg.solve(X[:, kept].T @ X[:, kept] + np.eye(3), X[:, kept].T @ Y)
    assert np.allclose(survivors_ridge(known, kept, 1.0), direct)
    W, bias = imputed_ridge(known, kept, X.mean(0), 1.0)
    whole = np.linalg.solve(X.T @ X + np.eye(5), X.T @ Y)
    filled = X.copy()
    filled[:, :2] = X.mean(0)[:2]
    assert np.allclose(X[:, 2:] @ W + bias, filled @ whole)


def dna_draws(folder, n, draws):
    """The paper's DNA cell: C-stage on 400 of each class, then n to fit and n to test."""
    with np.load(folder / "dna.npz", allow_pickle=False) as file:
        X = np.vstack([file["X_train"], file["X_test"]]).astype(float)
        y = np.concatenate([file["y_train"], file["y_test"]]) - 1
    first = np.concatenate([np.flatnonzero(y == k)[:400] for k in range(3)])
    rest = np.setdiff1d(np.arange(len(y)), first)
    seen = X[first, :130]
    known = Statistics(seen.T @ seen, seen.T @ one_hot(y[first], 3), 1200, 1200.0)
    Z, Xa = X[:, 50:130] @ solve(known, 50, 1.0, 1.0)[1], X[:, 130:]
    for seed in range(draws):
        rows = np.random.default_rng(seed).permutation(rest)[: 2 * n]
        yield [(Z[part], Xa[part], y[part]) for part in (rows[:n], rows[n:])]


def test_the_balanced_penalty_beats_the_printed_one_by_eight_points(data_folder):
    """FACTS 10, DNA with 60 labels: the printed form loses more than eight points."""
    gap = []
    for (Z, Xa, y), (test_Z, test_Xa, test_y) in dna_draws(data_folder, 60, 8):
        right = [
            np.mean(fit_opid(Z, Xa, y, 3, penalty=p).scores(test_Z, test_Xa).argmax(1) == test_y)
            for p in ("balanced", "printed")
        ]
        gap.append(right[0] - right[1])
    assert np.mean(gap) > 0.08


def cohort(sizes, liars=(), seed=3):
    """Instances of several nodes; a liar names another class than the one it sees."""
    rng = np.random.default_rng(seed)
    nodes = [node for node, size in sizes.items() for _ in range(size)]
    truth = rng.integers(0, 2, len(nodes))
    Z = one_hot(truth, 2) + 0.8 * rng.normal(size=(len(nodes), 2))
    Xa = (2.0 * truth - 1)[:, None] + 0.7 * rng.normal(size=(len(nodes), 1))
    lies = np.array([node in liars for node in nodes])
    return Z, Xa, np.where(lies, 1 - truth, truth), truth, nodes


def test_what_one_node_says_often_does_not_overrule_the_others():
    """384 turned instances of one node, which it may send, against 20 of each of the others."""
    Z, Xa, y, truth, nodes = cohort({"a": 20, "b": 20, "c": 20, "liar": 384}, liars=("liar",))
    without = fit_best(Z, Xa, y, 2, candidates=LINEAR)
    best = fit_best(Z, Xa, y, 2, candidates=LINEAR, nodes=nodes)
    assert np.mean(without.scores(Z, Xa).argmax(1) == truth) < 0.1
    assert best.chosen == "z"
    assert best.why.startswith("z, because mixture, fitted without them, is surely worse for ")
    assert np.mean(best.scores(Z, Xa).argmax(1) == truth) > 0.7


@pytest.mark.parametrize(
    "sizes",
    [{"a": 60}, {"a": 60, "b": 60}, {"a": 200, "b": 5}, {f"n{k}": 9 for k in range(20)}],
    ids=["one", "two alike", "one heard much", "twenty heard little"],
)
def test_honest_nodes_keep_what_they_have_learned_together(sizes):
    """One that is heard much and others that are heard little, or many at once: all as before."""
    Z, Xa, y, _, nodes = cohort(sizes)
    alone = fit_best(Z, Xa, y, 2, candidates=LINEAR)
    best = fit_best(Z, Xa, y, 2, candidates=LINEAR, nodes=nodes)
    assert best.chosen == alone.chosen == "mixture"
    assert best.why == alone.why
    assert np.array_equal(best.scores(Z, Xa), alone.scores(Z, Xa))
