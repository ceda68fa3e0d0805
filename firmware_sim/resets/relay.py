"""A wire between clients and a broker that breaks: bytes pass unchanged, until a reset.

Every few seconds some of the connections, sometimes all of them, end as a router that was switched
off ends them: with RST to both sides (`SO_LINGER` 0), and whatever was on its way is gone. Half of
those that are chosen break in the middle of the next packet: a part of it still arrives.

When, and how many, comes from one seed; whom and which bytes that meets is up to the machine.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter

HOST = "127.0.0.1"
GAP_S = (1.0, 4.0)  # between two breaks
ALL_IN = 0.15  # of the breaks, those that spare nobody
SHARE = (0.05, 0.5)  # of the connections, in the others
MID_PACKET = 0.5
CHUNK_BYTES = 65_536
START_S = 10.0
_NO_LINGER = struct.pack("ii", 1, 0)


class RelayPipe:
    """One connection: the client's side, the broker's side, and whether its end is decided."""

    def __init__(self, near: StreamWriter, far: StreamWriter) -> None:
        self._sides = (near, far)
        self.doomed = False  # to end within the next packet

    def reset(self) -> None:
        """RST to both; what is still in our hands is dropped."""
        for side in self._sides:
            if not side.transport.is_closing():
                endpoint = side.get_extra_info("socket")
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                side.transport.abort()


class Relay:
    """Listens on a loopback port of its own: `with Relay(broker_port, seed) as relay: relay.port`.

    It runs in a thread. `breaks` are the moments, `resets` the connections that ended at them, and
    `mid_packet` those of them that ended within a packet.
    """

    def __init__(self, broker_port: int, seed: int) -> None:
        self.port = self.breaks = self.resets = self.mid_packet = 0
        self._broker_port = broker_port
        self._when, self._whom = random.Random(seed), random.Random(seed)
        self._pipes: dict[
            RelayPipe, None
        ] = {}  # in the order they came: a set has no order to draw from
        self._calm, self._over = threading.Event(), threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), name="relay")

    def __enter__(self) -> Relay:
        self._thread.start()
        if not self._ready.wait(START_S):
            raise TimeoutError(f"the relay does not listen after {START_S:g} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(START_S)

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._pipes)

    def calm(self) -> None:
        """No break from now on; what is doomed already still ends."""
        self._calm.set()

    # --- in the thread ----------------------------------------------------------------------------

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, HOST, 0)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            while not (self._pipes or self._over.is_set()):
                await asyncio.sleep(0.05)  # there is nothing to break
            due = self._next_break()
            while not self._over.is_set():
                await asyncio.sleep(0.05)
                if not self._calm.is_set() and asyncio.get_running_loop().time() >= due:
                    self._break()
                    due = self._next_break()
        for pipe in self._pipes:
            pipe.reset()
        while self._pipes:
            await asyncio.sleep(0.01)  # each has a task that sees its end

    def _next_break(self) -> float:
        return asyncio.get_running_loop().time() + self._when.uniform(*GAP_S)

    def _break(self) -> None:
        share = 1.0 if self._when.random() < ALL_IN else self._when.uniform(*SHARE)
        pipes = list(self._pipes)
        self.breaks += 1
        for pipe in self._whom.sample(pipes, round(share * len(pipes))):
            if self._whom.random() < MID_PACKET:
                pipe.doomed = True
            else:
                self._reset(pipe)

    def _reset(self, pipe: RelayPipe) -> None:
        self.resets += 1
        pipe.reset()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            answers, broker = await asyncio.open_connection(HOST, self._broker_port)
        except OSError:
            writer.transport.abort()
            return
        pipe = RelayPipe(writer, broker)
        self._pipes[pipe] = None
        try:
            await asyncio.gather(
                self._pass_on(reader, broker, pipe), self._pass_on(answers, writer, pipe)
            )
        finally:
            pipe.reset()
            del self._pipes[pipe]

    async def _pass_on(self, reader: StreamReader, writer: StreamWriter, pipe: RelayPipe) -> None:
        """One direction, to its end: a goodbye is passed on, a reset as well."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                if pipe.doomed:
                    self.mid_packet += 1
                    writer.write(data[: self._whom.randrange(len(data))])
                    self._reset(pipe)
                    return
                writer.write(data)
                await writer.drain()
            writer.close()
        except OSError:
            pipe.reset()
