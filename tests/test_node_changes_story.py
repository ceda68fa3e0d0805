"""A node whose file is edited again and again: a real process, a real broker, a real journal.

Classes are reordered and added, a sensor joins, another is replaced, a third is rescaled; the
process is killed at the end of every life, and once right after a change. Three tell the same
story: the log, the journal folded in this process, and a bare layout and learner that lived
through the same changes.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.mosquitto import Mosquitto
from support.node_process import NodeProcess, listening, wait_until

from edge_opid import Layout, Sensor, WoodburyLearner
from edge_opid.config.node import NodeSettings
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Configured, pack_state, unpack_record
from edge_opid.node.state import NodeState
from edge_opid.service.journal_writer import STORE_LIMITS
from edge_opid.service.wiring import open_node
from edge_opid.source.connect import connect
from edge_opid.store import RealDisk, Store
from edge_opid.wire import Ack, Channel, Prediction

CO2_1 = {"id": "co2-1", "role": "co2", "reference": 500.0, "scale": 100.0}
CO2_2 = {"id": "co2-2", "role": "co2", "reference": 450.0, "scale": 80.0, "replaces": "co2-1"}
TEMP, WARM = ({"id": "temp", "reference": 20.0, "scale": s} for s in (5.0, 8.0))
LUX = {"id": "lux", "reference": 100.0, "scale": 50.0}
LIVES = [
    (("dry", "wet"), (TEMP, CO2_1)),
    (("wet", "dry"), (TEMP, CO2_1)),  # reordered
    (("wet", "dry"), (TEMP, CO2_1, LUX)),  # a sensor joins
    (("fog", "wet", "dry"), (WARM, CO2_2, LUX)),  # a class joins, one is replaced, one rescaled
]
CLASSES = ("dry", "wet", "fog")  # the order in which the state has met them
A_LIFE = 40


def settings(classes, sensors) -> str:
    def line(key, value):
        return f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"

    lists = "\n".join(
        "[[sensors]]\n" + "\n".join(line(*each) for each in sensor.items()) for sensor in sensors
    )
    names = ", ".join(f'"{name}"' for name in classes)
    head = f'[node]\nsite = "farm"\nnode = "n1"\nclasses = [{names}]\ncommit_s = 0.2\n'
    return f"{head}{lists}\n"


def rows(life: int) -> list[tuple[dict[str, float], str]]:
    """What the sensors of this life say, and what is so."""
    random = np.random.default_rng(life)
    classes, sensors = LIVES[life]
    found = []
    for _ in range(A_LIFE):
        truth = CLASSES.index(classes[int(random.integers(len(classes)))])
        z = {"temp": random.normal((0, 3, -3)[truth]), "co2": random.normal(-truth), "lux": truth}
        units = {"co2-1": CO2_1, "co2-2": CO2_2, "temp": TEMP, "lux": LUX}
        values = {
            each["id"]: units[each["id"]]["reference"]
            + units[each["id"]]["scale"] * float(z[each["id"].partition("-")[0]])
            for each in sensors
        }
        found.append((values, CLASSES[truth]))
    return found


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The log of all lives, the inputs in the journal, the last state, what was predicted."""
    folder = tmp_path_factory.mktemp("story")
    first = settings(*LIVES[0])
    with (
        Mosquitto(folder / "broker") as broker,
        listening(broker.port, "opid/1/farm/n1/#") as listener,
        NodeProcess(folder, broker.port, first) as node,
        connect("farm", "n1", "s", folder / "spool", port=broker.port, resend_s=0.5) as source,
    ):
        rest = node.toml.read_text()[len(first) :]
        for life, (classes, sensors) in enumerate(LIVES):
            if life:
                node.toml.write_text(settings(classes, sensors) + rest)
                started = node.log().count("event=started")
                node.start()
                wait_until(
                    lambda n=started: node.log().count("event=started") > n, "it has started"
                )
                if life == 2:  # between the change and the first reading after it
                    node.kill()
                    node.start()
            for values, label in rows(life):
                source.send(values, label)
            wait_until(lambda: source.drained() or node.check(), "all is acknowledged")
            node.kill()  # a goodbye would end in a snapshot: the journal is to tell it all
        said = listener.all(Channel.PREDICTION, Prediction)
        acks = listener.all(Channel.ACK, Ack)
    with RealDisk(node.state_folder) as disk:
        _, recovered = Store.open(disk, STORE_LIMITS)
        assert recovered.snapshot is None
        inputs = [unpack_record(record) for record in recovered.records]
    assert acks[-1].seq == len(LIVES) * A_LIFE
    return node, inputs, said


def test_every_start_tells_what_it_changed(story) -> None:
    """An order of classes is no change; the others are a sentence each, and only once."""
    node, inputs, _ = story
    log = node.log()
    for sentence in (
        "lux joins: reference 100, scale 50",
        "class 'fog' is added: nothing is known about it yet, and everything about the others is "
        "kept",
        "co2-2 takes over from co2-1, with what it has learned: reference 450, scale 80",
        "temp is rescaled: reference 20, scale 8; they were 20 and 5, and what was learned is",
    ):
        assert log.count(sentence) == 1
    assert log.count("event=configuration ") == 4
    assert sum(isinstance(each, Configured) for each in inputs) == 3  # the first, and two changes


def test_the_journal_gives_the_state_through_every_change(story) -> None:
    """Folded in this process from its first record on: the same bits, whatever the file says."""
    node, inputs, _ = story
    first, *others = inputs
    assert isinstance(first, Configured)
    state = NodeState(NodeSettings.restored(first.settings))
    for each in others:
        apply(state, each)
    assert pack_state(state.state()) == node.snapshot()
    assert state.settings.classes == CLASSES


def test_the_learner_is_that_of_a_script_that_lived_through_the_same_changes(story) -> None:
    """A layout and a learner, the sender's rows, and the changes by hand: the same arrays."""
    node, inputs, _ = story

    def sensor(each):
        return Sensor(each.get("role", each["id"]), each["reference"], each["scale"])

    layout = Layout(map(sensor, LIVES[0][1]))
    learner = WoodburyLearner(0, layout.width, 2)
    readings = iter([each for each in inputs if isinstance(each, Accepted)])

    def learn():
        for _ in range(A_LIFE):
            said = next(readings)
            values = {s.partition("-")[0]: value for s, value in said.values.items()}
            learner.learn_one(layout.encode(values), CLASSES.index(said.label))

    learn()
    learn()
    # The long memory was at least as right as the short one: everything is carried (κ = 1).
    wider = Layout(map(sensor, LIVES[2][1]))
    learner, layout = layout.change_to(wider).follow(learner), wider
    learn()
    learner = learner.with_classes([0, 1, None])
    moved = Layout([sensor(WARM), sensor(CO2_1), sensor(LUX)])
    learner = moved.move_from(layout).follow(learner)
    replaced = Layout(map(sensor, LIVES[3][1]))
    learner, layout = moved.change_to(replaced).follow(learner), replaced
    learn()

    with open_node(node.config) as (found, _, _):
        known = found.state.local_models.learner
    assert np.array_equal(known.B, learner.B)
    assert np.array_equal(known.inverse(), learner.inverse())
    assert known.readings == len(LIVES) * A_LIFE


def test_answers_are_right_before_and_after_every_change(story) -> None:
    """Reordering the classes once inverted them: chance would be a half, and a third at the end."""
    _, _, said = story
    truth = [label for life in range(len(LIVES)) for _, label in rows(life)]
    by_number = {each.instance.seq: each.label for each in said}
    for life in (1, 2, 3):
        late = range(life * A_LIFE + A_LIFE // 2, (life + 1) * A_LIFE)
        right = [by_number[n + 1] == truth[n] for n in late]
        assert sum(right) >= 0.7 * len(right)
