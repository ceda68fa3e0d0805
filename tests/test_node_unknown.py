"""A node that has learned nothing says so, and does not guess."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.rig import CLASSES, Rig, desired, folded

from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig
from edge_opid.errors import SettingError
from edge_opid.wire import UNKNOWN
from gateway.policy import Group

VALUES = {"a": 1.0, "b": 1.0, "c": 1.0}


def labels(rig: Rig) -> list[str]:
    return [each.label for each in rig.predictions()]


def test_a_node_says_unknown_until_its_first_label_is_learned() -> None:
    """It said the first class of the list, with a straight face, from its first reading on."""
    rig = Rig.make()
    rig.read(1, VALUES)
    rig.read(2, VALUES, label=CLASSES[1])
    rig.read(3, VALUES)
    assert labels(rig) == [UNKNOWN, UNKNOWN, CLASSES[1]]
    assert rig.node.counts["predictions-unknown"] == 2
    assert set(rig.predictions()[0].scores) == set(CLASSES)


def test_an_answer_of_unknown_is_no_guess_in_any_accuracy() -> None:
    """The label of the very first instance made every predictor right or wrong by chance."""
    rig = Rig.make()
    rig.read(1, VALUES, label=CLASSES[0])
    assert rig.node.status(0).accuracy == {}
    assert (rig.node.counts["learned"], rig.node.counts["learned-unscored"]) == (1, 1)
    rig.read(2, VALUES, label=CLASSES[0])
    assert set(rig.node.status(0).accuracy.values()) == {1.0}
    assert rig.node.counts["learned-unscored"] == 1


def test_pushed_weights_are_an_answer_before_the_first_label() -> None:
    """A new node in an old group is given what its group knows."""
    rig = Rig.make()
    W = np.zeros((rig.node.state.local_models.full.width, len(CLASSES)), np.float32)
    W[0, 1] = 1.0
    rig.order(desired(1, weights=folded(W)))
    rig.read(1, VALUES)
    assert UNKNOWN not in labels(rig)


def test_what_was_learned_is_still_known_after_a_restart() -> None:
    rig = Rig.make()
    rig.read(1, VALUES, label=CLASSES[0])
    rig.commit(200)
    again = rig.reborn()
    again.read(2, VALUES)
    assert labels(again) == [CLASSES[0]]


def test_unknown_reads_as_a_word_in_json_too() -> None:
    """A dashboard shows the label as it comes."""
    rig = Rig.make(format="json")
    rig.read(1, VALUES)
    [said] = [payload for topic, payload, _ in rig.published if topic.endswith("/prediction")]
    assert json.loads(said)["label"] == "unknown"


@pytest.mark.parametrize("word", ["unknown"])
def test_no_class_may_be_called_unknown_on_node_or_gateway(word: str) -> None:
    """Nobody could tell the class from a node that has learned nothing."""
    with pytest.raises(SettingError, match=r"unknown.*has learned something"):
        NodeConfig(site="farm", node="n1", classes=("wet", word), sensors=(SensorConfig("a"),))
    with pytest.raises(SettingError, match=r"unknown.*has learned something"):
        Group("air", "street", ("wet", word), ("n1",)).check("groups[0]")


def test_a_label_field_of_a_plain_payload_is_refused() -> None:
    """A plain number has no fields: the label would never come, and nobody would say why."""
    with pytest.raises(SettingError, match=r"foreign\[0\]\.label_field .*plain"):
        NodeConfig(
            site="farm",
            node="n1",
            classes=("wet", "dry"),
            sensors=(SensorConfig("a"),),
            foreign=(ForeignConfig("esphome/a", "a", "a", label_field="state"),),
        )
