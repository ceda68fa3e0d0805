"""`opid-gateway` as an operator meets it: its answers, its exit codes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.fleet_rig import CLASSES, SITE, FleetRig, save_to_file
from support.mosquitto import Mosquitto, free_port
from support.node_process import WAIT_S, NodeProcess, wait_until

from edge_opid.wire import (
    Label,
    SensorDeployed,
    SensorRetired,
    SensorSilent,
    Status,
    decode,
    encode,
)
from gateway.__main__ import main
from gateway.cli.changes import member_facts
from gateway.cli.context import open_context
from gateway.cli.wait import AwaitedWave, Deadline, wave_after
from gateway.registry import SensorState, diagram
from gateway.registry.events import apply_event
from gateway.registry.measuring import knots_like_its_neighbours
from gateway.store import FleetStore, commands

DOCS = Path(__file__).parent.parent / "docs" / "gateway.md"
ROLES = ("pm", "no", "co", "db")


# --- a fleet with a history -----------------------------------------------------------------------


def lived_fleet() -> FleetRig:
    """Two nodes lose a sensor and gain another; one has a single sensor; one never came."""
    rig = FleetRig(names=("n1", "n2", "n3"), sensors=ROLES, lacking={"n3": ROLES[1:]})
    rig.read_all(80)
    rig.pass_s(12)
    for name in ("n1", "n2"):
        rig.event(name, SensorRetired(f"co-{name}", rig.now_ms, "[b]flooded[/b]"))
    rig.pass_s(10)
    for name in ("n1", "n2"):
        new = SensorDeployed(
            f"so-{name}",
            role="so",
            at_ms=rig.now_ms,
            unit="ppb",
            reference=0.0,
            scale=1.0,
            replaces=None,
        )
        rig.event(name, new)
    rig.pass_s(10)
    for _ in range(35):  # each long enough for a form of the E-stage to be chosen
        for name in ("n1", "n2"):
            rig.read(name)
    rig.pass_s(3)
    rig.event("n2", SensorDeployed("hum-2", role="hum", at_ms=rig.now_ms))
    rig.event("n1", SensorSilent("db-n1", rig.now_ms, rig.now_ms - 20_000))
    rig.sleep("n2")
    return rig


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "gateway.sqlite"
    save_to_file(lived_fleet().store, path)
    return path


@pytest.fixture
def folder(tmp_path, saved):
    """A configuration and a database of one's own."""
    shutil.copy(saved, tmp_path / "gateway.sqlite")
    write_config(tmp_path)
    return tmp_path


def write_config(folder: Path, more: str = "") -> Path:
    (folder / "key").write_text("5" * 64 + "\n")
    (folder / "key").chmod(0o600)
    path = folder / "gateway.toml"
    path.write_text(
        f"""
[gateway]
database = "sqlite:///gateway.sqlite"
key = "key"
[[groups]]
id = "air"
site = "{SITE}"
classes = {list(CLASSES)}
nodes = ["n1", "n2", "n3", "n4"]
{more}
"""
    )
    return path


def dump(folder: Path) -> str:
    with sqlite3.connect(folder / "gateway.sqlite") as connection:
        return "\n".join(connection.iterdump())


def records(folder: Path) -> str:
    """Everything but the commands."""
    return "\n".join(line for line in dump(folder).splitlines() if "commands" not in line)


@pytest.fixture
def opid(folder, capsys):
    """Run a verb on the fleet: `opid("node", "show", "n1")` is `node show CONFIG n1`."""

    def run(*words, config=folder / "gateway.toml"):
        split = 1 if words[0] == "export" else 2
        code = main([*words[:split], str(config), *map(str, words[split:])])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


# --- mistakes -------------------------------------------------------------------------------------

RETIRE, DEPLOY = ("sensor", "retire"), ("sensor", "deploy")
WHY = ("--reason", "broken")
MISTAKES = {
    "an unknown node": ([*RETIRE, "n9", "pm-n1", *WHY], "no node 'n9' is known; known: street/n1"),
    "another site": ([*RETIRE, "farm/n1", "pm-n1", *WHY], "no node 'farm/n1' is known"),
    "a node that never came": ([*RETIRE, "n4", "pm", *WHY], "no node street/n4 is known; known: "),
    "an unknown sensor": (
        [*RETIRE, "n1", "pm-9", *WHY],
        "street/n1 has no sensor 'pm-9'; it has: co-n1, db-n1, no-n1, pm-n1, so-n1",
    ),
    "retired twice": (
        [*RETIRE, "n1", "co-n1", *WHY],
        "sensor 'co-n1': a retired sensor cannot be retired; it can be: announced, deployed",
    ),
    "an empty layout": (
        [*RETIRE, "n3", "pm-n3", *WHY],
        "sensor 'pm-n3' is the last one of street/n3, and a layout needs one: deploy another first",
    ),
    "a reason too long": (
        [*RETIRE, "n1", "pm-n1", "--reason", "x" * 65],
        "sensor-retired.reason must have at most 64 bytes, got 65",
    ),
    "a reason of two lines": (
        [*RETIRE, "n1", "pm-n1", "--reason", "a\nb"],
        "sensor-retired.reason must be one printable line",
    ),
    "an id in use": (
        [*DEPLOY, "n1", "pm-n1", "--role", "so2"],
        "sensor 'pm-n1' of street/n1 is active as 'pm': retire it first, or give the new one "
        "another id",
    ),
    "an id being measured": ([*DEPLOY, "n2", "hum-2", "--role", "x"], "is measuring as 'hum'"),
    "a role in use": (
        [*DEPLOY, "n1", "pm-9", "--role", "pm"],
        "role 'pm' of street/n1 belongs to 'pm-n1': retire that one first, or say that the new "
        "sensor replaces it",
    ),
    "another role than the replaced one": (
        [*DEPLOY, "n1", "pm-9", "--role", "so2", "--replaces", "pm-n1"],
        "'pm-9' replaces 'pm-n1' and must have its role 'pm', got 'so2'",
    ),
    "an unknown sensor replaced": (
        [*DEPLOY, "n1", "pm-9", "--role", "pm", "--replaces", "pm-0"],
        "street/n1 has no sensor 'pm-0'",
    ),
    "a sensor that replaces itself": (
        [*DEPLOY, "n1", "pm-9", "--role", "pm", "--replaces", "pm-9"],
        "sensor-deployed.replaces must be another sensor",
    ),
    "the bias": ([*DEPLOY, "n1", "x", "--role", "bias"], "no sensor may be 'bias'"),
    "no id": ([*DEPLOY, "n1", "PM 9", "--role", "pm"], "sensor-deployed.sensor must "),
    "no scale": ([*DEPLOY, "n1", "x", "--role", "x", "--scale", "0"], "sensor-deployed.scale must"),
    "no number": (
        [*DEPLOY, "n1", "x", "--role", "x", "--reference", "nan"],
        "sensor-deployed.reference must be finite in float32, got nan",
    ),
    "knots in disorder": (
        [*DEPLOY, "n1", "x", "--role", "x", "--knots", "1", "-1"],
        "sensor-deployed.knots must increase in float32, got 1.0, -1.0",
    ),
    "dead on arrival": (
        [*DEPLOY, "n1", "x", "--role", "x", "--end-of-life", "2020-01-01"],
        "--end-of-life must be in the future, got 2020-01-01",
    ),
    "show an unknown node": (["node", "show", "n9"], "no node 'n9' is known"),
    "show a node that never came": (
        ["node", "show", "n4"],
        "node street/n4 has not introduced itself yet: is it running?",
    ),
    "sensors of an unknown node": (["sensor", "list", "--node", "n9"], "no node 'n9' is known"),
    "an unknown change": (["change", "show", "77"], "there is no change 77: there are 1 to "),
    "an unknown change exported": (["export", "77", "--out", "x"], "there is no change 77"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2_and_changes_nothing(mistake, opid, folder):
    words, sentence = MISTAKES[mistake]
    before = dump(folder)
    code, out, err = opid(*words)
    assert (code, out) == (2, "")
    assert err.startswith("opid-gateway: ")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert dump(folder) == before


def test_a_sensor_too_many_is_refused_before_it_can_stop_the_gateway(opid, folder):
    """A layout has at most 236 columns, the bias included: more do not fit a node of 64 MB."""
    knots = ["--knots", *map(str, range(32))]
    for place in range(7):
        words = [*DEPLOY, "n1", f"x{place}", "--role", f"x{place}", "--scale", 1, "--reference", 0]
        assert opid(*words, *knots)[0] == 0
    before = dump(folder)
    code, _, err = opid(*DEPLOY, "n1", "x7", "--role", "x7", *knots)
    assert code == 2
    assert "street/n1 would have 261 columns with 'x7', and a node has room for 236" in err
    assert dump(folder) == before


def test_a_measured_sensor_gets_no_more_hats_than_there_is_room_for(folder):
    with open_context(folder / "gateway.toml") as context:
        fleet = context.fleet()
    key, knots = (SITE, "n2"), tuple(map(float, range(21)))
    apply_event(fleet, key, SensorRetired("so-n2", 10**12, "too many"), 10**12)
    for place in range(11):  # beside db, no, pm, hum-2 and the bias: 236 columns
        event = SensorDeployed(
            f"x{place}",
            role=f"x{place}",
            at_ms=10**12,
            unit=None,
            reference=0.0,
            scale=1.0,
            knots=knots,
        )
        apply_event(fleet, key, event, 10**12)
    assert knots_like_its_neighbours(fleet, fleet.sensors[key]["hum-2"]) == 1
    apply_event(fleet, key, SensorRetired("x4", 2 * 10**12, "too many"), 2 * 10**12)
    for sensor in ("db-n2", "no-n2", "pm-n2"):
        apply_event(fleet, key, SensorRetired(sensor, 2 * 10**12, "linear"), 2 * 10**12)
    assert knots_like_its_neighbours(fleet, fleet.sensors[key]["hum-2"]) == 21


@pytest.mark.parametrize(
    "words",
    [
        ["sensor", "retire", "CONFIG", "n1", "pm-n1"],
        ["sensor", "deploy", "CONFIG", "n1", "x"],
        ["sensor", "deploy", "CONFIG", "n1", "x", "--role", "x", "--end-of-life", "soon"],
        ["sensor", "deploy", "CONFIG", "n1", "x", "--role", "x", "--wait-s", "nan"],
        ["change", "show", "CONFIG", "0"],
        ["change", "show", "CONFIG", "99999999999999999999"],
        ["change", "list", "CONFIG", "--limit", "-1"],
        ["export", "CONFIG", "1", "--out", "x", "--format", "onnx"],
        ["node"],
        [],
    ],
    ids=" ".join,
)
def test_words_that_make_no_sense_are_exit_code_2(words, folder, capsys):
    before = dump(folder)
    config = str(folder / "gateway.toml")
    with pytest.raises(SystemExit) as ended:
        main([config if word == "CONFIG" else word for word in words])
    assert (ended.value.code, capsys.readouterr().out) == (2, "")
    assert dump(folder) == before


def test_a_name_that_two_sites_have_is_not_guessed(opid, folder):
    second = f'[[groups]]\nid = "hall"\nsite = "hall"\nclasses = {list(CLASSES)}\nnodes = ["n1"]'
    write_config(folder, second)
    before = dump(folder)
    code, _, err = opid(*RETIRE, "n1", "pm-n1", *WHY)
    assert code == 2
    assert "node 'n1' could be hall/n1, street/n1: say which" in err
    assert dump(folder) == before
    assert opid("node", "show", f"{SITE}/n1")[0] == 0


def test_a_node_that_left_the_configuration_is_shown_and_not_touched(opid, folder):
    text = (folder / "gateway.toml").read_text()
    (folder / "gateway.toml").write_text(text.replace('"n1", ', ""))
    before = dump(folder)
    code, _, err = opid(*RETIRE, "n1", "pm-n1", *WHY)
    assert code == 2
    assert "node street/n1 is no longer in any group of the configuration" in err
    assert dump(folder) == before
    assert opid("node", "show", "n1")[0] == 0


def test_a_database_that_is_not_there_is_not_made(opid, tmp_path):
    (tmp_path / "gateway.sqlite").unlink()
    for words in (["node", "list"], [*RETIRE, "n1", "pm-n1", *WHY], ["export", "1", "--out", "x"]):
        code, out, err = opid(*words)
        assert (code, out) == (2, "")
        assert "no gateway has run with this configuration yet" in err
    assert not (tmp_path / "gateway.sqlite").exists()


def test_a_file_that_is_no_database_is_exit_code_1_and_one_sentence(opid, folder):
    (folder / "gateway.sqlite").write_bytes(b"no database" * 1000)
    code, out, err = opid("node", "list")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert (folder / "gateway.sqlite").read_bytes() == b"no database" * 1000


def test_passwords_are_never_printed(folder, capsys, monkeypatch):
    url = "postgresql://opid:hunter2@127.0.0.1:1/fleet"
    monkeypatch.setenv("OPID_GATEWAY_DATABASE", url)
    for verb in (["node", "list"], ["change", "list"], ["check"], ["run"]):
        main([*verb, str(folder / "gateway.toml")])
    told = capsys.readouterr()
    assert "127.0.0.1" in told.out + told.err
    assert "hunter2" not in told.out + told.err


# --- announcements --------------------------------------------------------------------------------


def test_without_a_gateway_a_command_waits_and_nothing_else_changes(opid, folder):
    before = records(folder)
    code, out, err = opid(*RETIRE, "n1", "pm-n1", *WHY)
    assert code == 0
    assert out.splitlines() == [
        "street/n1: column pm is removed, with sensor pm-n1",
        "street/n1: its layout will be db, no, so",
    ]
    assert "no gateway serves sqlite:///" in err
    assert "command 1 waits for it" in err
    assert records(folder) == before
    with FleetStore.open(f"sqlite:///{folder}/gateway.sqlite") as store:
        [command] = store.commands()
    event = decode(command.payload, SensorRetired)
    assert (command.site, command.node, event.sensor) == (SITE, "n1", "pm-n1")
    assert event.reason == "broken"


def test_a_command_that_waits_already_counts_for_the_next_one(opid, folder):
    assert opid(*RETIRE, "n1", "pm-n1", *WHY)[0] == 0
    before = dump(folder)
    code, _, err = opid(*RETIRE, "n1", "pm-n1", *WHY)
    assert code == 2
    assert "a retired sensor cannot be retired" in err
    assert dump(folder) == before
    assert opid(*DEPLOY, "n1", "pm-9", "--role", "pm")[0] == 0


def test_what_a_deployment_will_do_is_told_beforehand(opid):
    known = ["--reference", "-1.5", "--scale", "2", "--unit", "ppb", "--timeout-s", "30"]
    hats = ["--knots", "-1", "0", "1", "--end-of-life", "2999-01-01"]
    _, out, _ = opid(*DEPLOY, f"{SITE}/n1", "o3-1", "--role", "o3", *known, *hats)
    assert "street/n1: column o3 (3 hats) is added, with sensor o3-1\n" in out
    _, out, _ = opid(*DEPLOY, "n2", "pm-9", "--role", "pm", "--replaces", "pm-n2", *known)
    assert out.splitlines() == [
        "street/n2: pm-9 takes over from pm-n2 after 50 more readings together, or as soon as "
        "pm-n2 is silent or retired",
        "street/n2: its layout will be db, no, pm, so",
    ]
    _, out, _ = opid(*DEPLOY, "n1", "db-9", "--role", "db", "--replaces", "db-n1", *known)
    assert "street/n1: column db passes from sensor db-n1 to db-9\n" in out  # which is silent
    _, out, _ = opid(*DEPLOY, "n3", "no-9", "--role", "no")
    assert out.splitlines() == [
        "street/n3: no-9 is measured first, for 50 readings",
        "street/n3: its layout will be pm",
    ]


def test_whoever_retires_a_sensor_during_its_overlap_is_told_what_that_costs(opid, folder):
    """It is done all the same: the sensor may be in the bin already."""
    with FleetStore.open(f"sqlite:///{folder / 'gateway.sqlite'}") as store:
        (pm,) = [s for s in store.fleet().sensors if s.id == "pm-n1"]
        state = SensorState.MEASURING
        heir = replace(pm, id="pm-9", state=state, replaces="pm-n1", together=20, reason="deployed")
        store.save([replace(heir, judged=19, agreed=18)])
    waits = (
        "pm-9 takes over from pm-n1 after 30 more readings together; so far, the model answers the "
        "same with either sensor in 94 % of 19 readings"
    )
    for verb in (("sensor", "list"), ("node", "show", "n1")):
        assert waits in " ".join(opid(*verb)[1].split())
    code, out, _ = opid("sensor", "retire", "n1", "pm-n1", "--reason", "worn out")
    assert code == 0
    assert out.splitlines() == [
        f"street/n1: {waits}; with pm-n1 retired now, it takes over at once, with less knowledge",
        "street/n1: column pm passes from sensor pm-n1 to pm-9",
        "street/n1: its layout will be db, no, pm, so",
    ]


def test_a_sensor_that_is_measured_anew_keeps_its_column(opid):
    """The rehearsal says what goes on meanwhile; a second time is refused, and changes nothing."""
    code, out, _ = opid("sensor", "remeasure", "n1", "pm-n1")
    told, layout = out.splitlines()
    assert code == 0
    assert told.startswith(
        "street/n1: pm-n1 is measured again, for 50 readings or until it has moved;"
    )
    assert "pm" in layout
    code, _, err = opid("sensor", "remeasure", "n1", "pm-n1")
    assert code == 2
    assert "a remeasuring sensor cannot be remeasured" in err
    assert opid("sensor", "remeasure", "n1", "nobody")[0] == 2


@contextmanager
def gateway_that_says(folder: Path, outcome: str):
    """A leader of the database that settles every command with these words."""
    over, ready = threading.Event(), threading.Event()

    def serve():
        with FleetStore.open(f"sqlite:///{folder}/gateway.sqlite") as store:
            store.claim()
            ready.set()
            while not over.wait(0.02):
                for command in store.commands():
                    store.settle(command.id, outcome)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        yield
    finally:
        over.set()
        thread.join(WAIT_S)


def test_what_the_gateway_refuses_after_all_is_its_sentence_and_exit_code_2(opid, folder):
    before = records(folder)
    with gateway_that_says(folder, "sensor 'pm-n1' has just gone"):
        code, _, err = opid(*RETIRE, "n1", "pm-n1", *WHY, "--wait")
    assert (code, err) == (2, "opid-gateway: sensor 'pm-n1' has just gone\n")
    epoch = re.compile(r'INSERT INTO "?leader.*')
    assert epoch.sub("", records(folder)) == epoch.sub("", before)


def test_whoever_waits_in_vain_is_told_what_is_open_and_gets_exit_code_3(opid, folder):
    before = records(folder)
    code, _, err = opid(*RETIRE, "n1", "pm-n1", *WHY, "--wait", "--wait-s", "0")
    assert code == 3
    assert "command 1 is still open after 0 s, and no gateway is running" in err
    assert records(folder) == before


def test_a_wave_is_not_over_before_the_sensor_is_measured_and_the_layout_made(folder):
    with open_context(folder / "gateway.toml") as context:
        fleet = context.fleet()
    n1, n2 = (SITE, "n1"), (SITE, "n2")
    measured = wave_after(fleet, n2, "hum-2")
    assert measured.open == {n2: "measures hum-2, which takes its next readings"}
    assert wave_after(fleet, n1, "so-n1") == AwaitedWave(2)
    apply_event(fleet, n1, SensorRetired("pm-n1", 10**12, "broken"), 10**12)
    assert wave_after(fleet, n1, "pm-n1").open == {n1: "is about to get a new layout"}
    assert wave_after(fleet, n2, "so-n2") == AwaitedWave(2)


def test_a_node_that_is_forgotten_while_others_look_is_said_and_no_traceback(folder):
    """One operator waits for a sensor or lists changes, another one forgets the node."""
    n1 = SITE, "n1"
    with open_context(folder / "gateway.toml") as context:
        fleet = context.fleet()
        fleet.forget(n1)
        assert wave_after(fleet, n1, "so-n1").open == {n1: "has been forgotten meanwhile"}
        change = context.store.change(2)
        assert {each["node"] for each in member_facts(context, fleet, change)} == {"n2"}


def test_following_a_change_ends_when_its_nodes_have_reported(opid, folder):
    shown = json.loads(opid("change", "show", 2, "--json")[1])
    assert {each["node"] for each in shown["members"]} == {"n1", "n2"}
    assert opid("change", "show", 2, "--follow", "--wait-s", "0")[0] == 0
    with sqlite3.connect(folder / "gateway.sqlite") as connection:
        connection.execute("UPDATE nodes SET reported_version = 1 WHERE node = 'n2'")
    code, out, err = opid("change", "show", 2, "--follow", "--wait-s", "0")
    assert (code, "no (has 1)" in out) == (3, True)
    assert "1 of 2 nodes are not ready after 0 s: street/n2 has not reported order" in err
    assert "and is offline" in err


# --- listings -------------------------------------------------------------------------------------


def documented_keys(verb: str) -> set[str]:
    [row] = re.findall(rf"^\| `{verb}` \| (.*) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["sensor", "list"], {"sensor": lambda found: found}),
        (["node", "list"], {"node list": lambda found: found}),
        (["node", "show", "n1"], {"node show": lambda f: [f], "sensor": lambda f: f["sensors"]}),
        (["change", "list"], {"change list": lambda found: found}),
        (
            ["change", "show", "2"],
            {
                "change show": lambda found: [found],
                "fit": lambda found: found["fits"],
                "candidate": lambda found: [c for f in found["fits"] for c in f["candidates"]],
                "member": lambda found: found["members"],
            },
        ),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, list) else "",
)
def test_json_has_the_documented_keys_and_no_others(words, parts, opid, folder):
    before = dump(folder)
    code, out, err = opid(*words, "--json")
    assert (code, err) == (0, "")
    for what, pick in parts.items():
        things = pick(json.loads(out))
        assert things, what
        for each in things:
            assert set(each) == documented_keys(what)
    assert dump(folder) == before


def test_listings_show_what_was_said_as_it_was_said(opid, folder):
    before = dump(folder)
    code, out, err = opid("sensor", "list", "--node", "n1")
    assert (code, err) == (0, "")
    assert "[b]flooded[/b]" in out  # not markup
    assert re.search(r"db-n1 +silent +db +0 +1 ", out)
    assert re.search(r"co-n1 +retired +co ", out)
    _, out, _ = opid("node", "list")
    assert re.search(r"street/n1 +air +yes +3 ", out)
    assert re.search(r"street/n2 +air +no ", out)
    assert re.search(r"street/n4 +air +never +0 ", out)
    _, out, _ = opid("node", "show", "n2")
    assert re.search(r"hum-2 +measuring +hum +– +– ", out)
    _, out, _ = opid("change", "list", "--limit", "1")
    assert len(out.splitlines()) == 3
    assert re.search(r"^2 +air +gathering .* – +so +70 ", out, re.MULTILINE)
    _, out, _ = opid("change", "show", "2")
    assert "fit on 30 labelled instances" in out
    assert re.search(r"^\* \w+", out, re.MULTILINE)
    assert dump(folder) == before


# --- export ---------------------------------------------------------------------------------------


def exported(opid, folder, *words):
    path = folder / "model"
    code, out, err = opid("export", 2, "--out", path, *words)
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: ")
    assert not path.with_name("model.new").exists()
    return path


def test_both_ways_to_compute_an_exported_predictor_agree(opid, folder):
    """ColumnWeights into W, and part by part in float64: apart by the rounding of W, no more."""
    before = dump(folder)
    with np.load(exported(opid, folder)) as saved:
        model = {name: saved[name] for name in saved.files}
    columns = list(model["columns"])
    assert columns == ["bias", "db", "no", "pm", "so"]
    assert list(model["classes"]) == list(CLASSES)
    assert sorted([*model["survivors"], *model["new"]]) == columns
    # By cross-validation: beside the survivors, or continued with all columns. CPUs may differ.
    assert list(model["new"]) in (["so"], [])
    x = np.random.default_rng(1).normal(size=(20, len(columns)))
    x[:, columns.index("bias")] = 1.0
    x_s = x[:, [columns.index(each) for each in model["survivors"]]]
    x_a = x[:, [columns.index(each) for each in model["new"]]]
    parts = x_s @ model["W_s"].astype(float) @ model["V_z"] + x_a @ model["V_a"] + model["bias"]
    np.testing.assert_allclose(x @ model["W"].astype(float), parts, atol=1e-5)
    assert np.ptp(parts) > 0.1
    assert dump(folder) == before


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_tflite_file_scores_as_the_npz_does(weights, opid, folder):
    """In a real runtime, which has an environment of its own."""
    python = Path(sys.prefix, "litert", "bin", "python")
    if not python.exists():
        pytest.skip("no TFLite runtime is installed: run `sh .ci/install .venv`, which says why")
    with np.load(exported(opid, folder)) as saved:
        W, columns = saved["W"], list(saved["columns"])
    path = exported(opid, folder, "--format", "tflite", "--weights", weights)
    x = np.random.default_rng(2).normal(size=(20, len(columns))).astype(np.float32)
    x[:, columns.index("bias")] = 1.0
    data = np.frombuffer(path.read_bytes(), np.uint8)
    case = {"m|file": data, "m|x": x, "m|columns": columns, "m|classes": list(CLASSES)}
    np.savez(folder / "cases.npz", **case)
    script = Path(__file__).parents[1] / "benchmarks" / "tflite" / "scores.py"
    command = [python, script, folder / "cases.npz", folder / "scores.npz"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with np.load(folder / "scores.npz") as scored:
        scores = scored["m|scores"]
    worst = np.abs(W).max() * np.abs(x).sum(1).max()
    tolerance = 1e-5 if weights == "float32" else worst / 30  # a few steps of 1/127
    np.testing.assert_allclose(scores, x @ W, atol=tolerance)


def test_a_change_that_pushed_nothing_exports_nothing(opid, folder):
    with sqlite3.connect(folder / "gateway.sqlite") as connection:
        connection.execute("UPDATE changes SET pushed = -1 WHERE id = 2")
    before = dump(folder)
    code, _, err = opid("export", 2, "--out", folder / "model")
    assert code == 2
    assert "change 2 has pushed no weights: it was fitted on " in err
    write_config(folder)
    text = (folder / "gateway.toml").read_text()
    (folder / "gateway.toml").write_text(text.replace('id = "air"', 'id = "water"'))
    code, _, err = opid("export", 1, "--out", folder / "model")
    assert (code, "change 1 is of group 'air', and the configuration has water" in err) == (2, True)
    assert not (folder / "model").exists()
    assert dump(folder) == before


@pytest.mark.parametrize("name", ["model", "model.new"])
def test_an_export_writes_through_no_link_that_somebody_laid_out(name, opid, folder):
    """In a folder where others may write, the file's next name led to a file of the operator's."""
    treasure = folder / "treasure"
    treasure.write_bytes(b"somebody's")
    out = folder / "shared" / "model"
    out.parent.mkdir()
    (out.parent / name).symlink_to(treasure)
    code, _, err = opid("export", 2, "--out", out)
    assert (code, err) == (0, "")
    assert treasure.read_bytes() == b"somebody's"
    assert not out.is_symlink()
    assert set(np.load(out).files) >= {"W", "columns"}
    assert [path.name for path in out.parent.iterdir()] == ["model"]


# --- init, run, and the whole way -----------------------------------------------------------------


def init(folder: Path, *words: object) -> int:
    fleet = ["--site", SITE, "--group", "air", "--class", "fresh", "--class", "stale"]
    return main(["init", str(folder), *fleet, *map(str, words)])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_keeps_secrets_from_others_and_overwrites_nothing(tmp_path, capsys):
    fleet = tmp_path / "fleet"
    assert init(fleet, "--node", "n1", "--broker-port", "1884") == 0
    told = capsys.readouterr().out
    assert f"wrote {fleet}/keys/gateway.key" in told
    assert "what remains to be done:" in told
    for secret in ("keys/gateway.key", "keys/gateway.credentials", "mosquitto/passwords"):
        assert (fleet / secret).stat().st_mode & 0o777 == 0o600
    before = files(fleet)
    assert init(fleet, "--node", "n1") == 2
    assert init(fleet, "--node", "n1", "--node", "n1", "--add-nodes") == 2
    assert init(fleet, "--add-nodes") == 2
    assert init(fleet, "--node", "N 1", "--add-nodes") == 2
    assert files(fleet) == before
    assert init(fleet, "--node", "n2", "--add-nodes") == 0
    capsys.readouterr()
    assert main(["check", str(fleet / "gateway.toml")]) == 0
    told = capsys.readouterr().out
    assert "group air of site street: n1, n2\n" in told
    key = (fleet / "keys/gateway.key").read_text().strip()
    assert key not in told
    assert (fleet / "keys/gateway.pub").read_text().strip() in told


@contextmanager
def running(config: Path, log: Path, **environment: str):
    """`opid-gateway run`, once it has started; killed at the end if it still lives."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", str(config)],
            stdout=errors,
            stderr=errors,
            env={**os.environ, **environment},
        )
    try:
        wait_until(
            lambda: "event=started" in log.read_text() or process.poll() is not None, log.name
        )
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)


def test_a_second_leader_is_refused_and_the_first_goes_on(folder, tmp_path):
    with Mosquitto(tmp_path / "broker") as broker:
        port = {"OPID_BROKER_PORT": str(broker.port)}
        config = folder / "gateway.toml"
        with running(config, tmp_path / "log", **port) as first:
            second = subprocess.run(
                [sys.executable, "-m", "gateway", "run", str(config)],
                capture_output=True,
                text=True,
                check=False,
                timeout=WAIT_S,
                env={**os.environ, **port},
            )
            assert (second.returncode, second.stdout) == (2, "")
            assert f"is being served by process {first.pid} on" in second.stderr
            assert len(second.stderr.splitlines()) == 1
            assert first.poll() is None
            with FleetStore.open(f"sqlite:///{folder}/gateway.sqlite") as store:
                assert store.has_leader()
            first.send_signal(signal.SIGTERM)
            assert first.wait(WAIT_S) == 0
    with FleetStore.open(f"sqlite:///{folder}/gateway.sqlite") as store:
        assert not store.has_leader()
        assert len(store.fleet().nodes) == 3


def test_looking_for_a_leader_takes_nothing_from_him(database_url):
    with FleetStore.open(database_url) as looking, FleetStore.open(database_url) as leader:
        assert not looking.has_leader()
        leader.claim()
        assert looking.has_leader()
        assert leader.is_leader()
        leader.save([])
    with FleetStore.open(database_url) as looking:
        assert not looking.has_leader()
        looking.claim()


def test_a_node_that_was_cut_off_has_still_obeyed_what_it_reported():
    """A last will is written when a node starts: the versions in it are those of then."""
    rig = FleetRig(names=("n1",))
    rig.pass_s(3)
    before = rig.gateway.fleet.nodes[SITE, "n1"]
    assert before.reported_version > 0
    will = Status.last_will(layout_version=0, model_version=0, version=0)
    rig.publish(f"opid/1/{SITE}/n1/status", encode(will), retain=True)
    rig.deliver()
    assert rig.gateway.fleet.nodes[SITE, "n1"] == replace(before, online=False)


def sensors(node: str) -> str:
    roles = ("temp", "co2", "db")
    given = "reference = 20.0\nscale = 5.0\n"
    return "".join(f'[[sensors]]\nid = "{r}-{node}"\nrole = "{r}"\n{given}' for r in roles)


def node_of(fleet: Path, name: str, port: int) -> NodeProcess:
    """The node as init made it, with sensors, and its state in its own folder."""
    folder = fleet / "nodes" / f"{SITE}-{name}"
    text = (folder / "node.toml").read_text().split("# One [[sensors]]")[0]
    for path in ("/var/lib/opid-node", "/run/opid-node/status.json"):
        text = text.replace(path, str(folder / Path(path).name))
    node = NodeProcess(folder, port, "")
    node.toml.write_text(text + sensors(name))
    return node


def listed(config: Path, capsys, *words: str):
    assert main([*words[:2], str(config), *words[2:], "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_documented_steps_lead_from_init_to_a_retired_sensor_on_real_nodes(tmp_path, capsys):
    """The steps of docs/gateway.md, with the files that init made, passwords and rules included."""
    fleet, port = tmp_path / "fleet", free_port()
    assert init(fleet, "--node", "n1", "--node", "n2", "--broker-port", port) == 0
    capsys.readouterr()
    config, conf = fleet / "gateway.toml", fleet / "mosquitto" / "opid.conf"
    quick = {"OPID_GATEWAY_SETTLE_S": "0.2", "OPID_GATEWAY_SUMMARY_WAIT_S": "0.2"}
    with (
        Mosquitto(tmp_path / "broker", config=conf, port=port),
        running(config, tmp_path / "log", **quick) as gateway,
        node_of(fleet, "n1", port),
        node_of(fleet, "n2", port),
    ):
        wait_until(
            lambda: all(
                each["introduced"] and each["order"] == each["reported_order"] > 0
                for each in listed(config, capsys, "node", "list")
            ),
            "both nodes obey their first order",
        )
        words = [*RETIRE, str(config), "n1", "co2-n1", "--reason", "dust", "--wait"]
        code = main(words)
        told = capsys.readouterr()
        assert (code, told.err) == (0, "")
        assert told.out.endswith("done: 1 of 1 nodes have reported\n")
        assert main(words) == 2
        assert "a retired sensor cannot be retired" in capsys.readouterr().err
        code = main(["change", "show", str(config), "1", "--follow"])
        assert (code, "co2" in capsys.readouterr().out) == (0, True)
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(WAIT_S) == 0
    states = {each["id"]: each["state"] for each in listed(config, capsys, "sensor", "list")}
    assert states.pop("co2-n1") == "retired"
    assert set(states.values()) == {"active"}
    nodes = {each["node"]: each for each in listed(config, capsys, "node", "list")}
    assert nodes["n1"]["reported_layout"] == nodes["n1"]["layout"] == 2
    assert nodes["n2"]["reported_layout"] == nodes["n2"]["layout"] == 1


@pytest.mark.parametrize(("end", "code"), [(">&-", 0), ("2>&- >&-", 0), ("", 0)])
def test_a_closed_or_narrow_stdout_is_no_traceback(folder, end, code):
    """A supervisor closes stdout; an old terminal has no dash: neither is a bug of ours."""
    command = f"exec {sys.executable} -m gateway node list {folder / 'gateway.toml'} {end}"
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=narrow
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert ("street/n1" in done.stdout) == (not end)


@pytest.mark.parametrize("port", ["0", "99999", "http"])
def test_a_port_that_is_none_is_one_sentence(folder, capsys, port):
    """`web --port 99999` ended in a traceback of the server."""
    with pytest.raises(SystemExit) as ended:
        main(["web", str(folder / "gateway.toml"), "--port", port])
    assert ended.value.code == 2
    assert f"must be from 1 to 65535, got '{port}'" in capsys.readouterr().err


# --- the documentation ----------------------------------------------------------------------------


def test_the_lifecycle_in_the_documentation_is_the_one_in_the_code():
    assert f"```mermaid\n{diagram()}\n```" in DOCS.read_text("utf-8")


# --- labels that were written down elsewhere ------------------------------------------------------

LABELS = """node,time,from,until,label
n1,2026-11-17T14:05:00+01:00,,,{0}
street/n2,,1794920400,1794927600,{1}
"""


def imported(folder, text, *more):
    file = folder / "labels.csv"
    file.write_text(text)
    return main(["label", "import", str(file), str(folder / "gateway.toml"), *more])


def test_labels_of_a_file_become_commands_for_their_nodes(folder, capsys):
    """The gateway publishes each to its node; a label about a stretch is one message."""
    assert imported(folder, LABELS.format(*CLASSES), "--wait-s", "0") == 0
    with FleetStore.open(f"sqlite:///{folder / 'gateway.sqlite'}") as store:
        sent = [(each.node, decode(each.payload, Label)) for each in store.commands()][-2:]
    assert sent == [
        ("n1", Label(CLASSES[0], time_ms=1_794_920_700_000)),
        ("n2", Label(CLASSES[1], from_ms=1_794_920_400_000, until_ms=1_794_927_600_000)),
    ]
    assert "2 labels for 2 nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must begin with a header"),
        ("node,label\nn1,x\n", "must begin with a header"),
        ("node,label,tme\nn1,x,5\n", "must begin with a header"),
        (LABELS.format(CLASSES[0], "purple"), "line 3: 'purple' is not a class of street/n2"),
        (LABELS.format(CLASSES[0], "purple").replace("\n", "\n\n"), "line 5: 'purple'"),
        (LABELS[: LABELS.index("\n") + 1], "has no labels, only a header: nothing was sent"),
        (LABELS.format(*CLASSES).replace("n1,", "n9,"), "line 2: no node 'n9' is known"),
        (LABELS.format(*CLASSES).replace("1794920400", ""), "line 3: neither time nor from"),
        (LABELS.format(*CLASSES).replace("1794920400", "noon"), "line 3: from must be like 14:05"),
        (LABELS.format(*CLASSES).replace("1794920400", "1894920400"), "line 3: label.until_ms"),
    ],
)
def test_one_wrong_line_and_nothing_is_sent(folder, capsys, text, told):
    """Half a file of labels would be given twice when the other half is mended."""
    before = dump(folder)
    assert imported(folder, text) == 2
    assert told in capsys.readouterr().err
    assert dump(folder) == before


@pytest.mark.parametrize("wait_s", ["nan", "-1", "inf", "soon"])
def test_a_wait_for_labels_has_an_end(folder, capsys, wait_s):
    """With `nan` the command would have waited for ever."""
    before = dump(folder)
    with pytest.raises(SystemExit) as ended:
        imported(folder, LABELS.format(*CLASSES), f"--wait-s={wait_s}")
    assert ended.value.code == 2
    assert "must be seconds from 0 to 86400" in capsys.readouterr().err
    assert dump(folder) == before


def test_labels_whose_outcome_is_forgotten_are_not_called_sent(folder, capsys, monkeypatch):
    """A gateway remembers its last commands only: all of a long file were refused, and the first
    thousands of them were reported as sent.
    """
    monkeypatch.setattr(commands, "SETTLED_KEPT", 1)

    def refuse_all(_deadline):
        with FleetStore.open(f"sqlite:///{folder / 'gateway.sqlite'}") as store:
            store.save((), {each.id: "the broker refuses labels" for each in store.commands()})
        return True

    monkeypatch.setattr(Deadline, "pause", refuse_all)
    assert imported(folder, LABELS.format(*CLASSES)) == 2
    said = capsys.readouterr()
    assert "sent: 0 of 2" in said.out
    assert "1 refused: the broker refuses labels" in said.err
    assert "1 sent or refused, which of the two is forgotten" in said.err
