"""A broker that lies, and the real link, with its real thread and the real paho, that must bear it.

The broker sends mutants over a loopback socket, cut at any byte. After every few it proves that the
session is not stuck: a valid message gets through and is acknowledged, and one of the link's own
comes out. What only the broker itself can have made may end the connection, and then the link has
to come back by itself. A PUBLISH whose length fits may not: strangers write those.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from random import Random

from benchmarks.common.raw_mqtt import framed, size_of_first, taken_apart
from benchmarks.fuzz.messages import Finding
from benchmarks.fuzz.mutants import PacketMutator, brokers_packets, missing
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.link.packets import publish_packet
from edge_opid.reasons import LinkReason

HOST = "127.0.0.1"
PATIENCE_S = 20.0  # for what takes a millisecond: longer is stuck
PROBE_ID = 65_001  # no mutant's
TOPICS = (b"a", b"opid/1/farm/n1/reading/porch", "straße/7".encode())
PADDING_MAX = 2_000  # bytes: what a length promises, and the broker still sends


class LyingBroker:
    """One generation of mutants for one link; `words` counts what became of them."""

    def __init__(self, seed: str, words: Counter[str], payloads: list[bytes]) -> None:
        self.rng = Random(seed)
        self.words = words
        self.last: list[bytes] = []
        self.payloads = payloads
        self.server = socket.create_server((HOST, 0))
        self.server.settimeout(PATIENCE_S)
        first = self.rng.random() < 0.8
        port = self.server.getsockname()[1]
        options = MqttOptions(client_id="fuzzed", port=port, mqtt_5_first=first, keepalive_s=600)
        self.link = BackgroundLink(options, draw=lambda *_: 0.0)
        self.peer: socket.socket | None = None
        self.heard = b""
        self.probes = 0

    def run(self, count: int) -> None:
        """So many mutants; then the link must be alive, and have nothing left to say."""
        self.link.start()
        try:
            self._run(count)
            self.link.check()
        finally:
            self.link.abort()
            self._hang_up()
            self.server.close()
        self.words["connections"] += self.link.counters.connections
        self.words["faults of the client library, each a reconnection"] += self.link.counters.faults

    def _run(self, count: int) -> None:
        done = 0
        while done < count:
            peer = self._connected()
            if self.rng.random() < 0.1 and self.probes:
                self._answer_oddly(peer)
                done += 1
            elif self.rng.random() < 0.02:
                done += self._strangers(peer, min(count - done, self.rng.choice((20, 100, 300))))
            else:
                self._lie(peer)
                done += 1

    # --- what is sent ---------------------------------------------------------------------------

    def _strangers(self, peer: socket.socket, count: int) -> int:
        """Publications that a broker may forward: not one of them may end the connection."""
        packets = [self.mutator.odd_publication() for _ in range(count)]
        self.last = packets
        self._say(peer, b"".join(packets))
        if not self._alive(peer):
            raise Finding(f"one of {count} publications ended the connection")
        self.words["a stranger's PUBLISH: one message"] += count
        return count

    def _lie(self, peer: socket.socket) -> None:
        """One packet of the broker's own that is wrong; the connection may end over it."""
        own = brokers_packets(self.mqtt_5)
        honest = self.mutator.publication() if self.rng.random() < 0.4 else self.rng.choice(own)
        mutant = self.mutator.mutant(honest)
        self.last = [mutant]
        kind = f"type {honest[0] >> 4:2} of the broker"
        lacks = missing(mutant)
        self._say(peer, mutant)
        if lacks and (lacks > PADDING_MAX or self.rng.random() < 0.3):
            self.words[f"{kind}: never finished, hung up"] += 1
            self._hang_up()
            return
        if lacks:
            self._say(peer, bytes(lacks))
            if missing(mutant + bytes(lacks)):  # its length went on: what follows is inside it
                self._hang_up()
                self.words[f"{kind}: never finished, hung up"] += 1
                return
        alive = self._alive(peer)
        if alive and lacks is None:
            raise Finding("a length of five bytes did not end the connection")
        self.words[f"{kind}: {'went on' if alive else 'ended, came back'}"] += 1

    def _answer_oddly(self, peer: socket.socket) -> None:
        """Begin anew, and answer CONNECT with a mutant."""
        self._hang_up()
        peer = self._accept()
        first, body = taken_apart(framed(0x20, b"\x00\x00" + (b"\x00" if self.mqtt_5 else b"")))
        if self.mqtt_5 and self.rng.random() < 0.6:
            given = self.mutator.properties()[:120]
            body = b"\x00\x00" + bytes([len(given)]) + given
        mutant = framed(first, body)
        if self.rng.random() < 0.6:
            mutant = self.mutator.mutant(mutant)
        self.last = [mutant]
        self._say(peer, mutant)
        if missing(mutant):
            self._hang_up()
            self.words["answer to CONNECT: never finished, hung up"] += 1
            return
        alive = self._alive(peer)
        self.words[f"answer to CONNECT: {'went on' if alive else 'ended, came back'}"] += 1

    # --- what must go on -------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        """The connection there is, or the next one, honestly accepted and tried."""
        if self.peer is not None:
            return self.peer
        peer = self._accept()
        self._say(peer, framed(0x20, b"\x00\x00" + (b"\x00" if self.mqtt_5 else b"")))
        if not self._alive(peer):
            raise Finding("a connection ended that nobody had lied on")
        return peer

    def _accept(self) -> socket.socket:
        self.link.check()
        try:
            self.peer, _ = self.server.accept()
        except TimeoutError:
            raise Finding(f"the link did not come back in {PATIENCE_S} s") from None
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer.settimeout(PATIENCE_S)
        self.heard = b""
        while missing(self.heard) or not self.heard:
            data = self.peer.recv(65_536)
            if not data:
                raise Finding("the link hung up before it had said CONNECT")
            self.heard += data
        self.mqtt_5 = self.heard[self.heard.index(b"MQTT") + 4] == 5
        self.heard = b""
        self.mutator = PacketMutator(self.rng, TOPICS, self.payloads, self.mqtt_5)
        return self.peer

    def _hang_up(self) -> None:
        if self.peer is not None:
            self.peer.close()
            self.peer = None

    def _say(self, peer: socket.socket, data: bytes) -> None:
        """Send it in pieces; the link's user takes what arrives meanwhile."""
        cuts = sorted(self.rng.randint(0, len(data)) for _ in range(self.rng.choice((0, 0, 1, 3))))
        try:
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                peer.sendall(data[start:end])
                self._take()
        except ConnectionError:
            pass  # the link has hung up; `_alive` sees it

    def _alive(self, peer: socket.socket) -> bool:
        """A valid message each way; False if the connection has ended instead."""
        self.probes += 1
        payload, refused = f"probe {self.probes}.".encode(), self._refused
        none = b"" if self.mqtt_5 else None
        probe = publish_packet(b"probe", payload, qos=1, packet_id=PROBE_ID, properties=none)
        self.link.publish("answer", payload)
        acknowledged, arrived, answered = False, False, False
        deadline = time.monotonic() + PATIENCE_S
        try:
            peer.sendall(probe)
            while not (acknowledged and arrived and answered):
                self.link.check()
                if time.monotonic() > deadline:
                    seen = f"arrived {arrived}, acknowledged {acknowledged}, answered {answered}"
                    raise Finding(f"stuck for {PATIENCE_S} s: {seen}")
                for packet in self._packets(peer, 0.05 if arrived else 0.002):
                    acknowledged |= packet[:4] == b"\x40\x02" + PROBE_ID.to_bytes(2, "big")
                    answered |= payload in packet
                    self._confirm(peer, packet)
                arrived |= self._take(payload)
                answered |= self._refused > refused  # the broker named a limit too small for it
        except ConnectionError:
            self._hang_up()
            self.link.check()
            return False
        return True

    @property
    def _refused(self) -> int:
        return self.link.counters.refused[LinkReason.UNSENT_BY_BROKER]

    def _packets(self, peer: socket.socket, wait_s: float) -> list[bytes]:
        """What the link has said; ConnectionError if it has hung up."""
        peer.settimeout(wait_s)
        try:
            data = peer.recv(65_536)
        except TimeoutError:
            return []
        finally:
            peer.settimeout(PATIENCE_S)
        if not data:
            raise ConnectionError("the link has hung up")
        self.heard += data
        found = []
        while (size := size_of_first(self.heard)) and size <= len(self.heard):
            found.append(self.heard[:size])
            self.heard = self.heard[size:]
        return found

    def _confirm(self, peer: socket.socket, packet: bytes) -> None:
        if packet[0] >> 4 == 3 and packet[0] & 2:
            _, body = taken_apart(packet)
            at = 2 + int.from_bytes(body[:2], "big")
            peer.sendall(b"\x40\x02" + body[at : at + 2])

    def _take(self, payload: bytes = b"") -> bool:
        """Take and acknowledge everything that arrived; whether `payload` was among it."""
        found = False
        while (delivery := self.link.poll()) is not None:
            found |= delivery.topic == "probe" and delivery.payload == payload
            self.link.acknowledge(delivery)
        while self.link.poll_event() is not None:
            pass
        return found
