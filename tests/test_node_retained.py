"""What a broker kept and says again is no news: on a real mosquitto, in memory, and by number."""

from __future__ import annotations

import io
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.mosquitto import Mosquitto
from support.node_process import NodeProcess, listening, wait_until
from support.rig import CLASSES, KEY, TOPICS, Rig, config, desired
from test_service import World

from edge_opid import log
from edge_opid.config.node import ForeignConfig
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.node.node import Node
from edge_opid.service.systemd import Systemd
from edge_opid.service.wiring import open_loop
from edge_opid.testing.memory_broker import Outgoing
from edge_opid.wire import (
    MESSAGES_ON,
    Channel,
    InstanceId,
    Label,
    Reading,
    SensorReturned,
    SensorSilent,
    encode,
    seal_desired,
)
from firmware_sim.live.toml import toml_table

RECONNECTIONS = 20
SETTINGS = toml_table("node", site="farm", node="n1", classes=CLASSES, commit_s=0.05) + "".join(
    toml_table("[sensors]", id=name, reference=0.0, scale=1.0, timeout_s=timeout_s)
    + toml_table("[foreign]", filter=f"esphome/{name}/state", source=name, fields=name)
    for name, timeout_s in {"door": 0.3, "attic": 600.0, "lamp": 600.0}.items()
)


@contextmanager
def serving(folder, port, **options):
    """The real service, link and disk in this process: it connects again within milliseconds."""
    config = NodeProcess(folder, port, SETTINGS).config
    quick = replace(config.broker, reconnect_first_s=0.02, reconnect_most_s=0.05, **options)
    with open_loop(replace(config, broker=quick), Systemd({})) as service:
        thread = threading.Thread(target=service.run, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.stop()
            thread.join(30.0)


@pytest.mark.parametrize("five", [True, False], ids=["MQTT 5", "MQTT 3.1.1"])
def test_a_retained_foreign_message_is_learned_once_whatever_the_broker_repeats(tmp_path, five):
    """ESPHome retains by default: the broker says a dead door's last word at every connection."""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        listening(broker.port, "opid/1/farm/n1/event") as listener,
    ):
        device = BackgroundLink(MqttOptions(client_id="device", port=broker.port))
        device.start()
        device.publish("esphome/attic/state", b"0.5", retain=True)  # before the node's first life
        wait_until(lambda: device.counters.published == 1, "the attic's last word is kept")
        with serving(tmp_path, broker.port, mqtt_5_first=five) as service:
            node = service._node

            def learned(source: str) -> int:
                return node.state.expected.get(source, (0, 1))[1] - 1

            def lamp_is_heard() -> None:
                """It speaks until the node has it: what came with the subscription came before."""
                before = learned("lamp")

                def heard() -> bool:
                    device.publish("esphome/lamp/state", b"1.0", qos=0)
                    return learned("lamp") > before

                wait_until(heard, "the lamp is heard")

            def silent() -> bool:
                lamp_is_heard()
                return node.state.local_models.silent == ("door",)

            lamp_is_heard()
            device.publish("esphome/door/state", b"1.5", retain=True)
            wait_until(lambda: learned("door") == 1, "the door's only word is heard while it lives")
            wait_until(silent, "the door is dead")
            for _ in range(RECONNECTIONS):
                before = service._link.counters.connections
                thief = BackgroundLink(
                    replace(service._link._options, will=None)
                )  # takes the session
                thief.start()
                wait_until(lambda n=before: service._link.counters.connections > n, "it is back")
                thief.abort()
                lamp_is_heard()
            counts = node.counts.copy()
            assert service._link.counters.connections > RECONNECTIONS
            assert (learned("door"), learned("attic")) == (1, 0)
            assert counts["retained-foreign"] >= 2 * RECONNECTIONS
            assert node.state.local_models.silent == ("door",)
        device.stop()
        events = listener.all(Channel.EVENT, *MESSAGES_ON[Channel.EVENT])
    assert [event for event in events if isinstance(event, SensorSilent)]
    assert not [event for event in events if isinstance(event, SensorReturned)]


def test_what_a_broker_kept_is_refused_counted_and_logged_but_live_words_are_heard():
    """The same flag travels through the link in memory; the log says so at the 1st, 2nd, 4th."""
    out = io.StringIO()
    log.set_up("info", {}, out)
    world = World(node=Node(config(foreign=(ForeignConfig("esphome/a", "a", "a"),))))
    world.broker.publish(Outgoing("esphome/a", b"0.5", 0, True))
    world.service.start()
    world.rounds()
    before = world.node.snapshot()
    for _ in range(7):
        world.broker.drop("n1")
        world.rounds()
    assert world.node.snapshot() == before
    assert world.node.counts["retained-foreign"] == 8
    assert out.getvalue().count("reason=retained-foreign topic=esphome/a") == 4
    world.broker.publish(Outgoing("esphome/a", b"0.5", 0, True))  # to those who listen it is news
    world.rounds()
    assert world.node.counts["readings"] == 1


def test_a_retained_reading_of_ours_counts_once_by_its_number():
    """Somebody publishes with `-r`: each subscription brings it, its number tells the copies."""
    rig = Rig.make()
    payload = encode(Reading(1, 1, 100, {"a": 1.0}, "fresh"))
    for life in range(5):
        rig.handle(TOPICS.to(Channel.READING, "s"), payload, 100 + life, life, retained=True)
    rig.commit(200)
    assert rig.node.counts["readings"] == 1
    assert rig.node.state.local_models.learner.readings == 1
    assert rig.node.state.last.heard_ms["a"] == 100  # a copy is no sign of life


def test_a_retained_label_by_time_never_moves_on_to_the_next_instance():
    """Its own instance leaves the ring, another one is in reach: the label was not meant for it."""
    rig, topic = Rig.make(recent=2, label_tolerance_ms=1_000), TOPICS.to(Channel.LABEL)
    label = encode(Label("bad", time_ms=100))
    for seq in range(1, 6):
        rig.read(seq, {"a": 1.0})
        rig.handle(topic, label, seq * 100, token=seq, retained=seq > 1)
    assert rig.node.state.local_models.learner.readings == 1
    assert rig.node.counts["retained-label"] == 4
    assert {2, 3, 4, 5} <= set(rig.released)
    rig.handle(topic, encode(Label("bad", InstanceId("s", 1, 5))), 600, token=6, retained=True)
    assert rig.node.state.local_models.learner.readings == 2  # by number it is meant for one only


def test_a_retained_order_is_obeyed():
    """`desired` is retained on purpose: a node that was away finds it when it subscribes."""
    rig = Rig.make()
    order = seal_desired(desired(3), KEY)
    for _ in range(3):
        rig.handle(TOPICS.to(Channel.DESIRED), order, 5, token="order", retained=True)
    assert rig.node.state.version == 3
    assert not [name for name in rig.node.counts if name.startswith("retained")]
