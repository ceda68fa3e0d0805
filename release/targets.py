"""The kinds of machine that get a wheel, and what a wheel must be to be handed out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from emulation.architectures import ARM64, ARMHF, Architecture
from emulation.golden import LIBRARY
from release.archives import Files

ENTRY = "PyInit__compiled"
SBOM = "edge-opid.cdx.json"
OLDEST_GLIBC = 17  # 2.17, as manylinux_2_17 promises


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of machine that gets a wheel."""

    platform: str  # the tag
    compiler: str  # ziglang's target, and what else it is told
    elf: int  # the machine's number in the header of its programs
    emulated: Architecture | None = None  # None: this machine runs it
    headers: Architecture | None = None  # whose Python's headers; None: this machine's will do

    @property
    def is_musl(self) -> bool:
        """Whether it is for Alpine and the like."""
        return self.platform.startswith("musl")


TARGETS = (
    Target(platform="manylinux_2_17_x86_64", compiler="x86_64-linux-gnu.2.17", elf=62),
    Target(
        platform="manylinux_2_17_aarch64",
        compiler="aarch64-linux-gnu.2.17",
        elf=183,
        emulated=ARM64,
    ),
    Target(
        platform="manylinux_2_17_armv7l",
        compiler="arm-linux-gnueabihf.2.17 -mcpu=cortex_a7",  # Raspberry Pi 2 and newer
        elf=40,
        emulated=ARMHF,
        headers=ARMHF,
    ),
    Target(
        platform="musllinux_1_2_aarch64", compiler="aarch64-linux-musl", elf=183, emulated=ARM64
    ),
)


class WheelError(Exception):
    """A wheel is not what its name says."""


def look_into(name: str, files: Files, target: Target) -> None:
    """Refuse a wheel that lacks its library or has another machine's."""
    if not name.endswith(f"-cp311-abi3-{target.platform}.whl"):
        raise WheelError(f"{name} must be named …-cp311-abi3-{target.platform}.whl")
    if LIBRARY not in files:
        raise WheelError(f"{name} has no {LIBRARY}: the C file was not compiled")
    library = files[LIBRARY]
    found = int.from_bytes(library[18:20], "little")
    if library[:4] != b"\x7fELF" or found != target.elf:
        raise WheelError(f"{name}: {LIBRARY} is for machine {found}, not {target.elf}")
    if f"\0{ENTRY}\0".encode() not in library:
        raise WheelError(f"{name}: {LIBRARY} has no {ENTRY}, so that Python cannot load it")
    newest = max((int(each) for each in re.findall(rb"\bGLIBC_2\.(\d+)", library)), default=0)
    if newest > (0 if target.is_musl else OLDEST_GLIBC):
        raise WheelError(f"{name}: {LIBRARY} needs glibc 2.{newest}, above the tag's")
    (wheel,) = (files[each] for each in files if each.endswith(".dist-info/WHEEL"))
    if f"Tag: cp311-abi3-{target.platform}\n".encode() not in wheel:
        raise WheelError(f"{name}: its WHEEL names another tag")
    if not any(each.endswith(f".dist-info/sboms/{SBOM}") for each in files):
        raise WheelError(f"{name} has no bill of materials")
