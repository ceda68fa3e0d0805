"""Scenarios: what may stand in their files, what they make of a seed, and that each one ends."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_opid.errors import ConfigError
from firmware_sim.chaos.faults import CARDS
from firmware_sim.cli import main
from firmware_sim.scenario.report import Report
from firmware_sim.scenario.rivals import (
    BEST,
    RESTARTED,
    RIVALS,
    ZERO_FILLING,
    Restarted,
    Ridge,
    Rivals,
)
from firmware_sim.scenario.scenario import Event, Scenario, load_scenario, parse_scenario, shipped
from firmware_sim.scenario.score import FIRST, SERVED, Score
from firmware_sim.scenario.script import Script
from firmware_sim.simulated.gateway_device import cheap_attempt
from firmware_sim.simulated.scenario_fleet import play

NAMES = (
    "brown_out",
    "hostile_broker",
    "hundred_nodes",
    "label_drought",
    "meeting_rooms",
    "misadventures",
    "one_retire",
    "rolling_replacement",
    "silent_death",
)
SMALL_NODES = {"hundred_nodes": 6}
SMALL_READINGS = 90
HEAD = '[scenario]\nabout = "a test"\nworld = "street"\nsensors = ["pm25", "co", "wind"]\n'


def small(name: str) -> Scenario:
    """A scenario that takes seconds, with all that happens in it."""
    return load_scenario(name, SMALL_NODES.get(name, 2)).shortened(SMALL_READINGS)


@pytest.fixture(scope="module")
def changing() -> Script:
    """Two nodes, of which one sensor each is replaced; nobody plays it."""
    scenario = Scenario(
        about="a test",
        world="machine",
        sensors=("vib-x", "current", "speed"),
        nodes=2,
        readings=160,
        every_s=500.0,
        labels=0.8,
        events=(
            Event(60, "replace", "current", by="flow"),
            Event(120, "replace", "vib-x"),
        ),
    )
    return Script(scenario, seed=5)


# --- the files ------------------------------------------------------------------------------------


def test_every_scenario_is_shipped():
    """A file left out of the package would be missed by whoever installs it."""
    assert tuple(shipped()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_says_in_its_first_line_what_it_is(name):
    """`opid-sim list` prints that line."""
    first, empty = shipped()[name].read_text().splitlines()[:2]
    assert first.startswith("# ")
    assert first.endswith(".")
    assert empty == "#"


def test_the_example_in_the_documentation_is_a_valid_scenario():
    """Whoever copies it from docs/scenarios.md must not get an error."""
    page = (Path(__file__).parents[1] / "docs" / "scenarios.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(parse_scenario(example).events) == 2


def test_an_event_is_for_all_nodes_or_for_those_in_its_list():
    """`"all"` is a word where a list is expected."""
    event = '[[events]]\nat = 5\ndo = "retire"\nsensor = "co"\nnodes = '
    assert parse_scenario(f'{HEAD}{event}"all"\n').events[0].nodes == ()
    named = parse_scenario(f'{HEAD}{event}["n2"]\n')
    assert named.whom(named.events[0]) == ("n2",)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('world = "street"', "s.toml, line 1: world is not a section; there are scenario"),
        ('[scenario]\nworld = "street"', "s.toml, line 1: scenario.about is missing"),
        (HEAD.replace("street", "ocean"), "line 3: scenario.world must be one of ['greenhouse'"),
        (HEAD.replace('"co"', '"snow"'), "line 4: scenario.sensors cannot be: world 'street' has"),
        (HEAD.replace('"co"', '"wind"'), "line 4: scenario.sensors must be different roles"),
        (HEAD + "labels = 1.5\n", "line 5: scenario.labels must be from 0 to 1, got 1.5"),
        (HEAD + "labels = nan\n", "line 5: scenario.labels must be an ordinary number, got nan"),
        (HEAD + "nodes = 0\n", "line 5: scenario.nodes must be from 1 to 1000, got 0"),
        (HEAD + "readigns = 9\n", "line 5: scenario.readigns is not a key; did you mean readings?"),
        (HEAD + "[gateway]\nfirst_batch = 3\n", "line 6: gateway.first_batch must be from 6"),
    ],
)
def test_a_mistake_about_the_whole_is_told_by_line(text, complaint):
    with pytest.raises(ConfigError) as found:
        parse_scenario(text, Path("s.toml"))
    assert complaint in str(found.value)


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        ('at = 9\ndo = "paint"\nsensor = "co"', "line 7: events[0].do must be one of retire"),
        ('at = 400\ndo = "retire"\nsensor = "co"', "line 6: events[0].at must be a reading from 1"),
        ('at = 9\ndo = "retire"\nsensor = "snow"', "line 8: events[0].sensor must be a role of"),
        (
            'at = 9\ndo = "retire"\nsensor = "o3"',
            "line 8: events[0].sensor must be there to retire",
        ),
        ('at = 9\ndo = "deploy"\nsensor = "co"', "line 8: events[0].sensor must not be there yet"),
        ('at = 9\ndo = "retire"\nsensor = "co"\nby = "bc"', "line 9: events[0].by only goes with"),
        (
            'at = 9\ndo = "replace"\nsensor = "co"\nby = "wind"',
            "line 9: events[0].by must not be there yet, got 'wind'; n1 at reading 9 has",
        ),
        (
            'at = 9\ndo = "retire"\nsensor = "co"\nnodes = ["n9"]',
            "line 9: events[0].nodes must be n1 to n4, or \"all\", got 'n9'",
        ),
        ('at = 9\ndo = "retire"', "events[0].sensor is missing"),
    ],
)
def test_an_event_that_cannot_happen_is_told_by_line(event, complaint):
    with pytest.raises(ConfigError) as found:
        parse_scenario(f"{HEAD}[[events]]\n{event}\n", Path("s.toml"))
    assert complaint in str(found.value)


def test_the_last_sensor_of_a_node_cannot_go():
    gone = "".join(
        f'[[events]]\nat = {at}\ndo = "retire"\nsensor = "{role}"\n'
        for at, role in ((5, "co"), (6, "pm25"), (7, "wind"))
    )
    with pytest.raises(ConfigError, match=r"events\[2\].sensor must not be the last one"):
        parse_scenario(HEAD + gone)


def test_events_out_of_the_order_of_time_are_refused():
    """Sorted silently, the file would say something else than what happens."""
    two = "".join(
        f'[[events]]\nat = {at}\ndo = "retire"\nsensor = "{role}"\n'
        for at, role in ((9, "co"), (5, "pm25"))
    )
    with pytest.raises(ConfigError, match=r"line 10: events\[1\]\.at must be in the order of time"):
        parse_scenario(HEAD + two)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (
            'at = 9\nkind = "power"\ntarget = "n7"',
            "faults[0].target must be n1 to n4, all, gateway",
        ),
        ('at = 9\nkind = "flood"\ntarget = "n1"', "faults[0].kind must be one of"),
        ('at = 9\nkind = "power"\ntarget = "broker"', "for broker, got 'power'"),
        ('at = 0\nkind = "power"\ntarget = "all"', "faults[0].at must be a reading from 1"),
        ('at = 1\nkind = "kill"\ntarget = "all"\nlasts = -1', "faults[0].lasts must be from 0"),
    ],
)
def test_a_fault_that_cannot_happen_is_told(fault, complaint):
    with pytest.raises(ConfigError) as found:
        parse_scenario(f"{HEAD}[[faults]]\n{fault}\n")
    assert complaint in str(found.value)


def test_with_fewer_nodes_only_their_own_events_are_left():
    """An event of a node that is not there would end the run."""
    found = load_scenario("silent_death", nodes=1)
    assert [event.sensor for event in found.events] == ["soil-b", "light"]
    with pytest.raises(ConfigError, match=r"with 0 nodes: scenario\.nodes must be from 1"):
        load_scenario("silent_death", nodes=0)


# --- the script -----------------------------------------------------------------------------------


def test_what_is_said_does_not_depend_on_who_asks_first(changing):
    """Asked backwards by another script of the same seed."""
    again = Script(changing.scenario, seed=5)
    places = [(node, place) for place in range(0, 160, 7) for node in changing.nodes]
    backwards = {each: again.instance(*each) for each in reversed(places)}
    assert {each: changing.instance(*each) for each in places} == backwards
    assert Script(changing.scenario, seed=6).instance("n1", 3) != changing.instance("n1", 3)


def test_a_sensor_speaks_only_during_its_life(changing):
    """At the moments of both changes, and at every reading between them."""
    for place in range(changing.scenario.readings):
        alive = {sensor.id for sensor in changing.alive("n1", place)}
        assert set(changing.instance("n1", place).values) <= alive
    assert {sensor.id for sensor in changing.alive("n1", 59)} == {"vib-x-1", "current-1", "speed-1"}
    assert {sensor.id for sensor in changing.alive("n1", 60)} == {"vib-x-1", "flow-1", "speed-1"}
    assert {sensor.id for sensor in changing.alive("n1", 120)} == {"vib-x-2", "flow-1", "speed-1"}


def test_an_operator_says_of_another_make_what_it_replaces(changing):
    at_60, at_120 = (
        next(each for each in changing.announcements if (each.at, each.node) == (at, "n2"))
        for at in (60, 120)
    )
    assert [each.kind for each in at_60.messages(1_000, 4.0)] == [
        "sensor-retired",
        "sensor-deployed",
    ]
    gone, event = at_120.messages(1_000, 4.0)
    assert (gone.kind, gone.sensor) == ("sensor-retired", "vib-x-1")  # nobody waits for it
    assert (event.sensor, event.replaces, event.timeout_s) == ("vib-x-2", "vib-x-1", 4.0)


def test_nobody_announces_a_silent_death():
    script = Script(small("silent_death"), seed=1)
    assert [each.messages(0, 1.0) for each in script.announcements] == [[]] * 4


# --- the rivals -----------------------------------------------------------------------------------


def test_a_rival_is_asked_before_it_learns(changing):
    """Without any reading learned, all scores are 0 and the first class is the answer."""
    guesses = Rivals(changing).step(0)
    assert guesses == {n: dict.fromkeys(RIVALS, changing.classes[0]) for n in changing.nodes}


def test_the_ridge_is_that_of_all_rows_so_far():
    """A direct solve, on the columns that are still alive."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    ridge = Ridge("abc", classes=3)
    for row, truth in zip(X, y, strict=True):
        ridge.learn(dict(zip("abc", row, strict=True)), int(truth))
    A = np.column_stack([X[:, [0, 2]], np.ones(50)])  # b is dead
    W = np.linalg.solve(A.T @ A + np.eye(3), A.T @ np.eye(3)[y])
    for probe in rng.normal(size=(20, 2)):
        expected = int((np.append(probe, 1.0) @ W).argmax())
        assert ridge.guess({"a": probe[0], "c": probe[1]}, ["a", "c"]) == expected


def test_a_restarted_model_remembers_nothing_of_before_the_change(changing):
    """Even of a label that comes late, for a sensor that is gone."""
    model = Restarted(changing, "n1")
    for place in range(60):
        instance = changing.instance("n1", place)
        model.guess({}, place)
        model.learn(dict.fromkeys(instance.values, 1.0), 2)
    assert model.guess({}, 59) == 2
    assert model.guess({}, 60) == 0
    model.learn({"current-1": 1.0}, 2)  # a label that comes late, of a sensor that is gone
    assert model.guess({}, 60) == 0


def test_without_a_change_nobody_falls_behind():
    scenario = replace(load_scenario("one_retire", nodes=1), events=(), readings=120)
    rivals = Rivals(Script(scenario, seed=2))
    for place in range(120):
        guesses = rivals.step(place)["n1"]
        assert guesses[ZERO_FILLING] == guesses[RESTARTED] == guesses[BEST]


# --- the score ------------------------------------------------------------------------------------


def scored(script: Script, served: str) -> Score:
    """As if the served predictions had been one rival's."""
    score, rivals = Score(script), Rivals(script)
    for place in range(script.scenario.readings):
        guesses = rivals.step(place)
        score.guessed(place, guesses)
        for node in script.nodes:
            score.served(node, place, guesses[node][served])
    return score


@pytest.mark.parametrize(("served", "share"), [(RESTARTED, 0.0), (BEST, 1.0)])
def test_the_way_leads_from_the_restarted_rival_to_the_best_one(changing, served, share):
    """Were the one served, the share of the way would be 0; the other, 1."""
    score = scored(changing, served)
    assert score.share_of_the_way() == pytest.approx(share)
    assert score.missing == 0


def test_readings_count_for_the_last_change_before_them_alone(changing):
    """Two changes closer together than the stretch that is counted."""
    first, second = scored(changing, BEST).after_changes()
    told = {node: [changing.instance(node, p).known for p in range(160)] for node in changing.nodes}
    assert first.readings == sum(sum(known[60:120]) for known in told.values())
    assert second.readings == sum(min(FIRST, sum(known[120:])) for known in told.values())
    assert (first.words, second.words) == ("current → flow", "vib-x → another make")


def test_a_report_of_nothing_says_that_it_knows_nothing(changing, tmp_path):
    """Not one reading was played: NaN is no JSON, and 0 would be a lie."""
    report = Report("nothing was played", Score(changing))
    assert math.isnan(report.share())
    written = {path.suffix for path in report.write(tmp_path, "empty")}
    assert written >= {".txt", ".json"}
    found = json.loads((tmp_path / "empty.json").read_text())
    assert found["share_of_the_way"] is None
    assert found["accuracy"] == dict.fromkeys((SERVED, *RIVALS))


# --- simulated time -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_ends_in_agreement(name):
    """Each shipped scenario, faults included, in a small run."""
    scenario = small(name)
    played = play(scenario, seed=3, fit=cheap_attempt)
    assert played.outcome.broken is None
    missed = sum(4 for each in played.outcome.faults if each.kind in CARDS)  # a box that was away
    most = scenario.nodes * SMALL_READINGS
    assert most - missed <= played.outcome.readings <= most
    assert bool(played.outcome.faults) == bool(scenario.faults)
    assert played.score.played == SMALL_READINGS
    if not scenario.faults:  # a broker that forgets everything forgets predictions, too
        assert played.score.missing == 0
    assert set(played.layouts) == set(scenario.names)
    assert min(played.layouts.values()) > 1


def test_one_seed_always_lives_the_same_life():
    """Without that, no failure could be looked at twice."""
    scenario = small("brown_out").shortened(50)
    first, again, other = (play(scenario, seed, fit=cheap_attempt) for seed in (4, 4, 5))
    assert first.outcome.digest == again.outcome.digest != other.outcome.digest
    assert (first.score.right[SERVED] == again.score.right[SERVED]).all()


# --- the command line -----------------------------------------------------------------------------


def test_the_list_names_every_scenario(capsys):
    """`opid-sim list`, as a person meets it."""
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)


def test_a_short_run_writes_what_it_shows(tmp_path, capsys):
    given = ["run", "one_retire", "--nodes", "1", "--readings", "60", "--out", str(tmp_path)]
    assert main(given) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "one_retire.txt").read_text() in shown
    assert json.loads((tmp_path / "one_retire.json").read_text())["nodes"] == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["run", "nowhere"], "scenario 'nowhere' is neither a file nor one of brown_out"),
        (["run", "one_retire", "--readings", "3"], "scenario.readings must be from 10"),
        (["run", "one_retire", "--speed", "0"], "scenario.speed must be from 0.1"),
        (["run", "one_retire", "--broker", "http://x"], "broker must be mqtt://HOST"),
        (["run", "one_retire", "--broker", "mqtt://me:secret@:x"], "broker must be mqtt://HOST"),
    ],
)
def test_a_mistake_of_the_operator_is_one_sentence(given, complaint, capsys, tmp_path):
    assert main([*given, "--out", str(tmp_path)]) == 2
    found = capsys.readouterr().err
    assert complaint in found
    assert "secret" not in found
    assert not list(tmp_path.iterdir())


def test_a_soak_says_how_many_seeds_ran_and_failed(capsys):
    """Two seeds, in one process."""
    assert main(["soak", "--seeds", "2", "--workers", "1"]) == 0
    assert "2 seeds, 0 failed" in capsys.readouterr().out
