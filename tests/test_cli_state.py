"""`check`, `export` and `classes` against what a node remembers: read, compared, changed."""

from __future__ import annotations

import shutil
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from nacl.signing import SigningKey
from support.state_folder import files, live

from edge_opid.cli import main
from edge_opid.cli.run import EARLY
from edge_opid.config.service import load_config
from edge_opid.models.matrix import ModelError
from edge_opid.node.journal_records import Ordered, pack_record
from edge_opid.service.wiring import look_at_node, open_node
from edge_opid.store import FolderToRead
from edge_opid.wire import Desired, SensorDescription, encode

SENSORS = {
    "temp": "reference = 20.0\nscale = 5.0\n",
    "co2": "reference = 500.0\nscale = 100.0\n",
    "lux": "reference = 0.0\nscale = 10.0\n",
    "dark": "reference = 0.0\nscale = 1.0\ntimeout_s = 2.0\n",
    "still": "reference = 0.0\nscale = 1.0\n",
}


def write(folder: Path, sensors=("temp", "co2"), classes=("dry", "wet"), more: str = "") -> Path:
    path = folder / "node.toml"
    listed = "".join(f'[[sensors]]\nid = "{name}"\n{SENSORS[name]}' for name in sensors)
    names = ", ".join(f'"{name}"' for name in classes)
    path.write_text(
        f'[node]\nsite = "farm"\nnode = "n1"\nclasses = [{names}]\n{more}\n'
        f'[state]\nfolder = "state"\n{listed}'
    )
    return path


def rows(count: int = 60) -> list[tuple[dict[str, float], str]]:
    random = np.random.default_rng(5)
    found = []
    for _ in range(count):
        truth = int(random.integers(2))
        values = {"temp": 20 + 5 * random.normal(truth), "co2": 500 + 100 * random.normal(-truth)}
        found.append((values, ("dry", "wet")[truth]))
    return found


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """The folder of a node that has learned 60 readings."""
    live(write(tmp_path), rows())
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


# --- check ----------------------------------------------------------------------------------------


def test_check_says_what_a_start_would_change_and_changes_nothing(lived, capsys) -> None:
    """The question of whoever has edited the file: what becomes of what was learned?"""
    before = files(lived / "state")
    code, out, err = run(capsys, "check", write(lived, ("temp", "lux"), ("wet", "dry", "fog")))
    assert (code, err) == (0, "")
    said = out[out.index("state: ") :]
    assert said.startswith(
        "state: a restart would change:\n"
        "  class 'fog' is added: nothing is known about it yet, and everything about the others "
        "is kept\n"
        "  lux joins: reference 0, scale 10\n"
        "  co2 is removed: what was learned with the others is kept\n"
        "  60 readings are kept\n"
    )
    assert files(lived / "state") == before
    code, out, _ = run(capsys, "check", write(lived))
    assert "state: a restart changes nothing; 60 readings are kept\n" in out


def test_check_makes_no_folder_where_there_is_none(tmp_path, capsys) -> None:
    """It is run before the first start, perhaps by somebody else than the service's user."""
    code, out, _ = run(capsys, "check", write(tmp_path))
    assert (code, "state: none yet; the node will start from scratch\n" in out) == (0, True)
    assert not (tmp_path / "state").exists()


def test_check_works_beside_a_node_that_has_the_folder_open(lived, capsys) -> None:
    """The lock is the node's: a look takes none, and sees what is committed."""
    with open_node(load_config(lived / "node.toml", {})):
        code, out, _ = run(capsys, "check", lived / "node.toml")
    assert (code, "60 readings are kept" in out) == (0, True)


def test_check_looks_again_while_snapshots_replace_each_other(lived, monkeypatch) -> None:
    """A node beside it took a snapshot between two of our reads: what was read does not fit."""
    config = load_config(lived / "node.toml", {})
    real, asked = FolderToRead.names, []

    def names(folder: FolderToRead) -> list[str]:
        asked.append(folder)
        found = real(folder)
        return found if folder is not asked[0] else [*found, f"snapshot-{len(asked)}.new"]

    monkeypatch.setattr(FolderToRead, "names", names)
    node = look_at_node(config)
    assert node is not None
    assert node.state.local_models.learner.readings == 60
    assert len(set(map(id, asked))) == 2


@pytest.mark.parametrize("verb", ["check", "run"])
def test_what_a_start_refuses_check_and_run_refuse_alike(lived, verb, capsys, monkeypatch) -> None:
    """One sentence that names the command; systemd does not try again after code 2."""
    for name, value in EARLY.items():
        monkeypatch.setenv(name, value)
    before = files(lived / "state")
    code, _, err = run(capsys, verb, write(lived, classes=("dry", "damp")))
    assert code == 2
    assert "node.classes lacks 'wet', which the state has learned" in err
    assert "opid-node classes rename 'wet' 'damp'" in err
    assert files(lived / "state") == before


def test_check_refuses_the_folder_of_another_node(lived, capsys) -> None:
    """A folder that was copied along with the file: the neighbour's memory is not this node's."""
    path = write(lived)
    path.write_text(path.read_text().replace('node = "n1"', 'node = "n2"'))
    code, out, err = run(capsys, "check", path)
    assert (code, out) == (2, "")
    assert "node.node is 'n2', and the state is that of farm/n1" in err


def test_check_warns_of_what_is_probably_a_mistake(tmp_path, capsys) -> None:
    """Each with its key and its value: a name that shows as unknown, a scale that clips all."""
    path = write(
        tmp_path, ("temp", "dark", "still"), ("dry", "wet", "None"), more="window_ms = 3000"
    )
    dim = [({**values, "dark": 400.0 + values["temp"], "still": 3.0}, y) for values, y in rows(60)]
    live(path, dim)
    _, out, _ = run(capsys, "check", path)
    warned = [line for line in out.splitlines() if line.startswith("warning: ")]
    assert [line.split(" ")[1] for line in warned] == [
        "node.classes", "sensors[1].timeout_s", "sensors[1].timeout_s", "sensors[1]:",
        "sensors[2]:",
    ]  # fmt: skip
    assert "'None', which Home Assistant shows as unknown" in warned[0]
    assert "timeout_s = 2 of dark is shorter than node.window_ms = 3000" in warned[1]
    assert "timeout_s = 2 of dark is shorter than its rhythm" in warned[2]
    assert "60 of the last 60 values of dark are beyond the gate" in warned[3]
    assert "still was 3 in all of its last 60 values" in warned[4]
    for shown in (
        "an instance for all readings within 3000 ms",
        "the last 256 instances can be labelled, by number or by a time within 500 ms",
        "publishes json",
    ):
        assert shown in out


# --- export ---------------------------------------------------------------------------------------


def test_export_of_a_node_that_never_ran_is_refused_and_makes_nothing(tmp_path, capsys) -> None:
    """It once wrote zeros in scales that it had invented, and made a state folder."""
    code, out, err = run(capsys, "export", tmp_path / "out.npz", write(tmp_path))
    assert (code, out) == (1, "")
    assert "holds no state: node n1 has never run there" in err
    assert [path.name for path in tmp_path.iterdir()] == ["node.toml"]


def test_export_of_a_node_without_a_label_is_refused(tmp_path, capsys) -> None:
    """There is nothing in its weights but zeros."""
    live(write(tmp_path), [(values, None) for values, _ in rows(5)])
    code, _, err = run(capsys, "export", tmp_path / "out.npz", tmp_path / "node.toml")
    assert (code, "has learned nothing yet" in err) == (1, True)
    assert not (tmp_path / "out.npz").exists()


def test_export_names_the_classes_that_the_state_has(lived, capsys) -> None:
    """The file has another order by now: the columns of W are the state's."""
    code, _, _ = run(capsys, "export", lived / "out.npz", write(lived, classes=("wet", "dry")))
    assert code == 0
    with np.load(lived / "out.npz") as saved:
        assert list(saved["classes"]) == ["dry", "wet"]


# --- classes --------------------------------------------------------------------------------------


def test_a_class_is_renamed_on_a_stopped_node_and_keeps_all_it_has_learned(lived, capsys) -> None:
    """The journal says it, the file must say the same, and then the node starts."""
    code, out, _ = run(capsys, "classes", "rename", "wet", "damp", lived / "node.toml")
    assert code == 0
    assert out == (
        f"class 'wet' is 'damp' now; change {lived / 'node.toml'} to match: "
        'classes = ["dry", "damp"]\n'
    )
    code, out, _ = run(capsys, "check", write(lived, classes=("dry", "damp")))
    assert (code, "a restart changes nothing; 60 readings are kept" in out) == (0, True)
    code, _, err = run(capsys, "check", write(lived))
    assert (code, "lacks 'damp'" in err) == (2, True)


def test_a_class_that_is_removed_takes_its_column_and_nothing_else(tmp_path, capsys) -> None:
    """What was learned of it stays in Σx̃x̃ᵀ, as readings of no class: the oracle learns it so."""
    path = write(tmp_path, classes=("dry", "wet", "fog"))
    taught = [*rows(), *(({"temp": 5.0, "co2": 900.0}, "fog") for _ in range(10))]
    live(path, taught)
    before = look_at_node(load_config(path, {})).state.local_models.learner
    assert run(capsys, "classes", "remove", "fog", path)[0] == 0
    node = look_at_node(load_config(write(tmp_path), {}))
    after, layout = node.state.local_models.learner, node.state.local_models.layout
    assert np.array_equal(after.B, before.B[:, :2])
    assert np.array_equal(after.inverse(), before.inverse())
    X = np.array([layout.encode(values) for values, _ in taught], np.float64)
    Y = np.array([[label == name for name in ("dry", "wet")] for _, label in taught], np.float64)
    W = np.linalg.solve(X.T @ X + np.eye(3), X.T @ Y)
    assert np.abs(after.weights()[0] - W).max() < 1e-4  # 70 readings in float32
    assert node.planned().sentences == ()


def test_classes_refuses_what_makes_no_sense_and_changes_nothing(lived, capsys) -> None:
    """A typing error, two classes into one, the last but one, a node that never ran or runs."""
    before, path = files(lived / "state"), lived / "node.toml"
    for words, complaint in (
        (("rename", "wett", "damp"), "has no 'wett'; the state knows dry, wet"),
        (("rename", "wet", "unknown"), "must not have 'unknown' among them"),
        (("rename", "wet", "dry"), "has 'dry' already: two classes cannot become one"),
        (("rename", "wet", "a\nb"), "cannot have it"),
        (("remove", "wet"), "must be 2 at least"),
    ):
        code, out, err = run(capsys, "classes", *words, path)
        assert (code, out, complaint in err) == (2, "", True), err
    with open_node(load_config(path, {})):
        code, _, err = run(capsys, "classes", "rename", "wet", "damp", path)
    assert (code, "another process has it open; stop that one first" in err) == (1, True)
    assert files(lived / "state") == before
    shutil.rmtree(lived / "state")
    code, _, err = run(capsys, "classes", "rename", "wet", "damp", path)
    assert (code, "has never run there" in err) == (1, True)
    assert not (lived / "state").exists()


# --- remeasure ------------------------------------------------------------------------------------


def test_remeasure_refuses_a_scale_that_the_file_gives_and_a_node_that_never_ran(
    lived, capsys
) -> None:
    """What was measured would differ from the file for good, and no start could tell which holds;
    and a folder that root makes is one that the service cannot open.
    """
    before, path = files(lived / "state"), lived / "node.toml"
    code, out, err = run(capsys, "remeasure", "temp", path)
    assert (code, out) == (2, "")
    assert "'temp' has the reference 20 and the scale 5 of node.toml" in err
    assert files(lived / "state") == before
    shutil.rmtree(lived / "state")
    code, _, err = run(capsys, "remeasure", "temp", path)
    assert (code, "has never run there" in err) == (1, True)
    assert not (lived / "state").exists()


# --- version --------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["edge_opid.cli", "gateway.__main__", "firmware_sim.__main__"])
def test_every_program_says_which_version_it_is(program, capsys) -> None:
    """The first question of whoever reads a report of a fault."""
    with pytest.raises(SystemExit) as ended:
        import_module(program).main(["--version"])
    name = {"edge_opid.cli": "opid-node", "gateway.__main__": "opid-gateway"}.get(program)
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{name or 'opid-sim'} {version('edge-opid')}\n"


# --- the file that is served ----------------------------------------------------------------------


class Exported:
    """A file that was exported for certain columns and classes; what it says is not asked."""

    runtime = "a double"

    def arranged(self, columns, classes):
        if (sorted(columns), sorted(classes)) != (["bias", "co2", "temp"], ["dry", "wet"]):
            raise ModelError("columns", f"its columns are others than {columns}")
        return self


def test_check_compares_a_served_file_with_the_state(lived, capsys, monkeypatch) -> None:
    """It said "does not fit" of a file that the node then served: a gateway had retired lux."""
    monkeypatch.setattr("edge_opid.models.tflite.load_tflite", lambda _: Exported())
    key = SigningKey(bytes(range(32)))
    config = load_config(lived / "node.toml", {})
    sensors = [
        SensorDescription(id=name, role=name, reference=1.0, scale=1.0, timeout_s=60.0)
        for name in ("temp", "co2")
    ]
    order = Desired(
        site="farm", node="n1", version=1, layout_version=1, sensors=tuple(sensors), vanishing=(),
        gate=8.0, classes=("dry", "wet"), weights=None,
    )  # fmt: skip
    with open_node(config) as (_, store, _):
        store.append(pack_record(Ordered(1, encode(order))))
        store.commit()
    serve = f'[serve]\ntflite = "x.tflite"\n[gateway]\nkeys = ["{key.verify_key.encode().hex()}"]\n'
    path = write(lived, ("temp", "co2", "lux"))
    path.write_text(path.read_text() + serve)
    code, out, _ = run(capsys, "check", path)
    assert code == 0
    assert "it fits the sensors and classes of the state" in out
    assert "not used: lux is not used: the gateway decides" in out
