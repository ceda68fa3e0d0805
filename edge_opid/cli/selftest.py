"""`selftest`: one page about this machine that its owner can read, or send to us.

Emulation is right about bits and wrong about speed, so the figures of real machines have to come
from their owners. Nothing is changed: what is written to the disk has no name, and is gone at once.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from edge_opid import native
from edge_opid.cli.output import print_lines
from edge_opid.config.service import load_config
from edge_opid.errors import OpidError
from edge_opid.learner.golden_bits import DIGESTS, digest_of, plain_readings
from edge_opid.learner.woodbury import WoodburyLearner

VANISHING, SURVIVING, CLASSES = 25, 50, 3  # D = 125, the size that our figures are for
READINGS, ROUNDS = 500, 5
SYNCS, SYNC_BYTES = 50, 4_096


def selftest(given: Namespace) -> int:
    """Print the page; 1 if the bits are not those of every other machine."""
    wrong = wrong_bits()
    lines = [*about_machine(), *about_learner(wrong), *about_disk(given.file), *about_clock()]
    print_lines(f"{name:<12} {said}" for name, said in lines)
    return 1 if wrong else 0


def about_machine() -> Iterator[tuple[str, str]]:
    """What it is, and what runs on it."""
    yield "opid-node", version("edge-opid")
    model = said("/proc/device-tree/model") or said("/sys/class/dmi/id/product_name") or "unknown"
    yield "machine", model
    speed = said("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    governor = said("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    heat = said("/sys/class/thermal/thermal_zone0/temp")
    parts = [processor(Path("/proc/cpuinfo")), f"{os.cpu_count()} cores"]
    if speed:
        parts.append(f"{int(speed) // 1000} MHz now")
    if governor:
        parts.append(f"governor {governor}")
    if heat:
        parts.append(f"{int(heat) / 1000:.0f} °C")
    yield "processor", ", ".join(parts)
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    bits = "32" if sys.maxsize < 2**32 else "64"
    yield "system", f"{kernel}, Python {platform.python_version()} ({bits} bits)"
    packages = ("numpy", "paho-mqtt", "msgpack", "pynacl")
    yield "libraries", ", ".join(f"{name} {version(name)}" for name in packages)


def said(path: str) -> str:
    """What a file of the kernel says; nothing where there is none, as on other machines."""
    try:
        return Path(path).read_text("utf-8", "replace").strip("\0\n ")
    except OSError:
        return ""


def processor(cpuinfo: Path) -> str:
    """Its name, or on ARM the numbers of who made it and which it is."""
    found: dict[str, str] = {}
    for line in said(str(cpuinfo)).splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    if "model name" in found:
        return found["model name"]
    if "CPU part" in found:
        return f"ARM implementer {found.get('CPU implementer', '?')} part {found['CPU part']}"
    return "unknown processor"


def wrong_bits() -> list[str]:
    """The cases in which the compiled kernel leaves other bits than on every other machine."""
    if "compiled" not in native.available:
        return []
    return [case[0].__name__ for case, digest in DIGESTS.items() if digest_of(*case) != digest]


def about_learner(wrong: list[str]) -> Iterator[tuple[str, str]]:
    """What computes, whether rightly, how fast, and in how much memory."""
    has_library = "compiled" in native.available
    yield "kernel", native.name if has_library else "numpy: this install has no compiled library"
    verdict = "ok" if not wrong else f"WRONG: {', '.join(wrong)}"
    yield "golden bits", verdict if has_library else "not looked at: they are the library's"
    times = " ".join(f"{name} {reading_us(name):.0f} µs" for name in sorted(native.available))
    rounds = f"the fastest of {ROUNDS} times {READINGS}"
    yield "one reading", f"{times} (75 sensors, 3 classes; {rounds})"
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    counted = "memory" in said("/sys/fs/cgroup/cgroup.controllers").split()
    limit = "limits work" if counted else "NO LIMITS: the kernel does not count memory"
    yield "memory", f"{total:.0f} MB, this process {most:.0f} MB at most; {limit}"


def reading_us(kernel: str) -> float:
    """Microseconds of processor time to learn one reading."""
    X, y = plain_readings(VANISHING + SURVIVING, READINGS, CLASSES)
    took = []
    for _ in range(ROUNDS):
        learner = WoodburyLearner(VANISHING, SURVIVING, CLASSES, native=kernel)
        began = time.process_time()
        for x, label in zip(X, y, strict=True):
            learner.learn_one(x, label)
        took.append(time.process_time() - began)
    return min(took) / READINGS * 1e6


def about_disk(config: Path) -> Iterator[tuple[str, str]]:
    """How long the card takes until something is safe on it."""
    folder = state_folder(config)
    try:
        took = sync_ms(folder)
    except OSError as error:
        yield "sync", f"{folder}: {error.strerror}; try as root, or say which node.toml"
        return
    middle, slowest = statistics.median(took), max(took)
    yield "sync", f"{folder}: {middle:.1f} ms, slowest {slowest:.0f} ms of {SYNCS} times 4 KiB"


def state_folder(config: Path) -> Path:
    """Where this machine's node keeps its state; without a node, where one would be."""
    try:
        found = load_config(config, os.environ).state_folder
    except (OpidError, OSError):
        found = Path("/var/lib/opid-node")
    while not found.exists():
        found = found.parent
    return found


def sync_ms(folder: Path) -> list[float]:
    """Milliseconds of each of some writes to a file that has no name."""
    took = []
    with closing(tempfile.TemporaryFile(dir=folder, buffering=0)) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    return took


def about_clock() -> Iterator[tuple[str, str]]:
    """Where the time comes from."""
    source = said("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    battery = "a clock with a battery" if Path("/dev/rtc0").exists() else "no clock with a battery"
    yield "clock", f"source {source}, {battery}, set by the network: {network_time()}"


def network_time() -> str:
    """Whether systemd knows the clock to be right."""
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"
