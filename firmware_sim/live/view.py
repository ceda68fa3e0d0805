"""What a person sees while a live scenario runs: a panel that moves, or lines in a log."""

from __future__ import annotations

import math
import time
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from firmware_sim.live.fleet import LiveFleet
from firmware_sim.scenario.report import BLOCKS, spark
from firmware_sim.scenario.score import MODELS, SERVED
from firmware_sim.world.catalogue import Catalogued

PANEL_S = 0.25  # between two pictures
LINE_S = 5.0  # between two lines, where nobody sees pictures
CURVE_WIDTH = 15  # readings of each node that make one character


class LiveView:
    """`with LiveView(title) as view:` and call it before every reading."""

    def __init__(self, title: str, out: TextIO) -> None:
        self._title, self._out = title, out
        self._console = Console(file=out, highlight=False, markup=False)
        moves = self._console.is_terminal
        self._live = Live(console=self._console, auto_refresh=False) if moves else None
        self._pause_s = PANEL_S if moves else LINE_S
        self._shown = -LINE_S
        self._began = time.monotonic()

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        else:
            self.say(self._title)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, fleet: LiveFleet, place: int) -> None:
        """Show how it stands, if it is time to."""
        now = time.monotonic()
        if now - self._shown < self._pause_s:
            return
        self._shown = now
        if self._live is not None:
            self._live.update(self._panel(fleet, place), refresh=True)
        else:
            self.say(self._line(fleet, place))

    def say(self, line: str) -> None:
        """A line of text."""
        self._out.write(f"{line}\n")
        self._out.flush()

    # --- words ------------------------------------------------------------------------------------

    def _line(self, fleet: LiveFleet, place: int) -> str:
        right = "  ".join(f"{name} {_percent(fleet.score.lately(name))}" for name in MODELS)
        weights, memory = _weights(fleet), _memory(fleet)
        seconds = time.monotonic() - self._began
        sensors = f"{len(_alive(fleet, place))} sensors"
        words = (f"{seconds:4.0f} s  {stage(fleet, place)}", sensors, right, weights, memory)
        return "  |  ".join(words)

    def _panel(self, fleet: LiveFleet, place: int) -> Group:
        total = fleet.script.scenario.readings
        facts = Table.grid(padding=(0, 2))
        seconds = f"{time.monotonic() - self._began:.0f} s"
        for name, words in (
            ("stage", stage(fleet, place)),
            ("sensors alive", alive(fleet, place)),
            ("weights pushed", _weights(fleet)),
            ("memory of a node", _memory(fleet)),
            ("time", seconds),
        ):
            facts.add_row(Text(name, style="dim"), Text(words))
        bar = Table.grid()  # a bar alone does not end its line
        bar.add_row(ProgressBar(total=total, completed=place, width=60))
        return Group(Text(self._title, style="bold"), bar, facts, _curves(fleet, place))


def stage(fleet: LiveFleet, place: int) -> str:
    """Where the scenario is, and what the gateway makes of its last change."""
    total = fleet.script.scenario.readings
    if place == 0:
        return f"{fleet.broker.name}; gateway and {len(fleet.nodes)} nodes are starting"
    words = f"reading {place} of {total}"
    last = [each for each in fleet.script.announcements if each.at <= place]
    if not last:
        return f"{words}: learning"
    words = f"{words}: {last[-1].words}"
    if fleet.change is None:
        return words
    fitted = f"fitted on {fleet.change.fitted}" if fleet.change.fitted > 0 else "bridging"
    return f"{words}, change {fleet.change.id} {fleet.change.state}, {fitted}"


def alive(fleet: LiveFleet, place: int) -> str:
    """The sensors of the first node; the others have theirs."""
    found = _alive(fleet, place)
    return f"{len(found)} on {fleet.script.nodes[0]}: {', '.join(each.id for each in found)}"


def _alive(fleet: LiveFleet, place: int) -> tuple[Catalogued, ...]:
    last = fleet.script.scenario.readings - 1
    return fleet.script.alive(fleet.script.nodes[0], min(place, last))


def _curves(fleet: LiveFleet, place: int) -> Table:
    """How right each model was, lately and over time."""
    table = Table.grid(padding=(0, 2))
    count = -(-place // CURVE_WIDTH)
    for name in MODELS:
        curve = fleet.score.over_time(name, CURVE_WIDTH)[:count]
        style = "bold green" if name == SERVED else ""
        line = spark(
            [max(0.4, value) if not math.isnan(value) else value for value in curve], 0.4, 1.0
        )
        lately = _percent(fleet.score.lately(name))
        table.add_row(Text(name, style=style), Text(lately, style=style), Text(line, style=style))
    table.add_row(Text(""), Text(""), Text(f"{BLOCKS[0]} 40 %  {BLOCKS[-1]} 100 %", style="dim"))
    return table


def _weights(fleet: LiveFleet) -> str:
    pushed = fleet.ear.pushed
    return f"{len(pushed)} orders with weights, {sum(pushed.values()) / 1000:.1f} kB"


def _memory(fleet: LiveFleet) -> str:
    return f"{fleet.resident_most / 1e6:.1f} MB resident"


def _percent(share: float) -> str:
    return f"{100 * share:5.1f} %" if not math.isnan(share) else "    –  "
