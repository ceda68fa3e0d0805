"""A source and a node that cannot keep up: how often is a reading sent?

    python -m benchmarks.slow_node [--readings 1200] [--rate 50] [--share 0.05] [--stall 0]
    python -m benchmarks.slow_node --readings 0 --backlog 3000 --share 1

A real `opid-node` is held to a share of one core (it is stopped whenever it has had more, and let
go on when it is owed some) while a real `Source` sends through a real mosquitto. `--stall` stops it
altogether for so many seconds out of every minute, as a card does that is busy with itself. It
prints what a copy costs a node beside a new reading, how often the source sent readings again, how
long it took until everything was acknowledged, and what the node counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.measuring import cpu_s
from edge_opid.config.service import load_config
from edge_opid.link.options import MqttOptions
from edge_opid.node.node import Node
from edge_opid.source import Source, connect
from edge_opid.wire import Channel, NodeTopics, Reading, Status, encode
from firmware_sim.live.mosquitto import ROOMY, Mosquitto
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import wait_until
from firmware_sim.live.services import NodeProcess

TOPICS = NodeTopics("farm", "n1")
SENSORS = [f"s{n}" for n in range(8)]
SETTINGS = '[node]\nsite = "farm"\nnode = "n1"\nclasses = ["dry", "damp"]\n' + "".join(
    f'[[sensors]]\nid = "{name}"\nreference = 0.0\nscale = 1.0\n' for name in SENSORS
)
COUNTS = ("readings", "duplicate", "held", "hold-full", "resend-asked", "rate-limited")
STEP_S = 0.02
STALL_EVERY_S = 60.0
Figures = dict[str, float]


class Brake(threading.Thread):
    """Lets a process have a share of one core and no more, and now and then nothing at all."""

    def __init__(self, pid: int, share: float, stall_s: float) -> None:
        super().__init__(name="brake", daemon=True)
        self._pid, self._share, self._stall_s = pid, share, stall_s
        self._over = threading.Event()

    def run(self) -> None:
        """Until `release`."""
        began, used, stopped = time.monotonic(), cpu_s(self._pid), False
        while not self._over.wait(STEP_S):
            passed = time.monotonic() - began
            stalled = passed % STALL_EVERY_S >= STALL_EVERY_S - self._stall_s
            enough = cpu_s(self._pid) - used > self._share * passed
            if stopped != (stalled or enough):
                stopped = not stopped
                os.kill(self._pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    def release(self) -> None:
        """Let the process go."""
        self._over.set()
        self.join()
        os.kill(self._pid, signal.SIGCONT)


def slowed(options: argparse.Namespace) -> Figures:
    """A source sends to a node that is held back; its backlog waits when the node starts."""
    with tempfile.TemporaryDirectory() as name:
        folder, status = Path(name), str(TOPICS.to(Channel.STATUS))
        with (
            Mosquitto(folder / "broker", extra=ROOMY) as broker,
            Observer(MqttOptions(client_id="ear", port=broker.port), [status]) as ear,
            connect("farm", "n1", "attic", folder / "spool", port=broker.port) as source,
        ):
            for n in range(options.backlog):
                send(source, n)
            with NodeProcess(folder / "node", broker.port, SETTINGS) as node:
                wait_until(lambda: ear.heard[Channel.STATUS], "the node is up")
                brake = Brake(node.pid, options.share, options.stall)
                brake.start()
                figures = sent(source, node, options)
                brake.release()
                node.stop()
                counts = ear.last(Channel.STATUS, Status).counts
    return {**figures, **{name: counts.get(name, 0) for name in COUNTS}}


def send(source: Source, n: int) -> None:
    """The n-th reading."""
    source.send(dict.fromkeys(SENSORS, n % 7 - 3.0), "damp")


def sent(source: Source, node: NodeProcess, options: argparse.Namespace) -> Figures:
    """Send at the rate asked for, and wait until everything is acknowledged."""
    used, began = cpu_s(node.pid), time.monotonic()
    for n in range(options.readings):
        time.sleep(max(0.0, began + n / options.rate - time.monotonic()))
        send(source, n)
    drained = source.drained(max(0.0, began + 60.0 * options.minutes - time.monotonic()))
    took_s = time.monotonic() - began
    return {
        "sent": source.counters.sent,
        "sent again": source.resent,
        "again per reading": source.resent / source.counters.sent,
        "seconds": took_s,
        "left in the window": 0 if drained else source.pending,
        "node's cpu seconds": cpu_s(node.pid) - used,
    }


def copy_cost(rounds: int = 5, readings: int = 4_000) -> Figures:
    """Processor time of a copy and of a new reading, in the node's decisions, in this process."""
    with tempfile.TemporaryDirectory() as name:
        toml = Path(name) / "node.toml"
        toml.write_text(f'{SETTINGS}[state]\nfolder = "state"\n')
        config = load_config(toml, {}).node
    new: list[float] = []
    copy: list[float] = []
    for _ in range(rounds):
        node = Node(config)
        topic = str(TOPICS.to(Channel.READING, "attic"))
        payloads = [
            encode(Reading(1, n, 10 * n, dict.fromkeys(SENSORS, n % 7 - 3.0), "damp"))
            for n in range(1, readings + 1)
        ]
        for kind in (new, copy):
            began = time.process_time()
            for n, payload in enumerate(payloads):
                node.handle(topic, payload, 20 * n, n)
                if n % 64 == 0:
                    node.tick(20 * n)
                if n % 128 == 0:
                    node.on_committed(20 * n)
            kind.append((time.process_time() - began) / readings * 1e6)
    return {"new_us": min(new), "copy_us": min(copy), "copy_share": min(copy) / min(new)}


def show(figures: Figures) -> None:
    """One line a figure."""
    for name, value in figures.items():
        print(f"{name:>20} {value:10.3f}", flush=True)


def main() -> int:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--readings", type=int, default=1_200)
    parser.add_argument("--rate", type=float, default=50.0, help="readings a second")
    parser.add_argument("--share", type=float, default=0.05, help="of one core, for the node")
    parser.add_argument("--stall", type=float, default=0.0, help="seconds of every minute")
    parser.add_argument("--backlog", type=int, default=0, help="readings before the node starts")
    parser.add_argument("--minutes", type=float, default=5.0, help="give up after")
    add_json_option(parser)
    options = parser.parse_args()
    figures = copy_cost()
    show(figures)
    held = slowed(options)
    show(held)
    figures |= held
    write_json(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
