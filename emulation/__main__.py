"""`make pi`: a Raspberry Pi in an emulator, from its first boot to a thousand power cuts.

    python -m emulation [--arch arm64] [--pulls 20] [--points 1000] [--readings 1200] [--anew]

Without `--arch` there are two, 64 and 32 bits, side by side: an emulated machine is busy with one
thing most of the time. For each:

1. An image of Debian, and one of the Debian before, is made, once (`image`).
2. It boots, and the README's lines are carried out in it; the node is looked at (`trials`).
3. On a copy of it the package is upgraded, removed and purged (`upkeep`).
4. A machine with each of the two images has its node from pip (`with_pip`).
5. One life on a disk whose writes are logged becomes so many cut points (`crash_points`).
6. The plug is pulled, in rows of at most ten, until there are so many pulls in all (`plug`).

At the end no line that the pages tell an owner to type may be left. Every part that has succeeded
is kept in the cache with what it was made of, and is not done again: the command can be interrupted
at any time. `--anew` forgets what was found, not the image.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from emulation import DIST, crash_points, plug, world
from emulation.architectures import ARCHITECTURES, Architecture
from emulation.debian import CACHE
from emulation.image import NEWEST, OLDER, Image, bootable, copy_of, disk_of
from emulation.machine import Disk, Machine
from emulation.others import fetched
from emulation.pages import lines_for, without_comment
from emulation.trials import WAIT_S, Found, Trials, make_certificates
from emulation.upkeep import GIVEN_UP, upkeep
from emulation.with_pip import model_file, with_pip

STATE_MB = 40  # journal and snapshots need 9 MB
LOGGED_RATE = 40.0  # readings a second
WITH_PIP = {f"pip on {release}": release for release in (NEWEST, OLDER)}
IN_A_MACHINE = ("day one", "upkeep", *WITH_PIP)  # parts whose lines are those of the table
ROW = 10  # pulls of one life of the state, before it is compared
WRONG = ("lost", "twice", "other bits", "quarantined")
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
        of = {"packages": digest(packages(architecture))}
        self.found: dict[str, Part] = kept if kept.get("of") == of else {"of": of}

    def once(self, name: str, do: Callable[[], Part], **asked: int) -> Part:
        """What a part has found: now, or when it was done with what is asked for."""
        if name not in self.found or self.found[name]["asked"] != asked:
            self.say(f"{name} …")
            began = time.monotonic()
            found = do() | {"asked": asked, "minutes": (time.monotonic() - began) / 60}
            self.found[name] = found
            self._notes.write_text(json.dumps(self.found, indent=1, ensure_ascii=False))
        return self.found[name]

    def say(self, line: str) -> None:
        """Something that a person who waits wants to know, beside what another machine says."""
        print(f"{self.architecture.debian}: {line}", flush=True)

    def told(self, found: Iterable[Found]) -> list[list[str]]:
        """Lines of the table, said as they come."""
        lines = []
        for each in found:
            self.say(f"  {each.what:60} {each.figure}")
            lines.append([each.what, each.figure])
        return lines

    def lines(self) -> Iterator[Found]:
        """What was done in a machine, part by part, and what was found."""
        for name in IN_A_MACHINE:
            if name in self.found:
                yield Found(f"== {name}", f"{self.found[name]['minutes']:.0f} min")
                yield from (Found(*line) for line in self.found[name]["lines"])

    def minutes(self, *, but: tuple[str, ...] = ()) -> float:
        """What all parts took together, but for these."""
        names = self.found.keys() - {"of", *but}
        total: float = sum(self.found[name]["minutes"] for name in names)
        return total

    def untyped(self) -> list[str]:
        """Lines that a page tells an owner of this machine to type, and that nobody has."""
        typed = {without_comment(each.what.partition(".md: ")[2]) for each in self.lines()}
        return [line for line in lines_for(self.architecture.debian) if line not in typed]

    def rows(self) -> list[Part]:
        """The rows of pulls so far."""
        return [part for name, part in self.found.items() if name.startswith("row ")]

    def image(self, release: str = NEWEST) -> Image:
        """The machine as it comes from Debian."""
        return bootable(self.architecture, release)

    @property
    def root(self) -> Path:
        """The disk of the machine on which the README's steps were carried out."""
        return self.folder / "root.img"

    def dist(self) -> Disk:
        """What was built here, and other people's wheels, on a disk to carry to the machine."""
        carried, disk = self.folder / "dist", self.folder / "dist.img"
        shutil.rmtree(carried, ignore_errors=True)
        carried.mkdir()
        for file in packages(self.architecture):
            shutil.copy(file, carried)
        (package,) = carried.glob("*.deb")
        make_newer(package, carried / "newer")
        for release in (NEWEST, OLDER):
            kept = fetched(self.architecture, release, self.folder / "others")
            shutil.copytree(kept, carried / "others", dirs_exist_ok=True)
        make_certificates(carried / "tls")
        (carried / "model.tflite").write_bytes(model_file())
        disk_of(carried, disk, 256, "dist")
        return Disk(disk, read_only=True)

    def day_one(self) -> Part:
        """From nothing to a node that has been killed, stopped and starved."""
        copy_of(self.image().disk, self.root)
        state = self.folder / "state.img"
        disk_of(None, state, STATE_MB, "state")
        with self.machine([self.dist(), Disk(state)]) as machine:
            trials = Trials(machine, self.fresh("day-one"))
            lines = self.told(trials.run())
            trials.configure(world.settings())  # for the days that follow
            machine.shut_down(WAIT_S)
        return {"lines": lines}

    def upkeep(self) -> Part:
        """What an owner does later, on a copy of the machine: the days that follow need a node."""
        root = copy_of(self.root, self.folder / "later.img")
        state = self.folder / "later-state.img"
        disk_of(None, state, STATE_MB, "state")
        with self.machine([self.dist(), Disk(state)], root) as machine:
            trials = Trials(machine, self.fresh("upkeep"))
            return {"lines": self.told(upkeep(trials, state))}

    def with_pip(self, release: str) -> Part:
        """The way of those who take no package, on a machine of their own with one disk."""
        root = copy_of(self.image(release).disk, self.folder / "pip.img")
        with self.machine([self.dist()], root, release) as machine:
            trials = Trials(machine, self.fresh(f"pip-{release}"))
            return {"lines": self.told(with_pip(trials, self.architecture, release))}

    def machine(
        self, disks: list[Disk], root: Path | None = None, release: str = NEWEST
    ) -> Machine:
        """The machine with these disks beside its own."""
        image = self.image(release)
        return Machine(self.architecture, image, self.folder, root or self.root, disks)

    def fresh(self, name: str) -> Path:
        """An empty folder for what a part leaves on the host; `dist` is beside it."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "dist").symlink_to(self.folder / "dist")
        return folder

    def pull_until(self, asked: int, rate: float) -> None:
        """Rows of pulls, until there are as many as asked for, with those of earlier runs."""
        while (left := asked - sum(part["pulls"] for part in self.rows())) > 0:
            row, count = len(self.rows()), min(ROW, left)
            self.once(f"row {row}", functools.partial(self.pulls, row, count, rate))

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
            "to first prediction": [round(each, 1) for each in found.first_prediction_s],
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


def packages(architecture: Architecture) -> list[Path]:
    """What of ours is installed in the machine: its package and its wheel."""
    debs = [*DIST.glob(f"opid-node_*_{architecture.debian}.deb")]
    return [*debs, *DIST.glob(f"edge_opid-*-manylinux_2_17_{architecture.wheel}.whl")]


def digest(files: Iterable[Path]) -> str:
    """Of their names and what is in them."""
    found = hashlib.sha256()
    for file in files:
        found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()


def make_newer(package: Path, folder: Path) -> None:
    """The same package as a newer version, which has given up a folder that no node loads."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["dpkg-deb", "--raw-extract", str(package), name], check=True)
        shutil.rmtree(Path(name + GIVEN_UP))
        control = Path(name, "DEBIAN/control")
        control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1+newer", control.read_text()))
        build = ["dpkg-deb", "--root-owner-group", "--build", name, str(folder / package.name)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)


def table(bench: Bench) -> list[Found]:
    """Everything found, a line each."""
    found, rows = bench.found, bench.rows()
    cuts = Found("== power cuts", f"{bench.minutes(but=IN_A_MACHINE):.0f} min")
    lines = [*bench.lines(), cuts]
    if rows:
        sums = {key: sum(row[key] for row in rows) for key in ("pulls", "readings", "sent again")}
        figure = f"{sums['readings']} readings, 0 lost, 0 twice, bits equal"
        lines.append(Found(f"{sums['pulls']} plug pulls", figure))
        again = sums["sent again"] / sums["readings"]
        lines.append(Found("repetitions per reading, through the pulls", f"{again:.2f}"))
        for what in ("to first prediction", "to first acknowledgement"):
            times = [each for row in rows for each in row[what]]
            figure = f"median {median(times):.0f} s, at most {max(times):.0f} s"
            lines.append(Found(f"power on {what}", figure))
    if "points" in found:
        part = found["points"]
        bad = {name: part.get(name, 0) for name in WRONG}
        figure = ", ".join(f"{count} {name}" for name, count in bad.items())
        what = (
            f"{part['points']} crash points of {part['requests']} writes, {part['flushes']} flushes"
        )
        lines.append(Found(what, figure))
    count = len(lines_for(bench.architecture.debian))
    figure = f"{count - len(bench.untyped())} of {count}, as printed"
    lines.append(Found("the pages' lines for this machine that were typed", figure))
    of_images = sum(bench.image(release).minutes for release in (NEWEST, OLDER))
    figure = f"{bench.minutes():.0f} min, and {of_images:.0f} min once for two images"
    lines.append(Found(f"all of this on {bench.architecture.debian}", figure))
    return lines


def report(bench: Bench) -> bool:
    """Print everything found; whether anything is wrong."""
    for line in table(bench):
        print(f"{line.what:70} {line.figure}")
    untyped = bench.untyped()
    for each in untyped:
        print(f"not typed, since a page has changed (--anew): {each}")
    return bool(untyped) or any(bench.found.get("points", {}).get(name) for name in WRONG)


def carry_out(name: str, given: argparse.Namespace) -> None:
    """Do what remains to be done with one machine."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the emulator is ended, too
    bench = Bench(ARCHITECTURES[name], given.anew)
    for release in (NEWEST, OLDER):
        bench.say(f"image of {release} …")
        bench.image(release)
    bench.once("day one", bench.day_one)
    bench.once("upkeep", bench.upkeep)
    for part, release in WITH_PIP.items():
        bench.once(part, functools.partial(bench.with_pip, release))
    life = bench.once("life", lambda: bench.life(given.readings), readings=given.readings)
    bench.once("points", lambda: bench.points(life, given.points), points=given.points)
    bench.pull_until(given.pulls, given.rate)


def side_by_side(names: Iterable[str], work: Callable[[str], None]) -> list[str]:
    """Each machine in a process of its own, which ends with this one; those that succeeded."""
    processes = {
        name: multiprocessing.Process(target=work, args=(name,), daemon=True) for name in names
    }
    for each in processes.values():
        each.start()
    for each in processes.values():
        each.join()
    return [name for name, each in processes.items() if not each.exitcode]


def main() -> int:
    """Do what remains to be done, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, help="this machine alone")
    parser.add_argument("--pulls", type=int, default=20, help="of each machine, in all")
    parser.add_argument("--points", type=int, default=1_000)
    parser.add_argument("--readings", type=int, default=1_200, help="of the life that is logged")
    parser.add_argument("--rate", type=float, default=10.0, help="readings a second, while pulled")
    parser.add_argument("--anew", action="store_true", help="forget what was found")
    given = parser.parse_args()
    names = [given.arch] if given.arch else [*ARCHITECTURES]
    for name in names:
        if not any(DIST.glob(f"opid-node_*_{name}.deb")):
            sys.stderr.write(f"emulation: no package for {name} in {DIST}: make wheels deb\n")
            return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the others
    whole = side_by_side(names, functools.partial(carry_out, given=given))
    wrong = [report(Bench(ARCHITECTURES[name], anew=False)) for name in whole]
    for name in set(names) - set(whole):
        sys.stderr.write(f"emulation: {name} came to no end; what succeeded is kept\n")
    return int(whole != names or any(wrong))


if __name__ == "__main__":
    sys.exit(main())
