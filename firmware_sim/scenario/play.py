"""Play a scenario and report on it: with real processes, or on simulated time."""

from __future__ import annotations

import logging
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from firmware_sim.live.processes import LiveError
from firmware_sim.scenario.report import Report
from firmware_sim.scenario.scenario import Scenario
from firmware_sim.scenario.script import Script

if TYPE_CHECKING:
    from firmware_sim.live.fleet import LiveFleet


def run_live(
    scenario: Scenario,
    seed: int,
    url: str | None,
    out: Path,
    screen: TextIO,
    web_port: int | None = None,
) -> int:
    """Real processes on a broker, perhaps with the gateway's pages; the exit code."""
    from firmware_sim.live.fleet import LiveFleet  # noqa: PLC0415 - paho, only where it is used
    from firmware_sim.live.page import DemoPage  # noqa: PLC0415
    from firmware_sim.live.view import LiveView  # noqa: PLC0415

    began = time.monotonic()
    script = Script(scenario, seed)
    title = f"{scenario.name}: {scenario.about}"
    if scenario.faults:
        screen.write("the faults of this scenario are for simulated time, and left out here\n")
    with tempfile.TemporaryDirectory(prefix="opid-sim-") as folder, ExitStack() as stack:
        fleet = LiveFleet(script, Path(folder), url, 1.0 / scenario.speed, web_port)
        if web_port is not None:
            page = stack.enter_context(DemoPage(fleet.score, web_port + 1, web_port))
            screen.write(f"watch it in a browser: http://127.0.0.1:{page.port}\n")
            screen.write(f"the gateway's own pages: http://127.0.0.1:{web_port}\n")
        stack.enter_context(fleet)
        fleet.play(stack.enter_context(LiveView(title, screen)))
    took = {"took": f"{time.monotonic() - began:.0f} s"}
    _told(Report(title, fleet.score, _facts(fleet) | took), scenario.name, out, screen)
    codes = {child.name: child.exit_code for child in fleet.nodes.values()}
    if any(codes.values()):
        raise LiveError(f"nodes must end with exit code 0 when they are told to, got {codes}")
    return 0


def _facts(fleet: LiveFleet) -> dict[str, str]:
    pushed, served_by = fleet.ear.pushed, fleet.ear.served_by.most_common()
    return {
        "broker": fleet.broker.name,
        "weights pushed": f"{len(pushed)} orders, {sum(pushed.values())} bytes",
        "served by": ", ".join(f"{who} {count}" for who, count in served_by),
        "memory of a node": f"{fleet.resident_most / 1e6:.1f} MB resident at most",
    }


def run_simulated(scenario: Scenario, seed: int, out: Path, screen: TextIO) -> int:
    """Simulated time, as fast as the machine can; the exit code is 1 if a promise was broken."""
    from firmware_sim.simulated.scenario_fleet import PERIOD_MS, play  # noqa: PLC0415 - scikit-learn is slow to load

    logging.getLogger("edge_opid").setLevel(logging.CRITICAL)  # faults would fill a screen
    began = time.monotonic()
    played = play(scenario, seed)
    outcome = played.outcome
    simulated_s = scenario.readings * PERIOD_MS / 1000
    facts = {
        "weights pushed": f"{played.pushed} orders, {played.pushed_bytes} bytes",
        "faults": f"{len(outcome.faults)}",
        "everybody agreed": f"{outcome.agreed_ms / 1000:g} s after the last reading",
        "digest": outcome.digest,
        "took": f"{time.monotonic() - began:.0f} s for {simulated_s:.0f} simulated ones",
    }
    if outcome.broken is not None:
        facts["everybody agreed"] = "no"
        facts["BROKEN PROMISE"] = str(outcome.broken)
    title = f"{scenario.name}: {scenario.about}"
    _told(Report(title, played.score, facts), scenario.name, out, screen)
    return 1 if outcome.broken is not None else 0


def _told(report: Report, name: str, out: Path, screen: TextIO) -> None:
    written = report.write(out, name)
    screen.write(f"\n{report.text()}\nwrote {', '.join(map(str, written))}\n")
    screen.flush()
