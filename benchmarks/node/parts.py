"""What `benchmarks.node` measures with: a broker, a client of bare bytes, and the yardsticks.

    python -m benchmarks.node.parts bare PORT FILTER COUNT   # a paho subscriber that only counts
    python -m benchmarks.node.parts idle                     # numpy, paho and msgpack, and no more

The client that sends and listens is a socket and thirty lines of MQTT 3.1.1, so that the measuring
costs next to nothing of the two cores that the broker and the measured process share.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HOST = "127.0.0.1"
WAIT_S = 60.0
EARLY = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # as the unit file sets them


# --- processes ------------------------------------------------------------------------------------


@contextmanager
def process(*command: str | Path, log: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A child with pipes, ended at the end of the block."""
    stderr = log.open("ab") if log else subprocess.DEVNULL
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, **EARLY},
    )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(10.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(10.0)


def line_of(child: subprocess.Popen[str]) -> str:
    """The next line a child prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident megabytes now, and at the most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(line.split(":", 1) for line in status.splitlines())
    now, most = (float(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def cpu_s(pid: int) -> float:
    """Processor seconds a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the broker -----------------------------------------------------------------------------------


def certificates(folder: Path) -> None:
    """An authority, a broker for 127.0.0.1 and a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    out = ["-keyout", "ca.key", "-out", "ca.pem"]
    openssl("req", "-x509", *curve, *out, "-days", "2", "-subj", "/CN=ca")
    (folder / "san").write_text(f"subjectAltName=IP:{HOST}\n")
    for name in ("broker", "client"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl("req", *curve, *files, "-subj", f"/CN={name}")
        request = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "san"]
        signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", *request, *signer)
        (folder / f"{name}.key").chmod(0o600)


def free_port() -> int:
    """A loopback port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def mosquitto(folder: Path, *, nodelay: bool) -> Iterator[tuple[int, int]]:
    """A broker on the loopback interface: its plain port and its TLS port.

    Without `nodelay`, which is its default, it keeps a small message back until the subscriber's
    kernel has confirmed the one before, and that takes up to 40 ms.
    """
    program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    if program is None:
        sys.exit("mosquitto is not installed: apt-get install mosquitto")
    plain, tls = free_port(), free_port()
    lines = [
        "log_type error",
        "allow_anonymous true",
        "max_inflight_messages 256",
        "max_queued_messages 100000",
        "persistence false",
        f"set_tcp_nodelay {str(nodelay).lower()}",
        *(["user root"] if os.geteuid() == 0 else []),
        f"listener {plain} {HOST}",
        f"listener {tls} {HOST}",
        f"cafile {folder}/ca.pem",
        f"certfile {folder}/broker.pem",
        f"keyfile {folder}/broker.key",
        "require_certificate true",
    ]
    config = folder / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    with process(program, "-c", config, log=folder / "mosquitto.log"):
        deadline = time.monotonic() + WAIT_S
        while not _answers(plain):
            if time.monotonic() > deadline:
                sys.exit((folder / "mosquitto.log").read_text())
            time.sleep(0.02)
        yield plain, tls


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


# --- the client -----------------------------------------------------------------------------------


def _packet(first: int, body: bytes) -> bytes:
    size, length = b"", len(body)
    while True:
        length, digit = length >> 7, length & 0x7F
        size += bytes([digit | (0x80 if length else 0)])
        if not length:
            return bytes([first]) + size + body


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def publication(topic: str, payload: bytes, number: int, *, retain: bool = False) -> bytes:
    """A PUBLISH of QoS 1, ready to be sent."""
    body = _text(topic) + struct.pack(">H", number % 65_535 + 1) + payload
    return _packet(0x33 if retain else 0x32, body)


class Client:
    """MQTT 3.1.1 with clean sessions. Subscriptions are of QoS 0: nothing is lost on loopback."""

    def __init__(self, port: int, name: str, *filters: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.send(_packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(name)))
        self._next()
        for place, each in enumerate(filters, 1):
            self.send(_packet(0x82, struct.pack(">H", place) + _text(each) + b"\x00"))
            self._next()

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._socket.sendall(data)

    def send_all(self, packets: Sequence[bytes], window: int = 2_048, batch: int = 64) -> None:
        """Publications as fast as the broker confirms them."""
        confirmed = 0
        for start in range(0, len(packets), batch):
            self.send(b"".join(packets[start : start + batch]))
            while start + batch - confirmed > window:
                confirmed += self._next()[0] >> 4 == 4

    def messages(self, timeout_s: float = WAIT_S) -> Iterator[tuple[str, bytes]]:
        """Topic and payload of what arrives; `TimeoutError` when nothing does."""
        self._socket.settimeout(timeout_s)
        while True:
            first, body = self._next()
            if first >> 4 == 3:
                length = struct.unpack(">H", body[:2])[0]
                yield body[2 : 2 + length].decode(), body[2 + length :]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _next(self) -> tuple[int, bytes]:
        while True:
            found = self._parsed()
            if found is not None:
                return found
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError("the broker hung up")
            self._buffer += data

    def _parsed(self) -> tuple[int, bytes] | None:
        buffer, length = self._buffer, 0
        for place in range(1, 5):
            if place >= len(buffer):
                return None
            length |= (buffer[place] & 0x7F) << 7 * (place - 1)
            if buffer[place] < 0x80:
                end = place + 1 + length
                if len(buffer) < end:
                    return None
                self._buffer = buffer[end:]
                return buffer[0], buffer[place + 1 : end]
        raise ConnectionError("not MQTT")


# --- the yardsticks -------------------------------------------------------------------------------


def bare(port: int, filter_: str, count: int) -> None:
    """A paho subscriber that does nothing but count; it says when it is ready and when done."""
    import paho.mqtt.client as paho  # noqa: PLC0415 - for the child alone
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: PLC0415

    seen = 0

    def on_connect(client: paho.Client, *_: object) -> None:
        client.subscribe(filter_, 1)

    def on_message(client: paho.Client, _: object, __: paho.MQTTMessage) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            print("done", flush=True)
            client.disconnect()

    client = paho.Client(CallbackAPIVersion.VERSION2, "bare", protocol=MQTTProtocolVersion.MQTTv5)
    client.on_connect = on_connect
    client.on_subscribe = lambda *_: print("ready", flush=True)
    client.on_message = on_message
    client.connect(HOST, port)
    client.loop_forever()


def idle() -> None:
    """An interpreter with the three libraries loaded, until its input ends."""
    import msgpack  # type: ignore[import-untyped]  # noqa: F401, PLC0415
    import numpy as np  # noqa: F401, PLC0415
    import paho.mqtt.client  # noqa: F401, PLC0415

    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        bare(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        idle()
