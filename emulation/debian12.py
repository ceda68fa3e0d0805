"""The documented ways for Debian 12, whose paho-mqtt is too old for the package.

    python -m emulation.debian12 [--arch armhf]

No machine is booted: the packages that the page's `apt` line names are unpacked into a folder, and
the lines that follow are run there, one program at a time. `sudo` is left out, `/opt` is a folder
of ours, `init` is given its `--root`; what needs systemd is left to the machine of `make pi`, which
is a Debian 13. At the end a TFLite file is served from Python, by the runtime that only this Python
has. (The other is on trial in the machine: programs that are emulated alone it does not survive.)
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from emulation import DIST
from emulation.architectures import ARCHITECTURES, ARMHF, Architecture
from emulation.debian import CACHE, extracted, let_kernel_run
from emulation.machine import MachineError
from emulation.others import NEEDED, TFLITE, fetched
from emulation.pages import RASPBERRY_PI, WITH_PIP, commands
from emulation.trials import Found
from emulation.upkeep import model_file

RELEASE, PYTHON = "bookworm", "3.11"
EVERYWHERE = ("libstdc++6",)  # since apt needs it
NOT_HERE = ("systemctl", "ln -s", "opid-node status")
SERVED = """
import sys
from pathlib import Path
import numpy as np
from edge_opid.models.tflite import load_tflite
model = load_tflite(Path(sys.argv[1]))
scores = model.scores(np.ones(len(model.columns), np.float32))
print(model.runtime, *scores / len(model.columns))
"""


def run(architecture: Architecture) -> Iterator[Found]:
    """Every line, and then the file; a line that fails ends it with what was said."""
    here = Debian12(architecture)
    first, *rest = commands(RASPBERRY_PI.read_text("utf-8"), WITH_PIP[architecture.debian])
    here.unpack(packages_of(first))
    yield Found(f"Debian 12: {first}", "unpacked")
    for line in rest:
        if any(each in line for each in NOT_HERE):
            continue
        here.run(*here.local(line))
        yield Found(f"Debian 12: {line}", "ok")
    yield Found("Debian 12 has then", ", ".join(here.installed()))
    yield Found("Debian 12 serves a .tflite file", here.serves_file())


class Debian12:
    """A folder with the older Debian's programs, and one that stands for `/opt/opid-node`."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        work = (CACHE / "debian12" / architecture.debian).absolute()
        self.place, self._others, self._root = work / "opt", work / "others", Path()
        shutil.rmtree(self.place, ignore_errors=True)

    def unpack(self, packages: list[str]) -> None:
        """What `apt` would install, and other people's wheels for pip."""
        packages = ["python3", *packages, *EVERYWHERE]
        self._root = extracted(self._architecture, RELEASE, packages, folder="debian12")
        let_kernel_run(self._architecture)
        # With 32 bits all but paho-mqtt must come from Debian, as on the page.
        whole = self._architecture is not ARMHF
        names = NEEDED if whole else ("paho-mqtt",)
        fetched(self._architecture, PYTHON, (*names, *TFLITE), self._others)

    def local(self, line: str) -> list[str]:
        """A line of the page as words for this machine."""
        words = shlex.split(line, comments=True)[1:]  # but for sudo
        words = [word.replace("/opt/opid-node", str(self.place)) for word in words]
        words = [str(path) for word in words for path in _expanded(word)]
        if words[0] == "python3":
            words[0] = str(self._root / "usr/bin/python3")
        if words[0] == "opid-node":
            words[0] = str(self.place / "bin/opid-node")
        if "init" in words:
            words += ["--root", str(self.place / "machine")]
        if words[-1] == "check":
            words.append(str(self.place / "machine/etc/opid-node/node.toml"))
        return words

    def run(self, *words: str) -> str:
        """What a program says; it must succeed."""
        folder = self._root / "usr/lib" / self._architecture.triplet
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place),
            **self._architecture.emulating,
            "OPENBLAS_NUM_THREADS": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self._others),
            "QEMU_LD_PREFIX": str(self._root),
            "QEMU_SET_ENV": f"LD_LIBRARY_PATH={folder}/blas:{folder}/lapack",
        }
        done = subprocess.run(
            words,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MachineError(f"{shlex.join(words)} gave {done.returncode}:\n{done.stdout}")
        return done.stdout

    def installed(self) -> list[str]:
        """Our package and what it needs, with their versions."""
        names = ("edge-opid", *NEEDED[:4])
        said = self.run(str(self.place / "bin/pip"), "list", "--format=freeze")
        return [line for line in said.splitlines() if line.lower().startswith(names)]

    def serves_file(self) -> str:
        """The scores of a file in the older of the two runtimes."""
        self.run(str(self.place / "bin/pip"), "install", "edge-opid[tflite]")
        file = self.place / "model.tflite"
        file.write_bytes(model_file())
        said = self.run(str(self.place / "bin/python"), "-c", SERVED, str(file))
        runtime, *scores = said.split()[-3:]
        if scores != ["1.0", "-1.0"]:
            raise MachineError(f"other scores than the file's weights give: {said}")
        return f"{runtime}, scores as they must be"


def packages_of(line: str) -> list[str]:
    """What an `apt install` line installs.

    >>> packages_of("sudo apt install mosquitto python3-venv")
    ['mosquitto', 'python3-venv']
    """
    return line.split(" install ", 1)[1].split()


def _expanded(word: str) -> list[object]:
    """The wheel that `./edge_opid-*.whl` means: what is in `dist` would be in the home of pi."""
    if not word.startswith("./"):
        return [word]
    return [*DIST.glob(word.removeprefix("./"))]


def main() -> int:
    """Print what each line has found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="armhf")
    for found in run(ARCHITECTURES[parser.parse_args().arch]):
        print(f"{found.what:70} {found.figure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
