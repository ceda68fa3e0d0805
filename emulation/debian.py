"""Debian for another architecture, in a folder: what it takes to run its programs here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from emulation.architectures import Architecture

CACHE = Path(os.environ.get("OPID_EMULATION", ".cache/emulation"))
"""What is made here is large and can be made again: git ignores it."""
HANDLERS = Path("/proc/sys/fs/binfmt_misc")
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "arch-test": "arch-test",  # without it mmdebstrap sets no foreign package up
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-aarch64": "qemu-system-arm",
    "dpkg-scanpackages": "dpkg-dev",
    "mkfs.ext4": "e2fsprogs",
    # With the C library's headers, which Debian does not count among what a compiler needs.
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "arm-linux-gnueabihf-gcc": "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
}
LOCKED, LOCKED_S = "Could not get lock", 600


def need(*programs: str) -> None:
    """Install from Debian what is missing of these programs."""
    absent = [TOOLS[each] for each in programs if shutil.which(each) is None]
    missing = sorted({package for packages in absent for package in packages.split()})
    if missing:
        _apt_get("update", "-qq")
        _apt_get("install", "-y", "-qq", "--no-install-recommends", *missing)


def _apt_get(*words: str) -> None:
    """Do this, once no other apt-get has the lock it needs: `update` does not wait by itself."""
    command = ["apt-get", "-o", f"DPkg::Lock::Timeout={LOCKED_S}", *words]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    for _ in range(LOCKED_S):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if LOCKED not in done.stderr:
            break
        time.sleep(1.0)
    sys.stderr.write(done.stderr)
    done.check_returncode()


def mirror() -> str:
    """Where this machine gets its own packages from."""
    form = ["--format", "$(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(
        ["apt-get", "indextargets", *form], capture_output=True, text=True, check=True
    )
    found = [line for line in done.stdout.splitlines() if "security" not in line]
    if not found:
        raise LookupError("apt-get knows no Debian archive: give it one and run apt-get update")
    return found[0].rstrip("/")


def source_line(release: str) -> str:
    """The line of `sources.list` for a release of Debian."""
    return f"deb {mirror()} {release} main"


def extracted(
    architecture: Architecture, release: str, packages: Sequence[str], *, folder: str = "roots"
) -> Path:
    """A folder with these packages and what they need, unpacked and not set up. Made once."""
    need("mmdebstrap", "qemu-aarch64-static")
    root = (CACHE / folder / f"{release}-{architecture.debian}").absolute()
    wanted = " ".join(sorted(packages))
    made = root / ".packages"
    if not (made.exists() and made.read_text() == wanted):
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--variant=extract", f"--arch={architecture.debian}"]
        include = f"--include={','.join(packages)}"
        command = ["mmdebstrap", *options, include, release, str(root), source_line(release)]
        subprocess.run(command, check=True)
        for name in ("bin", "lib", "sbin"):  # links that a package makes when it is set up
            if not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")
        made.write_text(wanted)
    return root


def let_kernel_run(architecture: Architecture) -> None:
    """Register the emulator, so that a foreign program can start others: what systemd does at boot.

    Flag F opens the emulator now, so that it is found inside another root as well.
    """
    if not (HANDLERS / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(HANDLERS)], check=True)
    name = architecture.user_emulator.removesuffix("-static")
    if not (HANDLERS / name).exists():
        line = Path(f"/usr/lib/binfmt.d/{name}.conf").read_text()
        with suppress(FileExistsError):  # another machine is being made beside this one
            (HANDLERS / "register").write_text(line)
