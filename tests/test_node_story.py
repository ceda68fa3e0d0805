"""One node's story on a real broker: it learns, a sensor falls silent, another one is deployed.

At the end, what the node kept is compared twice: with the inputs of its journal, applied in this
process without MQTT; and with a script that knows nothing of nodes, only a layout and a learner.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from support.mosquitto import Mosquitto
from support.node_process import WAIT_S, NodeProcess, listening, wait_until
from support.rig import CLASSES, KEY, TOPICS, description, desired, folded

from edge_opid import Layout, Sensor, WoodburyLearner
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import (
    Accepted,
    Ordered,
    Silenced,
    pack_state,
    unpack_record,
    unpack_state,
)
from edge_opid.node.memories import SHORT_MEMORY
from edge_opid.node.scoreboard import Scoreboard
from edge_opid.node.state import NodeState
from edge_opid.service.journal_writer import STORE_LIMITS
from edge_opid.source import connect
from edge_opid.store import RealDisk, Store
from edge_opid.wire import (
    MESSAGES_ON,
    Channel,
    Example,
    Introduction,
    Prediction,
    SensorReturned,
    SensorSilent,
    Status,
    SummaryMessage,
    seal_desired,
)
from firmware_sim.live.toml import toml_table

READINGS, SILENT_AFTER, DEPLOYED_AFTER = 5_000, 2_000, 3_000
TIMEOUT_S = 0.3  # of the sensor that falls silent
GATHERED = 30
REFERENCE, SCALE = 0.5, 2.0
UNHINDERED = {"rate_per_second": 1e5, "rate_burst": 10**5}
OFTEN = {"commit_s": 0.2, "commit_records": 64}
SETTINGS = toml_table(
    "node", UNHINDERED | OFTEN, site="farm", node="n1", classes=CLASSES, vanishing=["b"]
)
SETTINGS += toml_table("gateway", keys=[KEY.verify_key.encode().hex()])
SETTINGS += "".join(
    toml_table(
        "[sensors]", id=name, reference=REFERENCE, scale=SCALE, timeout_s=timeout_s, hold_s=0.0
    )  # the plain script holds nothing either
    for name, timeout_s in {"a": 600.0, "b": TIMEOUT_S, "c": 600.0}.items()
)


def world():
    """Sensor c repeats b with noise, d repeats it better; b stops, and d begins when deployed."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, READINGS))
    c, d = b + 0.5 * rng.normal(size=READINGS), b + 0.1 * rng.normal(size=READINGS)
    labels = [CLASSES[place] for place in np.argmax([a, b, -a - b], axis=0)]
    rows = []
    for place, values in enumerate(zip(a, b, c, d, strict=True)):
        row = {
            name: REFERENCE + SCALE * float(value)
            for name, value in zip("abcd", values, strict=True)
        }
        row.pop("d" if place < DEPLOYED_AFTER else "b")
        if place >= SILENT_AFTER:
            row.pop("b", None)
        rows.append(row)
    return rows, labels


def order():
    """What a gateway would sign: b is retired, d deployed, and a model for a, c and d pushed."""
    W = np.array([[1, 0, -1], [0, 0.2, -0.2], [0, 0.8, -0.8], [0, 0, 0]])
    options = {"reference": REFERENCE, "scale": SCALE, "timeout_s": 600.0}
    sensors = tuple(description(name, **options) for name in "acd")
    return replace(desired(1, weights=folded(W), gather=GATHERED), sensors=sensors)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The whole story, told once: what was heard, what was kept, what the sender knows."""
    folder = tmp_path_factory.mktemp("story")
    rows, labels = world()
    with (
        Mosquitto(folder / "broker") as broker,
        listening(broker.port, "opid/1/farm/n1/+", "opid/1/farm/n1/ack/+") as listener,
        NodeProcess(folder, broker.port, SETTINGS) as node,
        connect("farm", "n1", "s", folder / "spool", port=broker.port) as source,
    ):

        def status():
            return listener.last(Channel.STATUS, Status)

        def silent():
            return [each for each in events(listener) if isinstance(each, SensorSilent)]

        def send(first, last):
            for place in range(first, last):
                source.send(rows[place], labels[place], time_ms=place)

        wait_until(status, "the node is there")
        send(0, SILENT_AFTER)
        assert source.drained(WAIT_S)
        send(SILENT_AFTER, SILENT_AFTER + 299)
        time.sleep(1.5 * TIMEOUT_S)  # a fast machine has learned them before b's time is over
        send(SILENT_AFTER + 299, SILENT_AFTER + 300)
        wait_until(silent, "the node notices the silence")
        send(SILENT_AFTER + 300, DEPLOYED_AFTER)
        assert source.drained(WAIT_S)
        assert listener.link.publish(
            str(TOPICS.to(Channel.DESIRED)), seal_desired(order(), KEY), retain=True
        )
        wait_until(lambda: status() and status().layout_version == 1, "the node obeys")
        send(DEPLOYED_AFTER, READINGS)
        assert source.drained(WAIT_S)
        wait_until(lambda: len(listener.heard[Channel.PREDICTION]) >= READINGS, "predictions")
        shutil.copytree(node.state_folder, folder / "copy")  # before the last snapshot is taken
        node.check()
        alive = status()
        assert node.stop() == 0
        wait_until(lambda: not status().online, "goodbye")
        yield listener, node, source, alive, inputs_in(folder / "copy")


def events(listener):
    """Everything on the event topic so far."""
    return listener.all(Channel.EVENT, *MESSAGES_ON[Channel.EVENT])


def inputs_in(folder):
    """Every input that the journal in this folder holds, from the first on."""
    with RealDisk(folder) as disk:
        _, recovered = Store.open(disk, STORE_LIMITS)
        assert (recovered.snapshot, recovered.index, recovered.notes) == (None, 0, ())
        return [unpack_record(record) for record in recovered.records]


def test_the_state_is_that_of_the_same_inputs_without_mqtt(story):
    """The journal, folded in this process, gives the node's state to the last bit."""
    _, node, _, _, inputs = story
    state = NodeState(node.config.node)
    for change in inputs:
        apply(state, change)
    assert pack_state(state.state()) == node.snapshot()
    assert state.local_models.learner.readings > READINGS - SILENT_AFTER


def test_the_learner_is_that_of_a_plain_script(story):
    """A layout, a learner and the sender's own rows: the same arrays, through both changes."""
    _, node, source, _, inputs = story
    rows, labels = world()
    applied, places = 0, {}
    for change in inputs:
        applied += isinstance(change, Accepted)
        places.setdefault(type(change), applied)
    silent, ordered = places[Silenced], places[Ordered]
    assert SILENT_AFTER < silent <= DEPLOYED_AFTER
    assert ordered == DEPLOYED_AFTER

    layout = Layout([Sensor(name, REFERENCE, SCALE) for name in "abc"], vanishing=["b"])
    targets = {
        silent: layout.retire("b"),
        ordered: Layout([Sensor(name, REFERENCE, SCALE) for name in "acd"]),
    }
    learner, board = WoodburyLearner(1, 3, len(CLASSES)), Scoreboard()
    lately = WoodburyLearner(1, 3, len(CLASSES), forgetting=SHORT_MEMORY)
    for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
        if place in targets:
            change = layout.change_to(targets[place])
            learner, lately = change.follow(learner, board.carry()), change.follow(lately)
            layout = targets[place]
        x, truth = layout.encode(row), CLASSES.index(label)
        both = {"long": learner, "lately": lately}
        board.record(
            {name: int(each.predict_one(x).argmax()) for name, each in both.items()}, truth
        )
        learner.learn_one(x, truth)
        lately.learn_one(x, truth)

    kept = unpack_state(node.snapshot())["local_models"]
    assert Layout.from_dict(kept["layout"]) == layout
    for mine, theirs in ((learner.state(), kept["learner"]), (lately.state(), kept["lately"])):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(value, theirs[name]) for name, value in mine.items())
    assert (source.counters.lost, source.counters.refused) == (0, 0)


def test_nothing_is_lost_and_nothing_comes_twice(story):
    """Each number once in the journal, in order, with what was sent; one prediction for each."""
    listener, node, source, _, inputs = story
    rows, labels = world()
    accepted = [change for change in inputs if isinstance(change, Accepted)]
    assert [change.seq for change in accepted] == list(range(1, READINGS + 1))
    assert [dict(change.values) for change in accepted] == rows
    assert [change.label for change in accepted] == labels
    predictions = listener.all(Channel.PREDICTION, Prediction)
    numbers = [prediction.instance.seq for prediction in predictions]
    assert numbers == list(range(1, READINGS + 1))
    final = unpack_state(node.snapshot())
    assert final["register"]["expected"] == {"s": [source.boot, READINGS + 1]}
    assert sum(final["frequency"]) == READINGS


def test_everybody_hears_of_the_silence_and_of_the_new_model(story):
    """One event, a summary, and a status that names the layout, the model and the order."""
    listener, _, _, alive, _ = story
    [event] = [each for each in events(listener) if isinstance(each, SensorSilent | SensorReturned)]
    assert isinstance(event, SensorSilent)
    assert event.sensor == "b"
    summaries = listener.all(
        Channel.SUMMARY, SummaryMessage
    )  # a slow run may upload some by itself
    ordered = [summary for summary in summaries if summary.layout_version == 0][-1]
    assert (ordered.width, ordered.sensors) == (3, ("a", "c"))
    assert (alive.online, alive.layout_version, alive.model_version) == (True, 1, 1)
    assert alive.version == 1
    assert alive.healthy
    after = listener.all(Channel.PREDICTION, Prediction)[DEPLOYED_AFTER:]
    assert {prediction.layout_version for prediction in after} == {1}
    assert after[0].predictor == "model"  # served at once, until its labels speak against it
    assert after[0].model_version == 1


def test_the_gateway_gets_the_examples_it_asked_for(story):
    """The node has introduced itself; its first labelled instances came, and no more of them."""
    listener, _, _, _, _ = story
    rows, labels = world()
    first = events(listener)[0]
    assert isinstance(first, Introduction)
    assert [sensor.id for sensor in first.sensors] == ["a", "b", "c"]
    examples = [each for each in events(listener) if isinstance(each, Example)]
    wanted = range(DEPLOYED_AFTER, DEPLOYED_AFTER + GATHERED)
    assert [example.instance.seq for example in examples] == [place + 1 for place in wanted]
    assert [example.values for example in examples] == [rows[place] for place in wanted]
    assert [example.label for example in examples] == [labels[place] for place in wanted]


def test_it_keeps_classifying_through_both_changes(story):
    """Never worse than the noise of the sensors that remain would explain, and best at the end."""
    listener, _, _, _, _ = story
    _, labels = world()
    predictions = listener.all(Channel.PREDICTION, Prediction)
    right = np.array([p.label == label for p, label in zip(predictions, labels, strict=True)])
    before, bridged, after = right[1_000:2_000], right[2_700:3_000], right[4_000:]
    assert before.mean() > 0.85
    assert bridged.mean() > 0.7
    assert after.mean() > 0.85
    assert len(right) == READINGS
