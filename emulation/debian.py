"""Debian for another architecture, in a folder: what it takes to run its programs here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
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
}


def need(*programs: str) -> None:
    """Install from Debian what is missing of these programs."""
    missing = sorted({TOOLS[each] for each in programs if shutil.which(each) is None})
    if missing:
        quiet = ["-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", *quiet, *missing]):
            subprocess.run(
                ["apt-get", *command], env=environment, check=True, stdout=subprocess.DEVNULL
            )


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
        (HANDLERS / "register").write_text(line)
