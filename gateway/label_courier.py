"""Labels that people gave, from the database to the broker: each is settled once it has arrived.

A label is a command whose payload is a message of the `label` topic, left by the pages or by the
command line. It stays open until the broker has confirmed it, so a gateway that dies before that
publishes it again; a node learns an instance once, and refuses a second label for it. So a label is
learned once, and lost only by a broker that crashes after it has confirmed and before it has saved.

Which label the broker has confirmed follows from counting: a link hands on what it took in order,
and counts what was confirmed or refused.
"""

from __future__ import annotations

from edge_opid.link.contract import Link
from edge_opid.reasons import LinkReason

DONE = "done"


class LabelCourier:
    """What is on its way."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._taken = 0  # publications that the link took, of whatever kind
        self._waiting: dict[int, tuple[int, str]] = {}  # command → how-manieth, and its topic
        self._settled: dict[int, str] = {}

    def holds(self, command: int) -> bool:
        """Whether this one is on its way, and must not be sent a second time."""
        return command in self._waiting or command in self._settled

    def count(self) -> None:
        """The link has taken a publication."""
        self._taken += 1

    def await_confirmation(self, command: int, topic: str) -> None:
        """The link has taken this label just now."""
        self._waiting[command] = self._taken, topic

    def refuse(self, topic: str, reason: str) -> None:
        """The broker threw away a publication on this topic: the first that waits there."""
        for command, (_, where) in self._waiting.items():
            if where == topic:
                del self._waiting[command]
                self._settled[command] = f"the broker refuses labels on {topic}: {reason}"
                return

    def take_settled(self) -> dict[int, str]:
        """The labels that are settled now, each with `done` or the sentence why not."""
        if not self._waiting:
            return dict(self._settled)
        counters = self._link.counters
        answered = counters.published + counters.refused[LinkReason.UNSENT_BY_BROKER]
        for command, (place, _) in list(self._waiting.items()):
            if place <= answered:
                del self._waiting[command]
                self._settled[command] = DONE
        return dict(self._settled)

    def forget(self, commands: dict[int, str]) -> None:
        """The outcomes of these are saved."""
        for command in commands:
            self._settled.pop(command, None)
