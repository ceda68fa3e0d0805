"""The writer of `.tflite` files: what it refuses, and bytes that do not change by themselves.

That the bytes mean what they should is for the runtimes to say: see test_tflite.py.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from edge_opid.models.tflite import FILE_BYTES_MAX, checked
from edge_opid.wire.limits import LIMITS
from gateway.estage import LinearModel, z_alone
from gateway.tflite import ExportError, matrix_to_tflite, to_tflite
from gateway.tflite.rounding import Layer, balanced, to_int8, without_constant

NAMES = {"survivors": ["temp", "bias"], "new": ["co2"], "classes": ["fresh", "stale"]}
W_S = np.array([[1.0, -1.0], [0.5, 0.25]])
MODEL = LinearModel(
    name="given",
    V_z=np.array([[1.0, 0.5], [0.0, 2.0]]),
    V_a=np.array([[-3.0, 3.0]]),
    bias=np.ones(2),
)


def layers(W_s=W_S, model=MODEL, **changes):
    return to_tflite(W_s, model, **{**NAMES, **changes})


def one_matrix(W=W_S, columns=("temp", "bias"), classes=("fresh", "stale"), **changes):
    return matrix_to_tflite(W, list(columns), list(classes), **changes)


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "size", "digest"),
    [
        (layers, 1064, "e6ba5e94969fc373"),
        (lambda: layers(weights="int8"), 1160, "0a57344dfffb9b91"),
        (one_matrix, 600, "a9d5cfc32bc6777c"),
        (lambda: one_matrix(weights="int8"), 664, "835874a4f67baaae"),
    ],
    ids=["layers float32", "layers int8", "matrix float32", "matrix int8"],
)
def test_the_bytes_of_a_file_do_not_change_by_themselves(made, size, digest):
    """Whoever means to change the format changes the digest with it, after running both runtimes.

    The numbers are exact in float32 and the scales of int8 correctly rounded quotients, so every
    CPU writes these bytes.
    """
    data = made()
    assert made() == data
    assert (len(data), hashlib.sha256(data).hexdigest()[:16]) == (size, digest)
    assert checked(data, "it") == data


def test_the_largest_layout_stays_far_below_what_a_node_loads():
    columns = [f"{'x' * 40}{place}[31]" for place in range(LIMITS.columns_max)]
    classes = [f"{'λ' * 31}{place:x}" for place in range(LIMITS.classes_max)]
    data = one_matrix(np.ones((len(columns), len(classes))), columns, classes)
    assert len(data) < FILE_BYTES_MAX / 20


def test_weights_lie_where_runtimes_may_read_them_in_place():
    """At multiples of 16, counted from the start of the file."""
    weights = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    data = one_matrix(weights, ["a", "b", "c", "bias"])
    assert data.index(weights.T.tobytes()) % 16 == 0


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: layers(W_S[:1]), r"W\^\(s\) must be 2×2, as the names are, got 1×2"),
        (lambda: layers(W_S.T[0]), r"W\^\(s\) must be 2×2, as the names are, got 2"),
        (lambda: layers(new=[]), "V_a must be 0×2, as the names are, got 1×2"),
        (lambda: layers(model=z_alone(3, 1)), "V_z must be 2×2, as the names are, got 3×3"),
        (lambda: layers(W_S * np.nan), "must be finite and within ±1e.30, got nan: fit it again"),
        (lambda: one_matrix(W_S * 1e31), "W must be finite and within ±1e.30, got 1e.31"),
        (lambda: one_matrix(W_S * np.inf), "W must be finite and within ±1e.30, got inf"),
        (
            lambda: one_matrix(columns=["te\nmp", "bias"]),
            r"a line break separates .* got 'te\\nmp'",
        ),
        (lambda: one_matrix(columns=["te\0mp", "bias"]), "columns must be printable lines"),
        (lambda: one_matrix(classes=["fresh", ""]), "classes must be printable lines"),
        (lambda: one_matrix(columns=["temp", "temp"]), "columns must differ .* got 'temp' twice"),
        (lambda: layers(new=["temp"]), "columns must differ from each other, got 'temp' twice"),
        (lambda: layers(classes=["a", "a"]), "classes must differ from each other, got 'a' twice"),
        (lambda: layers(survivors=[]), "survivors must be a list of at least one name, got"),
        (lambda: layers(survivors="ab"), "survivors must be a list of at least one name, got 'ab'"),
        (lambda: layers(weights="int4"), "weights must be 'float32' or 'int8', got 'int4'"),
    ],
)
def test_what_cannot_be_a_predictor_becomes_no_file(made, sentence):
    before = W_S.copy(), MODEL.V_a.copy()
    with pytest.raises(ExportError, match=sentence):
        made()
    assert np.array_equal(before[0], W_S)
    assert np.array_equal(before[1], MODEL.V_a)


def test_a_bias_of_the_wrong_length_is_named():
    crooked = LinearModel(name="given", V_z=MODEL.V_z, V_a=MODEL.V_a, bias=np.ones(3))
    with pytest.raises(ExportError, match="the bias must be 1×2, as the names are, got 1×3"):
        layers(model=crooked)


# --- int8 -----------------------------------------------------------------------------------------


def test_what_helps_rounding_changes_no_score():
    """Balanced layers are the same function: float32's own rounding is all that is left."""
    rng = np.random.default_rng(7)
    first = Layer(rng.normal(size=(6, 3)).astype(np.float32), np.zeros(3, np.float32))
    first.W[:, 1] *= 100
    last = Layer(rng.normal(size=(5, 3)).astype(np.float32), np.ones(3, np.float32))
    columns = ["a", "b", "bias", "c", "d", "e"]
    x = rng.normal(size=(50, 6))
    x[:, columns.index("bias")] = 1.0
    new = rng.normal(size=(50, 2))

    def scores(one, other):
        return np.hstack([x @ one.W + one.bias, new]) @ other.W + other.bias

    light, after = balanced(without_constant(first, columns), last)
    assert np.allclose(scores(light, after), scores(first, last), rtol=1e-5, atol=1e-4)
    sizes = np.abs(light.W).max(axis=0)
    assert np.allclose(sizes, sizes[0], rtol=1e-6)
    assert not light.W[columns.index("bias")].any()
    assert np.abs(first.W).max() > 50  # what was given is as it was


@pytest.mark.parametrize("new", [0, 2])
def test_layers_of_zeros_are_balanced_without_a_division_by_zero(new):
    nothing = Layer(np.zeros((4, 3), np.float32), np.zeros(3, np.float32))
    last = Layer(np.zeros((3 + new, 3), np.float32), np.zeros(3, np.float32))
    with np.errstate(all="raise"):
        for layer in balanced(without_constant(nothing, ["bias", "a", "b", "c"]), last):
            steps, scale = to_int8(layer.W)
            assert scale == 1.0
            assert not steps.any()


def test_the_largest_weights_round_to_finite_steps():
    huge = Layer(np.full((2, 2), 1e30, np.float32), np.zeros(2, np.float32))
    tiny = Layer(np.full((3, 2), 1e-30, np.float32), np.zeros(2, np.float32))
    for first, last in ((huge, tiny), (tiny, Layer(tiny.W[:2], tiny.bias))):
        for layer in balanced(first, last):
            assert np.isfinite(to_int8(layer.W)[1])
            assert np.isfinite(layer.W).all()
