"""A sensor script, a broker in memory and a node's intake: what the tests of a source play with."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edge_opid.link import Link
from edge_opid.node.sequencing import Duplicate, Sequencer, Take
from edge_opid.node.sources import SourceRegister
from edge_opid.source import ReadingNumber, Source, SourceConfig
from edge_opid.testing import MemoryBroker, MemoryLink
from edge_opid.wire import Reading


def encode_reading(
    boot: int, seq: int, time_ms: int, values: Mapping[str, float], label: Any
) -> bytes:
    return json.dumps([boot, seq, time_ms, dict(values), label], allow_nan=False).encode()


def decode_reading(payload: bytes) -> tuple[int, Mapping[str, float], Any]:
    _, _, time_ms, values, label = json.loads(payload)
    return time_ms, values, label


def decode_ack(payload: bytes) -> tuple[int, int, int]:
    boot, seq, newest = json.loads(payload)
    return int(boot), int(seq), int(newest)


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class ScriptedSteadyClock:
    """A node's own time: it passes with the script's, and does not jump when that is set."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._seen, self._now = clock, clock.now, 0.0

    def __call__(self) -> float:
        passed, self._seen = self._clock.now - self._seen, self._clock.now
        self._now += passed if 0.0 <= passed <= 600.0 else 0.0
        return self._now


class Receiver:
    """A node's half of the protocol: its real intake, and a commit after every reading.

    With `loss` it also ignores readings and keeps acknowledgements to itself, as a bad network
    would have it.
    """

    def __init__(
        self,
        link: Link,
        loss: float = 0.0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = link
        self.applied: list[tuple[ReadingNumber, Any]] = []
        self.loss = loss
        self._dice = random.Random(seed)
        self._clock = clock
        self._register = SourceRegister()
        self.intake = Sequencer(self._register)
        link.subscribe(["reading"])
        link.start()

    def pump(self, timeout_s: float = 0.0) -> None:
        while (delivery := self.link.poll(timeout_s)) is not None:
            self.link.acknowledge(delivery)
            for _ in range(self._dice.choice([0, 1, 2]) if self.loss else 1):
                self._receive(delivery.payload)
        for _, boot, seq in self.intake.take_requests(int(self._clock() * 1000)):
            self._answer(boot, seq)

    def _receive(self, payload: bytes) -> None:
        boot, seq, time_ms, values, label = json.loads(payload)
        reading = Reading(boot, seq, time_ms, values, label)
        match self.intake.offer("sensor", reading, int(self._clock() * 1000)):
            case Take(readings):
                for each in readings:
                    self._register.record("sensor", each.boot, each.seq)
                    self.applied.append((ReadingNumber(each.boot, each.seq), dict(each.values)))
                self._answer(*self.applied[-1][0])
            case Duplicate(boot, seq, newest):
                self._answer(boot, seq, newest)

    def _answer(self, boot: int, seq: int, newest: int = 0) -> None:
        if self._dice.random() >= self.loss:
            self.link.publish("ack", json.dumps([boot, seq, newest]).encode())

    def temps(self) -> list[float]:
        return [values.get("temp") for _, values in self.applied]


def config(folder: Path, **options: object) -> SourceConfig:
    settings: dict[str, object] = {
        "folder": folder,
        "reading_topic": "reading",
        "ack_topic": "ack",
        "background": False,
        **options,
    }
    return SourceConfig(**settings)  # type: ignore[arg-type]


class Station:
    """A broker, a receiver, and a script that can be started, killed and started again."""

    def __init__(self, folder: Path, loss: float = 0.0, seed: int = 0) -> None:
        self.folder = folder
        self.options: dict[str, object] = {}
        self.clock = Clock()
        self.broker = MemoryBroker(queue_max=100_000)
        self.receiver = Receiver(
            MemoryLink(self.broker, "node"), loss, seed, ScriptedSteadyClock(self.clock)
        )

    def source(self, **options: object) -> Source:
        link = MemoryLink(self.broker, "sensor")
        source = Source(
            config(self.folder, **{**self.options, **options}),
            link,
            encode_reading,
            decode_reading,
            decode_ack,
            self.clock,
            self.clock,
        )
        return source.__enter__()

    def run(self, source: Source, seconds: float = 600.0) -> None:
        """Let time pass until everything is acknowledged."""
        until = self.clock.now + seconds
        while not source.drained():
            assert self.clock.now < until, f"{source.pending} still pending"
            self.clock.now += 0.5
            self.receiver.pump()
            source.pump()

    def kill(self, source: Source) -> None:
        """End the process: no sync, no goodbye; the kernel closes its files."""
        source._link.abort()
        source._guard.close()
        for segment in source._spool._segments:
            os.close(segment.handle)
        source._over.set()
