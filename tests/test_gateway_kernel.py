"""Kernels from the fit to the node: chosen where they help, small enough, the same after a kill."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from support.fleet_rig import CLASSES, FITTED, POLICY, SITE, FleetRig
from support.landmark_oracle import shrunk
from support.rig import KEY
from test_gateway_changes import deploy, live, served_accuracy
from test_gateway_cli import save_to_file, write_config

from edge_opid.models import model_from_weights
from edge_opid.models.landmark_kernel import LANDMARKS_MAX, CompactKernel
from edge_opid.wire import LIMITS, Desired, SensorDescription, Weights, encode, open_desired
from gateway.__main__ import main
from gateway.decisions.gateway import Gateway
from gateway.estage import (
    COMPACT,
    LINEAR,
    Batch,
    KernelModel,
    LandmarkOpid,
    fit_best,
    fit_kernel_opid,
)
from gateway.estage.tuning import NOTHING
from gateway.fitting.fit import fit_change
from gateway.fitting.kernels import FitNames, best_with_kernels, landmarks_for
from gateway.fitting.models import FittedKernel, fitted_model, kernel_parts
from gateway.recall import recalled

LINES = replace(POLICY, batch_max=60)
KERNELS = replace(LINES, kernels=True)


class Parity:
    """The old sensors know an alarm; calm and busy differ in whether two new signs agree."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def instance(self, roles):
        truth = int(self.rng.integers(len(CLASSES)))
        signs = self.rng.choice([-1.0, 1.0], 2)
        if truth < 2:
            signs[1] = signs[0] * (1 - 2 * truth)
        new = dict(zip(("east", "west"), signs, strict=True))
        clean = {role: new.get(role, 2.0 * (truth == 2)) for role in roles.values()}
        noise = 0.3 * self.rng.normal(size=len(roles))
        values = zip(roles.items(), noise, strict=True)
        return {sensor: float(clean[role] + off) for (sensor, role), off in values}, CLASSES[truth]


def story(policy=KERNELS, names=("n1", "n2")) -> FleetRig:
    """Nodes learn with two sensors, then get two more whose signs only mean something together."""
    fleet = FleetRig(names=names, sensors=("pm", "no"), policy=policy)
    fleet.world = Parity(3)
    fleet.learn_for_a_while(60)
    for name in names:
        deploy(fleet, name, "east")
        deploy(fleet, name, "west")
    fleet.pass_s(3)
    live(fleet, 32)
    return fleet


@pytest.fixture(scope="module")
def fleet():
    """Left as it is by every test."""
    return story()


def order_of(fleet, name) -> Desired:
    return open_desired(fleet.gateway.fleet.orders[SITE, name].payload, [KEY.verify_key])


def pushed_fit(fleet):
    return [fit for fit in fleet.fits if fit.pushed][-1]


# -- the story -------------------------------------------------------------------------------------


def test_a_kernel_that_wins_is_served_by_every_node(fleet):
    """Accuracy rises with it, on every node, far above what any matrix reaches."""
    fit = pushed_fit(fleet)
    assert (fit.chosen, fit.is_kernel) == (COMPACT, True)
    for name in fleet.names:
        parts = fleet.nodes[name].node.state.pushed_models.parts()["model"]
        assert parts["kernel"].tolist() in ([0.0, 1.0], [1.0, 2.0])
        assert fleet.status(name).model_version == order_of(fleet, name).version
    assert fleet.agreed()
    without = story(LINES)
    assert served_accuracy(without) < 0.8
    assert served_accuracy(fleet) > 0.9
    assert not any(each.is_kernel for each in without.fits)


def test_the_price_of_being_compact_is_reported(fleet):
    """What nodes get is a kernel on landmarks: the record says what that gives up."""
    fit = pushed_fit(fleet)
    table = {row["name"]: row for row in fit.candidates}
    assert fit.compact_loss == pytest.approx(
        table["kernel"]["accuracy"] - table[COMPACT]["accuracy"]
    )
    assert abs(fit.compact_loss) < 0.1
    assert abs(fit.rounding_loss) <= 1 / fit.size
    linear = max(row["accuracy"] for row in fit.candidates if row["tier"] < 2)
    assert table[COMPACT]["accuracy"] > linear
    assert all(each.compact_loss == 0.0 for each in fleet.fits if not each.is_kernel)


def test_a_node_scores_as_the_record_says(fleet):
    """Whatever order its columns have."""
    fit = pushed_fit(fleet)
    change = fleet.gateway.fleet.changes[fit.change]
    X = np.random.default_rng(1).normal(size=(20, len(change.columns)))
    X[:, change.columns.index("bias")] = 1.0
    expected = fitted_model(fit, change).scores(X)
    state = fleet.nodes["n2"].node.state
    order = [change.columns.index(column) for column in state.local_models.full.columns]
    assert order != sorted(order)
    got = [state.pushed_models.scores(x)["model"] for x in X[:, order].astype(np.float32)]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_restarted_gateway_orders_the_same_weights(fleet):
    """A gateway with nothing but the database signs the same bytes of every matrix."""
    stored, pushed = recalled(fleet.store)
    again = Gateway(KERNELS, [fleet.group], KEY, stored, pushed)
    for name in fleet.names:
        before = order_of(fleet, name)
        model = again.changes.model(again.fleet.layouts[SITE, name].change)
        publication = again.publisher.order((SITE, name), model, 0, fleet.now_ms)
        after = open_desired(publication.payload, [KEY.verify_key])
        assert after.weights == before.weights
        assert after.layout_version == before.layout_version
        assert order_of(fleet, name) == before


def test_the_next_fit_replaces_a_kernel_only_if_it_is_better(fleet):
    """A former kernel that says the same of everything is replaced; one that knows it all stays."""
    last = fleet.fits[-1]
    jobs = [pickle.loads(key) for key, fit in FITTED.items() if fit.parts == last.parts]
    job = next(each for each in jobs if each.previous is not None)
    assert job.previous.size < last.size
    silent = {name: bytes(len(part)) for name, part in last.parts.items() if name[:2] == "A_"}
    former = replace(last, size=job.previous.size)
    mute = replace(former, parts={**last.parts, **silent})
    assert fit_change(replace(job, previous=mute), 0).pushed
    assert not fit_change(replace(job, previous=former), 0).pushed


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, fleet):
    save_to_file(fleet.store, tmp_path / "gateway.sqlite")
    write_config(tmp_path)
    return tmp_path


def test_a_kernel_is_shown_with_its_price(folder, fleet, capsys):
    """An operator must see what landmarks cost, in words and in JSON."""
    change = pushed_fit(fleet).change
    config = str(folder / "gateway.toml")
    assert main(["change", "show", config, str(change)]) == 0
    shown = capsys.readouterr().out
    assert "on landmarks, as nodes have it, the kernel gives up" in shown
    assert f"* {COMPACT}" in shown
    assert main(["change", "show", config, str(change), "--json"]) == 0
    fits = json.loads(capsys.readouterr().out)["fits"]
    losses = {fit["size"]: fit["compact_loss"] for fit in fits}
    kernels = {fit.size: fit.compact_loss for fit in fleet.fits if fit.is_kernel}
    assert {size: loss for size, loss in losses.items() if loss is not None} == kernels


def test_an_exported_kernel_scores_as_the_gateways_does(folder, fleet, capsys):
    """From its parts by name, in float64, with nothing of this package."""
    fit, out = pushed_fit(fleet), folder / "model.npz"
    change = fleet.gateway.fleet.changes[fit.change]
    config = str(folder / "gateway.toml")
    assert main(["export", config, str(fit.change), "--out", str(out)]) == 0
    assert f"{COMPACT}, fitted on {fit.size}" in capsys.readouterr().out
    with np.load(out) as saved:
        model = {name: saved[name] for name in saved.files}
    columns = list(model["columns"])
    X = np.random.default_rng(1).normal(size=(20, len(columns)))
    X[:, columns.index("bias")] = 1.0
    Z = X[:, [columns.index(each) for each in model["survivors"]]] @ model["W_s"].astype(float)
    Xa = X[:, [columns.index(each) for each in model["new"]]]
    u = (np.hstack([Z, Xa]) - model["centre"]) / model["scale"]
    scores = model["bias"].astype(float)
    for A, width in ((model["A_s"], len(CLASSES)), (model["A_b"], u.shape[1])):
        rows, marks = u[:, None, :width], model["support"][None, :, :width]
        kind, size = model["kernel"]
        near = (
            np.exp(-((rows - marks) ** 2).mean(-1) / (2 * size**2))
            if kind == 0
            else (1 + (rows * marks).mean(-1)) ** size
        )
        scores = scores + near @ A
    np.testing.assert_allclose(scores, fitted_model(fit, change).scores(X), atol=1e-5)


def test_a_kernel_is_not_written_as_a_tflite_file(folder, fleet, capsys):
    """The format has no form for it: one sentence, exit code 2 and no file."""
    change, out = pushed_fit(fleet).change, folder / "model.tflite"
    words = ["export", str(folder / "gateway.toml"), str(change), "--out", str(out)]
    assert main([*words, "--format", "tflite"]) == 2
    assert "a kernel has no .tflite form" in capsys.readouterr().err
    assert not out.exists()


# -- the size --------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [1, 20, 159])
@pytest.mark.parametrize("sensors", [159, 60])
def test_the_largest_order_with_a_kernel_fits_into_a_message(sensors, new):
    """160 columns, 16 classes, the longest names, and every landmark there is room for."""
    new = min(new, sensors)
    roles, classes = [f"{i:032}" for i in range(sensors)], tuple(f"{i:064}" for i in range(16))
    columns = (*roles, "bias")
    rng = np.random.default_rng(new)
    batch = Batch.of(
        rng.normal(size=(99, 16)), rng.normal(size=(99, new)), rng.integers(0, 16, 99), 16
    )
    names = FitNames(columns, columns[new:], columns[:new], classes)
    count = landmarks_for(names, batch)
    assert count == LANDMARKS_MAX or (count >= 32 and new == 159)
    whole = fit_kernel_opid(batch.Z, batch.Xa, batch.y, 16, gamma=1.0)
    model = shrunk(whole, batch, np.arange(99), count)
    W_s = rng.normal(size=(len(names.survivors), 16))
    made = FittedKernel(kernel_parts(W_s, model), columns, names.survivors, names.new)
    weights = made.weights(columns)
    order = _largest_order(roles, classes, weights)
    assert len(encode(order)) <= LIMITS.payload_bytes_max
    assert isinstance(model_from_weights(weights, 1, len(columns), 16), CompactKernel)


def _largest_order(roles: list[str], classes: tuple[str, ...], weights: Weights) -> Desired:
    top = LIMITS.integer_max
    sensors = tuple(
        SensorDescription(id=i, role=i, reference=0.5, scale=0.5, timeout_s=0.5, unit=classes[0])
        for i in roles
    )
    return Desired(
        site=roles[0],
        node=roles[0],
        version=top,
        layout_version=top,
        sensors=sensors,
        vanishing=tuple(roles),
        gate=8.0,
        classes=classes,
        weights=weights,
        gather=LIMITS.gather_max,
    )


# -- the fit ---------------------------------------------------------------------------------------


def ring(n=120, seed=0):
    """Inside or outside of a circle, which the survivors know nothing of."""
    rng = np.random.default_rng(seed)
    Xa = rng.normal(size=(n, 2))
    y = (np.linalg.norm(Xa, axis=1) > 1.18).astype(int)
    return Batch.of(0.1 * rng.normal(size=(n, 2)) + 0.5, Xa, y, 2)


def test_landmarks_as_many_as_rows_give_the_exact_kernel():
    """The same Eq. 14, at the same settings: with every row a landmark nothing is approximated."""
    batch = ring(40)
    exact = fit_kernel_opid(batch.Z, batch.Xa, batch.y, 2, gamma=0.5)
    small = LandmarkOpid((exact.kernel,), (0.5,), count=40)
    (model,) = small.paths(batch, [NOTHING])[0].models
    settled = replace(exact, details={**exact.details, "w1": model.details["w1"]})
    truth = shrunk(settled, batch, np.arange(40), 40)
    np.testing.assert_allclose(
        model.scores(batch.Z, batch.Xa), truth.scores(batch.Z, batch.Xa), atol=1e-3
    )


def test_what_nodes_get_tells_a_ring_as_well_as_promised():
    """No matrix can; the held-out hits must not promise more than fresh instances show."""
    best = best_with_kernels(ring(), np.eye(2), _ring_names(), seed=0)
    assert best.chosen == COMPACT
    fresh = ring(1000, seed=9)
    accuracy = np.mean(best.scores(fresh.Z, fresh.Xa).argmax(1) == fresh.y)
    linear = fit_best(*_data(ring()), seed=0, candidates=LINEAR)
    assert accuracy > 0.8 > np.mean(linear.scores(fresh.Z, fresh.Xa).argmax(1) == fresh.y) + 0.1
    assert abs(best.hits.mean() - accuracy) < 0.1  # held-out hits are honest


def test_a_linear_world_gets_no_kernel():
    """It costs nodes more, and could only win by luck."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    Xa = np.eye(2)[y] + 0.5 * rng.normal(size=(120, 2))
    batch = Batch.of(0.1 * rng.normal(size=(120, 2)), Xa, y, 2)
    assert best_with_kernels(batch, np.eye(2), _ring_names(), seed=0).chosen != COMPACT


def test_a_kernel_that_nodes_would_refuse_is_never_chosen():
    """The survivors' scores have almost no spread, so that one absurd reading would overflow."""
    made, rng = ring(), np.random.default_rng(1)
    batch = replace(made, Z=1e-7 * rng.normal(size=made.Z.shape))
    best = best_with_kernels(batch, 1e25 * np.eye(2), _ring_names(), seed=0)
    assert best.chosen != COMPACT
    assert COMPACT not in {row.name for row in best.table}


def test_no_kernel_is_chosen_while_a_class_has_no_label():
    """A kernel fitted on two of three classes would never say the third again."""
    made = ring()
    wider = Batch.of(np.hstack([made.Z, made.Z[:, :1]]), made.Xa, made.y, 3)
    names = replace(_ring_names(), classes=("in", "out", "never"))
    assert best_with_kernels(wider, np.eye(3)[:2], names, seed=0).chosen != COMPACT


def _ring_names() -> FitNames:
    columns = ("bias", "old", "x", "y")
    return FitNames(columns, columns[:2], columns[2:], ("in", "out"))


def _data(batch: Batch):
    return batch.Z, batch.Xa, batch.y, batch.classes


def test_a_models_bytes_score_as_the_model_does():
    """What a record keeps is the model, rounded to float32."""
    batch = ring()
    best = best_with_kernels(batch, np.eye(2), _ring_names(), seed=0)
    assert isinstance(best.model, KernelModel)
    parts = kernel_parts(np.eye(2), best.model)
    made = FittedKernel(parts, ("a", "b", "x", "y"), ("a", "b"), ("x", "y"))
    X = np.hstack([batch.Z, batch.Xa])
    np.testing.assert_allclose(made.scores(X), best.scores(batch.Z, batch.Xa), atol=1e-5)
