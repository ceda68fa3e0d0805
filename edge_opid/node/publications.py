"""What the world hears from a node: topics and payloads for what happened.

What a gateway hears from a node unasked: what it is, and now and then what it knows.

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
from edge_opid.log import worth_a_line
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
        self.complaints: deque[str] = deque(maxlen=4)  # what should not have happened
        self.news: deque[tuple[str, str]] = deque(maxlen=16)  # the same and more, for the log
        topics = NodeTopics(config.site, config.node)
        self._topics = {each: str(topics.to(each)) for each in Channel if not each.per_source}
        self._ack = str(topics.to(Channel.ACK, "x"))[:-1]

    def of(self, effect: Effect, layout_version: int) -> list[Action]:
        """Tell of an effect."""
        match effect:
            case Noted(reason, sentence, line):
                self._counts[reason] += 1
                if sentence:
                    self.complaints.append(sentence)
                if sentence or line:
                    self.news.append((reason, sentence or line))
                return []
            case Forgotten(source):
                return self.warn("source-forgotten", source=source)
            case Predicted():
                self._counts["predictions"] += 1
                payload = self._prediction(effect, layout_version)
                return [Publish(self._topics[Channel.PREDICTION], payload)]
            case SummaryMessage():
                return [Publish(self._topics[Channel.SUMMARY], encode(effect))]
            case _:
                self._counts[effect.kind] += 1
                return [Publish(self._topics[Channel.EVENT], encode(effect))]

    def warn(self, reason: str, **fields: object) -> list[Action]:
        """Count it, and write it to the log at its 1st, 2nd, 4th, 8th … time."""
        self._counts[reason] += 1
        count = self._counts[reason]
        event = reason.replace("-", " ")
        return [Warn(event, {**fields, "count": count})] if worth_a_line(count) else []

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
            predictor=made.predictor,
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
        if any(isinstance(effect, SummaryMessage) for effect in effects):
            self._uploaded = state.local_models.learner.readings  # those carried over, or none
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
        readings = state.local_models.learner.readings
        if readings < max(UPLOAD_FROM, 2 * self._uploaded):
            return []
        self._uploaded = readings
        return summarised(state.local_models, state.layout_version)
