"""The E-stage's fits against direct solves in float64: every formula has its slow twin here."""

from __future__ import annotations

import numpy as np
import pytest
from support.oracle import one_hot

pytest.importorskip("sklearn", reason="the gateway extra is not installed")

from support.landmark_oracle import shrunk

from benchmarks.paper.residual import fit_residual
from benchmarks.paper.strength import RHOS, chosen_rho, left_out_error
from edge_opid import MismatchError
from edge_opid.learner.statistics import Statistics
from gateway.estage import (
    Batch,
    BatchError,
    Kernel,
    Mixture,
    Opide,
    SurvivorColumns,
    column_weights,
    fit_kernel_opid,
    fit_opid,
    fit_opide,
    fit_update,
    innovations,
    rounded,
    z_alone,
)
from gateway.estage.fold_sums import training_sums
from gateway.estage.innovations import Innovator, Relation
from gateway.estage.kernel.landmark import LandmarkOpid, landmarks_that_fit
from gateway.estage.logistic import by_liblinear, by_newton, one_vs_rest
from gateway.estage.mixture import sure_shares
from gateway.estage.opid import penalties
from gateway.estage.tuning import NOTHING


def world(n=80, c=3, d_a=7, seed=0, noise=0.8):
    """Z knows the class through noise, the first new column knows it better, the rest nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, c, n)
    Z = one_hot(y, c) + noise * rng.normal(size=(n, c))
    Xa = rng.normal(size=(n, d_a)) + 0.3
    Xa[:, 0] += 2 * y
    return Z, Xa, y


def eq16_eq17(Z, Xa, y, gamma, penalty, centred=True, rounds=5000):
    """Algorithm 1 as printed: the block system of Eq. 17 and Eq. 16 in turn."""
    c, d_a, Y = Z.shape[1], Xa.shape[1], one_hot(y, Z.shape[1])
    if centred:
        Z, Xa, Y = Z - Z.mean(0), Xa - Xa.mean(0), Y - Y.mean(0)
    P, (p1, p2), w1 = np.hstack([Z, Z, Xa]), penalties(penalty, c, d_a), 0.5
    for _ in range(rounds):
        ridge = np.repeat([gamma * p1 / w1, gamma * p2 / (1 - w1)], [c, c + d_a])
        V = np.linalg.solve(P.T @ P + np.diag(ridge), P.T @ Y)
        first, second = np.linalg.norm(V[:c]) * p1**0.5, np.linalg.norm(V[c:]) * p2**0.5
        before, w1 = w1, first / (first + second)
        if abs(w1 - before) < 1e-14:
            break
    return w1, V[:c] + V[c : 2 * c], V[2 * c :]


@pytest.mark.parametrize("gamma", [0.01, 0.3, 3.0, 8.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_opid_ends_where_the_papers_alternation_ends(gamma, intercept):
    """The alternation of Eqs. 16 and 17, run to its end, is the oracle."""
    Z, Xa, y = world()
    w1, V_z, V_a = eq16_eq17(Z, Xa, y, gamma, "balanced", intercept)
    model = fit_opid(Z, Xa, y, 3, gamma=gamma, intercept=intercept)
    assert 0 < w1 < 1
    assert model.details["w1"] == pytest.approx(w1, abs=1e-6)
    assert np.allclose(model.V_z, V_z, atol=1e-6)
    assert np.allclose(model.V_a, V_a, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
def test_the_printed_form_is_one_ridge_on_survivors_and_new_sensors(gamma):
    """FACTS 11: w₁ → 0 leaves the ridge on [Z, X^(a)] with the penalty γ/(c + d_a)."""
    Z, Xa, y = world()
    M, Y = np.hstack([Z, Xa]), one_hot(y, 3)
    centred = M - M.mean(0)
    ridge = gamma / M.shape[1] * np.eye(M.shape[1])
    V = np.linalg.solve(centred.T @ centred + ridge, centred.T @ (Y - Y.mean(0)))
    model = fit_opid(Z, Xa, y, 3, gamma=gamma, penalty="printed")
    assert model.details["w1"] == 0.0
    assert np.allclose(np.vstack([model.V_z, model.V_a]), V, atol=1e-10)
    assert np.allclose(model.bias, Y.mean(0) - M.mean(0) @ V, atol=1e-10)


def test_a_huge_penalty_leaves_the_new_sensors_unused_and_all_scores_finite():
    """w₂ = 0: the new sensors are not used at all, and nothing is NaN."""
    Z, Xa, y = world()
    Xa[:, 0] = 0.0
    model = fit_opid(Z, Xa, y, 3, gamma=1e6)
    assert model.details["w1"] == 1.0
    assert not model.V_a.any()
    assert np.isfinite(model.scores(Z, Xa)).all()


def test_the_sums_of_a_fold_are_those_of_its_rows():
    """An offset of 1e4 would cost eight digits, were the sums not taken about the means."""
    Z, Xa, y = world()
    M, Y, held = np.hstack([Z, Xa + 1e4]), one_hot(y, 3), np.arange(5, 30)
    sums = training_sums(M, Y, [held])
    rows, targets = np.delete(M, held, 0), np.delete(Y, held, 0)
    middle = rows - rows.mean(0)
    assert np.allclose(sums.gram[0], middle.T @ middle, rtol=1e-9, atol=1e-7)
    assert np.allclose(sums.cross[0], middle.T @ (targets - targets.mean(0)), atol=1e-7)
    assert np.allclose(sums.M_mean[0], rows.mean(0), rtol=1e-12)


def continued(n=60, d_s=9, readings=200, seed=0):
    """A C-stage's ridge on d_s survivors, and a batch: W^(s), what is known of it, Xs, Xa, y."""
    rng = np.random.default_rng(seed)
    middle, y_old, y = (
        rng.normal(size=(3, d_s)),
        rng.integers(0, 3, readings),
        rng.integers(0, 3, n),
    )
    old, Xs = (middle[labels] + 2 * rng.normal(size=(len(labels), d_s)) for labels in (y_old, y))
    gram, moments = old.T @ old, old.T @ one_hot(y_old, 3)
    W_s = np.linalg.solve(gram + 0.5 * np.eye(d_s), moments)
    Xa = one_hot(y, 3) + rng.normal(size=(n, 3))
    return W_s, gram, moments, Xs, Xa, y


@pytest.mark.parametrize("n", [60, 5])
def test_an_update_without_new_sensors_is_the_c_stage_with_more_readings(n):
    """With n = 5 there are fewer instances than columns: the fit is done in their span."""
    W_s, gram, moments, Xs, Xa, y = continued(n=n)
    known = SurvivorColumns.of(Xs, gram, rho=0.5)
    model = fit_update(Xs @ W_s, Xa, y, 3, known, gamma=np.inf)
    both = np.linalg.solve(gram + Xs.T @ Xs + 0.5 * np.eye(9), moments + Xs.T @ one_hot(y, 3))
    seen = np.isin(np.arange(3), y)
    assert np.allclose(column_weights(model, W_s).survivors[:, seen], both[:, seen], atol=1e-10)
    assert not model.V_a.any()


def test_the_residual_form_is_the_ridge_of_what_z_leaves():
    """The oracle solves for it directly, with Z subtracted from the labels."""
    Z, Xa, y = world()
    M = np.column_stack([Z, Xa, np.ones(len(y))])
    V = np.linalg.solve(M.T @ M + 2.0 * np.eye(M.shape[1]), M.T @ (one_hot(y, 3) - Z))
    model = fit_residual(Z, Xa, y, 3, gamma=2.0)
    assert np.allclose(model.scores(Z, Xa), Z + M @ V, atol=1e-10)


def test_an_update_is_at_the_minimum_of_its_objective():
    """At the minimum the gradient is zero, for the survivors and for the innovations."""
    W_s, gram, _, Xs, Xa, y = continued()
    model = fit_update(Xs @ W_s, Xa, y, 3, SurvivorColumns.of(Xs, gram, 0.5), gamma=0.1)
    new = Innovator(Xs, Xa).of(np.arange(len(y)))
    gamma = 0.1 * np.sum((Xa - Xa.mean(0)) ** 2) / 3
    change = model.V_s + new.N @ model.V_a  # what the survivors' weights pay for
    off = one_hot(y, 3) - Xs @ (W_s + change) - new.columns @ model.V_a
    assert np.allclose(Xs.T @ off, (gram + 0.5 * np.eye(9)) @ change, atol=1e-8)
    assert np.allclose(new.columns.T @ off, gamma * model.V_a, atol=1e-8)


@pytest.mark.parametrize("n", [30, 8])
def test_what_is_left_of_a_row_comes_from_a_ridge_without_it(n):
    """The oracle leaves each row out, and its copies, and fits again; 8 rows span all columns."""
    rng = np.random.default_rng(2)
    P = rng.normal(size=(n, 10))
    A = P[:, :2] + rng.normal(size=(n, 2))
    P, A, groups = np.vstack([P, P[:3]]), np.vstack([A, A[:3]]), np.r_[np.arange(n), 0, 1, 2]
    relation = Relation.of(P, A, groups)
    ridge = 0.3 * np.linalg.eigvalsh(np.cov(P.T, bias=True) * len(P)).mean()
    left = relation.left(0.3)
    for row in range(len(P)):
        S, B = P[groups != groups[row]], A[groups != groups[row]]
        X, Y = S - S.mean(0), B - B.mean(0)
        N = np.linalg.solve(X.T @ X + ridge * np.eye(10), X.T @ Y)
        assert np.allclose(left[row], A[row] - B.mean(0) - (P[row] - S.mean(0)) @ N, atol=1e-8)


def test_no_relation_is_made_up_where_there_is_none():
    """As many survivors as rows could explain any noise: a ridge that follows them is not taken."""
    rng = np.random.default_rng(3)
    for columns in (5, 40):
        found = Innovator(rng.normal(size=(40, columns)), rng.normal(size=(40, 3)))
        assert found.strength >= 10
    assert not Innovator(np.ones((40, 2)), rng.normal(size=(40, 3))).of(np.arange(40)).N.any()


def related_world(n, seed=0, readings=4000):
    """Survivors and new sensors that hear the same noise: together they tell it from the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, readings + n + 4000)
    noise = rng.normal(size=(len(y), 3))
    Xs = 0.8 * y[:, None] + noise + 0.3 * rng.normal(size=(len(y), 3))
    Xa = noise + 0.3 * rng.normal(size=(len(y), 3))
    Xs = np.column_stack([Xs, np.ones(len(y))])
    old = Xs[:readings]
    gram = old.T @ old
    W_s = np.linalg.solve(gram + np.eye(4), old.T @ one_hot(y[:readings], 2))
    return W_s, gram, Xs, Xa, y, slice(readings, readings + n), slice(readings + n, None)


def test_what_survivors_tell_of_a_new_sensor_is_not_counted_twice(monkeypatch):
    """The C-stage's certainty of the survivors' weights holds without the new sensors, not with."""
    W_s, gram, Xs, Xa, y, fit, test = related_world(n=60)
    every = np.hstack([Xs, Xa])
    best = np.linalg.lstsq(every[test], one_hot(y[test], 2), rcond=None)[0]
    limit = np.mean((every[test] @ best).argmax(1) == y[test])

    def right():
        known = SurvivorColumns.of(Xs[fit], gram, 1.0)
        model = fit_update(Xs[fit] @ W_s, Xa[fit], y[fit], 2, known)
        return np.mean(model.scores(Xs[test] @ W_s, Xa[test], Xs[test]).argmax(1) == y[test])

    assert right() > limit - 0.02
    monkeypatch.setattr(innovations, "STRENGTHS", np.array([np.inf]))  # the columns as they are
    assert right() < limit - 0.05


def test_an_update_as_one_matrix_keeps_its_change_of_the_survivors():
    """Making one matrix of it could drop what the labels taught about the survivors."""
    W_s, gram, _, Xs, Xa, y = continued()
    model = fit_update(Xs @ W_s, Xa, y, 3, SurvivorColumns.of(Xs, gram, 0.5))
    assert np.abs(model.V_s).max() > 0
    assert np.allclose(
        column_weights(model, W_s).scores(Xs, Xa), model.scores(Xs @ W_s, Xa, Xs), atol=1e-12
    )
    with pytest.raises(MismatchError, match="needs the survivors"):
        model.scores(Xs @ W_s, Xa)
    with pytest.raises(MismatchError, match="must be"):
        column_weights(model, W_s[:4])


def test_survivors_that_do_not_belong_to_the_batch_are_refused():
    """Too few rows, another width, NaN, or a matrix that is no sum of squares."""
    W_s, gram, _, Xs, Xa, y = continued()
    for columns, matrix, word in [
        (Xs[:5], gram, "need Xs"),
        (Xs, gram[:3, :3], "need Xs"),
        (np.full_like(Xs, np.nan), gram, "finite"),
        (Xs, -gram, "positive definite"),
    ]:
        with pytest.raises(BatchError, match=word):
            fit_update(Xs @ W_s, Xa, y, 3, SurvivorColumns.of(columns, matrix, 0.5))


def test_a_mixture_is_the_weighted_sum_of_its_forms():
    """In scores and as one matrix, it is so much of Z, of the update and of each OPIDe setting."""
    W_s, gram, _, Xs, Xa, y = continued()
    Z, known = Xs @ W_s, SurvivorColumns.of(Xs, gram, 0.5)
    batch = Batch.of(Z, Xa, y, 3, known)
    path = Mixture().paths(batch, [NOTHING])[0]
    mixture = np.zeros(25)
    mixture[[0, 1, 12, 19]] = 2.0, 3.0, 0.25, 0.5  # Z, γ = ∞, then OPIDe's second and ninth
    parts = [
        2.0 * Z,
        3.0 * fit_update(Z, Xa, y, 3, known, gamma=np.inf).scores(Z, Xa, Xs),
        0.25 * Opide().paths(batch, [NOTHING])[0].scores(Z, Xa)[1],
        0.5 * Opide().paths(batch, [NOTHING])[0].scores(Z, Xa)[8],
    ]
    model = path.mixed(mixture)
    assert np.allclose(model.scores(Z, Xa, Xs), sum(parts), atol=1e-9)
    assert np.allclose(column_weights(model, W_s).scores(Xs, Xa), sum(parts), atol=1e-9)
    assert model.details == {"z": 2.0, "update": 3.0, "opide": 0.75}


def held_out_of(knows, y, seed=0):
    """1×25×n×3 held-out scores: the named form knows the class, the other two guess."""
    scores = np.random.default_rng(seed).normal(size=(25, len(y), 3))
    start, end = {"z": (0, 1), "update": (1, 11), "opide": (11, 25)}[knows]
    scores[start:end] = 3 * one_hot(y, 3) + 0.5 * scores[start:end]
    return scores[None]


@pytest.mark.parametrize("knows", ["z", "update", "opide"])
def test_a_form_gets_the_share_that_its_held_out_scores_earn(knows):
    """Where one form knows and the others guess, it gets nearly all."""
    W_s, gram, _, Xs, Xa, y = continued()
    batch = Batch.of(Xs @ W_s, Xa, y, 3, SurvivorColumns.of(Xs, gram, 0.5))
    mixture = Mixture().choose(held_out_of(knows, y), batch)
    shares = {"z": mixture[:1], "update": mixture[1:11], "opide": mixture[11:]}
    assert shares[knows].sum() > 0.5
    assert (mixture >= 0).all()
    if knows == "z":
        assert not mixture[1:].any()


def test_shares_are_the_cheapest_of_the_grid():
    """The oracle walks the grid: log-loss plus two standard errors of its difference from Z."""
    rng, y = np.random.default_rng(4), np.arange(30) % 3
    held = one_hot(y, 3) + rng.normal(size=(3, 2, 30, 3))
    batch = Batch.of(held[0, 0], rng.normal(size=(30, 1)), y, 3)

    def losses(share):
        scores = sum(part * form for part, form in zip(share, held, strict=True))
        own = np.take_along_axis(scores, y[None, :, None], -1)[..., 0]
        return np.mean(np.log(np.exp(scores).sum(-1)) - own, axis=0)

    grid = [(a / 10, b / 10, (10 - a - b) / 10) for a in range(11) for b in range(11 - a)]
    alone = losses((1, 0, 0))
    cost = {}
    for share in grid:
        doubt = np.std(losses(share) - alone, ddof=1) / np.sqrt(30)
        cost[share] = losses(share).mean() + 2 * doubt
    best = min(cost, key=cost.get)
    assert 0 < best[0] < 1
    assert sure_shares(held, batch) == pytest.approx(best)


def test_rho_is_chosen_by_generalised_cross_validation():
    """The oracle forms the hat matrix of every ρ and divides by its trace."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 6)), rng.integers(0, 2, 40)
    X[:, 0] += y
    Y = one_hot(y, 2)
    known = Statistics(X.T @ X, X.T @ Y, 40, 40.0)
    direct = []
    for rho in RHOS:
        H = X[:, 1:] @ np.linalg.solve(X[:, 1:].T @ X[:, 1:] + rho * np.eye(5), X[:, 1:].T)
        direct.append(np.sum((Y - H @ Y) ** 2) / 40 / (1 - np.trace(H) / 40) ** 2)
    assert np.allclose(left_out_error(known, range(1, 6)), direct)
    assert chosen_rho(known, range(1, 6)) == RHOS[int(np.argmin(direct))]
    assert chosen_rho(Statistics(np.zeros((2, 2)), np.zeros((2, 2)), 0, 0.0), [0, 1]) == 1.0


@pytest.mark.parametrize(("n", "width"), [(80, 10), (20, 60), (200, 60)])
def test_a_classifier_is_at_the_minimum_of_eq_19(n, width):
    """The gradient of Eq. 19, the bias penalised as one more column (LIBLINEAR's way).

    Few columns and few instances go to Newton's method, the last of the three to LIBLINEAR.
    """
    Z, Xa, y = world(n=n, d_a=width - 3)
    X = np.hstack([Z, Xa])
    costs = np.array([0.01, 0.7, 100.0])
    W, bias = one_vs_rest(X, y, 3, costs)
    for cost, V, b in zip(costs, W, bias, strict=True):
        for k in range(3):
            sign = np.where(y == k, 1.0, -1.0)
            pull = sign / (1 + np.exp(sign * (X @ V[:, k] + b[k])))
            gradient = np.append(V[:, k], b[k]) - cost * np.append(pull @ X, pull.sum())
            start = cost * np.abs(np.append((sign / 2) @ X, 0)).max()
            assert np.abs(gradient).max() < 5e-3 * start


def test_newton_and_liblinear_find_the_same_classifier():
    """Which of the two runs depends on the size of the batch: the answer must not."""
    Z, Xa, y = world(n=60)
    X, positive = np.hstack([Z, Xa]), y[:, None] == np.arange(3)
    costs = np.array([0.01, 1.0])
    assert np.allclose(by_newton(X, positive, costs), by_liblinear(X, positive, costs), atol=5e-3)


def test_instances_that_a_line_parts_are_fitted_to_the_minimum():
    """Far apart and at the largest cost, where plain Newton steps overshoot: still the minimum."""
    X, y = np.array([[1e4], [2e4], [-1e4], [-2e4], [5.0]]), np.array([0, 0, 1, 1, 1])
    W, bias = one_vs_rest(X, y, 2, np.array([1e3]))
    pull = 1 / (1 + np.exp(X[:, 0] * W[0, 0, 0] + bias[0, 0]))
    pull = np.where(y == 0, pull, pull - 1)
    assert W[0, 0, 0] == pytest.approx(1e3 * pull @ X[:, 0], rel=1e-3)
    assert bias[0, 0] == pytest.approx(1e3 * pull.sum(), rel=1e-3)


def test_opide_is_w1_of_one_classifier_and_w2_of_another():
    """Whatever cross-validation chose, the model is w₁ of one classifier and w₂ of another."""
    Z, Xa, y = world(n=60)
    model = fit_opide(Z, Xa, y, 3)
    w1 = model.details["w1"]
    costs = 10.0 ** np.arange(-3, 4)
    fits = [
        w1 * np.vstack([a, np.zeros((7, 3))]) + (1 - w1) * b
        for a in one_vs_rest(Z, y, 3, costs)[0]
        for b in one_vs_rest(np.hstack([Z, Xa]), y, 3, costs)[0]
    ]
    got = np.vstack([model.V_z, model.V_a])
    assert min(np.abs(fit - got).max() for fit in fits) < 1e-12


@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_the_linear_kernel_gives_the_scores_of_the_linear_form(gamma):
    """Dual and primal are two ways to one minimum."""
    Z, Xa, y = world()
    Z, Xa = (Z - Z.mean(0)) / Z.std(0), (Xa - Xa.mean(0)) / Xa.std(0)
    dual = fit_kernel_opid(Z, Xa, y, 3, kernels=[Kernel("linear")], gamma=gamma)
    primal = fit_opid(Z, Xa, y, 3, gamma=gamma)
    assert dual.details["w1"] == pytest.approx(primal.details["w1"], abs=1e-5)
    assert np.allclose(dual.scores(Z, Xa), primal.scores(Z, Xa), atol=1e-5)


@pytest.mark.parametrize("kernel", [Kernel("rbf", 1.0), Kernel("poly", 2.0)])
def test_all_rows_as_landmarks_give_the_exact_kernel(kernel):
    """With every row a landmark there is nothing left to approximate."""
    Z, Xa, y = world()
    exact = fit_kernel_opid(Z, Xa, y, 3, kernels=[kernel])
    every = shrunk(exact, Batch.of(Z, Xa, y, 3), np.arange(len(y)), len(y))
    assert np.allclose(every.scores(Z, Xa), exact.scores(Z, Xa), atol=1e-4)


def test_as_many_landmarks_are_taken_as_fit_and_not_one_more():
    """One landmark more would be larger than the 4,096 bytes that there are."""
    Z, Xa, y = world()
    batch = Batch.of(Z, Xa, y, 3)
    count = landmarks_that_fit(batch, 4096)
    model = LandmarkOpid(count=count).paths(batch, [NOTHING])[0].models[0]
    parts = model.centre, model.scale, model.support, model.A_s, model.A_b, model.bias
    numbers = sum(part.size for part in parts)
    assert 4 * numbers <= 4096 < 4 * ((count + 1) * 16 + 23)


def test_the_one_matrix_gives_the_scores_of_the_model():
    """With a column of ones of its own, and with the layout's."""
    Z, Xa, y = world()
    rng = np.random.default_rng(5)
    W_s = rng.normal(size=(9, 3))
    Xs = Z @ np.linalg.pinv(W_s)
    model = fit_opid(Xs @ W_s, Xa, y, 3)
    small = column_weights(model, W_s)
    rows = np.column_stack([Xs, Xa, np.ones(len(y))])
    assert np.allclose(rows @ small.matrix(), model.scores(Xs @ W_s, Xa), atol=1e-12)
    with_constant = np.column_stack([Xs[:, :8], np.ones(len(y)), Xa])
    inside = column_weights(model, W_s).matrix(bias_column=8)
    expected = small.scores(with_constant[:, :9], Xa)
    assert np.allclose(with_constant @ inside, expected, atol=1e-12)


def test_float16_costs_what_it_says_and_values_beyond_it_are_refused():
    """A rounding that is only claimed to be harmless; and weights too large for 16 bits."""
    Z, Xa, y = world(n=300)
    matrix = column_weights(fit_opid(Z, Xa, y, 3), np.eye(3)).matrix()
    rows = np.column_stack([Z, Xa, np.ones(len(y))])
    half = rounded(matrix, rows, y)
    after = np.mean((rows @ half.matrix.astype(float)).argmax(1) == y)
    assert half.matrix.dtype == np.float16
    assert half.rounded_accuracy == pytest.approx(after, abs=1 / 300)
    assert half.changed <= 0.01
    with pytest.raises(BatchError, match="do not fit float16"):
        rounded(1e6 * matrix, rows, y)


def test_a_kernel_does_not_become_a_matrix():
    """No matrix is equal to it; nor does a matrix of two classes serve three."""
    Z, Xa, y = world(n=20)
    with pytest.raises(MismatchError, match="kernel"):
        column_weights(fit_kernel_opid(Z, Xa, y, 3), np.eye(3))
    with pytest.raises(MismatchError, match="3 classes"):
        column_weights(z_alone(3, 7), np.eye(2))
