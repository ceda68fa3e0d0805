"""The node: messages and time in, actions out.

`handle` decides what a message is: an accepted input is appended to the journal, applied, and its
consequences published; anything else is counted by reason, and changes nothing. What the disk will
not take is not learned, but still predicted.

**Acknowledgements** wait for the commit. What was read back at the start may be gone after a power
cut, and so may what lies in a folder that has disappeared: while that is so, none is sent at all,
not for copies and not to ask for a resend. The next commit ends it.

A **retained** delivery is what the broker had kept, and says again at every subscription. It is
taken where it tells by itself whether it is news: an order has a version, a reading a number, a
label the number of its instance. A foreign message has none, and a label by time would be learned
by the next instance in reach once its own has left `recent`: retained, these are refused, counted
and logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from nacl.signing import VerifyKey

from edge_opid.config.node import NodeConfig
from edge_opid.errors import OpidError, Refusal
from edge_opid.node.actions import Action, Append, Commit, Release
from edge_opid.node.effects import Effect, Predicted
from edge_opid.node.external_model import ExternalModel
from edge_opid.node.journal_records import (
    Accepted,
    Closed,
    Input,
    Labelled,
    Ordered,
    Silenced,
    pack_record,
    pack_state,
    unpack_record,
    unpack_state,
)
from edge_opid.node.orders import verified
from edge_opid.node.publications import GatewayReports, Publications, short_line
from edge_opid.node.rate_limit import RateLimit
from edge_opid.node.sequencing import TOO_MANY, Duplicate, Held, Sequencer, Take
from edge_opid.node.state import NodeState
from edge_opid.node.uncommitted import Uncommitted
from edge_opid.wire import (
    LIMITS,
    Channel,
    Filter,
    InstanceId,
    Label,
    NodeTopics,
    Reading,
    Status,
    Topic,
    WireError,
    decode,
)
from edge_opid.wire.foreign import ForeignTopic, parse

_parsed = lru_cache(maxsize=512)(Topic.parse)
"""A node hears the same few topics again and again."""

STATUS_MS = 30_000
FULL_MS = 600_000  # after which a source that was refused for want of room is history
SOON_MS = 1_000  # after which a status may say that sensors fell silent or returned


class Node:
    """Everything a node decides. `now_ms` is a clock that never jumps backwards."""

    def __init__(
        self,
        config: NodeConfig,
        trusted: Sequence[VerifyKey] = (),
        external_model: ExternalModel | None = None,
    ) -> None:
        self.config, self._trusted, self._external_model = config, tuple(trusted), external_model
        self._foreign = [(Filter(each.filter), each.topic) for each in config.foreign]
        self._rate = RateLimit(config.rate_per_second, config.rate_burst)
        # No burst of labels can be of use that is larger than what waits for one.
        at_once = max(config.rate_burst, config.recent)
        self._label_rate = RateLimit(config.rate_per_second, at_once)
        self.counts: Counter[str] = Counter()
        self._publications = Publications(config, self.counts)
        self._uncommitted = Uncommitted()
        self._reports = GatewayReports()
        self._began_ms = -1  # not yet
        self._durable = True  # as far as we know, of what was read back
        self._status_ms = 0  # when the last status was published
        self._full_until_ms = 0  # until then the status says that a source was refused
        self._status_silent: tuple[str, ...] = ()
        self.link_trouble = ""  # the link's last fault, for `degraded`: whoever runs us sets it
        self._adopt(NodeState(config))
        self._channels: dict[Channel, Callable[[Topic, bytes, int, object], list[Action]]] = {
            Channel.READING: self._reading,
            Channel.LABEL: self._label,
            Channel.DESIRED: self._desired,
        }

    def _adopt(self, state: NodeState) -> None:
        self.state = state
        self._committed = dict(state.expected)  # what may be acknowledged
        self._sequencer = Sequencer(state.register, self._committed)

    def restore(
        self, snapshot: bytes | None, records: Iterable[bytes], *, durable: bool = True
    ) -> None:
        """Become what the store remembers: the snapshot, and every record after it.

        Where it is not known to be durable, nothing is acknowledged before the next commit.
        """
        self._durable = durable
        if snapshot is not None:
            self._adopt(NodeState.restored(unpack_state(snapshot), self.config))
        anew = snapshot is None
        for record in records:
            self.state.apply(unpack_record(record))
            anew = False
        if anew:
            self.counts["begun-anew"] += 1  # its first life, or not the disk it had
        self._committed.update(self.state.expected)

    def snapshot(self) -> bytes:
        """The state after exactly the committed records: call it when nothing is pending."""
        return pack_state(self.state.state())

    def subscriptions(self) -> dict[str, int]:
        """What to ask the broker for, and with which quality of service.

        Foreign messages bear no numbers by which a second delivery could be told from a new
        reading, so they are asked for at most once: never twice, rather than never lost.
        """
        topics = NodeTopics(self.config.site, self.config.node)
        own = {str(each): 1 for each in topics.node_filters()}
        return {**own, **{each.filter: 0 for each in self.config.foreign}}

    # -- messages ------------------------------------------------------------------------------

    def handle(
        self, topic: str, payload: bytes, now_ms: int, token: object, retained: bool = False
    ) -> list[Action]:
        """Deal with one delivery. Whatever the bytes, this returns."""
        self._begin(now_ms)
        try:
            for wanted, foreign in self._foreign:
                if wanted.matches(topic):
                    if retained:
                        return self._refuse("retained-foreign", topic, token)
                    return self._foreign_reading(foreign, topic, payload, now_ms, token)
            parsed = _parsed(topic)
            handler = self._channels.get(parsed.channel)
            mine = self.config.site, self.config.node
            if handler is None or (parsed.site, parsed.node) != mine:
                raise WireError("topic", f"nothing is expected on {topic!r} here")
            if retained and parsed.channel is Channel.LABEL and not _by_number(payload):
                return self._refuse("retained-label", topic, token)
            return handler(parsed, payload, now_ms, token)
        except OpidError as error:
            return self._refuse(f"refused-{getattr(error, 'reason', 'error')}", topic, token)

    def _refuse(self, reason: str, topic: str, token: object) -> list[Action]:
        """Nothing has changed: count it, let the broker forget it, and have it logged."""
        return [Release(token), self._publications.refuse(reason, topic)]

    def _reading(self, topic: Topic, payload: bytes, now_ms: int, token: object) -> list[Action]:
        reading, source = decode(payload, Reading), topic.source or ""
        if not self._rate.take(source, now_ms):
            return self._refuse("rate-limited", str(topic), token)
        if self._uncommitted.is_full_for(len(payload)):
            return self._unkept(source, reading, token, now_ms)
        verdict = self._sequencer.offer(source, reading, now_ms)
        match verdict:
            case Take(readings):
                actions = []
                for taken in readings:
                    actions += self._accept(source, taken, now_ms)
                return self._owing(actions, source, token)
            case Duplicate(boot, seq, newest):
                return [Release(token), *self._acknowledge(source, boot, seq, newest)]
            case Refusal(reason) if reason == TOO_MANY:
                return [Release(token), *self._one_too_many(source, now_ms)]
            case Held() | Refusal():
                return [Release(token)]  # its sender keeps it until we acknowledge it by number

    def _accept(self, source: str, reading: Reading, now_ms: int) -> list[Action]:
        self.counts["readings"] += 1
        values, label = dict(reading.values), reading.label
        accepted = Accepted(
            now_ms, source, reading.boot, reading.seq, reading.time_ms, values, label
        )
        return self._change(accepted)

    def _foreign_reading(
        self, foreign: ForeignTopic, topic: str, payload: bytes, now_ms: int, token: object
    ) -> list[Action]:
        """A sender that numbers nothing: its readings are numbered here as they arrive."""
        values, label = parse(payload, topic, foreign)
        source = foreign.source_of(topic)
        self.counts["foreign-fields-missing"] += len(foreign.sensors) - len(values)
        if not self._rate.take(source, now_ms):
            return self._refuse("rate-limited", topic, token)
        if not self.state.register.admits(source, now_ms):
            return [Release(token), *self._one_too_many(source, now_ms)]
        boot, seq = self.state.expected.get(source, (0, 1))
        reading = Reading(boot, seq, now_ms, values, label)  # an error where numbers have run out
        if self._uncommitted.is_full_for(len(payload)):
            return self._unkept(source, reading, token, now_ms)
        return self._owing(self._accept(source, reading, now_ms), None, token)

    def _one_too_many(self, source: str, now_ms: int) -> list[Action]:
        """Every place is taken by a source that may not be forgotten: log it, and say so."""
        news, self._full_until_ms = self._full_until_ms <= now_ms, now_ms + FULL_MS
        warning = self._publications.warn(TOO_MANY, source=source, known=len(self.state.expected))
        return [warning, *(self._publish_status(now_ms) if news else [])]

    def _label(self, topic: Topic, payload: bytes, now_ms: int, token: object) -> list[Action]:
        label, tolerance = decode(payload, Label), self.config.label_tolerance_ms
        if not self._label_rate.take(self._labelled_source(label), now_ms):
            return self._refuse("label-rate-limited", str(topic), token)
        found = self.state.recent.check(label.instance, label.time_ms, tolerance)
        if isinstance(found, Refusal) or self._uncommitted.is_full_for(len(payload)):
            reason = found.reason if isinstance(found, Refusal) else "not-kept"
            self.counts[f"label-{reason}"] += 1
            return [Release(token)]
        change = Labelled(now_ms, label.label, label.instance, label.time_ms)
        return self._owing(self._change(change), None, token)

    def _labelled_source(self, label: Label) -> str:
        """Whose instance it is for; labels by time, and those of strangers, share one limit."""
        source = label.instance.source if label.instance is not None else ""
        return source if source in self.state.expected else ""

    def _desired(self, _: Topic, payload: bytes, now_ms: int, token: object) -> list[Action]:
        document = verified(payload, self._trusted, self.state.standing())
        self._reports.on_order()
        if document is None or self._uncommitted.is_full_for(len(payload)):
            return [Release(token)]  # obeyed already; or it is retained, and comes again
        actions = self._change(Ordered(now_ms, document))
        return [*self._owing(actions, None, token), *self._publish_status(now_ms)]

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due: close instances, notice silence, ask for resends, commit, report."""
        self._begin(now_ms)
        actions: list[Action] = []
        if self.state.joiner.is_due(now_ms) and not self._uncommitted.is_full_for(0):
            actions += self._change(Closed(now_ms))
        quiet = self.state.overdue(self._began_ms)
        if quiet and not self._uncommitted.is_full_for(0):
            actions += self._change(Silenced(now_ms, quiet))
        for source, boot, seq in self._sequencer.take_requests(now_ms):
            actions += self._acknowledge(source, boot, seq)
        elapsed_ms = now_ms - self._status_ms
        if elapsed_ms >= STATUS_MS:
            actions += self._publish_status(now_ms)
            actions += self._publish(self._reports.take_due(self.state), now_ms)
        elif elapsed_ms >= SOON_MS and self.state.local_models.silent != self._status_silent:
            actions += self._publish_status(now_ms)  # retained, so that nobody misses it
        waited_ms = self._uncommitted.waited_ms(now_ms)
        if self._uncommitted.records and waited_ms >= 1000 * self.config.commit_s:
            actions.append(Commit())
        return actions

    def _begin(self, now_ms: int) -> None:
        if self._began_ms < 0:
            self._began_ms = now_ms

    # -- the journal ---------------------------------------------------------------------------

    def _change(self, change: Input) -> list[Action]:
        """Journal an input, apply it, and tell of it."""
        record = pack_record(change)
        actions: list[Action] = [Append(record)]
        self._uncommitted.owe(record, change.now_ms)
        was_warming_up = self.state.warmup is not None
        effects = self.state.apply(change)
        more = self._reports.on_input(effects, self.state, was_warming_up=was_warming_up)
        return [*actions, *self._publish([*effects, *more], change.now_ms)]

    def _publish(self, effects: Iterable[Effect], now_ms: int) -> list[Action]:
        """What cannot be said must not keep the record from the journal."""
        actions: list[Action] = []
        version = self.state.layout_version
        for effect in effects:
            try:
                actions += self._publications.publish(self._exchanged(effect), version, now_ms)
            except WireError as error:
                actions += self._publications.complain("not-published", str(error), now_ms)
        return actions

    def _exchanged(self, effect: Effect) -> Effect:
        """The prediction of the external model, if there is one and it fits."""
        if self._external_model is None or not isinstance(effect, Predicted):
            return effect
        return self._external_model.predict_instead(effect, self.counts)

    def _owing(self, actions: list[Action], source: str | None, token: object) -> list[Action]:
        """Keep the delivery, and the source's acknowledgement, for after the commit.

        The commit comes last: `on_committed` acknowledges all that was applied, so all of it must
        have been appended before.
        """
        self._uncommitted.owe_reply(token, source)
        due = self._uncommitted.is_due(self.config.commit_records)
        return [*actions, Commit()] if due else actions

    def _acknowledge(self, source: str, boot: int, seq: int, newest: int = 0) -> list[Action]:
        """Tell a sender what is durable, if we know it."""
        if not self._durable:
            self.counts["ack-withheld"] += 1
            return []
        return [self._publications.acknowledgement(source, boot, seq, newest)]

    def _unkept(self, source: str, reading: Reading, token: object, now_ms: int) -> list[Action]:
        """The disk takes nothing more: predict, do not learn, do not acknowledge by number."""
        self.counts["not-kept"] += 1
        number = InstanceId(source, reading.boot, reading.seq)
        known = {s: v for s, v in reading.values.items() if s in self.state.local_models.sensors}
        if not known:
            return [Release(token)]
        prediction = self.state.predicted_unkept(known, number, reading.time_ms)
        return [Release(token), *self._publish([prediction], now_ms)]

    def on_committed(self, now_ms: int) -> list[Action]:
        """Everything appended is durable: acknowledge it."""
        recovered = bool(self._uncommitted.trouble)
        self._durable = True
        tokens, sources = self._uncommitted.settle()
        actions: list[Action] = [Release(token) for token in tokens]
        self._committed.clear()  # a source that was forgotten is no longer among them
        self._committed.update(self.state.expected)
        for source in sources:
            if source in self._committed:
                boot, following = self._committed[source]
                actions += self._acknowledge(source, boot, following - 1)
        return actions + (self._publish_status(now_ms) if recovered else [])

    def on_commit_failed(self, reason: str, now_ms: int, *, durable: bool = True) -> list[Action]:
        """The disk refused: everything stays pending, and nothing of it is acknowledged.

        Without `durable`, what was committed before may be gone as well.
        """
        self.counts["commit-failed"] += 1
        self._durable = self._durable and durable
        news = self._uncommitted.note_refusal(reason, now_ms)
        return self._publish_status(now_ms) if news else []

    # -- the connection ------------------------------------------------------------------------

    def on_connected(self, now_ms: int) -> list[Action]:
        """Say how we are, who, and which sensors are silent: the gateway may have missed it."""
        local_models, heard = self.state.local_models, self.state.silence.last
        silent = [
            self._publications.silent(s, now_ms, heard.get(s, 0)) for s in local_models.silent
        ]
        introduction = self._publish(self._reports.on_connected(self.state), now_ms)
        return [*self._publish_status(now_ms), *introduction, *silent]

    def on_disconnected(self) -> None:
        """Deliveries of the former connection cannot be released any more: they come again."""
        self._uncommitted.forget_tokens()
        self._reports.on_disconnected()

    # -- how it is -----------------------------------------------------------------------------

    def status(self, now_ms: int, online: bool = True) -> Status:
        """How this node is."""
        troubles = [each for each in (self.link_trouble, self._uncommitted.trouble) if each]
        if self._external_model is not None:
            troubles += self._external_model.troubles(self.state.columns, self.counts)
        if now_ms < self._full_until_ms:
            troubles.append(f"{len(self.state.expected)} sources: new ones are refused")
        troubles += [f"silent: {sensor}" for sensor in self.state.local_models.silent]
        troubles += [str(self.state.doubted)] if self.state.doubted else []
        troubles += self._publications.complaints(now_ms)
        accuracies = self.state.scoreboard.accuracies()
        counts = sorted(self.counted().items())  # one message may skip 2⁵³ numbers
        return Status(
            online=online,
            layout_version=self.state.layout_version,
            model_version=self.state.pushed_models.version(),
            time_ms=now_ms,
            counts={name: min(n, LIMITS.integer_max) for name, n in counts[: LIMITS.counts_max]},
            accuracy={str(name): share for name, share in accuracies.items()},
            degraded=tuple(short_line(trouble) for trouble in troubles[: LIMITS.reasons_max]),
            version=self.state.version,
            silent=self.state.local_models.silent,
        )

    def counted(self) -> Counter[str]:
        """Everything that happened since the process began, by a short word."""
        return self.counts + self._sequencer.counts

    def _publish_status(self, now_ms: int) -> list[Action]:
        self._status_ms, self._status_silent = now_ms, self.state.local_models.silent
        return [self._publications.status(self.status(now_ms))]


def _by_number(payload: bytes) -> bool:
    """Whether this label says which instance it is meant for, and not only when that was."""
    return decode(payload, Label).instance is not None
