"""A node told to serve a predictor from outside: when it does, when not, and what it touches."""

from __future__ import annotations

import numpy as np
import pytest
from support.rig import CLASSES, KEY, Rig, config, desired

from edge_opid import log
from edge_opid.config.node import SensorConfig
from edge_opid.config.service import parse_config
from edge_opid.models.matrix import ModelError
from edge_opid.node.external_model import ExternalModel
from edge_opid.node.node import Node
from edge_opid.service.wiring import load_external_model

COLUMNS = ("a", "b", "c", "bias")


class Fake:
    """A model for some columns; of every reading it says the same, or fails with an error."""

    version = 0

    def __init__(self, columns=COLUMNS, scores=(0.0, 0.0, 9.0)):
        self.columns, self.said = columns, scores
        self.seen = []

    def arranged(self, columns, classes):
        if set(columns) != set(self.columns) or tuple(classes) != CLASSES:
            raise ModelError("columns", f"its columns are others: {columns}")
        return self

    def scores(self, x):
        self.seen.append(x)
        if isinstance(self.said, ModelError):
            raise self.said
        return np.array(self.said, np.float32)


def serving(model, **changes):
    given = config(**changes)
    return Rig(Node(given, [KEY.verify_key], ExternalModel(model)))


def read(rig, first, last, sensors="abc"):
    for seq in range(first, last + 1):
        values = {name: float(np.sin(seq + place)) for place, name in enumerate(sensors)}
        rig.read(seq, values, CLASSES[seq % 3])
        rig.tick(seq * 100)


def alone(**changes):
    return Rig(Node(config(**changes), [KEY.verify_key]))


def troubles(rig):
    return rig.node.status(0).degraded


# --- what it touches ------------------------------------------------------------------------------


def test_a_file_leaves_no_trace_in_the_state():
    """Two nodes with the same readings, one serving: same journal, same bits, same record."""
    rig, other = serving(Fake()), alone()
    for each in (rig, other):
        read(each, 1, 60)
    assert {prediction.predictor for prediction in rig.predictions()} == {"tflite"}
    assert "tflite" not in {prediction.predictor for prediction in other.predictions()}
    assert rig.durable == other.durable
    assert rig.frozen() == other.frozen()
    assert rig.node.status(0).accuracy == other.node.status(0).accuracy
    assert rig.reborn().frozen() == other.frozen()  # replayed without the file


def test_what_is_published_is_what_the_file_says():
    model = Fake(scores=(0.5, 2.0, 1.0))
    rig = serving(model)
    rig.read(1, {"a": 1.0, "b": 2.0, "c": 3.0})
    (prediction,) = rig.predictions()
    assert (prediction.label, prediction.predictor) == (CLASSES[1], "tflite")
    assert prediction.scores == {"fresh": 0.5, "stale": 2.0, "bad": 1.0}
    assert prediction.model_version == 0
    assert model.seen[0].tolist() == [1.0, 2.0, 3.0, 1.0]
    assert troubles(rig) == ()


def test_a_full_disk_does_not_stop_the_file():
    """What is not kept is still predicted, by the file as well."""
    rig = serving(Fake(), commit_records=1)
    rig.disk_full = True
    for seq in range(1, 6000):
        rig.read(seq, {"a": 1.0, "b": 2.0, "c": 3.0}, now_ms=seq)
        if rig.node.counts["not-kept"]:
            break
    assert rig.node.counts["not-kept"] == 1
    assert rig.predictions()[-1].predictor == "tflite"


# --- when it does not fit -------------------------------------------------------------------------


def test_a_silent_sensor_sends_the_node_back_to_its_own_and_its_return_to_the_file():
    rig = serving(Fake())
    read(rig, 1, 20)
    assert rig.predictions()[-1].predictor == "tflite"
    read(rig, 21, 150, sensors="ab")  # c is overdue after 10 s
    assert rig.node.state.local_models.silent == ("c",)
    assert rig.predictions()[-1].predictor != "tflite"
    assert rig.node.counts["tflite-does-not-fit"] == 1
    assert any(each.startswith("tflite does not fit: its columns") for each in troubles(rig))
    read(rig, 151, 152)
    assert rig.predictions()[-1].predictor == "tflite"
    assert rig.node.counts["tflite-does-not-fit"] == 1
    assert troubles(rig) == ()


def test_an_order_that_retires_a_sensor_is_told_at_once():
    """The status that answers the order says it already, before the next reading."""
    rig = serving(Fake())
    read(rig, 1, 5)
    rig.order(desired(1, sensors=("a", "b")))
    assert any("tflite does not fit" in each for each in rig.statuses()[-1].degraded)
    rig.read(6, {"a": 1.0, "b": 2.0})
    assert rig.predictions()[-1].predictor != "tflite"
    assert rig.node.counts["tflite-does-not-fit"] == 1  # not once for each who asked


def test_a_file_for_the_survivors_waits_for_its_hour():
    rig = serving(Fake(columns=("a", "b", "bias")))
    read(rig, 1, 5)
    assert rig.predictions()[-1].predictor != "tflite"
    rig.order(desired(1, sensors=("a", "b")))
    rig.read(6, {"a": 1.0, "b": 2.0})
    assert rig.predictions()[-1].predictor == "tflite"
    assert troubles(rig) == ()


def test_no_file_is_served_while_references_are_still_guessed():
    """Its weights are for columns whose unit is frozen: that of a warm-up still moves."""
    sensors = tuple(SensorConfig(name) for name in "abc")
    model = Fake()
    rig = serving(model, sensors=sensors, warmup_readings=20)
    read(rig, 1, 19)
    assert "tflite" not in {prediction.predictor for prediction in rig.predictions()}
    assert troubles(rig) == ("tflite waits for the end of the warm-up",)
    assert rig.node.counts["tflite-does-not-fit"] == 0
    assert model.seen == []
    read(rig, 20, 25)
    assert rig.predictions()[-1].predictor == "tflite"
    assert troubles(rig) == ()


# --- when it fails --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [ModelError("runtime", "it failed to invoke"), (np.nan, 0.0, 0.0), (np.inf, 0.0, 0.0)]
)
def test_a_file_that_fails_costs_no_prediction(said):
    model = Fake(scores=said)
    rig, other = serving(model), alone()
    for each in (rig, other):
        read(each, 1, 5)
    assert rig.predictions() == other.predictions()
    assert rig.node.counts["tflite-failed"] == 5
    assert any(each.startswith("tflite failed: ") for each in troubles(rig))
    model.said = (9.0, 0.0, 0.0)
    read(rig, 6, 6)
    assert rig.predictions()[-1].predictor == "tflite"
    assert troubles(rig) == ()


def test_a_file_that_cannot_be_loaded_is_said_and_the_node_goes_on(tmp_path, monkeypatch):
    logged = []
    monkeypatch.setattr(log, "error", lambda event, **fields: logged.append((event, fields)))
    (tmp_path / "model.tflite").write_bytes(b"not a model")
    text = (
        '[node]\nsite = "farm"\nnode = "n1"\nclasses = ["fresh", "stale", "bad"]\n'
        '[state]\nfolder = "s"\n[serve]\ntflite = "model.tflite"\n[[sensors]]\nid = "a"\n'
    )
    given = parse_config(text, {}, tmp_path / "node.toml")
    assert given.serve_tflite == tmp_path / "model.tflite"
    rig = Rig(Node(config(), [KEY.verify_key], load_external_model(given)))
    assert [(event, sorted(fields)) for event, fields in logged] == [
        ("cannot serve", ["file", "why"])
    ]
    read(rig, 1, 5)
    assert len(rig.predictions()) == 5
    assert any(each.startswith("tflite not loaded: model.tflite must") for each in troubles(rig))
    assert (
        load_external_model(parse_config(text.replace('tflite = "model.tflite"', ""), {})) is None
    )
