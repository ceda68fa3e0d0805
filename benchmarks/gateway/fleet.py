"""Thousands of nodes in one process: what a gateway hears of them, without what they do at home.

    python -m benchmarks.gateway.fleet PORT COUNT SENSORS

It speaks MQTT 3.1.1 over one bare socket, packs by msgpack alone, and believes every signature:
a fleet that takes as long as the gateway would be what is measured. What it says is what real nodes
say: an introduction, a status twice a minute and after every order, a summary when a layout
changes. It prints `adopted` once every node has obeyed its first order; then each line on its
standard input lets, at every node, one sensor die and another join.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
from nacl.signing import SigningKey

from edge_opid.layout import Layout
from edge_opid.learner import WoodburyLearner
from edge_opid.node.effects import summary_message
from edge_opid.node.node import STATUS_MS
from edge_opid.wire import SensorDeployed, SensorRetired, Status, encode
from edge_opid.wire.envelope import HEADER_BYTES
from firmware_sim.live.introductions import first_introduction

SITE, CLASSES = "city", ("calm", "busy", "alarm")
KEY = SigningKey(bytes(range(32)))
LEARNED = 40
LASTS_S = 3_600.0
READ_BYTES = 1 << 18
STEP_S = 0.02
"""Between two looks at whose turn it is to say how it is."""
COUNTS = {
    "readings": 0, "predictions": 0, "learned": 40, "duplicates": 3, "example": 12,
    "introduction": 1, "order-repeated": 1, "rate-limited": 2, "refused-stale": 1,
}  # fmt: skip
ACCURACY = {"own": 0.91, "model": 0.9, "long": 0.9, "lately": 0.88, "frequent": 0.5}


def summary(sensors: list[str], layout_version: int) -> bytes:
    """The statistics of a learner that has seen a few labelled instances."""
    width, rng = len(sensors) + 1, np.random.default_rng(len(sensors))
    learner = WoodburyLearner(0, width, len(CLASSES))
    for _ in range(LEARNED):
        label = int(rng.integers(len(CLASSES)))
        learner.learn_one(np.append(rng.normal(size=width - 1) + label, 1.0), label)
    return encode(summary_message(learner, layout_version, tuple(sensors), ()))


class BareMqtt:
    """MQTT 3.1.1 in packets that are made and never checked: for benchmarks alone."""

    def __init__(self, port: int, client: str, filter_: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.confirmed = 0
        self._number, self._in, self._out = 0, b"", bytearray()
        self._add(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(client))
        if filter_:
            self._add(0x82, b"\x00\x01" + _text(filter_) + b"\x01")
        self.flush()

    def _add(self, kind: int, body: bytes) -> None:
        self._out += bytes((kind,)) + _length(len(body)) + body

    def publish(self, topic: bytes, payload: bytes, *, retain: bool = False) -> None:
        """Queue a publication of quality 1; `topic` has its length in front."""
        self._number = self._number % 65_535 + 1
        self._add(0x33 if retain else 0x32, topic + self._number.to_bytes(2, "big") + payload)

    def flush(self) -> None:
        """Send what is queued."""
        if self._out:
            self.socket.sendall(self._out)
            self._out.clear()

    def receive(self, wait_s: float) -> Iterator[tuple[bytes, bytes]]:
        """Topic and payload of what comes within `wait_s`; acknowledged with the next flush."""
        if not select.select([self.socket], [], [], wait_s)[0]:
            return
        came = self.socket.recv(READ_BYTES)
        if not came:
            sys.exit("the broker has closed the connection")
        data = self._in + came
        place = 0
        while (found := _packet(data, place)) is not None:
            start, end = found
            if data[place] >> 4 == 3:
                size = int.from_bytes(data[start : start + 2], "big")
                topic, rest = data[start + 2 : start + 2 + size], start + 2 + size
                if data[place] & 6:
                    self._add(0x40, data[rest : rest + 2])
                    rest += 2
                yield topic, data[rest:end]
            elif data[place] >> 4 == 4:
                self.confirmed += 1
            place = end
        self._in = data[place:]


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _length(size: int) -> bytes:
    found = bytearray()
    while True:
        size, low = size >> 7, size & 127
        found.append(low | (128 if size else 0))
        if not size:
            return bytes(found)


def _packet(data: bytes, place: int) -> tuple[int, int] | None:
    """Where the body of the packet at `place` begins and ends; None where it is not all there."""
    size = shift = 0
    for at in range(place + 1, min(place + 5, len(data))):
        size |= (data[at] & 127) << shift
        shift += 7
        if data[at] < 128:
            end = at + 1 + size
            return (at + 1, end) if end <= len(data) else None
    return None


class Crowd:
    """All nodes behind one connection."""

    def __init__(self, port: int, count: int, sensors: int) -> None:
        self.names = [f"n{n}" for n in range(count)]
        roles = [f"r{n}" for n in range(sensors)]
        self.sensors = sorted(roles, key=Layout(roles).columns.index)
        self.summary = summary(self.sensors, 1)
        self.adopted = 0
        self._layout = dict.fromkeys(self.names, 0)
        self._order = dict.fromkeys(self.names, 0)
        self._model = dict.fromkeys(self.names, 0)
        self._link = BareMqtt(port, "crowd", f"opid/1/{SITE}/+/desired")
        self._topics = {
            channel: {name: _text(f"opid/1/{SITE}/{name}/{channel}") for name in self.names}
            for channel in ("event", "status", "summary")
        }
        self._status = Status(
            online=True, layout_version=0, model_version=0, counts=COUNTS, accuracy=ACCURACY
        ).plain()
        self._began_s, self._said = time.monotonic(), 0

    def introduce(self) -> None:
        """Everybody says what they are."""
        payload = encode(first_introduction({each: each for each in self.sensors}, CLASSES))
        for name in self.names:
            self._link.publish(self._topics["event"][name], payload)
        self._link.flush()

    def announce(self, number: int) -> None:
        """At every node one sensor dies and another one joins."""
        old, new = (f"new{number - 1}" if number > 1 else "r0"), f"new{number}"
        died = encode(SensorRetired(old, now_ms(), "worn out"))
        joins = encode(SensorDeployed(new, role=new, at_ms=now_ms(), reference=0.0, scale=1.0))
        for name in self.names:
            self._link.publish(self._topics["event"][name], died)
            self._link.publish(self._topics["event"][name], joins)
        self._link.flush()

    def live(self) -> None:
        """Obey what comes, and let those speak whose turn it is."""
        for topic, payload in self._link.receive(STEP_S):
            self._obey(topic.split(b"/")[3].decode(), payload)
        if self.adopted == len(self.names):
            due = int((time.monotonic() - self._began_s) * 1000 * len(self.names) / STATUS_MS)
            for turn in range(self._said, due):
                self._say_status(self.names[turn % len(self.names)], turn)
            self._said = due
        else:
            self._began_s = time.monotonic()
        self._link.flush()

    def _obey(self, name: str, payload: bytes) -> None:
        order = msgpack.unpackb(memoryview(payload)[HEADER_BYTES:])
        if not self._order[name]:
            self.adopted += 1
        elif order["layout_version"] > self._layout[name]:
            self._link.publish(self._topics["summary"][name], self.summary)
        self._order[name], self._layout[name] = order["version"], order["layout_version"]
        if "weights" in order:
            self._model[name] = order["version"]
        self._say_status(name, self._said)

    def _say_status(self, name: str, turn: int) -> None:
        minutes = turn // len(self.names)
        status = {
            "v": 1, "kind": "status", **self._status, "time_ms": now_ms(),
            "layout_version": self._layout[name], "model_version": self._model[name],
            "version": self._order[name],
            "counts": {**COUNTS, "readings": 300 * minutes, "predictions": 300 * minutes},
        }  # fmt: skip
        self._link.publish(self._topics["status"][name], msgpack.packb(status), retain=True)


def now_ms() -> int:
    """The wall clock."""
    return int(time.time() * 1000)


def main() -> None:
    """Serve until the benchmark ends us."""
    crowd = Crowd(*map(int, sys.argv[1:4]))
    crowd.introduce()
    told, changes, deadline = False, 0, time.monotonic() + LASTS_S
    while time.monotonic() < deadline:
        crowd.live()
        if not told and crowd.adopted == len(crowd.names):
            told = True
            print("adopted", flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            changes += 1
            crowd.announce(changes)


if __name__ == "__main__":
    main()
