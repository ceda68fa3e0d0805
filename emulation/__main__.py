"""`make pi`: a Raspberry Pi in an emulator, from its first boot to a thousand power cuts.

    python -m emulation [--arch arm64] [--pulls 5] [--points 1000] [--readings 1200] [--anew]

1. A Debian image is made, once (`image`).
2. It boots, and the README's lines are carried out in it; the node is looked at (`trials`).
3. The plug is pulled, so many times in this run (`plug`); the numbers of all runs add up.
4. One life on a disk whose writes are logged becomes so many cut points (`crash_points`).

Every part that has succeeded is kept in the cache with what it was made of, and is not done again:
the command can be interrupted at any time. `--anew` forgets what was found, not the image.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulation import crash_points, plug, world
from emulation.architectures import ARCHITECTURES, Architecture
from emulation.debian import CACHE
from emulation.image import Image, bootable, copy_of, disk_of
from emulation.machine import Disk, Machine
from emulation.trials import WAIT_S, Found, Trials, make_certificates

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
STATE_MB = 40  # journal and snapshots need 9 MB
OTHERS = ("numpy", "paho-mqtt", "msgpack", "pynacl", "cffi", "pycparser")
PYTHON = "3.13"  # trixie's
LOGGED_RATE = 40.0  # readings a second
Part = dict[str, Any]


class Bench:
    """The parts for one architecture, their folder, and what was found so far."""

    def __init__(self, architecture: Architecture, anew: bool) -> None:
        self.architecture = architecture
        self.folder = (CACHE / "machines" / architecture.debian).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._notes = self.folder / "found.json"
        kept = json.loads(self._notes.read_text()) if self._notes.exists() and not anew else {}
        # What was found of other packages says nothing of these.
        is_ours = kept.get("of") == {"packages": packages()}
        self.found: dict[str, Part] = kept if is_ours else {"of": {"packages": packages()}}

    def once(self, name: str, do: Callable[[], Part]) -> Part:
        """What a part has found: now, or when it was done."""
        if name not in self.found:
            began = time.monotonic()
            self.found[name] = do() | {"minutes": (time.monotonic() - began) / 60}
            self._notes.write_text(json.dumps(self.found, indent=1, ensure_ascii=False))
        return self.found[name]

    def image(self) -> Image:
        """The machine as it comes from Debian."""
        return bootable(self.architecture)

    @property
    def root(self) -> Path:
        """The disk of the machine on which the README's steps were carried out."""
        return self.folder / "root.img"

    def dist(self) -> Disk:
        """What was built here, and other people's wheels, on a disk to carry to the machine."""
        carried, disk = self.folder / "dist", self.folder / "dist.img"
        shutil.rmtree(carried, ignore_errors=True)
        (carried / "others").mkdir(parents=True)
        for file in [*DIST.glob("*.deb"), *DIST.glob("edge_opid-*.whl")]:
            shutil.copy(file, carried)
        fetch_others(self.architecture, carried / "others")
        make_certificates(carried / "tls")
        disk_of(carried, disk, 256, "dist")
        return Disk(disk, read_only=True)

    def day_one(self) -> Part:
        """From nothing to a node that has been killed, stopped and starved."""
        copy_of(self.image().disk, self.root)
        state = self.folder / "state.img"
        disk_of(None, state, STATE_MB, "state")
        machine = self.machine([self.dist(), Disk(state)])
        with machine:
            trials = Trials(machine, self.fresh("day-one"))
            lines = []
            for found in trials.run():
                print(f"  {found.what:60} {found.figure}", flush=True)
                lines.append([found.what, found.figure])
            trials.configure(world.settings())  # for the days that follow
            machine.shut_down(WAIT_S)
        return {"lines": lines}

    def machine(self, disks: list[Disk]) -> Machine:
        """The machine with these disks beside its own."""
        return Machine(self.architecture, self.image(), self.folder, self.root, disks)

    def fresh(self, name: str) -> Path:
        """An empty folder for what a part leaves on the host; `dist` is beside it."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "dist").symlink_to(self.folder / "dist")
        return folder

    def pulls(self, row: int, count: int, rate: float) -> Part:
        """One row of plug pulls on a state of its own."""
        state = self.folder / "pulled.img"
        disk_of(None, state, STATE_MB, "state")
        machine = self.machine([Disk(state)])
        with machine:
            machine.wait_ready()
            trials = Trials(machine, self.fresh(f"row-{row}"))
            trials.configure(world.settings())
            found = plug.pull(trials, state, count, rate, seed=row)
        return {
            "pulls": found.pulls,
            "while starting": found.at_boot,
            "readings": found.readings,
            "sent again": found.sent_again,
            "to first acknowledgement": [round(each, 1) for each in found.first_ack_s],
        }

    def life(self, count: int) -> Part:
        """One life on a disk whose writes are logged."""
        state, log = self.folder / "logged.img", self.folder / "writes.log"
        disk_of(None, state, STATE_MB, "state")
        copy_of(state, self.folder / "first.img")
        log.write_bytes(b"")
        machine = self.machine([Disk(state, log=log)])
        with machine:
            machine.wait_ready()
            trials = Trials(machine, self.fresh("life"))
            trials.configure(world.settings())
            with trials.source("life") as source:
                noted = crash_points.watch(source, log, count, LOGGED_RATE)
                boot, again = source.boot, source.resent
            machine.pull_plug()
        return {"boot": boot, "noted": noted, "sent again": again, "readings": count}

    def points(self, life: Part, points: int) -> Part:
        """Power cuts put together from that life."""
        first, log = self.folder / "first.img", self.folder / "writes.log"
        noted = [(length, seq) for length, seq in life["noted"]]
        return dict(crash_points.survive(first, log, noted, life["boot"], points))


def packages() -> str:
    """A digest of what is installed in the machine."""
    found = hashlib.sha256()
    for file in sorted([*DIST.glob("*.deb"), *DIST.glob("edge_opid-*.whl")]):
        found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()


def fetch_others(architecture: Architecture, folder: Path) -> None:
    """Other people's wheels for the machine, as pip would fetch them there; not all exist."""
    for name in OTHERS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)]
        command += ["--python-version", PYTHON, "--platform", architecture.platform]
        command += ["--platform", architecture.platform.replace("2014", "_2_28")]
        if subprocess.run([*command, name], capture_output=True, check=False).returncode:
            print(f"  no wheel of {name} for {architecture.debian}: Debian has to have it")


def table(architecture: Architecture, found: dict[str, Part]) -> list[Found]:
    """Everything found, a line each."""
    lines = [Found(*line) for line in found.get("day one", {}).get("lines", [])]
    rows = [part for name, part in found.items() if name.startswith("row ")]
    if rows:
        sums = {key: sum(row[key] for row in rows) for key in ("pulls", "readings", "sent again")}
        firsts = sorted(each for row in rows for each in row["to first acknowledgement"])
        figure = f"{sums['readings']} readings, 0 lost, 0 twice, bits equal"
        lines.append(Found(f"{sums['pulls']} plug pulls", figure))
        again = sums["sent again"] / sums["readings"]
        lines.append(Found("repetitions per reading, through the pulls", f"{again:.2f}"))
        middle = firsts[len(firsts) // 2]
        lines.append(Found("power on to first acknowledgement", f"median {middle:.0f} s"))
    if "points" in found:
        part = found["points"]
        bad = {name: part.get(name, 0) for name in ("lost", "twice", "other bits", "quarantined")}
        figure = ", ".join(f"{count} {name}" for name, count in bad.items())
        what = (
            f"{part['points']} crash points of {part['requests']} writes, {part['flushes']} flushes"
        )
        lines.append(Found(what, figure))
    minutes = sum(part["minutes"] for part in found.values() if "minutes" in part)
    lines.append(Found(f"all of this on {architecture.debian}", f"{minutes:.0f} min"))
    return lines


def main() -> int:
    """Do what is left to do, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="arm64")
    parser.add_argument("--pulls", type=int, default=20, help="in all, in rows of at most five")
    parser.add_argument("--points", type=int, default=1_000)
    parser.add_argument("--readings", type=int, default=1_200, help="of the life that is logged")
    parser.add_argument("--rate", type=float, default=10.0, help="readings a second, while pulled")
    parser.add_argument("--anew", action="store_true", help="forget what was found")
    given = parser.parse_args()
    if not any(DIST.glob(f"opid-node_*_{given.arch}.deb")):
        sys.stderr.write(f"emulation: no package for {given.arch} in {DIST}: make wheels deb\n")
        return 2
    bench = Bench(ARCHITECTURES[given.arch], given.anew)
    bench.image()
    bench.once("day one", bench.day_one)
    life = bench.once("life", lambda: bench.life(given.readings))
    points = bench.once("points", lambda: bench.points(life, given.points))
    for row, begin in enumerate(range(0, given.pulls, 5)):
        count = min(5, given.pulls - begin)
        bench.once(f"row {row}", lambda: bench.pulls(row, count, given.rate))  # noqa: B023 - now
    for line in table(bench.architecture, bench.found):
        print(f"{line.what:70} {line.figure}")
    return int(any(points.get(name) for name in ("lost", "twice", "other bits", "quarantined")))


if __name__ == "__main__":
    sys.exit(main())
