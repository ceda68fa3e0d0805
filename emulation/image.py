"""A Debian that boots: its disk, kernel and initrd, made once and kept.

What a Raspberry Pi of its owner's has is in `guest/furnish`, which mmdebstrap runs.
`guest/lend` makes that quicker.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from emulation.architectures import Architecture
from emulation.debian import CACHE, let_kernel_run, need, source_line

GUEST = Path(__file__).parent / "guest"
NEWEST, OLDER = "trixie", "bookworm"  # Debian 13 and 12, and the Raspberry Pi OS made of each
DISK_GB = 3
# The index of the archive that `guest/furnish` leaves is what the documented steps install from.
OPTIONS = ("--quiet", "--variant=minbase", "--skip=cleanup/apt/lists")
DISK, KERNEL, INITRD = "disk.img", "vmlinuz", "initrd.img"  # the latter two as Debian calls them
SYSTEM = "systemd-sysv udev dbus sudo python3 kmod iproute2 initramfs-tools e2fsprogs"
ARCHIVED = (
    "mosquitto mosquitto-clients python3-venv python3-pip "
    "python3-numpy python3-msgpack python3-paho-mqtt python3-nacl python3-cffi"
)
"""What the documented steps may install: the machine reaches no other archive."""


@dataclass(frozen=True, slots=True)
class Image:
    """What an emulator needs to boot."""

    disk: Path
    kernel: Path
    initrd: Path
    minutes: float  # it took to make


def bootable(architecture: Architecture, release: str = NEWEST) -> Image:
    """The image of one architecture; made if it is not there or was made of something else."""
    folder = (CACHE / "images" / f"{release}-{architecture.debian}").absolute()
    notes, of = folder / "made.json", ingredients(architecture, release)
    made = json.loads(notes.read_text()) if notes.exists() else {}
    if made.get("of") != of:
        began = time.monotonic()
        _make(architecture, release, folder)
        made = {"of": of, "minutes": (time.monotonic() - began) / 60}
        notes.write_text(json.dumps(made))
    return Image(folder / DISK, folder / KERNEL, folder / INITRD, made["minutes"])


def ingredients(architecture: Architecture, release: str) -> str:
    """A digest of everything that decides what an image is."""
    what = (architecture.debian, architecture.kernel, release, DISK_GB, SYSTEM, ARCHIVED, OPTIONS)
    found = hashlib.sha256(str(what).encode())
    for file in sorted(GUEST.iterdir()):
        found.update(file.read_bytes())
    return found.hexdigest()


def _make(architecture: Architecture, release: str, folder: Path) -> None:
    need("mmdebstrap", "arch-test", "dpkg-scanpackages", "mkfs.ext4")
    need("qemu-aarch64-static", architecture.machine[0])
    let_kernel_run(architecture)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root = folder / "root"
    include = ",".join([*SYSTEM.split(), architecture.kernel])
    hooks = [
        f'--extract-hook={GUEST / "lend"} "$1" out',
        f'--customize-hook={GUEST / "lend"} "$1" back',
        f'--customize-hook={GUEST / "furnish"} "$1"',
    ]
    options = [*OPTIONS, f"--arch={architecture.debian}", *hooks]
    command = ["mmdebstrap", *options, f"--include={include}", release, str(root)]
    environment = {**os.environ, **architecture.emulating, "ARCHIVED": ARCHIVED}
    subprocess.run([*command, source_line(release)], env=environment, check=True)
    for name in (KERNEL, INITRD):
        (found,) = (root / "boot").glob(f"{name}-*")
        shutil.copy(found, folder / name)
    disk_of(root, folder / DISK, DISK_GB * 1024, "root")
    shutil.rmtree(root)


def disk_of(folder: Path | None, disk: Path, megabytes: int, label: str) -> None:
    """A disk with a file system of this label, which holds what the folder holds."""
    disk.unlink(missing_ok=True)
    with disk.open("wb") as file:
        file.truncate(megabytes << 20)
    filled = [] if folder is None else ["-d", str(folder)]
    subprocess.run(["mkfs.ext4", "-q", "-F", "-L", label, *filled, str(disk)], check=True)


def copy_of(disk: Path, to: Path) -> Path:
    """A disk of one's own to write to; what is empty takes no room."""
    command = ["cp", "--sparse=always", "--reflink=auto", str(disk), str(to)]
    subprocess.run(command, check=True)
    return to
