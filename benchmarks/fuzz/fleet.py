"""A stranger with a socket: mutated packets to a real mosquitto, and to whoever it forwards them.

Those are a real node and a real gateway, in processes of their own.

After every few hundred the node must still acknowledge a reading and the gateway must still write a
status into its book; at the end both must stop when they are asked to, with 0.
"""

from __future__ import annotations

import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random

from nacl.signing import SigningKey

from benchmarks.common.raw_mqtt import RawClient
from benchmarks.fuzz.messages import Finding, corpus
from benchmarks.fuzz.mutants import PacketMutator, clients_packets, missing
from edge_opid.link.options import MqttOptions
from edge_opid.source import connect
from edge_opid.wire import Channel, NodeTopics, Status, encode
from firmware_sim.live.introductions import first_introduction
from firmware_sim.live.mosquitto import Mosquitto
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import WAIT_S, LiveError, wait_until
from firmware_sim.live.services import GatewayProcess, NodeProcess
from firmware_sim.live.toml import toml_table

SITE, CLASSES = "city", ("calm", "busy", "alarm")
KEY = SigningKey(bytes(range(32)))
POLICY = "settle_s = 0.5\nsilence_s = 3\nsummary_wait_s = 5\nretry_s = 2\nretry_max_s = 4"
UNHINDERED = {"rate_per_second": 1e5, "rate_burst": 10**5, "commit_s": 0.2}
NODE = toml_table("node", UNHINDERED, site=SITE, node="n1", classes=CLASSES)
NODE += toml_table("gateway", keys=[KEY.verify_key.encode().hex()])
GROUP = toml_table("[groups]", id="air", site=SITE, classes=CLASSES, nodes=["n1", "ghost"])
BATCH = 250
ROLES = ("pm", "no")
PING, PONG = b"\xc0\x00", 0xD0
TAKEN = (0x40, 0x50)


def topics() -> list[bytes]:
    """Every channel of a node, as its node, its gateway and its sources use them."""
    n1 = NodeTopics(SITE, "n1")
    own = [n1.to(each) for each in Channel if not each.per_source]
    theirs = [n1.to(each, "porch") for each in Channel if each.per_source]
    return [str(each).encode() for each in (*own, *theirs)]


def sensor(role: str) -> str:
    """One of the node's, standardised already."""
    return toml_table(
        "[sensors]", id=f"{role}-n1", role=role, reference=0.0, scale=1.0, timeout_s=1.0
    )


class FuzzedFleet:
    """A broker, a gateway, a node, one of its sources, and a node that only introduces itself."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        enter = stack.enter_context
        self.probes = 0
        self.broker = enter(Mosquitto(folder / "broker"))
        port = self.broker.port
        self.gateway = enter(GatewayProcess(folder / "gateway", port, KEY, POLICY, GROUP))
        self.gateway.wait_connected()
        self.node = enter(NodeProcess(folder / "n1", port, NODE + "".join(map(sensor, ROLES))))
        self.source = enter(connect(SITE, "n1", "box", folder / "spool", port=port))
        options = MqttOptions(client_id="listener", port=port)
        self.ear = enter(Observer(options, [f"opid/1/{SITE}/ghost/desired"]))
        hello = first_introduction({role: role for role in ROLES}, CLASSES)
        self._ghost(Channel.EVENT, encode(hello))

    def probe(self) -> None:
        """A reading for the node, a status for the gateway; neither may be lost."""
        self.check()
        self.source.send(dict.fromkeys((f"{role}-n1" for role in ROLES), 0.5), CLASSES[0])
        if not self.source.drained(WAIT_S):
            self.check()
            raise Finding(f"the node does not acknowledge any more:\n{self.node.log()}")
        self.probes += 1  # a status that says nothing new would not be written
        said = encode(
            Status(
                online=True,
                layout_version=0,
                model_version=self.probes,
                time_ms=time.time_ns() // 10**6,
            )
        )
        self._ghost(Channel.STATUS, said)
        try:
            wait_until(lambda: said in self._book(), "the gateway writes a status down")
        except LiveError:
            self.check()
            raise Finding(f"the gateway does not listen any more:\n{self.gateway.log()}") from None

    def check(self) -> None:
        """Fail with the log of whoever ended."""
        self.gateway.check()
        self.node.check()

    def stop(self) -> None:
        """Both end because they are asked to."""
        codes = self.node.stop(), self.gateway.stop()
        if codes != (0, 0):
            raise Finding(f"node and gateway ended with {codes}")

    def _ghost(self, channel: Channel, payload: bytes) -> None:
        topic = str(NodeTopics(SITE, "ghost").to(channel))
        if not self.ear.link.publish(topic, payload):
            raise Finding("mosquitto takes nothing any more")

    def _book(self) -> list[bytes]:
        return [each.status for each in self.gateway.remembers().nodes]


class Stranger:
    """Says mutants to mosquitto, one after another; connects again when it hangs up."""

    def __init__(self, port: int, seed: str, words: Counter[str]) -> None:
        self.rng = Random(f"fleet/{seed}")
        self.port, self.words = port, words
        self.last = b""
        self.client: RawClient | None = None
        self.mutator = PacketMutator(self.rng, topics(), corpus())

    def send(self) -> None:
        """One mutant."""
        if self.client is None:
            self.client = RawClient(self.port, "stranger")
        chance = self.rng.random()
        if chance < 0.7:
            self.last = self.mutator.forwardable()
        elif chance < 0.85:
            self.last = self.mutator.odd_publication()
        else:
            others = clients_packets()
            honest = self.rng.choice((self.mutator.publication(), self.rng.choice(others)))
            self.last = self.mutator.mutant(honest)
        self.words[f"to mosquitto: {self._became(self.client)}"] += 1

    def _became(self, client: RawClient) -> str:
        try:
            client.send(self.last + (b"" if missing(self.last) else PING))
            if missing(self.last):
                return self._over("never finished, hung up")
            taken = False
            while answer := client.receive():
                if answer[0] == PONG:
                    return "taken and confirmed" if taken else "not confirmed (QoS 0, or refused)"
                taken |= answer[0] in TAKEN and (len(answer) < 5 or answer[4] < 0x80)
        except ConnectionError:
            pass
        return self._over("mosquitto hung up")

    def _over(self, word: str) -> str:
        self.close()
        return word

    def close(self) -> None:
        """Hang up."""
        if self.client is not None:
            self.client.close()
            self.client = None


def run(count: int, seed: str, words: Counter[str]) -> str:
    """So many mutants; a finding, with the last of them, or nothing."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        fleet = FuzzedFleet(Path(folder), stack)
        stranger = Stranger(fleet.broker.port, seed, words)
        stack.callback(stranger.close)
        try:
            fleet.probe()
            for number in range(count):
                stranger.send()
                if number % BATCH == BATCH - 1:
                    fleet.probe()
            fleet.probe()
            fleet.stop()
        except Exception:  # noqa: BLE001 - the very thing this is looking for
            return f"{traceback.format_exc()}\nafter: {stranger.last[:2_000].hex()}"
    return ""
