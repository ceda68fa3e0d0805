"""A booted machine: commands go in, its plug can be pulled.

with Machine(ARM64, image, folder, [disk, ...]) as machine:
    machine.wait_ready()
    print(machine.run("uname -m").out)
"""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from emulation.architectures import Architecture
from emulation.image import Image
from firmware_sim.live.mosquitto import free_port

MEGABYTES, CORES = 512, 2  # of a Raspberry Pi Zero 2 W, which has four
BOOT_S = 1_800.0  # an end to waiting, by which nothing is judged
MQTT, MQTTS = 1883, 8883
PATIENCE = "systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900"
"""An emulated machine on a busy one takes minutes for what a Pi does in seconds. Units that set a
limit of their own, as ours does, keep it."""
HASTE = " ".join(
    [
        "quiet systemd.show_status=false",
        "nokaslr kpti=0 mitigations=off init_on_alloc=0 audit=0 apparmor=0",
        *(
            f"systemd.mask={unit}"
            for unit in (
                "getty@tty1.service",
                "serial-getty@ttyAMA0.service",
                "systemd-hwdb-update.service",
                "systemd-journal-catalog-update.service",
                "apt-daily.timer",
                "apt-daily-upgrade.timer",
                "dpkg-db-backup.timer",
                "e2scrub_reap.service",
            )
        ),
    ]
)
"""What guards a kernel against programs that spy, logins on a console and Debian's own upkeep are
not on trial, and each costs a good part of an emulated boot."""


class MachineError(Exception):
    """The machine, or a command in it, did not do what it must."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk beside the first one; `log` is where its writes are recorded, if anywhere."""

    file: Path
    log: Path | None = None
    read_only: bool = False


class Machine:
    """One emulated machine. Its ports 1883 and 8883 are `port` and `tls_port` of the host."""

    def __init__(
        self,
        architecture: Architecture,
        image: Image,
        folder: Path,
        root: Path,
        disks: Sequence[Disk] = (),
    ) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self.console = folder / "console.log"
        self._architecture, self._image, self._root, self._disks = architecture, image, root, disks
        self._channel = folder / "agent.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: dict[int, queue.SimpleQueue[Answer]] = {}
        self._ready = threading.Event()
        self._asked = 0
        self.boots = 0
        self.booted_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pull_plug()

    def start(self) -> None:
        """Power on."""
        self._channel.unlink(missing_ok=True)
        self._ready.clear()
        self._began = time.monotonic()
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        self.boots += 1
        while not self._channel.exists():
            self._alive()
            time.sleep(0.05)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(self._channel))
        threading.Thread(target=self._listen, args=(self._socket,), daemon=True).start()

    def wait_ready(self) -> float:
        """Until the machine takes commands; the seconds since power on."""
        while not self._ready.wait(0.2):
            self._alive()
            if time.monotonic() - self._began > BOOT_S:
                raise MachineError(f"not up after {BOOT_S:g} s: see {self.console}")
        self.booted_s = self.since_power_on()
        return self.booted_s

    def since_power_on(self) -> float:
        """Seconds."""
        return time.monotonic() - self._began

    def run(
        self, command: str, user: str = "root", seconds: float = 600.0, *, check: bool = True
    ) -> Answer:
        """A shell's command inside the machine."""
        waiting = self._ask(command, user, seconds)
        deadline = time.monotonic() + seconds + 60.0
        while True:
            try:
                answer = waiting.get(timeout=0.5)
                break
            except queue.Empty:
                self._alive()
                if time.monotonic() > deadline:
                    raise MachineError(f"no answer to {command!r} after {seconds:g} s") from None
        if check and answer.code:
            raise MachineError(f"{command!r} as {user} gave {answer.code}:\n{answer.out}")
        return answer

    def _ask(self, command: str, user: str, seconds: float) -> queue.SimpleQueue[Answer]:
        """Give the machine a command; where its answer will be."""
        self._asked += 1
        waiting = self._answers[self._asked] = queue.SimpleQueue()
        request = {"id": self._asked, "user": user, "command": command, "seconds": seconds}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return waiting

    def pull_plug(self) -> None:
        """Power off as a storm does it: the emulator is gone, and all it had not written."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._socket.close()

    def shut_down(self, seconds: float = 600.0) -> None:
        """Power off as an owner does it."""
        assert self._process is not None
        self._ask("systemctl --no-block poweroff", "root", seconds)  # may be off before it answers
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise MachineError(f"still on after {seconds:g} s: see {self.console}") from None
        finally:
            self.pull_plug()

    def _listen(self, channel: socket.socket) -> None:
        """Give each answer to who waits for it."""
        with channel.makefile("rb") as lines, suppress(OSError):  # the plug was pulled
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except ValueError:  # half a line of a former life
            return
        if not found["id"]:
            self._ready.set()
        elif found["id"] in self._answers:
            self._answers.pop(found["id"]).put(Answer(found["code"], found["out"]))

    def _alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise MachineError(f"the emulator has ended: see {self.console}")

    def _command(self) -> list[str]:
        forwarded = "".join(
            f",hostfwd=tcp:127.0.0.1:{ours}-:{theirs}"
            for ours, theirs in ((self.port, MQTT), (self.tls_port, MQTTS))
        )
        disks = [Disk(self._root), *self._disks]
        return [
            *(*self._architecture.machine, "-cpu", self._architecture.processor),
            *("-smp", str(CORES), "-m", str(MEGABYTES)),
            *("-nographic", "-no-reboot", "-monitor", "none", "-serial", "stdio"),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd)),
            *("-append", f"root=/dev/vda rw console=ttyAMA0 {PATIENCE} {HASTE}"),
            # Restricted: the machine reaches nobody, and the host reaches its broker.
            *("-netdev", f"user,id=net,restrict=on{forwarded}"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
            *("-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=agent,path={self._channel},server=on,wait=off"),
            *("-device", "virtserialport,chardev=agent,name=opid.agent"),
            *("-object", "rng-random,filename=/dev/urandom,id=rng"),
            *("-device", "virtio-rng-pci,rng=rng"),
            *(word for number, disk in enumerate(disks) for word in _attached(number, disk)),
        ]


def _attached(number: int, disk: Disk) -> list[str]:
    """The options for one disk. Writes reach the file when the guest makes them; see `plug`."""
    file = f"driver=file,node-name=file{number},filename={disk.file},cache.direct=off"
    file += ",read-only=on" if disk.read_only else ""
    words = ["-blockdev", file]
    node = f"file{number}"
    if disk.log is not None:
        words += ["-blockdev", f"driver=file,node-name=log{number},filename={disk.log}"]
        logged = f"driver=blklogwrites,node-name=logged{number},file={node},log=log{number}"
        words += ["-blockdev", logged]
        node = f"logged{number}"
    return [*words, "-device", f"virtio-blk-pci,drive={node},write-cache=on"]
