"""The documented way for 32 bits, with the packages of Debian 12, whose paho-mqtt is too old.

    python -m emulation.debian12

No machine is booted: the packages that the page's `apt` line names are unpacked into a folder, and
the lines that follow are run there, one program at a time. `sudo` is left out, `/opt` is a folder
of ours, `init` is given its `--root`; what needs systemd is left to `make pi`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from emulation.architectures import ARMHF
from emulation.debian import CACHE, extracted, let_kernel_run
from emulation.pages import RASPBERRY_PI, ROOT, commands

RELEASE, SECTION = "bookworm", "With pip, 32 bits"
NOT_HERE = ("systemctl", "ln -s", "opid-node status")


def packages_of(line: str) -> list[str]:
    """What an `apt install` line installs.

    >>> packages_of("sudo apt install mosquitto python3-venv")
    ['mosquitto', 'python3-venv']
    """
    return line.split(" install ", 1)[1].split()


def local(line: str, place: Path, root: Path) -> list[str]:
    """A line of the page as words for this machine."""
    words = shlex.split(line, comments=True)[1:]  # but for sudo
    words = [word.replace("/opt/opid-node", str(place)) for word in words]
    words = [str(path) for word in words for path in _expanded(word)]
    if words[0] == "python3":
        words[0] = str(root / "usr/bin/python3")
    if words[0] == "opid-node":
        words[0] = str(place / "bin/opid-node")
    if "init" in words:
        words += ["--root", str(place / "machine")]
    if words[-1] == "check":
        words.append(str(place / "machine/etc/opid-node/node.toml"))
    return words


def _expanded(word: str) -> list[object]:
    """The wheel that `./edge_opid-*.whl` means: what is in `dist` would be in the home of pi."""
    if not word.startswith("./"):
        return [word]
    return [*(ROOT / "dist").glob(word.removeprefix("./"))]


def main() -> int:
    """Run the lines; 1 if one fails, or if pip has not found a newer paho-mqtt necessary."""
    first, *rest = commands(RASPBERRY_PI.read_text("utf-8"), SECTION)
    root = extracted(ARMHF, RELEASE, ["python3", *packages_of(first)], folder="debian12")
    let_kernel_run(ARMHF)
    place = (CACHE / "debian12" / "opt").absolute()
    shutil.rmtree(place, ignore_errors=True)
    others = CACHE.absolute() / "debian12" / "others"
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*fetch, str(others), "paho-mqtt"], check=True)
    folder = root / "usr/lib" / ARMHF.triplet
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(others),
        "QEMU_LD_PREFIX": str(root),
        "QEMU_SET_ENV": f"LD_LIBRARY_PATH={folder}/blas:{folder}/lapack",
    }
    print(f"ok    {first} (unpacked)")
    for line in rest:
        if any(each in line for each in NOT_HERE):
            print(f"left  {line}")
            continue
        done = subprocess.run(
            local(line, place, root),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(f"{'ok   ' if done.returncode == 0 else 'FAILED'} {line}", flush=True)
        if done.returncode:
            print(done.stdout)
            return 1
    said = subprocess.run(
        [place / "bin/pip", "list"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    print("\n".join(re.findall(r"(?mi)^(?:edge-opid|numpy|paho-mqtt|msgpack|pynacl) .*$", said)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
