"""What a node publishes: topics and payloads for what happened, and reports to its gateway.

`Publications` puts effects into messages. `GatewayReports` decides what a gateway is told without
having asked: what the node is, and now and then what it knows. `Unconfirmed` keeps what it was told
until it has it.

A gateway may be new, or may have lost its database; a node cannot tell. So it introduces itself at
every connection, and goes on with every periodic status until a gateway's order shows that it is
known. And a group can pool only what its members have uploaded, also those whose layout never
changes: hence the doubling rule.

Nothing of this is durable: after a restart it is said once more, which costs two messages. And
nothing is said before the warm-up is over: references and scales are not known until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from edge_opid.config.node import NodeConfig
from edge_opid.node.actions import Publish
from edge_opid.node.effects import Effect, Forgotten, Noted, Predicted, summarised
from edge_opid.node.state import NodeState
from edge_opid.reasons import NodeReason, Reason
from edge_opid.tally import Tally
from edge_opid.wire import (
    LIMITS,
    UNKNOWN,
    Ack,
    Asked,
    Channel,
    Event,
    Example,
    Introduction,
    Message,
    NodeTopics,
    Prediction,
    ScaleMeasured,
    SensorDeployed,
    SensorReturned,
    SensorSilent,
    Status,
    SummaryMessage,
    digest,
    encode,
    encode_as,
    encode_prediction,
)

PREDICTIONS = NodeReason.PREDICTIONS  # an enum's attribute takes a while, and this is for each
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
    """Publications of one node; what is to be counted and logged goes to the tally."""

    def __init__(self, config: NodeConfig, tally: Tally) -> None:
        self._config, self._tally, self._counts = config, tally, tally.counts
        self._complaints: deque[tuple[int, str]] = deque(maxlen=4)  # since when, and what
        topics = NodeTopics(config.site, config.node)
        self._topics = {each: str(topics.to(each)) for each in Channel if not each.per_source}
        self._prediction_topic = self._topics[Channel.PREDICTION]
        self._ack = str(topics.to(Channel.ACK, "x"))[:-1]

    def publish(self, effect: Effect, state: NodeState, now_ms: int) -> list[Publish]:
        """What is to be sent, logged or only counted of an effect."""
        match effect:
            case Predicted():
                self._counts[PREDICTIONS] += 1
                payload = self._prediction(effect, state)
                return [Publish(self._prediction_topic, payload, self._config.retain_predictions)]
            case Noted():
                self._note(effect, now_ms)
                return []
            case Forgotten(source):
                self._tally.note(NodeReason.SOURCE_FORGOTTEN, about=source, source=source)
                return []
            case Asked():
                self._counts[NodeReason.ASKED] += 1
                return [Publish(self._topics[Channel.ASKED], self._encode(effect))]
            case SummaryMessage():
                return [Publish(self._topics[Channel.SUMMARY], encode(effect))]
            case _:
                self._note_event(effect)
                return [Publish(self._topics[Channel.EVENT], self._encode(effect))]

    def _note(self, noted: Noted, now_ms: int) -> None:
        if noted.complaint:
            self.complain(noted.reason, noted.why, now_ms)
        elif not noted.reason.level:
            self._counts[noted.reason] += 1
        elif noted.why:
            self._tally.note(noted.reason, about=noted.about, why=noted.why)
        else:
            self._tally.note(noted.reason, about=noted.about)

    def _note_event(self, event: Event | Example | Introduction) -> None:
        match event:
            case SensorSilent(sensor):
                self._tally.note(NodeReason.SENSOR_SILENT, about=sensor, sensor=sensor)
            case SensorReturned(sensor):
                self._tally.note(NodeReason.SENSOR_RETURNED, about=sensor, sensor=sensor)
            case SensorDeployed(sensor):
                self._tally.note(NodeReason.SENSOR_MOVED, about=sensor, sensor=sensor)
            case ScaleMeasured(sensor):
                said = {"reference": event.reference, "scale": event.scale}
                self._tally.note(NodeReason.SCALE_MEASURED, about=sensor, sensor=sensor, **said)
            case Example():
                self._counts[NodeReason.EXAMPLE] += 1
            case Introduction():
                self._counts[NodeReason.INTRODUCTION] += 1

    def complain(self, reason: Reason, sentence: str, now_ms: int) -> None:
        """What should not have happened is logged, and shown in the status for an hour."""
        self._complaints.append((now_ms, sentence))
        self._tally.note(reason, why=sentence)

    def complaints(self, now_ms: int) -> list[str]:
        """What should not have happened in the last hour; the last few of it."""
        return [said for at_ms, said in self._complaints if now_ms - at_ms < COMPLAINT_SHOWN_MS]

    def silent(self, sensor: str, now_ms: int, heard_ms: int) -> Publish:
        """Say once more that a sensor is silent: the gateway may have missed it."""
        event = SensorSilent(sensor, now_ms, heard_ms)
        return Publish(self._topics[Channel.EVENT], self._encode(event))

    def acknowledgement(self, source: str, boot: int, seq: int, newest: int = 0) -> Publish:
        """Everything of this boot up to `seq` is durable; the sender may send what follows.

        Under a boot above `newest`, if that is given: this one is over.
        """
        return Publish(self._ack + source, encode(Ack(boot, max(0, seq), newest)))

    def status(self, status: Status) -> Publish:
        """How the node is, for whoever asks later too."""
        return Publish(self._topics[Channel.STATUS], self._encode(status), retain=True)

    def _prediction(self, made: Predicted, state: NodeState) -> bytes:
        classes, layout, confidence = state.settings.classes, state.layout_version, None
        label, said = classes[made.winner], made.probabilities
        if said is not None:
            confidence = said[made.winner]
        if not made.known or (confidence is not None and confidence < self._config.confidence_min):
            label = UNKNOWN
            self._counts[NodeReason.PREDICTIONS_UNKNOWN] += 1
        if said is not None and confidence is not None:
            return encode_prediction(
                self._config.format,
                made.instance,
                made.time_ms,
                label,
                classes,
                said,
                (made.model_version, layout),
                made.predictor,
                confidence,
            )
        prediction = Prediction(
            instance=made.instance,
            time_ms=made.time_ms,
            label=label,
            scores=dict(zip(classes, made.scores.tolist(), strict=True)),
            model_version=made.model_version,
            layout_version=layout,
            predictor=str(made.predictor),
        )
        return self._encode(prediction)

    def _encode(self, message: Message) -> bytes:
        return encode_as(self._config.format, message)


UPLOAD_FROM = 32  # readings: what fewer of them know is not worth a message


def introduced(state: NodeState) -> Introduction:
    """What this node is at present, its silent sensors included."""
    local_models, settings = state.local_models, state.settings
    return Introduction(
        version=state.version,
        layout_version=state.layout_version,
        sensors=tuple(local_models.sensors.values()),
        vanishing=tuple(s for s in local_models.vanishing if s in local_models.sensors),
        gate=local_models.gate,
        classes=settings.classes,
        window_ms=settings.window_ms,
    )


class GatewayReports:
    """What has been said in this life of the process, and so what is to be said next."""

    def __init__(self) -> None:
        self._reachable = True  # after `on_disconnected` it would only fill a queue
        self._known = False
        self._uploaded = 0  # readings behind the last summary

    def on_order(self) -> None:
        """A valid order has arrived, new or obeyed already: its gateway knows this node."""
        self._known = True

    @property
    def is_answered(self) -> bool:
        """Whether there is a gateway, and a way to it: else repeating would only fill a queue."""
        return self._known and self._reachable

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
        for effect in effects:
            if isinstance(effect, SummaryMessage):  # its readings were carried over, or are none
                self._uploaded = state.local_models.learner.readings
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


REPEAT_FIRST_MS = 30_000  # a confirmation takes a second, and a broker that is started again a few
REPEAT_SLOWER = (
    4  # times as long after each: a gateway that is away for an hour finds four copies, not 120
)
REPEAT_LONGEST_MS = 3_600_000
UNCONFIRMED_BYTES_MAX = 524_288  # two of the largest summaries; the oldest make room


@dataclass(slots=True)
class _Told:
    publication: Publish
    digest: str
    wait_ms: int
    due_ms: int


class Unconfirmed:
    """What was told to the gateway, until the gateway itself has said that it has it.

    A broker confirms a message when it has it, not when somebody else does. mosquitto answers
    before it saves, and saves nothing that is under way to a gateway: a crash loses what it had
    confirmed. A silent sensor is in every status, and an introduction is repeated until an order
    comes; but a labelled instance, a summary, a scale, a sensor that moved at last are said once.
    So each of these is repeated until it is confirmed. A copy costs the gateway next to nothing: it
    knows an instance by its number, and keeps one summary of a layout.

    The oldest are first, and of each subject there is the last. Nothing of this is durable: what is
    lost takes a crash of the broker and one of the node before the confirmation, which usually
    comes within a second.

    >>> waiting, said = Unconfirmed(), Publish("opid/1/farm/n1/summary", b"sums")
    >>> waiting.expect("layout 2", said, now_ms=0)
    >>> [len(waiting.take_due(at_ms)) for at_ms in (29_999, 30_000, 60_000, 150_000)]
    [0, 1, 0, 1]
    >>> waiting.confirm([digest(b"sums")])
    >>> waiting.take_due(10**9)
    []
    """

    def __init__(self) -> None:
        self._told: dict[Hashable, _Told] = {}
        self._bytes = 0

    def expect(self, subject: Hashable, publication: Publish, now_ms: int) -> None:
        """A confirmation of this; none any more of what was said of the same subject before."""
        self._forget(subject)
        told = _Told(
            publication, digest(publication.payload), REPEAT_FIRST_MS, now_ms + REPEAT_FIRST_MS
        )
        self._told[subject] = told
        self._bytes += len(publication.payload)
        while self._bytes > UNCONFIRMED_BYTES_MAX:
            self._forget(next(iter(self._told)))

    def confirm(self, digests: Collection[str]) -> None:
        """The gateway has these."""
        for subject in [each for each, told in self._told.items() if told.digest in digests]:
            self._forget(subject)

    def take_due(self, now_ms: int) -> list[Publish]:
        """What is to be said again, each after a longer time than before."""
        due = [told for told in self._told.values() if told.due_ms <= now_ms]
        for told in due:
            told.wait_ms = min(REPEAT_SLOWER * told.wait_ms, REPEAT_LONGEST_MS)
            told.due_ms = now_ms + told.wait_ms
        return [told.publication for told in due]

    def _forget(self, subject: Hashable) -> None:
        told = self._told.pop(subject, None)
        if told is not None:
            self._bytes -= len(told.publication.payload)


def subject_of(message: Message) -> Hashable:
    """What a message is about: a later one about the same replaces it."""
    match message:
        case Example():
            return message.instance
        case SummaryMessage():
            return message.kind, message.layout_version
        case _:
            return message.kind, getattr(message, "sensor", "")
