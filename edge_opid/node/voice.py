"""What the world hears from a node: topics and payloads for what happened."""

from __future__ import annotations

from collections import Counter, deque

from ..log import worth_a_line
from ..wire import (
    LIMITS,
    Ack,
    Channel,
    NodeTopics,
    Prediction,
    SensorSilent,
    Status,
    Summary,
    encode,
    to_json,
)
from .actions import Action, Publish, Warn
from .config import NodeConfig
from .effects import Effect, Forgotten, Noted, Predicted


def short_line(text: str) -> str:
    r"""As much of a text as a status may carry: one printable line.

    >>> short_line("disk full:\nλ")
    'disk full: λ'
    """
    printable = "".join(each if each.isprintable() else " " for each in text) or "unknown"
    return printable.encode()[: LIMITS.text_bytes_max].decode(errors="ignore")


class Voice:
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
            case Summary():
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
            made.instance,
            made.time_ms,
            classes[made.winner],
            scores,
            made.model_version,
            layout_version,
            made.predictor,
        )
        as_json = self._config.prediction_format == "json"
        return to_json(prediction) if as_json else encode(prediction)
