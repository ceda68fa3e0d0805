"""The two kinds of Raspberry Pi, and the words that Debian, GNU, Python and QEMU have for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One kind of machine.

    >>> ARM64.platform, ARMHF.debian
    ('manylinux2014_aarch64', 'armhf')
    """

    debian: str
    triplet: str  # GNU's name, and Debian's folder of libraries
    wheel: str  # Python's name
    platform: str  # the newest tag of wheels that its glibc may have, as pip writes it
    user_emulator: str  # runs one program
    processor: str  # the emulator's name of a Raspberry Pi's
    machine: tuple[str, ...]  # the emulator of a whole machine, and what it is like
    kernel: str  # Debian's package

    @property
    def emulating(self) -> dict[str, str]:
        """What the environment tells the emulator of one program, and of those that this starts.

        Without it a program meets a processor that can do everything: what a Raspberry Pi lacks
        would work, and signed return addresses, which Debian's 64-bit programs then use, cost
        Python sixteen times as long.
        """
        return {"QEMU_CPU": self.processor}


TCG = ("-accel", "tcg,thread=multi")
ARM64 = Architecture(
    debian="arm64",
    triplet="aarch64-linux-gnu",
    wheel="aarch64",
    platform="manylinux2014_aarch64",
    user_emulator="qemu-aarch64-static",
    processor="cortex-a72",
    machine=("qemu-system-aarch64", *TCG, "-machine", "virt,gic-version=3"),
    kernel="linux-image-arm64",
)
ARMHF = Architecture(
    debian="armhf",
    triplet="arm-linux-gnueabihf",
    wheel="armv7l",
    platform="manylinux2014_armv7l",
    user_emulator="qemu-arm-static",
    processor="cortex-a7",
    # highmem=off: devices below 4 GB, where a kernel without LPAE finds them.
    machine=("qemu-system-arm", *TCG, "-machine", "virt,highmem=off"),
    kernel="linux-image-armmp",
)
ARCHITECTURES = {each.debian: each for each in (ARM64, ARMHF)}
