"""What a machine with a node on it must do, one trial after another, and what was found.

1. The commands of docs/raspberry-pi.md, and so those of the README, are typed as the user pi.
2. The service is up, says so to systemd, and answers a first reading with a prediction.
3. With TLS and a signed order it stays within its 64 MB.
4. It comes back when it is killed, when it hangs (the watchdog), and when its disk was full.
5. Its log, its `status` and its `selftest` say what the pages promise.

What an owner does with it later is in `upkeep`, and how to have it without a package in `with_pip`.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.link.options import MqttOptions, TlsFiles
from edge_opid.source import Source, connect
from edge_opid.wire import (
    Channel,
    Desired,
    Matrix,
    NodeTopics,
    Prediction,
    Status,
    Weights,
    seal_desired,
)
from emulation import world
from emulation.machine import Machine, MachineError
from emulation.pages import RASPBERRY_PI, commands
from firmware_sim.live.introductions import standardised
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import wait_until

WAIT_S = 900.0  # for one thing to happen in a machine that is emulated on a busy one
UNIT = "opid-node"
KEY = SigningKey(bytes(range(32)))
LISTENERS = """
listener 1883
allow_anonymous true
listener 8883
allow_anonymous true
cafile /etc/mosquitto/ca.pem
certfile /etc/mosquitto/broker.pem
keyfile /etc/mosquitto/broker.key
max_inflight_messages 256
max_queued_messages 100000
"""
MEMORY = f"/sys/fs/cgroup/system.slice/{UNIT}.service/memory"
READINGS_WITH_TLS, A_FEW = 300, 60
AGAIN_S = 5.0
"""Clients on the host try again soon: the emulator takes connections before the machine does."""
GONE = (
    f'test -z "$(find {world.STATE} -mindepth 1 2>/dev/null)"'
    " && test ! -e /etc/opid-node && test ! -e /var/cache/opid-node"
)
"""Nothing of a node's is left: neither configuration, nor state, nor compiled program."""
FSTAB = f"LABEL=state {world.STATE} ext4 noatime,nofail 0 2"


@dataclass(frozen=True, slots=True)
class Found:
    """A line of the table."""

    what: str
    figure: str


@dataclass(slots=True)
class Teller:
    """Sends the world's readings, a few at a time."""

    source: Source
    told: int = 0

    def tell(self) -> None:
        """The next few, and wait until they are acknowledged."""
        for values, label in world.readings(self.told + A_FEW)[self.told :]:
            self.told += 1
            self.source.send(values, label, time_ms=self.told)
        wait_until(self.source.drained, f"{self.told} readings are acknowledged", WAIT_S)


class Trials:
    """One machine from its first boot to its last, with the state of its node on a second disk."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        self.topics = NodeTopics(world.SITE, world.NODE)
        self.said = ""  # by the last documented line

    def run(self) -> Iterator[Found]:
        """Every trial, in order: the later ones need what the earlier ones have left."""
        yield Found("power on to a shell", f"{self.machine.wait_ready():.0f} s")
        self.fetch_packages()
        yield from self.documented(RASPBERRY_PI, "With the Debian package")
        yield self.is_up()
        self.open_broker()
        yield self.first_prediction()
        yield from self.within_memory()
        yield self.comes_back("killed (SIGKILL)", "KILL")
        yield self.comes_back("hung (SIGSTOP), watchdog", "STOP")
        yield self.full_disk()
        yield self.last_words()
        yield from self.documented(RASPBERRY_PI, "Is it the same on yours?")
        yield computes(self.said)

    def fetch_packages(self) -> None:
        """What was built on the host is copied to the home of pi, as its owner would."""
        self.machine.run("mkdir -p /mnt/dist && mount -o ro LABEL=dist /mnt/dist")
        self.machine.run("cp /mnt/dist/*.deb /mnt/dist/*.whl /home/pi/ && chown pi: /home/pi/*")
        pip = "[global]\nno-index = true\nfind-links = /mnt/dist/others\n"
        self.write("/etc/pip.conf", pip)

    def typed(self, line: str) -> str:
        """What the user pi types, and what is said; a pipe fails with any of its commands."""
        return self.machine.run(f"set -o pipefail; {line}", user="pi", seconds=3 * WAIT_S).out

    def write(self, path: str, text: str) -> None:
        """A file of the machine."""
        self.machine.run(f"printf %s {shlex.quote(text)} > {path}")

    def documented(self, page: Path, heading: str) -> Iterator[Found]:
        """The lines of a page, as pi types them."""
        lines = commands(page.read_text("utf-8"), heading)
        for line in lines:
            began = time.monotonic()
            self.said = self.typed(line)
            yield Found(f"{page.name}: {line}", f"ok, {time.monotonic() - began:.0f} s")

    def show(self, name: str) -> str:
        """A property of the unit, as systemd knows it."""
        return self.machine.run(f"systemctl show -P {name} {UNIT}").out.strip()

    def is_up(self) -> Found:
        """Ready because it said so, with a watchdog that waits for it."""
        found = {name: self.show(name) for name in ("ActiveState", "Type", "NRestarts", "User")}
        expected = {"ActiveState": "active", "Type": "notify", "NRestarts": "0", "User": UNIT}
        watchdog = self.show("WatchdogUSec")
        if found != expected or watchdog == "0":
            log = self.machine.run(f"journalctl -u {UNIT} -n 30 --no-pager").out
            raise MachineError(f"the unit is {found}, watchdog {watchdog}\n{log}")
        return Found("the unit", f"active, notify, watchdog {watchdog}, user {UNIT}")

    def open_broker(self) -> None:
        """Let the host reach the broker, with TLS, too: mosquitto alone serves its own machine."""
        self.machine.run("mkdir -p /mnt/dist && mount -o ro LABEL=dist /mnt/dist || true")
        self.machine.run("install -m 644 /mnt/dist/tls/*.pem /etc/mosquitto/")
        self.machine.run("install -m 640 -g mosquitto /mnt/dist/tls/broker.key /etc/mosquitto/")
        self.machine.run("install -m 644 /mnt/dist/tls/ca.pem /etc/opid-node/ca.pem")
        self.write("/etc/mosquitto/conf.d/test.conf", LISTENERS)
        self.machine.run("systemctl restart mosquitto")

    def first_prediction(self) -> Found:
        """A script on the host sends a reading of the example sensor, and hears what it means."""
        topics = NodeTopics("home", "north")
        began = time.monotonic()
        with ExitStack() as stack:
            ear = stack.enter_context(self.listening(str(topics.to(Channel.PREDICTION))))
            spool = self.folder / "first"
            source = stack.enter_context(
                connect("home", "north", "attic", spool, port=self.machine.port, leave_s=60.0)
            )
            # More than the warm-up needs, since the example sensor has no scale.
            for n in range(201):
                source.send({"temp-1": 20.0 + n % 7}, "empty" if n % 7 < 3 else "occupied")
            wait_until(lambda: ear.last(Channel.PREDICTION, Prediction), "a prediction", WAIT_S)
            took = time.monotonic() - began
        return Found("first prediction after its reading", f"{took:.0f} s")

    @contextmanager
    def listening(self, *filters: str, tls: bool = False) -> Iterator[Observer]:
        """Somebody on the host who hears these topics of the machine's broker."""
        files = TlsFiles(ca=self.folder / "dist/tls/ca.pem") if tls else None
        port = self.machine.tls_port if tls else self.machine.port
        options = MqttOptions(
            client_id="ear", host="localhost", port=port, tls=files, reconnect_most_s=AGAIN_S
        )
        with Observer(options, filters) as ear:
            yield ear

    def source(self, spool: str) -> Source:
        """A script on the host that sends to the node of this machine."""
        broker = MqttOptions(
            client_id="script", host="127.0.0.1", port=self.machine.port, reconnect_most_s=AGAIN_S
        )
        folder = self.folder / spool
        return connect(world.SITE, world.NODE, world.SOURCE, folder, broker, leave_s=120.0)

    def configure(self, text: str) -> None:
        """Another `node.toml`, with the state on the second disk, begun anew."""
        machine = self.machine
        machine.run(f"systemctl stop {UNIT}", seconds=WAIT_S)
        machine.run(f"grep -q LABEL=state /etc/fstab || echo {FSTAB} >> /etc/fstab")
        machine.run(f"mountpoint -q {world.STATE} || mount {world.STATE}")
        machine.run(f"rm -rf {world.STATE}/[!l]* && chown {UNIT}: {world.STATE}")
        machine.run(f"chmod 700 {world.STATE}")
        self.write("/etc/opid-node/node.toml", text)
        machine.run(f"systemctl start {UNIT}", seconds=WAIT_S)

    def within_memory(self) -> Iterator[Found]:
        """TLS, a signed order with weights, readings; what it took at most is the kernel's word."""
        self.configure(world.settings(tls=True, keys=(KEY.verify_key.encode().hex(),)))
        with ExitStack() as stack:
            status = str(self.topics.to(Channel.STATUS))
            ear = stack.enter_context(self.listening(status, tls=True))
            source = stack.enter_context(self.source("tls"))
            ear.link.publish(str(self.topics.to(Channel.DESIRED)), order(), retain=True)

            def obeyed() -> bool:
                said = ear.last(Channel.STATUS, Status)
                return said is not None and said.model_version == 1

            wait_until(obeyed, "the order is obeyed", WAIT_S)
            for n, (values, label) in enumerate(world.readings(READINGS_WITH_TLS), 1):
                source.send(values, label, time_ms=n)
            wait_until(source.drained, "all is acknowledged", WAIT_S)
            # Mosquitto keeps what it retains: the days that follow are without an order.
            ear.link.publish(str(self.topics.to(Channel.DESIRED)), b"", retain=True)
        now = int(self.machine.run(f"cat {MEMORY}.current").out)
        status = f"grep -E 'VmHWM|VmRSS' /proc/{self.show('MainPID')}/status"
        resident = " ".join(self.machine.run(status).out.split())
        figure = f"{self.memory_peak():.1f} MB at most of 64, {now / 2**20:.1f} MB now; {resident}"
        yield Found("memory, TLS and a signed order", figure)
        # Until now the libraries were charged to who had read them first: apt, or an earlier life.
        self.machine.shut_down(WAIT_S)
        self.machine.start()
        self.machine.wait_ready()
        with self.source("tls-again") as source:
            Teller(source).tell()
        figure = f"{self.memory_peak():.1f} MB at most of 64, with all libraries"
        yield Found("the same after a power-on", figure)

    def memory_peak(self) -> float:
        """MB that the unit has had at most since it was started, with everything that is charged
        to it; it must have its limit, and nobody may have died of it.
        """
        limit = int(self.machine.run(f"cat {MEMORY}.max").out)
        if limit != 64 << 20:
            raise MachineError(f"MemoryMax is {limit}, not 64 MB")
        events = self.machine.run(f"cat {MEMORY}.events").out.split()
        restarts = self.show("NRestarts")
        if int(events[events.index("oom_kill") + 1]) or restarts != "0":
            raise MachineError(f"the node died: {restarts} restarts, {events}")
        return int(self.machine.run(f"cat {MEMORY}.peak").out) / 2**20

    def comes_back(self, what: str, signal: str) -> Found:
        """A process that is dead or hangs is replaced, and goes on acknowledging."""
        before, began = self.show("MainPID"), time.monotonic()
        self.machine.run(f"kill -{signal} {before}")

        def back() -> bool:
            found = self.machine.run(
                f"systemctl show -P ActiveState -P MainPID -P SubState {UNIT}"
            ).out.split()
            return "running" in found and before not in found

        wait_until(back, f"the node is back after SIG{signal}", WAIT_S, pause_s=2.0)
        took = time.monotonic() - began
        self.acknowledges(f"after-{signal}")
        return Found(what, f"back after {took:.0f} s, restart {self.show('NRestarts')}")

    def acknowledges(self, spool: str) -> None:
        """A new script's reading is acknowledged."""
        with connect(
            world.SITE,
            world.NODE,
            spool.lower(),
            self.folder / spool,
            port=self.machine.port,
            leave_s=0.0,
        ) as source:
            source.send({"a": 0.5})
            wait_until(source.drained, f"an acknowledgement ({spool})", WAIT_S)

    def full_disk(self) -> Found:
        """Every block of its disk is taken; it lives on, and goes on when there is room again."""
        before = self.show("MainPID")
        filling = f"dd if=/dev/zero of={world.STATE}/ballast bs=64k 2>/dev/null; sync"
        self.machine.run(filling, check=False)
        left = self.machine.run(f"df --output=avail {world.STATE} | tail -1").out.strip()
        with ExitStack() as stack:
            ear = stack.enter_context(self.listening(str(self.topics.to(Channel.PREDICTION))))
            source = stack.enter_context(self.source("full"))
            for values, label in world.readings(400):
                source.send(values, label)
            heard = ear.heard[Channel.PREDICTION]
            wait_until(lambda: len(heard) >= 256, "predictions on a full disk", WAIT_S)
            acknowledged = source.counters.sent - source.pending
            self.machine.run(f"rm {world.STATE}/ballast; sync")
            wait_until(source.drained, "all is acknowledged with room again", WAIT_S)
        if self.show("MainPID") != before:
            raise MachineError("the node died of a full disk")
        figure = f"{left} kB left: {len(heard)} predictions, {acknowledged} of 400 acknowledged; "
        return Found("full disk", figure + "all 400 once there was room; the same process")

    def last_words(self) -> Found:
        """What an owner can look up: the log and `status`."""
        status = self.typed("sudo opid-node status")
        log = self.machine.run(f"journalctl -u {UNIT} --no-pager").out
        missing = [word for word in ("event=connected", "Started opid-node") if word not in log]
        if missing or not status.splitlines()[0].endswith("ago"):
            raise MachineError(f"journal without {missing}, status:\n{status}")
        return Found(
            "journal and status", f"{len(log.splitlines())} lines; {status.splitlines()[0]}"
        )


def computes(page: str) -> Found:
    r"""What the self-test says of the library: an install without one would succeed, too.

    >>> computes("kernel       compiled\ngolden bits  ok\nmemory       499 MB\n").figure
    'compiled, golden bits ok'
    >>> computes("kernel       numpy: this install has no compiled library\n")
    Traceback (most recent call last):
    emulation.machine.MachineError: the library is not used, or wrong:
    kernel       numpy: this install has no compiled library
    """
    lines = page.splitlines()
    if not {"kernel       compiled", "golden bits  ok"} <= {line.rstrip() for line in lines}:
        raise MachineError(f"the library is not used, or wrong:\n{page.rstrip()}")
    return Found("what the self-test says of the library", "compiled, golden bits ok")


def order() -> bytes:
    """A signed document: the same sensors as a new layout, and weights for them."""
    described = standardised({name: name for name in world.SENSORS})
    weights = Weights("matrix", {"W": Matrix.of([[0.0] * len(world.CLASSES)] * 4)})
    document = Desired(
        site=world.SITE,
        node=world.NODE,
        version=1,
        layout_version=1,
        sensors=described,
        vanishing=("c",),
        gate=8.0,
        classes=world.CLASSES,
        weights=weights,
    )
    return seal_desired(document, KEY)


def make_certificates(folder: Path) -> None:
    """An authority and the broker's certificate, for `localhost` on both sides of the emulator."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(*new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "3650", "-subj", "/CN=test")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-days", "3650")
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    openssl(*new, *signed, *name, "-keyout", "broker.key", "-out", "broker.pem")
