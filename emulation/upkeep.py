"""What an owner does with a node later, and the other documented way to have one.

1. The Debian package is upgraded, removed and installed again, with readings before and after each.
   The state is then, to the bit, what a node knows that was never touched.
2. It is purged: neither its configuration nor its state is left.
3. The lines of the pages for pip are typed: install, upgrade, a TFLite file, uninstall.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from edge_opid.config.service import parse_config
from edge_opid.node.state import NodeState
from edge_opid.source import Source
from edge_opid.wire import Channel, Prediction
from emulation import world
from emulation.architectures import ARM64, Architecture
from emulation.image import copy_of
from emulation.machine import MachineError
from emulation.pages import NODE, RASPBERRY_PI, SERVE, TFLITE, UPGRADE, WITH_PIP
from emulation.plug import compare
from emulation.trials import MEMORY, UNIT, WAIT_S, Found, Trials, computes
from firmware_sim.live.processes import wait_until
from gateway.tflite import matrix_to_tflite

A_FEW = 60  # readings between two changes
MODULES = "/usr/lib/python3/dist-packages/edge_opid"
GIVEN_UP = f"{MODULES}/testing"  # by the newer package: what Python compiled there must go, too
MANUAL = "/usr/share/man/man1/opid-node.1.gz"
KEPT = f"test -s /etc/opid-node/node.toml && ls -d {world.STATE}/[!l]*"  # but for lost+found
GONE = (
    f'test -z "$(find {world.STATE} -mindepth 1 2>/dev/null)"'
    " && test ! -e /etc/opid-node && test ! -e /var/cache/opid-node"
)


@dataclass(slots=True)
class Teller:
    """Sends the world's readings, a few at a time."""

    source: Source
    told: int = 0

    def tell(self) -> None:
        """The next few, and wait until they are acknowledged."""
        for values, label in world.readings(self.told + A_FEW)[self.told :]:
            self.told += 1
            self.source.send(values, label, time_ms=self.told)
        wait_until(self.source.drained, f"{self.told} readings are acknowledged", WAIT_S)


class Upkeep:
    """A machine on which the package is installed, with the state of its node on a second disk."""

    def __init__(self, trials: Trials, architecture: Architecture, state: Path) -> None:
        self._trials, self._machine = trials, trials.machine
        self._architecture, self._state = architecture, state

    def run(self) -> Iterator[Found]:
        """Every step, in order."""
        self._machine.wait_ready()
        self._trials.fetch_packages()
        yield from self.package()
        yield self.purged()
        yield from self.with_pip()

    def typed(self, line: str) -> str:
        """What the user pi types, and what is said."""
        return self._machine.run(line, user="pi", seconds=3 * WAIT_S).out

    def version(self) -> str:
        """Of the installed package."""
        return self._machine.run(f"dpkg-query -W -f '${{Version}}' {UNIT}").out

    def package(self) -> Iterator[Found]:
        """A newer one, none, the newer one again; and what the node knows after all that."""
        self._trials.configure(world.settings())
        with self._trials.source("upkeep") as source:
            teller = Teller(source)
            teller.tell()
            old, process = self.version(), self._trials.show("MainPID")
            self.typed("sudo apt install /mnt/dist/newer/*.deb")
            if self.version() == old or self._trials.show("MainPID") == process:
                raise MachineError(f"still {old}, or the old process, after the upgrade")
            self._machine.run(f"test ! -e {GIVEN_UP} && test -s {MANUAL}")
            if spoilt := self.typed(f"dpkg --verify {UNIT}"):
                raise MachineError(f"files are not as the package has them:\n{spoilt}")
            self._trials.is_up()
            teller.tell()
            yield Found("package upgraded", f"{old} to {self.version()}, restarted")
            self.typed(f"sudo apt remove {UNIT}")
            self._machine.run(f"{KEPT} && test ! -e {MODULES} && ! command -v {UNIT}")
            if self._trials.show("ActiveState") != "inactive":
                raise MachineError("the node is still there after its package was removed")
            yield Found("package removed", "stopped; configuration and state kept")
            self.typed("sudo apt install /mnt/dist/newer/*.deb")
            self._trials.is_up()
            teller.tell()
            boot = source.boot
        self._machine.run(f"systemctl stop {UNIT} && umount {world.STATE}", seconds=WAIT_S)
        compare(copy_of(self._state, self._state.with_suffix(".copy")), boot, teller.told)
        self._machine.run(f"mount {world.STATE}")
        yield Found("package installed again", f"all {teller.told} readings known, bits equal")

    def purged(self) -> Found:
        """Nothing is left but the user, whose number must not become somebody else's."""
        self.typed(f"sudo apt purge {UNIT}")
        self._machine.run(f"{GONE} && getent passwd {UNIT}")
        return Found("package purged", "configuration and state gone")

    def with_pip(self) -> Iterator[Found]:
        """The pages' lines for an environment of its own, on a machine with one disk."""
        trials = self._trials
        self._machine.run(f"umount {world.STATE} && sed -i /LABEL=state/d /etc/fstab")
        self._machine.run("systemctl daemon-reload")
        self._machine.run("! command -v cc && ! command -v gcc")
        yield from trials.documented(RASPBERRY_PI, WITH_PIP[self._architecture.debian])
        yield computes(self.typed("sudo opid-node selftest"))
        yield trials.is_up()
        yield trials.first_prediction()
        yield from trials.documented(NODE, "Devices you already have")
        yield from trials.documented(UPGRADE, "Upgrade")
        yield trials.is_up()
        if self._architecture is ARM64:  # the runtime has no wheel for 32 bits and this Python
            self._machine.run("cp /mnt/dist/model.tflite /home/pi/")
            yield from trials.documented(TFLITE, SERVE)
            yield self.serves_file()
        yield from trials.documented(UPGRADE, "Uninstall")
        self._machine.run(f"{GONE} && ! systemctl cat {UNIT} && ! getent passwd {UNIT}")
        yield Found("uninstalled", "nothing left")

    def serves_file(self) -> Found:
        """A prediction comes from the runtime, within the memory of the unit."""
        self._machine.run(f"systemctl stop {UNIT} && rm -r {world.STATE}/*", seconds=WAIT_S)
        self._trials.write("/etc/opid-node/node.toml", world.settings(tflite="model.tflite"))
        self._machine.run(f"systemctl start {UNIT}", seconds=WAIT_S)
        with ExitStack() as stack:
            topic = str(self._trials.topics.to(Channel.PREDICTION))
            ear = stack.enter_context(self._trials.listening(topic))
            Teller(stack.enter_context(self._trials.source("tflite"))).tell()
            wait_until(lambda: ear.heard[Channel.PREDICTION], "a prediction", WAIT_S)
            said = ear.last(Channel.PREDICTION, Prediction)
        if said.predictor != "tflite":
            raise MachineError(f"the file is not served: {said}")
        peak = int(self._machine.run(f"cat {MEMORY}.peak").out)
        runtime = self._machine.run("/opt/opid-node/bin/pip list | grep -i litert").out.split()
        return Found("serves a .tflite file", f"{' '.join(runtime)}, {peak / 2**20:.1f} MB at most")


def model_file() -> bytes:
    """A predictor for the world's sensors, as a gateway exports it."""
    columns = NodeState(parse_config(world.settings(), {}).node).columns
    weights = [[1.0, -1.0]] * len(columns)
    return matrix_to_tflite(weights, list(columns), world.CLASSES)
