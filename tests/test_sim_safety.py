"""Five hundred made-up disasters: nothing acknowledged is lost, nothing is done twice, all agree.

`make soak` runs 10,000, and `SEEDS=2000` more of them here. A seed that fails prints a command that
repeats it, with as few faults as do it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from edge_opid.wire import Channel, NodeTopics, encode
from firmware_sim.chaos.faults import KINDS, parsed
from firmware_sim.chaos.fleet import AGREE_MS, SimFleet
from firmware_sim.chaos.planted import planted
from firmware_sim.chaos.soak import run_seed, run_seeds, told
from firmware_sim.chaos.story import SITE, Story
from firmware_sim.simulated.gateway_records import MemoryRecords
from gateway.decisions.actions import Publish
from gateway.fitting.worker import attempt
from gateway.registry.fleet import Fleet
from gateway.store import FleetStore

SEEDS = int(os.environ.get("SEEDS", "500"))
SHARE = 50  # seeds of one test, so that several can run beside each other
REPEATED = 50
HOUR_BACK = 1  # a detail of `jump` that sets the clock back by an hour


@pytest.fixture(autouse=True)
def quiet(caplog):
    """A run logs what goes wrong in it, which is a lot."""
    caplog.set_level("CRITICAL", logger="edge_opid")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_no_seed_breaks_a_promise(first: int) -> None:
    """Safety throughout, and within a minute after the faults everybody agrees."""
    seeds = range(first, min(first + SHARE, SEEDS))
    outcomes = list(run_seeds(seeds))
    broken = [outcome for outcome in outcomes if outcome.broken is not None]
    assert not broken, "\n".join(told(outcome) for outcome in broken[:3])
    assert max(outcome.agreed_ms for outcome in outcomes) <= AGREE_MS
    assert sum(outcome.readings for outcome in outcomes) > 40 * len(seeds)


@pytest.mark.timeout(1_800)
def test_same_seed_gives_the_same_digest_in_another_process() -> None:
    """Whatever order that process has for its sets."""
    here = [f"seed {o.seed} digest {o.digest}" for o in run_seeds(range(REPEATED))]
    command = (
        "-m",
        "firmware_sim.chaos.soak",
        "--seeds",
        f"0:{REPEATED}",
        "--workers",
        "1",
        "--digests",
    )
    elsewhere = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONHASHSEED": "4711", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.splitlines()[:-1] == here
    assert len(set(here)) == REPEATED


@pytest.mark.timeout(1_800)
def test_runs_have_everything_that_could_go_wrong() -> None:
    """A simulator whose faults do not bite would find nothing, either."""
    seen: Counter[str] = Counter()
    for seed in range(1, 41):
        fleet = SimFleet(seed)
        assert fleet.run().broken is None
        seen.update({fault.kind for fault in fleet.faults})
        seen["took-over"] += fleet.gateway.gateway.counts["took-over"]
        seen["sql"] += not isinstance(fleet.gateway.store, MemoryRecords)
        for node in fleet.nodes.values():
            seen.update(node.node.counted())
            seen["cuts"] += node.cuts
            seen["kills"] += node.kills
            seen["snapshots"] += any(name.startswith("snapshot") for name in node.disk.files)
            seen["models"] += bool(node.node.state.pushed_models)
            seen["layouts"] += node.node.state.layout_version > 1
            seen.update(node.link.counters.dropped if node.link else ())
        for source in fleet.sources.values():
            seen["lost"] += len(source.sent.lost)
            seen["renumbered"] += len(source.sent.moved)
            seen["poisoned"] += source.link.counters.dropped.total()
            seen["lives"] += source.life - 1
    happened = {*KINDS, "cuts", "kills", "snapshots", "models", "layouts", "lost", "lives", "sql"}
    happened |= {"took-over", "renumbered", "dropped-too-large", "retained-foreign", "boot-over"}
    happened |= {"duplicate", "held", "refused-signature", "refused-old-version", "sensor-silent"}
    assert {name for name in happened if not seen[name]} == set()
    assert seen["cuts"] > 15


@pytest.mark.parametrize("seed", [2, 5, 7])
def test_stand_in_for_the_database_cannot_be_told_from_it(seed: int) -> None:
    """The same digest, with everything that was decided in it."""
    real = SimFleet(seed, store=FleetStore.open("sqlite://")).run()
    assert real.broken is None
    assert SimFleet(seed, store=MemoryRecords()).run() == real


@pytest.mark.parametrize("seed", [2, 5, 9, 21])
def test_real_fits_break_no_promise(seed: int) -> None:
    """Seconds of cross-validation instead of the cheap fit, and the real database."""
    assert SimFleet(seed, fit=attempt, store=FleetStore.open("sqlite://")).run().broken is None


def changing_story() -> Story:
    """The first story in which operators announce something after two seconds."""
    stories = (Story(seed) for seed in range(1, 100))
    return next(s for s in stories if any(a.at_ms > 2_000 for a in s.announcements))


def test_gateway_whose_clock_was_set_back_does_not_wait_for_it(monkeypatch) -> None:
    """A Pi without a battery wakes up in the past: its fleet must not stand still until then."""
    seed = changing_story().seed
    set_back = parsed(f"1500:jump:gateway:50:{HOUR_BACK}")
    assert run_seed(seed, set_back).broken is None
    monkeypatch.setattr(Fleet, "cap_times", lambda _self, _now_ms: None)
    broken = run_seed(seed, set_back).broken
    assert broken is not None, "the test has lost its point"
    assert broken.promise == "no agreement"


def test_node_that_lost_a_reported_order_to_a_power_cut_is_told_again() -> None:
    """It reports what it has applied, and may lose it before the commit; the broker may be new."""
    fleet = SimFleet(1, faults=())
    assert fleet.run().broken is None
    gateway, name = fleet.gateway.gateway, fleet.story.nodes[0]
    topics, now_ms = NodeTopics(SITE, name), int(1000 * fleet.gateway.wall.wall())
    assert gateway.publisher.unreported() == []
    set_back = replace(fleet.nodes[name].node.status(now_ms), version=0)
    gateway.handle(str(topics.to(Channel.STATUS)), encode(set_back), now_ms)
    assert gateway.publisher.unreported() == [(SITE, name)]
    later = gateway.tick(now_ms + int(1000 * fleet.story.policy.retry_s))
    again = [each for each in later if isinstance(each, Publish)]
    assert [each.topic for each in again] == [str(topics.to(Channel.DESIRED))]


def test_failing_seed_says_how_to_see_it_again() -> None:
    """The promise, the few faults that are needed, and a command that does the same."""
    plant = "acknowledge-before-sync"
    # In some stories the plant breaks a promise without any fault: those have nothing to reduce.
    outcome = next(
        o
        for o in run_seeds(range(1, 100), plant=plant)
        if o.broken and "faults (0 of" not in told(o, plant)
    )
    text = told(outcome, plant)
    assert str(outcome.broken) in text
    command = next(line for line in text.splitlines() if "repeat:" in line)
    assert f"--seeds {outcome.seed} --plant {plant}" in command
    few = parsed(command.split("'")[1])
    assert 1 <= len(few) < len(outcome.faults)
    with planted(plant):
        again = SimFleet(outcome.seed, few).run()
    assert again.broken is not None
    assert outcome.broken is not None
    assert again.broken.promise == outcome.broken.promise
    assert run_seed(outcome.seed, few).broken is None, "without the plant nothing is wrong"


def test_run_without_faults_is_over_at_once() -> None:
    """The faults, and not the story, are what takes time."""
    seeds = range(1, 20)
    outcomes = [run_seed(seed, faults=()) for seed in seeds]
    assert all(outcome.broken is None for outcome in outcomes)
    assert sorted(outcome.agreed_ms for outcome in outcomes)[len(seeds) // 2] <= 5_000
