"""No numerical error ends a node, and settings that float32 cannot work with are refused."""

from __future__ import annotations

import numpy as np
import pytest
from support.rig import CLASSES, Rig, config, desired
from test_node_life import live

from edge_opid import WoodburyLearner
from edge_opid.errors import SettingError
from edge_opid.learner import settings, woodbury
from edge_opid.learner.statistics import positive_part, upper_root
from edge_opid.native.rescue import NumbersError, definite_root, inverse, solved, watch


def alike(n, seed=24):
    """Three probes of one thing, in raw units: each says what the others say."""
    rng = np.random.default_rng(seed)
    values = np.clip(3e5 * rng.normal(size=n), -1e6, 1e6)
    return [dict.fromkeys("abc", float(value)) for value in values], [
        CLASSES[int(rng.integers(3))] for _ in range(n)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_a_sensor_that_dies_never_ends_the_node_with_a_numerical_error(seed, monkeypatch):
    """ρ = 1e-3, a gate of 1e6, like sensors in raw units: as a former release would take them."""
    for place in ("edge_opid.config.node", "edge_opid.node.orders"):
        monkeypatch.setattr(f"{place}.stiffness_fault", lambda *_: "", raising=False)
    rows, labels = alike(300, seed)
    rig = Rig.make(rho=1e-3, gate=1e6, vanishing=("a",))
    live(rig, rows, labels)
    for seq in range(301, 420):  # c says nothing any more, then b
        left = {"a": 5.0, "b": 5.0} if seq < 360 else {"a": 5.0}
        rig.read(seq, left, now_ms=300 * seq)
        rig.tick(300 * seq)
    assert rig.node.state.local_models.silent == ("c", "b")
    assert np.isfinite(rig.predictions()[-1].scores["fresh"])
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_rescue_is_counted_and_said(monkeypatch):
    """The words are in the status, and a line is for the log."""
    for place in ("edge_opid.config.node", "edge_opid.node.orders"):
        monkeypatch.setattr(f"{place}.stiffness_fault", lambda *_: "", raising=False)
    found = []
    for seed in range(6):
        rows, labels = alike(300, seed)
        rig = Rig.make(rho=1e-3, gate=1e6, vanishing=("a",))
        live(rig, rows, labels)
        rig.order(desired(1, sensors=("b", "c"), gate=1e6))
        rescued = rig.node.counts["numbers-rescued"]
        found += [(rig.node.status(0).degraded, rig.warned)] if rescued else []
        assert rig.node.state.layout_version == 1
    assert found
    for degraded, warned in found:
        assert any("mended" in line or "least squares" in line for line in degraded)
        assert "numbers rescued" in {each.event for each in warned}


def test_a_matrix_that_rounding_spoiled_still_gives_its_root():
    """Its root squares to the matrix, as far as float64 can tell."""
    A = 1e16 * np.ones((4, 4)) + 1e-3 * np.eye(4)
    A[0, 0] -= 4.0
    with watch() as told:
        root = definite_root(A)
    assert told == [
        "a 4×4 matrix was not positive definite and was mended: "
        "larger ρ or smaller values are safer"
    ]
    assert np.allclose(root.T @ root, A, rtol=1e-9)
    good = np.array([[2.0, 1.0], [1.0, 3.0]])
    with watch() as told:
        assert np.array_equal(definite_root(good), np.linalg.cholesky(good).T)
        assert np.array_equal(solved(good, good), np.linalg.solve(good, good))
    assert told == []
    with pytest.raises(NumbersError, match="must be finite"):
        definite_root(np.full((2, 2), np.nan))


@pytest.mark.parametrize(
    "change", [{"gate": 1e6}, {"rho": 1e-12}, {"lam": 1e9}, {"rho": 1e-3, "gate": 1e4}], ids=str
)
def test_settings_that_float32_cannot_work_with_are_refused(change):
    """The sentence has the values and what to do; what the defaults are is far from it."""
    with pytest.raises(SettingError, match="give every sensor a scale, or raise rho") as caught:
        config(**change)
    assert str(caught.value).startswith("node.gate with rho ")
    config(rho=1e-3)
    config(gate=1e4)


def test_an_order_with_a_gate_beyond_what_float32_can_take_is_refused():
    """Signed or not, it would spoil what is learned from then on."""
    rig = Rig.make(rho=1e-3)
    before = rig.frozen()
    rig.order(desired(1, gate=1e4))
    assert rig.node.counts["refused-range"] == 1
    assert rig.frozen() == before
    rig.order(desired(1, gate=1e3))
    assert rig.node.state.layout_version == 1


def test_float32_keeps_its_promise_at_the_edge_of_the_allowed_settings():
    """Two probes alike to a thousandth, raw units, at the edge of what is allowed."""
    rng, d, n = np.random.default_rng(0), 8, 3000
    gate = 1825.0  # √(1e10 · 1e-3 / 3) = 1825.7
    assert settings.stiffness_fault(1.0, 1e-3, gate) == ""
    assert settings.stiffness_fault(1.0, 1e-3, gate + 1) != ""
    Z = rng.normal(size=(n, d - 1))
    Z[:, 1] = Z[:, 0] + 1e-3 * rng.normal(size=n)
    y = (Z @ rng.normal(size=(d - 1, 3))).argmax(1)
    X = np.hstack([np.clip(Z * gate / 4 + gate / 2, -gate, gate), np.ones((n, 1))])
    short = WoodburyLearner(2, d - 2, 3, 1.0, 1e-3)
    exact = WoodburyLearner(2, d - 2, 3, 1.0, 1e-3, dtype="float64")
    short.learn_many(X[:2000], y[:2000])
    exact.learn_many(X[:2000], y[:2000])
    one, other = (X[2000:] @ each.weights()[0].astype(float) for each in (short, exact))
    assert np.mean(one.argmax(1) != other.argmax(1)) <= 0.005


def no_lapack(*_args, **_options):
    raise AssertionError("LAPACK was called")


def test_a_node_that_knows_nothing_takes_an_order_without_lapack(monkeypatch):
    """Its 2 MB of code were loaded by every start, to take an identity matrix apart."""
    for name in ("cholesky", "eigh", "inv", "qr", "solve"):
        monkeypatch.setattr(np.linalg, name, no_lapack)
    rig = Rig.make(vanishing=("a",))
    rig.order(desired(1, sensors=("b", "c", "a")))
    assert rig.node.state.layout_version == 1
    live(rig, *alike(5))
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


@pytest.mark.parametrize("size", [1, 2, 7, 32, 75, 125])
def test_a_diagonal_matrix_is_taken_apart_to_the_bits_of_lapack(size):
    """Another bit in the first state would be another bit in every later one."""
    rng = np.random.default_rng(size)
    for diagonal in (np.full(size, 0.3), np.ones(size), 10 ** rng.uniform(-6, 6, size)):
        A = np.diag(diagonal)
        root = np.linalg.cholesky(A).T
        assert definite_root(A).tobytes() == np.ascontiguousarray(root).tobytes()
        assert inverse(A).tobytes() == np.linalg.inv(A).tobytes()
        assert positive_part(A).tobytes() == A.tobytes()
    noise = np.diag(rng.normal(size=size) * 1e-16)  # what is left of a ridge taken from itself
    values, vectors = np.linalg.eigh(noise)
    assert np.array_equal(positive_part(noise), (vectors * np.maximum(values, 0)) @ vectors.T)
    assert upper_root(np.zeros((size, size))).tobytes() == bytes(8 * size * size)


@pytest.mark.parametrize("rho", [1e-2, 1.0, 30.0])
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_sums_are_the_same_to_the_bit_where_nobody_looks_at_their_eigenvalues(
    rho, spread, monkeypatch
):
    """A bound that promised too much would leave a negative eigenvalue in a summary."""
    rng, learner = np.random.default_rng(3), WoodburyLearner(3, 9, 2, rho=rho, limit=1e9)
    mixed = rng.normal(size=(12, 12)) * np.geomspace(1, 1 / spread, 12)[:, None]
    looked = []
    monkeypatch.setattr(woodbury, "positive_part", lambda G: looked.append(1) or positive_part(G))
    for _ in range(40):
        for _ in range(25):
            learner.learn_one((rng.normal(size=12) @ mixed).astype(np.float32), rng.integers(2))
        found = learner.summary("float64").gram
        with monkeypatch.context() as patch:
            patch.setattr(woodbury, "_least_eigenvalue", lambda *_: -np.inf)
            assert learner.summary("float64").gram.tobytes() == found.tobytes()
    assert len(looked) < 80 - 10 or spread > 1  # the second time always, the first time seldom
