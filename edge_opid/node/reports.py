"""What a gateway hears from a node unasked: what it is, and now and then what it knows.

A gateway may be new, or may have lost its database; a node cannot tell. So it introduces itself at
every connection, and goes on with every periodic status until a gateway's order shows that it is
known. And a group can pool only what its members have uploaded, also those whose layout never
changes: hence the doubling rule.

Nothing of this is durable: after a restart it is said once more, which costs two messages. And
nothing is said before the warm-up is over: references and scales are not known until then.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..wire import Introduction, Summary
from .effects import Effect, summarised
from .state import NodeState

UPLOAD_FROM = 32  # readings: what fewer of them know is not worth a message


def introduced(state: NodeState) -> Introduction:
    """What this node is at present, its silent sensors included."""
    senses, config = state.senses, state.config
    return Introduction(
        state.version,
        state.layout_version,
        tuple(senses.sensors.values()),
        senses.vanishing,
        senses.gate,
        config.classes,
        config.window_ms,
    )


class Reports:
    """What has been said in this life of the process, and so what is to be said next."""

    def __init__(self) -> None:
        self._reachable = True  # until `disconnected`: without a broker it would only fill a queue
        self._known = False
        self._uploaded = 0  # readings behind the last summary

    def known(self) -> None:
        """A valid order has arrived, new or obeyed already: its gateway knows this node."""
        self._known = True

    def connected(self, state: NodeState) -> list[Effect]:
        """A new connection: whoever listens now may not have listened before."""
        self._reachable = True
        return [] if state.warming else [introduced(state)]

    def disconnected(self) -> None:
        """Nobody hears us."""
        self._reachable = False

    def changed(
        self, effects: Iterable[Effect], state: NodeState, *, was_warming: bool
    ) -> list[Effect]:
        """After an input: what an order made the node upload counts, and a warm-up may be over."""
        if any(isinstance(effect, Summary) for effect in effects):
            self._uploaded = state.senses.learner.readings  # those carried over, or none
        return [introduced(state)] if was_warming and not state.warming else []

    def periodic(self, state: NodeState) -> list[Effect]:
        """What goes with a periodic status."""
        if state.warming or not self._reachable:
            return []
        introduction = [] if self._known else [introduced(state)]
        return [*introduction, *self._doubled(state)]

    def _doubled(self, state: NodeState) -> list[Effect]:
        """The doubling rule: a summary when the learner has read twice what the last one knew.

        What a pool lacks of this node is then never more than what it has, and the uploads grow
        with the logarithm of the readings: 15 for the first million. A node that was ordered
        another layout counts from what its learner has carried over.
        """
        readings = state.senses.learner.readings
        if readings < max(UPLOAD_FROM, 2 * self._uploaded):
            return []
        self._uploaded = readings
        return summarised(state.senses, state.layout_version)
