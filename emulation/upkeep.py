"""What an owner does later with the Debian package.

It is upgraded, removed and installed again, with readings before and after each. The state is then,
to the bit, what a node knows that was never touched. At last it is purged: neither its
configuration nor its state is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from emulation import world
from emulation.image import copy_of
from emulation.machine import MachineError
from emulation.plug import compare
from emulation.trials import GONE, UNIT, WAIT_S, Found, Teller, Trials

MODULES = "/usr/lib/python3/dist-packages/edge_opid"
GIVEN_UP = f"{MODULES}/testing"  # by the newer package: what Python compiled there must go, too
MANUAL = "/usr/share/man/man1/opid-node.1.gz"
KEPT = f"test -s /etc/opid-node/node.toml && ls -d {world.STATE}/[!l]*"  # but for lost+found
NEWER = "sudo apt install /mnt/dist/newer/*.deb"


def upkeep(trials: Trials, state: Path) -> Iterator[Found]:
    """Every step, in order, on a machine whose node has its state on a second disk."""
    machine = trials.machine
    machine.wait_ready()
    trials.fetch_packages()
    trials.configure(world.settings())
    with trials.source("upkeep") as source:
        teller = Teller(source)
        teller.tell()
        yield upgraded(trials)
        teller.tell()
        yield removed(trials)
        trials.typed(NEWER)
        trials.is_up()
        teller.tell()
        boot = source.boot
    machine.run(f"systemctl stop {UNIT} && umount {world.STATE}", seconds=WAIT_S)
    compare(copy_of(state, state.with_suffix(".copy")), boot, teller.told)
    machine.run(f"mount {world.STATE}")
    yield Found("package installed again", f"all {teller.told} readings known, bits equal")
    trials.typed(f"sudo apt purge {UNIT}")
    # But for the user, whose number must not become somebody else's.
    machine.run(f"{GONE} && getent passwd {UNIT}")
    yield Found("package purged", "configuration and state gone")


def upgraded(trials: Trials) -> Found:
    """Another version and another process, with exactly the files of the new package."""
    old, process = version(trials), trials.show("MainPID")
    trials.typed(NEWER)
    if version(trials) == old or trials.show("MainPID") == process:
        raise MachineError(f"still {old}, or the old process, after the upgrade")
    trials.machine.run(f"test ! -e {GIVEN_UP} && test -s {MANUAL}")
    if spoilt := trials.typed(f"dpkg --verify {UNIT}"):
        raise MachineError(f"files are not as the package has them:\n{spoilt}")
    trials.is_up()
    return Found("package upgraded", f"{old} to {version(trials)}, restarted")


def removed(trials: Trials) -> Found:
    """The program is gone, and nothing that its owner would miss."""
    trials.typed(f"sudo apt remove {UNIT}")
    trials.machine.run(f"{KEPT} && test ! -e {MODULES} && ! command -v {UNIT}")
    if trials.show("ActiveState") != "inactive":
        raise MachineError("the node is still there after its package was removed")
    return Found("package removed", "stopped; configuration and state kept")


def version(trials: Trials) -> str:
    """Of the installed package."""
    return trials.machine.run(f"dpkg-query -W -f '${{Version}}' {UNIT}").out
