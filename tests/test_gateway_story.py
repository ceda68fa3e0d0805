"""A gateway and four nodes in processes of their own, on a real broker, through three changes.

The same story is told twice: undisturbed, and with a gateway that is killed thirty times.
"""

from __future__ import annotations

import random
import threading
import time

import pytest
from support.fleet_rig import SITE
from support.gateway_process import Town
from support.node_process import listening, wait_until

from edge_opid.service.wiring import open_node
from edge_opid.wire import Channel, SensorDeployed, SensorRetired

KILLS = 30


def now_ms() -> int:
    return int(time.time() * 1000)


def deploy(town, role, replaces=None):
    for name in town.names:
        sensor = f"{role}-{name}" if replaces is None else f"{role}2-{name}"
        old = None if replaces is None else f"{replaces}-{name}"
        event = SensorDeployed(
            sensor, role=role, at_ms=now_ms(), unit=None, reference=0.0, scale=1.0, replaces=old
        )
        town.operator(name, event)
        if old:
            town.sensors[name].pop(old, None)
        town.sensors[name][sensor] = role


def retire(town, role):
    for name in town.names:
        town.operator(name, SensorRetired(f"{role}-{name}", now_ms(), "end of contract"))
        town.sensors[name].pop(f"{role}-{name}")


def fall_silent(town, role):
    for name in town.names:
        town.sensors[name].pop(f"{role}-{name}")


def tell(town) -> dict[str, float]:
    """The story; returns the accuracy that was served at its stations."""
    accuracy = {}
    town.wait_adopted()
    town.live(150)
    accuracy["all four sensors"] = town.accuracy()

    retire(town, "pm")  # announced …
    fall_silent(town, "no")  # … and not
    town.live(50)
    town.live_until(lambda: gone(town, "no"), "the silent sensor is retired")
    town.live(50)
    accuracy["two left"] = town.accuracy()
    deploy(town, "voc")
    deploy(town, "o3")
    town.live_until(lambda: town.fitted(["o3", "voc"]), "weights for the new sensors")
    town.live(50)
    accuracy["two new"] = town.accuracy()

    deploy(town, "db", replaces="db")  # the second change: the same role, another sensor
    town.live_until(lambda: replaced(town), "the replacement is in")
    forget_everything(town)

    retire(town, "co")  # the third
    deploy(town, "uv")
    town.live_until(lambda: town.fitted(["uv"]), "weights for the third change")
    town.live(50)
    accuracy["at the end"] = town.accuracy()
    assert orders_retained(town) == set(town.names)
    return accuracy


def forget_everything(town):
    """The broker loses its sessions and every retained order, and the gateway comes back to it.

    What is announced before that reaches nobody: an operator in a hurry uses the command line,
    which goes through the database.
    """
    before = town.gateway.connections()
    town.broker.kill()
    town.broker.start()
    town.live_until(lambda: town.gateway.connections() > before, "the gateway is back")


def orders_retained(town):
    """The nodes whose order the broker would give to whoever asks."""
    with listening(town.broker.port, f"opid/1/{SITE}/+/desired") as listener:
        wait_until(lambda: len(listener.topics[Channel.DESIRED]) >= 4, "four retained orders")
        return {each.topic.node for each in listener.heard[Channel.DESIRED]}


def gone(town, role):
    states = {s.id: s.state for s in town.gateway.remembers().sensors}
    return all(states[f"{role}-{name}"] == "retired" for name in town.names) and town.agreed()


def obeyed(town, layout):
    return all(node.reported_layout >= layout for node in town.gateway.remembers().nodes)


def replaced(town):
    layouts = town.gateway.remembers().layouts
    inside = {sensor.id for layout in layouts for sensor in layout.sensors}
    return {f"db2-{name}" for name in town.names} <= inside and town.agreed()


def ending(town):
    """What the story came to, once every process has stopped."""
    assert town.gateway.stop() == 0
    found = town.gateway.remembers()
    newest = town.gateway.changes()[0]
    layouts = {layout.node: layout for layout in found.layouts}
    held = {}
    for name, process in town.nodes.items():
        process.stop()
        with open_node(process.config) as (node, _, _):
            state = node.state
            assert state.layout_version == layouts[name].version
            W = state.pushed_models.matrices()["model"]
            held[name] = dict(zip(state.local_models.full.columns, W.tolist(), strict=True))
    return {
        "sensors": sorted((s.id, str(s.state)) for s in found.sensors),
        "layouts": {name: sorted(s.id for s in each.sensors) for name, each in layouts.items()},
        "newest": (newest.arrived, newest.columns, newest.fitted),
        "same weights": all(each == held["n1"] for each in held.values()),
        "columns": sorted(held["n1"]),
    }


def kill_again_and_again(town, over):
    """Thirty lives of half a second to three: some end before the first message is heard."""
    rng = random.Random(11)
    for _ in range(KILLS):
        over.wait(rng.uniform(0.5, 4.0))
        town.gateway.kill()
        town.gateway.start()


EXPECTED_ROLES = {"db", "o3", "uv", "voc"}


def check_ending(found):
    assert found["same weights"]
    assert set(found["columns"]) == EXPECTED_ROLES | {"bias"}
    for name, sensors in found["layouts"].items():
        assert sensors == sorted([f"db2-{name}", f"o3-{name}", f"uv-{name}", f"voc-{name}"])
    states = dict(found["sensors"])
    assert [states[f"{gone}-n1"] for gone in ("pm", "no", "co", "db")] == ["retired"] * 4
    assert found["newest"][0] == ("uv",)


@pytest.mark.timeout(900)
def test_accuracy_recovers_through_three_changes(tmp_path):
    """Sensors die and come, on real processes behind a real broker."""
    with Town(tmp_path) as town:
        accuracy = tell(town)
        found = ending(town)
    check_ending(found)
    assert accuracy["two left"] < accuracy["all four sensors"]
    assert accuracy["two new"] > accuracy["two left"]
    assert accuracy["at the end"] >= accuracy["all four sensors"] - 0.1


@pytest.mark.timeout(1500)
def test_a_gateway_killed_thirty_times_ends_in_the_same_state(tmp_path):
    over = threading.Event()
    with Town(tmp_path) as town:
        killer = threading.Thread(target=kill_again_and_again, args=(town, over))
        town.wait_adopted()
        killer.start()
        try:
            tell(town)
        finally:
            over.set()
            killer.join(120)
        found = ending(town)
    check_ending(found)
    assert town.gateway.lives == KILLS + 1


def test_postgresql_remembers_a_change_as_well(tmp_path, postgres):
    """The server is restarted in the middle: the gateway waits for it, and goes on."""
    url = postgres.database("story")
    with Town(tmp_path, names=("n1", "n2"), url=url) as town:
        town.wait_adopted()
        town.live(50)
        retire(town, "pm")
        postgres.stop()
        town.live(20)
        postgres.start()
        town.live_until(lambda: obeyed(town, 2), "both nodes have the next layout")
        layouts = {each.node: each for each in town.gateway.remembers().layouts}
        assert town.gateway.stop() == 0
    for name in town.names:
        assert sorted(each.role for each in layouts[name].sensors) == ["co", "db", "no"]
        assert layouts[name].version == 2
