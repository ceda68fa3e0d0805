"""What a node publishes: topics and payloads for what happened, and reports to its gateway.

`Publications` puts effects into messages. `GatewayReports` decides what a gateway is told without
having asked: what the node is, and now and then what it knows.

A gateway may be new, or may have lost its database; a node cannot tell. So it introduces itself at
every connection, and goes on with every periodic status until a gateway's order shows that it is
known. And a group can pool only what its members have uploaded, also those whose layout never
changes: hence the doubling rule.

Nothing of this is durable: after a restart it is said once more, which costs two messages. And
nothing is said before the warm-up is over: references and scales are not known until then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from edge_opid.config.node import NodeConfig
from edge_opid.node.actions import Action, Publish, Warn
from edge_opid.node.effects import Effect, Forgotten, Noted, Predicted, summarised
from edge_opid.node.state import NodeState
from edge_opid.wire import (
    LIMITS,
    Ack,
    Channel,
    Introduction,
    NodeTopics,
    Prediction,
    SensorSilent,
    Status,
    SummaryMessage,
    encode,
    to_json,
)

COMPLAINT_SHOWN_MS = 3_600_000
"""How long a status shows what went wrong once: long enough to be seen, not for good."""


def short_line(text: str) -> str:
    r"""As much of a text as a status may carry: one printable line.

    >>> short_line("disk full:\nλ")
    'disk full: λ'
    """
    printable = "".join(each if each.isprintable() else " " for each in text) or "unknown"
    return printable.encode()[: LIMITS.text_bytes_max].decode(errors="ignore")


class Publications:
    """Publications of one node; what is only to be counted goes to `counts`."""

    def __init__(self, config: NodeConfig, counts: Counter[str]) -> None:
        self._config, self._counts = config, counts
        self._complaints: deque[tuple[int, str]] = deque(maxlen=4)  # since when, and what
        topics = NodeTopics(config.site, config.node)
        self._topics = {each: str(topics.to(each)) for each in Channel if not each.per_source}
        self._ack = str(topics.to(Channel.ACK, "x"))[:-1]

    def publish(self, effect: Effect, layout_version: int, now_ms: int) -> list[Action]:
        """What is to be sent, logged or only counted of an effect."""
        match effect:
            case Noted():
                return self._note(effect, now_ms)
            case Forgotten(source):
                return [self.warn("source-forgotten", source=source)]
            case Predicted():
                self._counts["predictions"] += 1
                payload = self._prediction(effect, layout_version)
                return [Publish(self._topics[Channel.PREDICTION], payload)]
            case SummaryMessage():
                return [Publish(self._topics[Channel.SUMMARY], encode(effect))]
            case _:
                self._counts[effect.kind] += 1
                return [Publish(self._topics[Channel.EVENT], encode(effect))]

    def _note(self, noted: Noted, now_ms: int) -> list[Action]:
        if noted.sentence:
            return self.complain(noted.reason, noted.sentence, now_ms)
        if noted.log:
            return [self.warn(noted.reason, why=noted.log)]
        self._counts[noted.reason] += 1
        return []

    def warn(self, reason: str, **fields: object) -> Warn:
        """Count it, and have it logged."""
        self._counts[reason] += 1
        return Warn(reason.replace("-", " "), self._counts[reason], fields)

    def refuse(self, reason: str, topic: str) -> Warn:
        """Count a message that changes nothing, and have it logged."""
        self._counts[reason] += 1
        return Warn("message refused", self._counts[reason], {"reason": reason, "topic": topic})

    def complain(self, reason: str, sentence: str, now_ms: int) -> list[Action]:
        """What should not have happened is logged, and shown in the status for an hour."""
        self._complaints.append((now_ms, sentence))
        return [self.warn(reason, why=sentence)]

    def complaints(self, now_ms: int) -> list[str]:
        """What should not have happened in the last hour; the last few of it."""
        return [said for at_ms, said in self._complaints if now_ms - at_ms < COMPLAINT_SHOWN_MS]

    def silent(self, sensor: str, now_ms: int, heard_ms: int) -> Publish:
        """Say once more that a sensor is silent: the gateway may have missed it."""
        event = SensorSilent(sensor, now_ms, heard_ms)
        return Publish(self._topics[Channel.EVENT], encode(event))

    def acknowledgement(self, source: str, boot: int, seq: int, newest: int = 0) -> Publish:
        """Everything of this boot up to `seq` is durable; the sender may send what follows.

        Under a boot above `newest`, if that is given: this one is over.
        """
        return Publish(self._ack + source, encode(Ack(boot, max(0, seq), newest)))

    def status(self, status: Status) -> Publish:
        """How the node is, for whoever asks later too."""
        return Publish(self._topics[Channel.STATUS], encode(status), retain=True)

    def _prediction(self, made: Predicted, layout_version: int) -> bytes:
        classes = self._config.classes
        scores = dict(zip(classes, made.scores.tolist(), strict=True))
        prediction = Prediction(
            instance=made.instance,
            time_ms=made.time_ms,
            label=classes[made.winner],
            scores=scores,
            model_version=made.model_version,
            layout_version=layout_version,
            predictor=made.predictor.value,
        )
        as_json = self._config.prediction_format == "json"
        return to_json(prediction) if as_json else encode(prediction)


UPLOAD_FROM = 32  # readings: what fewer of them know is not worth a message


def introduced(state: NodeState) -> Introduction:
    """What this node is at present, its silent sensors included."""
    local_models, config = state.local_models, state.config
    return Introduction(
        version=state.version,
        layout_version=state.layout_version,
        sensors=tuple(local_models.sensors.values()),
        vanishing=local_models.vanishing,
        gate=local_models.gate,
        classes=config.classes,
        window_ms=config.window_ms,
    )


class GatewayReports:
    """What has been said in this life of the process, and so what is to be said next."""

    def __init__(self) -> None:
        self._reachable = (
            True  # until `on_disconnected`: without a broker it would only fill a queue
        )
        self._known = False
        self._uploaded = 0  # readings behind the last summary

    def on_order(self) -> None:
        """A valid order has arrived, new or obeyed already: its gateway knows this node."""
        self._known = True

    def on_connected(self, state: NodeState) -> list[Effect]:
        """A new connection: whoever listens now may not have listened before."""
        self._reachable = True
        return [] if state.warmup else [introduced(state)]

    def on_disconnected(self) -> None:
        """Nobody hears us."""
        self._reachable = False

    def on_input(
        self, effects: Iterable[Effect], state: NodeState, *, was_warming_up: bool
    ) -> list[Effect]:
        """After an input: what an order made the node upload counts, and a warm-up may be over."""
        if any(isinstance(effect, SummaryMessage) for effect in effects):
            self._uploaded = state.local_models.learner.readings  # those carried over, or none
        return [introduced(state)] if was_warming_up and not state.warmup else []

    def take_due(self, state: NodeState) -> list[Effect]:
        """What goes with a periodic status."""
        if state.warmup or not self._reachable:
            return []
        introduction = [] if self._known else [introduced(state)]
        return [*introduction, *self._take_doubled(state)]

    def _take_doubled(self, state: NodeState) -> list[Effect]:
        """The doubling rule: a summary when the learner has read twice what the last one knew.

        What a pool lacks of this node is then never more than what it has, and the uploads grow
        with the logarithm of the readings: 15 for the first million. A node that was ordered
        another layout counts from what its learner has carried over.
        """
        readings = state.local_models.learner.readings
        if readings < max(UPLOAD_FROM, 2 * self._uploaded):
            return []
        self._uploaded = readings
        return summarised(state.local_models, state.layout_version)
