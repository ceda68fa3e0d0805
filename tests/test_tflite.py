"""`.tflite` files in the two runtimes, each in an environment of its own; and files that are none.

The environments are made by `.ci/install`, in `litert` and `tflite` below the one that runs this.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import DATA

from benchmarks.tflite.files import EXTRAS, available, bundled, fits, real, scored
from edge_opid.models import tflite
from edge_opid.models.matrix import CompactModel, ModelError
from edge_opid.models.tflite import FILE_BYTES_MAX, load_tflite, sealed
from gateway.estage import LinearModel
from gateway.tflite import matrix_to_tflite, to_tflite

BUNDLED = ("breast_cancer", "digits")
REAL = ("dna", "splice", "room_occupancy")
ALIKE = 0.99  # of the labels: what int8 weights must keep
CLASSES = ["fresh", "stale"]


def environment_of(extra) -> Path:
    """Where the runtime of an extra is installed; without it, the test is skipped."""
    folder = Path(sys.prefix, extra)
    if not available(folder, EXTRAS[extra]):
        pytest.skip(f"{folder} has no {EXTRAS[extra]}: run `sh .ci/install .venv`, which says why")
    return folder


# --- the runtimes ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every():
    """E-stage fits on the bundled sets, and on the real ones where their folder is."""
    sets = [each for each in (*bundled(), *real(DATA)) if each[0] in (*BUNDLED, *REAL)]
    return [fit for each in sets for fit in fits(*each, seed=0)]


@pytest.fixture(scope="module", params=sorted(EXTRAS))
def said(request, every):
    """What one runtime says of all files, in one process."""
    return scored(environment_of(request.param), every)


@pytest.fixture(params=[*BUNDLED, *REAL])
def some(request, every):
    """The fits of one set."""
    found = [fit for fit in every if fit.name.split()[0] == request.param]
    if not found:
        pytest.skip("the real data sets are not here: see CONTRIBUTING.md")
    return found


@pytest.mark.parametrize("form", ["layers", "matrix"])
def test_a_runtime_computes_what_numpy_does(said, some, form):
    """Float32 scores are NumPy's to 1e-5, every row, whatever order the layout has."""
    for fit in some:
        got = said[f"{fit.name} {form} float32|scores"]
        assert got.dtype == np.float32
        assert np.abs(got - fit.scores()).max() < 1e-5
        compact = CompactModel(0, fit.one_matrix().astype(np.float32))
        assert np.abs(got - [compact.scores(x) for x in fit.rows]).max() < 1e-5


@pytest.mark.parametrize("form", ["layers", "matrix"])
def test_int8_weights_cost_hardly_a_label(said, some, form):
    """Rounded to 256 steps, weights could turn close decisions."""
    for fit in some:
        got, truth = said[f"{fit.name} {form} int8|scores"], fit.scores()
        assert len(truth) >= 300  # or one label would be too large a share
        assert np.mean(got.argmax(1) == truth.argmax(1)) >= ALIKE


def test_each_environment_runs_its_own_runtime(said):
    assert str(said["runtime"]) in ("ai-edge-litert", "tflite-runtime")
    if str(said["runtime"]) == "tflite-runtime":
        assert str(said["numpy"]) < "2"


@pytest.mark.parametrize("extra", sorted(EXTRAS))
@pytest.mark.parametrize("form", ["layers", "matrix"])
def test_a_node_serves_the_file_until_a_sensor_falls_silent(tmp_path, extra, form):
    """One life with a file and one without: other predictions, the same state to the bit."""
    V_a, bias = np.array([[-2.0, 1.0]]), np.array([0.25, 0.0])
    model = LinearModel(name="given", V_z=np.eye(2), V_a=V_a, bias=bias)
    names = {"survivors": ["temp", "bias"], "new": ["co2"], "classes": CLASSES}
    data = to_tflite([[1.0, -1.0], [0.5, 0.0]], model, **names)
    if form == "matrix":
        W = [[-2.0, 1.0], [1.0, -1.0], [0.75, 0.0]]
        data = matrix_to_tflite(W, ["co2", "temp", "bias"], CLASSES)
    (tmp_path / "model.tflite").write_bytes(data)
    found = told_by(extra, tmp_path / "model.tflite")
    first, last = found["served"][0], found["served"][-1]
    assert (first["predictor"], first["label"], first["model_version"]) == ("tflite", "stale", 0)
    assert first["scores"] == pytest.approx({"fresh": -2.25, "stale": 1.0}, abs=1e-6)
    assert last["predictor"] != "tflite"
    assert last == found["alone"][-1]
    assert found["counts"]["tflite-does-not-fit"] == 1
    assert any("tflite does not fit: its columns are others" in d for d in found["degraded"])
    assert found["same state"]


def told_by(extra, path):
    """What tests/tflite_node.py prints in the environment of an extra."""
    command = [
        environment_of(extra) / "bin" / "python",
        Path(__file__).parent / "support" / "tflite_node.py",
    ]
    done = subprocess.run(
        [*command, path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_check_says_whether_the_file_fits(tmp_path, extra):
    """Through the command that people type, in the environment that has the runtime."""
    python = environment_of(extra) / "bin" / "python"
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\nsite = "farm"\nnode = "n1"\nclasses = ["stale", "fresh"]\n'
        '[state]\nfolder = "s"\n[serve]\ntflite = "model.tflite"\n[[sensors]]\nid = "temp"\n'
    )

    def check():
        command = [python, "-m", "edge_opid", "check", config]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    missing = check()
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "node.toml: serve.tflite: model.tflite cannot be read: No such file" in missing.stderr
    for columns, sentence in (
        (["temp", "bias"], "it fits the sensors and classes above"),
        (["co2", "bias"], "it does not fit the sensors and classes above: its columns are others"),
    ):
        (tmp_path / "model.tflite").write_bytes(matrix_to_tflite(np.eye(2), columns, CLASSES))
        done = check()
        assert done.returncode == 0, done.stderr
        assert sentence in done.stdout
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.tflite", "node.toml"]


# --- files that are none, without any runtime -----------------------------------------------------

GOOD = matrix_to_tflite(np.eye(2), ["temp", "bias"], CLASSES)


@pytest.fixture
def no_runtime(monkeypatch):
    """Neither is installed; a file that reaches the runtime is told so."""
    monkeypatch.setattr(tflite, "find_spec", lambda _: None)


@pytest.mark.usefixtures("no_runtime")
@pytest.mark.parametrize(
    ("data", "reason", "sentence"),
    [
        (b"", "format", r"the file must have b'TFL3' at byte 4, got b''"),
        (b"PK\3\4 a zip file", "format", "it is not a TFLite model"),
        (GOOD[:-8], "seal", "must end in b'OPID' and its checksum: copy it again if it was cut"),
        (GOOD[: len(GOOD) // 2], "seal", "copy it again if it was cut short"),
        (GOOD[:100] + b"\xff" + GOOD[101:], "seal", "it is damaged, copy it again"),
        (GOOD[:-1] + b"\xff", "seal", "must have the checksum ff[0-9a-f]{6} that it says, got"),
        (GOOD + bytes(FILE_BYTES_MAX), "size", "at most 1,048,576 bytes, and has more"),
    ],
)
def test_a_damaged_file_never_reaches_the_runtime(data, reason, sentence):
    """The runtimes are C++ and may die of it: what can be seen beforehand is."""
    with pytest.raises(ModelError, match=sentence) as caught:
        load_tflite(data)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_runtime")
def test_every_cut_and_every_flipped_bit_is_noticed():
    for end in range(len(GOOD)):
        with pytest.raises(ModelError, match=r"TFL3|cut short|damaged"):
            load_tflite(GOOD[:end])
    for place in range(len(GOOD)):
        hurt = bytearray(GOOD)
        hurt[place] ^= 1 << place % 8
        with pytest.raises(ModelError, match=r"TFL3|cut short|damaged"):
            load_tflite(bytes(hurt))


@pytest.mark.usefixtures("no_runtime")
def test_a_missing_runtime_is_named_with_its_command(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(GOOD)
    with pytest.raises(ModelError, match=r"pip install 'edge-opid\[litert\]', or") as caught:
        load_tflite(path)
    assert caught.value.reason == "runtime"
    assert path.read_bytes() == GOOD


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(ModelError, match=r"absent\.tflite cannot be read: No such file"):
        load_tflite(tmp_path / "absent.tflite")


# --- a runtime that misbehaves --------------------------------------------------------------------


class FakeInterpreter:
    """As much of an interpreter as is used; it doubles its input."""

    inputs = (("columns\ntemp\nbias", (1, 2), np.float32),)
    outputs = (("scores\nfresh\nstale", (1, 2), np.float32),)
    trouble: Exception | None = None

    def __init__(self, **_):
        self.tensors = {}

    def allocate_tensors(self):
        if self.trouble is not None:
            raise self.trouble

    def _details(self, tensors, first):
        keys = ("index", "name", "shape", "dtype")
        return [
            dict(zip(keys, (place, *each), strict=True))
            for place, each in enumerate(tensors, first)
        ]

    def get_input_details(self):
        return self._details(self.inputs, 0)

    def get_output_details(self):
        return self._details(self.outputs, 9)

    def set_tensor(self, index, value):
        self.tensors[index] = value.copy()

    def invoke(self):
        if self.tensors[0][0, 0] > 100:
            raise RuntimeError("node 0 failed to invoke")

    def get_tensor(self, _):
        return 2 * self.tensors[0]


@pytest.fixture
def fake(monkeypatch):
    """A runtime that claims whatever a test wants."""

    class Mine(FakeInterpreter):
        pass

    resolver = SimpleNamespace(BUILTIN_WITHOUT_DEFAULT_DELEGATES=3)
    module = SimpleNamespace(Interpreter=Mine, OpResolverType=resolver)
    monkeypatch.setattr(tflite, "_runtime", lambda: ("fake-runtime", module))
    return Mine


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"inputs": ()}, "must have 1 or 2 inputs and 1 output, got 0 and 1"),
        ({"outputs": FakeInterpreter.outputs * 2}, "got 1 and 2"),
        ({"inputs": (("serving_default_x", (1, 2), np.float32),)}, "got 'serving_default_x' of"),
        ({"inputs": (("columns\na", (1, 2), np.float32),)}, r"got 'columns\\na' of \(1, 2\)"),
        ({"inputs": (("columns\na", (1, 1), np.int8),)}, "int8"),
        ({"outputs": (("columns\na", (1, 1), np.float32),)}, "must be scores and n names"),
        ({"trouble": ValueError("op version")}, "file is not accepted by fake-runtime: op version"),
    ],
)
def test_a_model_of_another_kind_is_refused_with_what_it_is(fake, changes, sentence):
    for name, value in changes.items():
        setattr(fake, name, value)
    with pytest.raises(ModelError, match=sentence):
        load_tflite(GOOD)


@pytest.mark.usefixtures("fake")
def test_columns_and_classes_in_another_order_keep_their_meaning():
    model = load_tflite(GOOD)
    x = np.array([3.0, 1.0], np.float32)
    turned = model.arranged(["bias", "temp"], ["stale", "fresh"])
    assert turned.scores(x[::-1]).tolist() == model.scores(x).tolist()[::-1] == [2.0, 6.0]
    assert turned.arranged(model.columns, model.classes).scores(x).tolist() == [6.0, 2.0]
    assert (model.columns, turned.columns) == (("temp", "bias"), ("bias", "temp"))


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("columns", "classes", "reason", "strange"),
    [
        (["temp", "co2", "bias"], CLASSES, "columns", "co2"),
        (["temp"], CLASSES, "columns", "bias"),
        (["temp", "temp"], CLASSES, "columns", "bias"),
        (["temp", "bias"], ["fresh", "bad"], "classes", "bad, stale"),
    ],
)
def test_a_layout_with_other_names_does_not_fit(columns, classes, reason, strange):
    with pytest.raises(ModelError, match=f"its {reason} are others: '{strange}'") as caught:
        load_tflite(GOOD).arranged(columns, classes)
    assert caught.value.reason == reason


@pytest.mark.usefixtures("fake")
def test_a_runtime_that_fails_is_an_error_of_ours_and_the_next_reading_is_scored():
    model = load_tflite(GOOD)
    with pytest.raises(ModelError, match="fake-runtime failed: node 0 failed to invoke"):
        model.scores(np.array([1000.0, 1.0], np.float32))
    with pytest.raises(ModelError, match="x must have 2 columns, got 3"):
        model.scores(np.zeros(3, np.float32))
    assert model.scores(np.array([3.0, 1.0], np.float32)).tolist() == [6.0, 2.0]


@pytest.mark.usefixtures("fake")
def test_a_file_of_ones_own_is_served_once_it_is_sealed():
    assert load_tflite(sealed(GOOD[:-8])).classes == tuple(CLASSES)
