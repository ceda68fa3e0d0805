"""A link that runs by itself, in a thread: for scripts, which have something else to do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable

from edge_opid.link.contract import Delivery, LinkError, LinkEvent
from edge_opid.link.mqtt import TURN_S, MqttLink, uniform
from edge_opid.link.options import MqttOptions
from edge_opid.link.poller import IN, Poller


class BackgroundLink(MqttLink):
    """A `MqttLink` that a thread of its own polls: the connection lives while nobody looks.

    Any thread may call it. All of them, and the link's own, take turns under one lock, which the
    link's thread holds except while it waits for the network. Should that thread end, `check`
    raises.
    """

    def __init__(
        self, options: MqttOptions, draw: Callable[[float, float], float] = uniform
    ) -> None:
        super().__init__(options, draw)
        self._lock = threading.Condition(threading.Lock())
        self._waker = Waker()
        self._poller = SharedPoller(self._lock, self._waker)
        name = f"link-{options.client_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._goodbye = True

    def start(self) -> None:
        """Begin to connect, and to connect again whenever the connection ends."""
        with self._lock:
            super().start()
        self._thread.start()

    def check(self) -> None:
        """Raise `LinkError` if the thread has ended though nobody asked it to."""
        with self._lock:
            super().check()
            if self._running and not self._thread.is_alive():
                raise LinkError(f"link {self._options.client_id!r}: its thread has ended")

    def wait_connected(self, timeout_s: float) -> None:
        """Return when connected; raise `LinkError` after the timeout or as soon as refused."""
        with self._lock:
            self._lock.wait_for(self._is_decided, timeout_s)
            self._raise_unless_connected(timeout_s)

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        """Ask for these filters now and at every later connection."""
        with self._lock:
            super().subscribe(filters, qos)
            self._waker.ring()

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Stop asking for these filters."""
        with self._lock:
            super().unsubscribe(filters)
            self._waker.ring()

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> bool:
        """Queue a message; False if it is refused, and counted."""
        with self._lock:
            taken = super().publish(topic, payload, qos, retain)
            if taken:
                self._waker.ring()
            return taken

    def poll(self, timeout_s: float | None = 0.0) -> Delivery | None:
        """The next delivery, or None after the timeout, or earlier when an event came in."""
        mailbox = self._mailbox
        with self._lock:
            seen = mailbox.events_seen
            wait_s = 0.0 if timeout_s is None else timeout_s
            self._lock.wait_for(lambda: len(mailbox) or mailbox.events_seen != seen, wait_s)
            if mailbox.full:
                self._waker.ring()  # there is room to read again
            return mailbox.take()

    def serve(self, wait_s: float = 0.0) -> None:
        """The thread does; let time pass."""
        if wait_s > 0:
            time.sleep(wait_s)

    def acknowledge(self, delivery: Delivery) -> None:
        """Tell the broker that it may forget this delivery."""
        with self._lock:
            super().acknowledge(delivery)
            self._waker.ring()

    def poll_event(self) -> LinkEvent | None:
        """The next thing that happened to the connection, or None."""
        with self._lock:
            return super().poll_event()

    def stop(self, drain_s: float = 5.0) -> int:
        """Send what is queued, say goodbye, end; returns how many messages stayed unsent."""
        self._finish(drain_s, goodbye=True)
        return self._exchange.unsent()

    def abort(self) -> None:
        """End without a goodbye, as `kill -9` would: the broker publishes the will."""
        self._finish(0.0, goodbye=False)

    def _finish(self, drain_s: float, *, goodbye: bool) -> None:
        with self._lock:
            if self._running and self._deadline is None:
                self._deadline, self._goodbye = time.monotonic() + drain_s, goodbye
                self._waker.ring()
        if self._thread.ident is not None:
            self._thread.join(drain_s + TURN_S + 2.0)
        if not self._thread.is_alive():
            self._waker.close()

    def _run(self) -> None:
        with self._lock:
            while self._running and (self._deadline is None or self._left_to_drain_s() > 0):
                self._step(TURN_S)
                self._lock.notify_all()
            self._end(goodbye=self._goodbye)
            self._lock.notify_all()


class SharedPoller(Poller):
    """A poller that lets others have the lock while it waits, and that a ring wakes."""

    def __init__(self, lock: threading.Condition, waker: Waker) -> None:
        super().__init__()
        self._lock, self._waker = lock, waker
        self._poll.register(waker.handle, IN)

    def wait(self, handle: int, wanted: int, wait_s: float) -> int:
        """What the file is ready for; 0 when the time is up or somebody rang."""
        if self._watched != (handle, wanted):
            self._watch(handle, wanted)
        self._lock.release()
        try:
            ready = dict(self._poll.poll(max(0, int(wait_s * 1000 + 0.999))))
        finally:
            self._lock.acquire()
        if self._waker.handle in ready:
            self._waker.hear()
        return ready.get(handle, 0)


class Waker:
    """One byte through a socket pair. Ringing twice before it is heard costs nothing."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self.handle = self._ear.fileno()
        self._rung = False

    def ring(self) -> None:
        """Wake the waiter. The caller holds the link's lock, as `hear` does."""
        if not self._rung:
            self._rung = True
            self._bell.send(b"!")

    def hear(self) -> None:
        """Be ready for the next ring."""
        if self._rung:
            self._rung = False
            self._ear.recv(16)

    def close(self) -> None:
        """Give the two file descriptors back."""
        self._rung = True  # nobody hears any more
        self._ear.close()
        self._bell.close()
