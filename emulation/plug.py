"""The plug is pulled at random moments, while a `Source` on the host sends.

The emulator is killed: whatever the machine had not yet given to its disk is gone. (What a disk
itself may lose is the subject of `crash_points`.) At the end every reading must be in the state,
once: to the bit what an undisturbed node knows.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from edge_opid.config.service import parse_config
from edge_opid.node.journal_records import unpack_state
from edge_opid.service.wiring import open_node
from edge_opid.source import Source
from edge_opid.wire import Channel
from emulation import world
from emulation.crash_points import mounted
from emulation.machine import Machine, MachineError
from emulation.trials import UNIT, WAIT_S, Trials
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import wait_until
from firmware_sim.live.timeless import but_for_times

LONGEST_S = 20.0  # of normal work before a pull


@dataclass(slots=True)
class Pulls:
    """What was found in one row of pulls."""

    pulls: int = 0
    at_boot: int = 0  # of them, before the node had acknowledged anything in that life
    readings: int = 0
    sent_again: int = 0
    first_prediction_s: list[float] = field(default_factory=list)  # since power on, for each boot
    first_ack_s: list[float] = field(default_factory=list)


def pull(trials: Trials, state: Path, count: int, rate: float, seed: int) -> Pulls:
    """So many pulls, and one last life in which all is acknowledged; then the state is compared."""
    machine, chance, found = trials.machine, random.Random(seed), Pulls()
    topic = str(trials.topics.to(Channel.PREDICTION))
    with trials.source(f"plug-{seed}") as source, trials.listening(topic) as ear:
        sender = Sender(source, rate)
        sender.start()
        for number in range(count):
            if number:
                machine.start()
            _work(machine, sender, ear, found, chance if number else None)
            machine.pull_plug()
            found.pulls += 1
        machine.start()
        _work(machine, sender, ear, found, None)
        sender.end()
        wait_until(source.drained, "all is acknowledged", WAIT_S)
        found.readings, found.sent_again, boot = sender.sent, source.resent, source.boot
        if source.counters.lost or source.counters.refused:
            raise MachineError(f"the source lost readings: {source.counters}")
    machine.wait_ready()
    machine.run(f"systemctl stop {UNIT}", seconds=WAIT_S)
    machine.shut_down(WAIT_S)
    compare(state, boot, found.readings)
    return found


def _work(
    machine: Machine, sender: Sender, ear: Observer, found: Pulls, chance: random.Random | None
) -> None:
    """Let it live until the moment has come: often at work, now and then while it starts."""
    if chance is not None and chance.random() < 0.2:
        found.at_boot += 1
        time.sleep(chance.uniform(0.0, 1.2 * max(found.first_ack_s, default=60.0)))
        return
    heard, answers = len(ear.heard[Channel.PREDICTION]), sender.answers
    wait_until(lambda: len(ear.heard[Channel.PREDICTION]) > heard, "a prediction", WAIT_S)
    predicted_s = machine.since_power_on()
    wait_until(lambda: sender.answers > answers, "the node gets on", WAIT_S, pause_s=0.1)
    if machine.boots > 1:  # the first time it had been up before it was given this work
        found.first_prediction_s.append(predicted_s)
        found.first_ack_s.append(machine.since_power_on())
    time.sleep(0.0 if chance is None else chance.uniform(0.0, LONGEST_S))


class Sender(threading.Thread):
    """A script that sends the world's readings at a steady pace, whatever becomes of the node."""

    def __init__(self, source: Source, rate: float) -> None:
        super().__init__(name="sender", daemon=True)
        self.sent, self._source, self._rate = 0, source, rate
        self._over = threading.Event()

    def run(self) -> None:
        """Until `end`."""
        rows = world.readings(200_000)
        while not self._over.wait(1.0 / self._rate):
            values, label = rows[self.sent]
            self._source.send(values, label, time_ms=self.sent + 1)
            self.sent += 1

    @property
    def answers(self) -> int:
        """How often the node has confirmed what it had not confirmed before."""
        return self._source.counters.acknowledged

    def end(self) -> None:
        """Send no more."""
        self._over.set()
        self.join()


def compare(disk: Path, boot: int, count: int) -> None:
    """Refuse a state that lacks a reading, has one twice, or differs in a bit."""
    config = parse_config(world.settings(), {})
    folder = disk.with_suffix(".mnt")
    there = parse_config(world.settings(folder=str(folder)), {})
    with mounted(disk, folder), open_node(there) as (node, _, _):
        state = unpack_state(node.snapshot())
    expected = {world.SOURCE: [boot, count + 1]}
    if state["register"]["expected"] != expected:
        raise MachineError(f"expected next {expected}, found {state['register']['expected']}")
    if sum(state["frequency"]) != count:
        raise MachineError(f"{count} readings were sent, {sum(state['frequency'])} learned")
    if but_for_times(state) != world.Undisturbed(config.node, boot).after(count):
        raise MachineError("the state differs from that of an undisturbed node")
