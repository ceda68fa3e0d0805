"""The node: messages and time in, actions out.

`handle` decides what a message is: an accepted input is appended to the journal, applied, and its
consequences published; anything else is counted and logged by a reason of `edge_opid.reasons`, and
changes nothing. What the disk will not take is not learned, but still predicted.

**Acknowledgements** wait for the commit. What was read back at the start may be gone after a power
cut, and so may what lies in a folder that has disappeared: while that is so, none is sent at all,
not for copies and not to ask for a resend. The next commit ends it.

A **retained** delivery is what the broker had kept, and says again at every subscription. It is
taken where it tells by itself whether it is news: an order has a version, a reading a number, a
label the number of its instance. A foreign message has none, and a label by time would be learned
by the next instance in reach once its own has left `recent`, one that is taken back would be so
again: retained, these are refused, counted and logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from edge_opid.config.node import NodeConfig, NodeSettings, TruthConfig
from edge_opid.errors import OpidError, Refusal
from edge_opid.node.actions import Action, Append, Commit, Release
from edge_opid.node.configuration import NewLayout, Plan, compare, removed, renamed
from edge_opid.node.effects import Effect, Predicted
from edge_opid.node.external_model import ExternalModel
from edge_opid.node.inputs import LEARNED, apply, meant
from edge_opid.node.journal_records import (
    Accepted,
    Beat,
    Closed,
    Configured,
    Input,
    Labelled,
    Ordered,
    Returned,
    Silenced,
    Told,
    Undone,
    pack_reading,
    pack_record,
    pack_state,
    unpack_record,
    unpack_state,
)
from edge_opid.node.orders import verified
from edge_opid.node.predicting import predicted_unkept
from edge_opid.node.publications import (
    GatewayReports,
    Publications,
    Unconfirmed,
    short_line,
    subject_of,
)
from edge_opid.node.rate_limit import RateLimit
from edge_opid.node.recent import Entry
from edge_opid.node.sequencing import Duplicate, Held, Sequencer, Take
from edge_opid.node.state import NodeState
from edge_opid.node.uncommitted import Uncommitted
from edge_opid.node.unlearning import labelled
from edge_opid.reasons import NodeReason, Reason, named, refused
from edge_opid.tally import Tally
from edge_opid.wire import (
    LIMITS,
    REPEATED,
    Channel,
    Confirmed,
    Filter,
    InstanceId,
    Label,
    NodeTopics,
    Reading,
    Status,
    Topic,
    Undo,
    WireError,
    decode,
    read_label,
    read_word,
)
from edge_opid.wire.foreign import ForeignTopic, TruthTopic, is_online, parse

if TYPE_CHECKING:  # each is loaded only where it is asked for
    from nacl.signing import VerifyKey

    from edge_opid.homeassistant.announcer import Announcer

TOPICS_MAX = 512  # a node hears the same few topics again and again
_parsed = lru_cache(maxsize=TOPICS_MAX)(Topic.parse)

READINGS = NodeReason.READINGS  # an enum's attribute takes a while, and this is for each reading
STATUS_MS = 30_000
FULL_MS = 600_000  # after which a source that was refused for want of room is history
ANSWER_MS = 1_000  # within which the copies of a source get one answer, unless it has changed
LABEL_BYTES = 256  # more than a record of one takes
ANSWERS_MAX = 256  # as many as there are places for sources
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
        topics = [each.topic for each in config.foreign if each.availability]
        self._availability = [(Filter(each.availability), each) for each in topics]
        self._truths = [(Filter(each.filter), each.topic, each) for each in config.truth]
        self._rate = RateLimit(config.rate_per_second, config.rate_burst)
        # No burst of labels can be of use that is larger than what waits for one.
        at_once = max(config.rate_burst, config.recent)
        self._label_rate = RateLimit(config.rate_per_second, at_once)
        self.tally = Tally()
        self.counts = self.tally.counts
        self._publications = Publications(config, self.tally)
        self.homeassistant: Announcer | None = None  # whoever puts us together sets it
        self._uncommitted = Uncommitted()
        self._unconfirmed = Unconfirmed()
        self._answers: dict[str, tuple[Duplicate, int]] = {}  # what copies were answered, and when
        self._reports = GatewayReports()
        self._began_ms = -1  # not yet
        self._remembers = False  # whether the state has begun: its first record is written
        self._anew = False  # whether a folder was looked at, and held nothing
        self._beat_ms = 0  # when the last beat was due
        self._durable = True  # as far as we know, of what was read back
        self._status_ms = 0  # when the last status was published
        self._full_until_ms = 0  # until then the status says that a source was refused
        self._status_silent: tuple[str, ...] = ()
        self.link_trouble = ""  # the link's last fault, for `degraded`: whoever runs us sets it
        self._adopt(NodeState(config.settings))
        self._heard_on: dict[str, str] = {}  # topic → source of its readings
        self._channels: dict[Channel, Callable[[Topic, bytes, int, object], list[Action]]] = {
            Channel.READING: self._first_reading,
            Channel.LABEL: self._label,
            Channel.LABEL_NOW: self._label_now,
            Channel.CONFIRMED: self._confirmed,
            Channel.DESIRED: self._desired,
        }

    def _adopt(self, state: NodeState) -> None:
        self.state = state
        self._committed = dict(state.expected)  # what may be acknowledged
        self._sequencer = Sequencer(state.register, self._committed, tally=self.tally)

    def restore(
        self, snapshot: bytes | None, records: Iterable[bytes], *, durable: bool = True
    ) -> None:
        """Become what the store remembers: the snapshot, and every record after it.

        Where it is not known to be durable, nothing is acknowledged before the next commit.
        """
        self._durable = durable
        if snapshot is not None:
            self._adopt(NodeState.restored(unpack_state(snapshot)))
        anew = snapshot is None
        for record in records:
            change = unpack_record(record)
            if anew and isinstance(change, Configured):
                self._adopt(NodeState(NodeSettings.restored(change.settings)))
            else:
                apply(self.state, change)
            anew = False
        self._remembers, self._anew = not anew, anew
        self._committed.update(self.state.expected)

    # -- the configuration ---------------------------------------------------------------------

    def planned(self) -> Plan:
        """What the configuration changes in the state; a `ConfigError` where it cannot be."""
        known = self.state.remembered()
        return compare(known, self.config.settings, gateway=bool(self._trusted))

    def start(self, now_ms: int) -> list[Action]:
        """Take the configuration over, as a record like any other, and tell what changes by it.

        Call it before anything else; a `ConfigError` says what the state does not allow, and
        nothing has changed.
        """
        self.tally.begin("", b"", now_ms)
        actions = self._begin(now_ms)
        return self._told([*actions, Commit()] if actions else [])

    def rename_class(self, old: str, new: str, now_ms: int) -> list[Action]:
        """Give a class another name, on an operator's word: all that was learned of it is kept."""
        return self._configure(renamed(self.state.settings, old, new), {new: old}, None, now_ms)

    def remove_class(self, name: str, now_ms: int) -> list[Action]:
        """Forget a class, on an operator's word: its column of the sums goes, exactly."""
        return self._configure(removed(self.state.settings, name), {}, None, now_ms)

    def _configure(
        self,
        settings: NodeSettings,
        former: Mapping[str, str],
        layout: NewLayout | None,
        now_ms: int,
    ) -> list[Action]:
        plain = None if layout is None else layout.plain()
        change = Configured(now_ms, settings.plain(), former, plain)
        effects = apply(self.state, change)
        return [Append(pack_record(change)), *self._publish(effects, now_ms)]

    def _begin(self, now_ms: int) -> list[Action]:
        if self._began_ms >= 0:
            return []
        plan = self.planned()
        self._began_ms = now_ms
        if self._anew:
            self.tally.note(NodeReason.BEGUN_ANEW)
        for reason, told in (
            (NodeReason.SETTINGS_CHANGED, plan.sentences),
            (NodeReason.LEFT_TO_GATEWAY, plan.ignored),
        ):
            for sentence in told:
                self.tally.note(reason, about=sentence, why=sentence)
        if self._remembers and plan.settings == self.state.settings and plan.layout is None:
            return []
        return self._configure(plan.settings, {}, plan.layout, now_ms)

    def snapshot(self) -> bytes:
        """The state after exactly the committed records: call it when nothing is pending."""
        return pack_state(self.state.parts())

    def subscriptions(self) -> dict[str, int]:
        """What to ask the broker for, and with which quality of service.

        Foreign messages bear no numbers by which a second delivery could be told from a new
        reading, so they are asked for at most once: never twice, rather than never lost. For the
        same reason a filter that another one covers is not asked for: a broker may deliver a
        message once for each subscription that it matches.
        """
        topics = NodeTopics(self.config.site, self.config.node)
        own = {str(each): 1 for each in topics.node_filters()}
        others = [each.filter for each in self.config.foreign]
        others += [each.filter for each in self.config.truth]
        others += [each.availability for each in self.config.foreign if each.availability]
        others += [] if self.homeassistant is None else self.homeassistant.filters
        return {**own, **dict.fromkeys(_without_covered(others), 0)}

    # -- messages ------------------------------------------------------------------------------

    def handle(
        self, topic: str, payload: bytes, now_ms: int, token: object, retained: bool = False
    ) -> list[Action]:
        """Deal with one delivery. Whatever the bytes, this returns."""
        self.tally.begin(topic, payload, now_ms)
        begun = self._begin(now_ms) if self._began_ms < 0 else []
        if self.homeassistant is not None and self.homeassistant.hear(
            topic, payload, now_ms, retained=retained
        ):
            return self._told([*begun, Release(token)])
        actions = self._deal_with(topic, payload, now_ms, token, retained)
        return self._told([*begun, *actions] if begun else actions)

    def _told(self, actions: list[Action]) -> list[Action]:
        """These, and the lines that the log should have of what came before."""
        return [*actions, *self.tally.take_lines()] if self.tally.lines else actions

    def _deal_with(
        self, topic: str, payload: bytes, now_ms: int, token: object, retained: bool
    ) -> list[Action]:
        try:
            source = self._heard_on.get(topic)
            if source is not None:
                return self._reading(source, payload, now_ms, token)
            return self._find_handler(topic, payload, now_ms, token, retained)
        except OpidError as error:
            return self._refuse(refused(error), token, str(error))

    def _find_handler(
        self, topic: str, payload: bytes, now_ms: int, token: object, retained: bool
    ) -> list[Action]:
        """Whose topic is it?"""
        for wanted, foreign in self._availability:
            if wanted.matches(topic):
                return self._device(foreign, topic, payload, now_ms, token)
        for wanted, foreign in self._foreign:
            if wanted.matches(topic):
                return self._foreign_message(foreign, topic, payload, now_ms, token, retained)
        if self._truths and any(wanted.matches(topic) for wanted, _, _ in self._truths):
            return self._foreign_message(None, topic, payload, now_ms, token, retained)
        parsed = _parsed(topic)
        handler = self._channels.get(parsed.channel)
        mine = self.config.site, self.config.node
        if handler is None or (parsed.site, parsed.node) != mine:
            raise WireError("topic", f"nothing is expected on {topic!r} here")
        if retained and _says_what_is_so(parsed.channel, payload):
            return self._refuse(NodeReason.RETAINED_LABEL, token)
        return handler(parsed, payload, now_ms, token)

    def _refuse(self, reason: Reason, token: object, why: str = "") -> list[Action]:
        """Nothing has changed: count it, let the broker forget it, and have it logged."""
        if why:
            self.tally.note(reason, why=why)
        else:
            self.tally.note(reason)
        return [Release(token)]

    def _first_reading(
        self, topic: Topic, payload: bytes, now_ms: int, token: object
    ) -> list[Action]:
        """Remember where it came from: most messages are readings, on the same few topics."""
        source = topic.source or ""
        if len(self._heard_on) >= TOPICS_MAX:
            self._heard_on.clear()
        self._heard_on[str(topic)] = source
        return self._reading(source, payload, now_ms, token)

    def _reading(self, source: str, payload: bytes, now_ms: int, token: object) -> list[Action]:
        reading = decode(payload, Reading)
        follows = self._sequencer.is_next(source, reading, now_ms)
        copy = not follows and self._sequencer.is_copy(source, reading)  # costs no turn
        if not copy and not self._rate.take(source, now_ms):
            return self._refuse(NodeReason.RATE_LIMITED, token)
        if not copy and self._uncommitted.is_full_for(len(payload)):
            return self._unkept(source, reading, token, now_ms)
        if follows:
            return self._owing(self._accept(source, reading, now_ms, payload), source, token)
        return self._out_of_turn(source, reading, payload, now_ms, token)

    def _out_of_turn(
        self, source: str, reading: Reading, payload: bytes, now_ms: int, token: object
    ) -> list[Action]:
        """A source's first one, a copy, one that is early, or one that closes a gap."""
        verdict = self._sequencer.offer(source, reading, now_ms)
        match verdict:
            case Take(readings):
                actions = []
                for taken in readings:
                    as_it_came = payload if taken is reading else None
                    actions += self._accept(source, taken, now_ms, as_it_came)
                return self._owing(actions, source, token)
            case Duplicate():
                return [Release(token), *self._answer_copy(source, verdict, now_ms)]
            case Refusal(reason) if reason == NodeReason.TOO_MANY_SOURCES:
                return [Release(token), *self._one_too_many(source, now_ms)]
            case Held() | Refusal():
                return [Release(token)]  # its sender keeps it until we acknowledge it by number

    def _accept(
        self, source: str, reading: Reading, now_ms: int, payload: bytes | None = None
    ) -> list[Action]:
        """Take a reading in; where its payload is at hand, the journal keeps that."""
        self.counts[READINGS] += 1
        boot, seq, time_ms = reading.boot, reading.seq, reading.time_ms
        change = Accepted(now_ms, source, boot, seq, time_ms, reading.values, reading.label)
        if payload is None:
            return self._change(change)
        return self._change(change, pack_reading(now_ms, source, payload))

    def _foreign_message(
        self,
        foreign: ForeignTopic | None,
        topic: str,
        payload: bytes,
        now_ms: int,
        token: object,
        retained: bool,
    ) -> list[Action]:
        """Of somebody who knows nothing of us: values, a truth, or both, the values first.

        So what is learned on the word of a message was predicted before that word was heard.
        """
        if retained:
            return self._refuse(NodeReason.RETAINED_FOREIGN, token)
        truths = [(each, config) for wanted, each, config in self._truths if wanted.matches(topic)]
        actions: list[Action] = []
        if foreign is not None:
            try:
                actions += self._foreign_reading(foreign, topic, payload, now_ms, token)
            except WireError as error:
                if not truths:
                    raise
                if error.reason != "missing":  # else it has brought nothing but the truth
                    self.tally.note(refused(error), why=str(error))
        released = bool(actions)
        for truth, config in truths:
            actions += self._truth(truth, config, payload, now_ms)
        if released:
            return actions
        return self._owing(actions, None, token) if actions else [Release(token)]

    def _device(
        self, foreign: ForeignTopic, topic: str, payload: bytes, now_ms: int, token: object
    ) -> list[Action]:
        """A device says that it is there, or somebody for it that it is gone: no need to wait.

        The broker keeps it, and what it kept is so still: it is taken retained, too.
        """
        online, silent = is_online(payload), self.state.local_models.silent
        self.tally.note(NodeReason.DEVICE_ONLINE if online else NodeReason.DEVICE_OFFLINE)
        known = [
            each for each in foreign.sensors_of(topic) if each in self.state.local_models.sensors
        ]
        moved = tuple(each for each in known if (each in silent) == online)
        if not moved or self.state.warmup is not None or self._uncommitted.is_full_for(0):
            return [Release(token)]
        change = Returned(now_ms, moved) if online else Silenced(now_ms, moved)
        return self._owing(self._change(change), None, token)

    def _truth(
        self, truth: TruthTopic, config: TruthConfig, payload: bytes, now_ms: int
    ) -> list[Action]:
        """Somebody says what is so; what cannot be used is counted, and logged."""
        try:
            label = truth.label_in(payload)
        except WireError as error:
            self.tally.note(refused(error), why=str(error))
            return []
        classes = self.state.settings.classes
        if label is None:
            self.tally.note(NodeReason.TRUTH_FIELD_MISSING, why=f"no {config.field} in it")
        elif label not in classes:
            why = f"{label!r} is not one of the classes {', '.join(classes)}"
            self.tally.note(NodeReason.UNKNOWN_CLASS, why=why)
        elif not self._label_rate.take("", now_ms):
            self.tally.note(NodeReason.LABEL_RATE_LIMITED)
        elif self._uncommitted.is_full_for(len(payload)):
            self.tally.note(NodeReason.LABEL_NOT_KEPT)
        else:
            return self._change(_told_by(config, label, now_ms))
        return []

    def _foreign_reading(
        self, foreign: ForeignTopic, topic: str, payload: bytes, now_ms: int, token: object
    ) -> list[Action]:
        """A sender that numbers nothing: its readings are numbered here as they arrive."""
        unfit: list[WireError] = []
        values, label = parse(payload, topic, foreign, unfit)
        source = foreign.source_of(topic)
        missing = len(foreign.sensors) - len(values) - len(unfit)
        if missing > 0:
            why = f"{missing} of {len(foreign.sensors)} fields are missing"
            self.tally.note(NodeReason.FOREIGN_FIELDS_MISSING, missing, why=why)
        for error in unfit:
            self.tally.note(NodeReason.FOREIGN_FIELDS_UNFIT, why=str(error))
        if not self._rate.take(source, now_ms):
            return self._refuse(NodeReason.RATE_LIMITED, token)
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
        known = len(self.state.expected)
        self.tally.note(NodeReason.TOO_MANY_SOURCES, about=source, source=source, known=known)
        return self._publish_status(now_ms) if news else []

    def _label(self, _: Topic, payload: bytes, now_ms: int, token: object) -> list[Action]:
        return self._take_label(read_label(payload), now_ms, token)

    def _label_now(self, _: Topic, payload: bytes, now_ms: int, token: object) -> list[Action]:
        return self._take_label(read_word(payload), now_ms, token)

    def _take_label(self, said: Label | Undo, now_ms: int, token: object) -> list[Action]:
        """In whichever form it came."""
        if not self._label_rate.take(self._labelled_source(said), now_ms):
            return self._refuse(NodeReason.LABEL_RATE_LIMITED, token)
        which = said.instance, said.time_ms, said.from_ms, said.until_ms
        change: Labelled | Undone
        if isinstance(said, Undo):
            change = Undone(now_ms, *which)
            found = labelled(self.state, change)
        else:
            change = Labelled(now_ms, said.label, *which)
            found = meant(self.state, change)
            if self._makes_its_instance(said, found, now_ms):
                moment = Told(now_ms, said.label, now_ms, now_ms)
                return self._owing(self._change(moment), None, token)
        if isinstance(found, Refusal):
            return self._refuse(named(found.reason), token, found.sentence)
        if self._uncommitted.is_full_for(LABEL_BYTES):
            return self._refuse(NodeReason.LABEL_NOT_KEPT, token)
        return self._owing(self._change(change), None, token)

    def _makes_its_instance(
        self, label: Label, found: Sequence[Entry] | Refusal, now_ms: int
    ) -> bool:
        """Whether this label's time is now, and instances are made by labels."""
        made = self.config.instances == "labels" and label.time_ms is not None
        if not made or label.time_ms is None or not isinstance(found, Refusal):
            return False
        about_now = abs(label.time_ms - now_ms) <= self.config.label_tolerance_ms
        return (
            about_now
            and found.reason == NodeReason.LABEL_UNKNOWN_INSTANCE
            and label.label in self.config.classes
            and not self._uncommitted.is_full_for(len(label.label))
        )

    def _labelled_source(self, label: Label | Undo) -> str:
        """Whose instance it is for; labels by time, and those of strangers, share one limit."""
        source = label.instance.source if label.instance is not None else ""
        return source if source in self.state.expected else ""

    def _desired(self, _: Topic, payload: bytes, now_ms: int, token: object) -> list[Action]:
        document = verified(payload, self._trusted, self.state.standing())
        self._reports.on_order()
        if document is None:
            return self._refuse(NodeReason.ORDER_REPEATED, token)
        if self._uncommitted.is_full_for(len(payload)):
            return self._refuse(NodeReason.ORDER_NOT_KEPT, token)  # it is retained: it comes again
        actions = self._change(Ordered(now_ms, document))
        return [*self._owing(actions, None, token), *self._publish_status(now_ms)]

    def _confirmed(self, _: Topic, payload: bytes, _now_ms: int, token: object) -> list[Action]:
        self._unconfirmed.confirm(decode(payload, Confirmed).of)
        return [Release(token)]

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due: close instances, notice silence, ask for resends, commit, report."""
        self.tally.begin("", b"", now_ms)
        actions = self._begin(now_ms)
        if self.state.joiner.is_due(now_ms) and not self._uncommitted.is_full_for(0):
            actions += self._change(Closed(now_ms))
        if (
            self.config.instances == "beat"
            and self._is_beat_due(now_ms)
            and not self._uncommitted.is_full_for(0)
        ):
            actions += self._change(Beat(now_ms))
        quiet = self.state.overdue(self._began_ms)
        if quiet and not self._uncommitted.is_full_for(0):
            actions += self._change(Silenced(now_ms, quiet))
        for source, boot, seq in self._sequencer.take_requests(now_ms):
            actions += self._acknowledge(source, boot, seq, newest=boot)
        elapsed_ms = now_ms - self._status_ms
        if elapsed_ms >= STATUS_MS:
            actions += self._publish_status(now_ms)
            actions += self._publish(self._reports.take_due(self.state), now_ms)
            actions += self._repeat(now_ms)
        elif elapsed_ms >= SOON_MS and self.state.local_models.silent != self._status_silent:
            actions += self._publish_status(now_ms)  # retained, so that nobody misses it
        if self.homeassistant is not None:
            actions += self.homeassistant.take_due(self.state, now_ms)
        waited_ms = self._uncommitted.waited_ms(now_ms)
        if self._uncommitted.records and waited_ms >= 1000 * self.config.commit_s:
            actions.append(Commit())
        return self._told(actions)

    def _repeat(self, now_ms: int) -> list[Action]:
        """What the gateway has not confirmed."""
        due = self._unconfirmed.take_due(now_ms) if self._reports.is_answered else []
        self.counts[NodeReason.REPEATED] += len(due)
        return [*due]

    def _is_beat_due(self, now_ms: int) -> bool:
        """Whether it is time for a steady instance; after a pause one is made, not all of them."""
        every_ms = round(1000 * self.config.every_s)
        missed = (now_ms - max(self._beat_ms, self._began_ms)) // every_ms
        self._beat_ms = max(self._beat_ms, self._began_ms) + max(0, missed) * every_ms
        return missed > 0

    # -- the journal ---------------------------------------------------------------------------

    def _change(self, change: Input, record: bytes | None = None) -> list[Action]:
        """Journal an input, apply it, and tell of it."""
        record = pack_record(change) if record is None else record
        actions: list[Action] = [Append(record)]
        self._uncommitted.owe(record, change.now_ms)
        was_warming_up = self.state.warmup is not None
        effects = apply(self.state, change)
        effects += self._reports.on_input(effects, self.state, was_warming_up=was_warming_up)
        actions += self._publish(effects, change.now_ms)
        return actions

    def _publish(self, effects: Iterable[Effect], now_ms: int) -> list[Action]:
        """What cannot be said must not keep the record from the journal."""
        actions: list[Action] = []
        for effect in effects:
            if effect is LEARNED:  # with every label, and only counted
                self.counts[LEARNED.reason] += 1
                continue
            try:
                if self._external_model is not None:
                    effect = self._exchanged(self._external_model, effect)  # noqa: PLW2901
                said = self._publications.publish(effect, self.state, now_ms)
                if self._trusted and isinstance(effect, REPEATED):
                    for each in said:
                        self._unconfirmed.expect(subject_of(effect), each, now_ms)
                actions += said
                if self.homeassistant is not None:
                    actions += self.homeassistant.tell(effect)
            except WireError as error:
                self._publications.complain(NodeReason.NOT_PUBLISHED, str(error), now_ms)
        return actions

    def _exchanged(self, model: ExternalModel, effect: Effect) -> Effect:
        """The prediction of the external model, if it fits."""
        if not isinstance(effect, Predicted):
            return effect
        return model.predict_instead(effect, self.state.settings.classes, self.tally)

    def _owing(self, actions: list[Action], source: str | None, token: object) -> list[Action]:
        """Keep the delivery, and the source's acknowledgement, for after the commit.

        The commit comes last: `on_committed` acknowledges all that was applied, so all of it must
        have been appended before.
        """
        self._uncommitted.owe_reply(token, source)
        if self._uncommitted.is_due(self.config.commit_records):
            actions.append(Commit())
        return actions

    def _answer_copy(self, source: str, copy: Duplicate, now_ms: int) -> list[Action]:
        """Acknowledge again, but the same thing once a second: copies come by the hundred."""
        answer, said_ms = self._answers.get(source, (None, 0))
        if answer == copy and 0 <= now_ms - said_ms < ANSWER_MS:
            return []
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()  # nothing depends on it but a few messages
        acknowledged = self._acknowledge(source, copy.boot, copy.seq, copy.newest)
        if acknowledged:  # one that is withheld was no answer
            self._answers[source] = copy, now_ms
        return acknowledged

    def _acknowledge(self, source: str, boot: int, seq: int, newest: int = 0) -> list[Action]:
        """Tell a sender what is durable, if we know it."""
        if not self._durable:
            self.tally.note(NodeReason.ACK_WITHHELD, about=source, source=source)
            return []
        return [self._publications.acknowledgement(source, boot, seq, newest)]

    def _unkept(self, source: str, reading: Reading, token: object, now_ms: int) -> list[Action]:
        """The disk takes nothing more: predict, do not learn, do not acknowledge by number."""
        self.tally.note(NodeReason.NOT_KEPT, about=source)
        number = InstanceId(source, reading.boot, reading.seq)
        known = self.state.known(reading.values)
        if not known:
            return [Release(token)]
        prediction = predicted_unkept(self.state, known, number, reading.time_ms, now_ms)
        return [Release(token), *self._publish([prediction], now_ms)]

    def on_committed(self, now_ms: int) -> list[Action]:
        """Everything appended is durable: acknowledge it."""
        self.tally.begin("", b"", now_ms)
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
        return self._told(actions + (self._publish_status(now_ms) if recovered else []))

    def on_commit_failed(self, reason: str, now_ms: int, *, durable: bool = True) -> list[Action]:
        """The disk refused: everything stays pending, and nothing of it is acknowledged.

        Without `durable`, what was committed before may be gone as well.
        """
        self.tally.begin("", b"", now_ms)
        self.tally.note(NodeReason.COMMIT_FAILED, about=reason, why=reason)
        self._durable = self._durable and durable
        news = self._uncommitted.note_refusal(reason, now_ms)
        return self._told(self._publish_status(now_ms) if news else [])

    # -- the connection ------------------------------------------------------------------------

    def on_connected(self, now_ms: int) -> list[Action]:
        """Say how we are, who, and which sensors are silent: the gateway may have missed it."""
        if self.homeassistant is not None:
            self.homeassistant.on_connected(now_ms)
        local_models, heard = self.state.local_models, self.state.last.heard_ms
        silent = [
            self._publications.silent(s, now_ms, heard.get(s, 0)) for s in local_models.silent
        ]
        introduction = self._publish(self._reports.on_connected(self.state), now_ms)
        return self._told([*self._publish_status(now_ms), *introduction, *silent])

    def on_disconnected(self) -> None:
        """Deliveries of the former connection cannot be released any more: they come again."""
        self._uncommitted.forget_tokens()
        self._reports.on_disconnected()
        if self.homeassistant is not None:
            self.homeassistant.on_disconnected()

    # -- how it is -----------------------------------------------------------------------------

    def status(self, now_ms: int, online: bool = True) -> Status:
        """How this node is."""
        troubles = [each for each in (self.link_trouble, self._uncommitted.trouble) if each]
        if self._external_model is not None:
            columns, classes = self.state.columns, self.state.settings.classes
            troubles += self._external_model.troubles(columns, classes, self.tally)
        if now_ms < self._full_until_ms:
            troubles.append(f"{len(self.state.expected)} sources: new ones are refused")
        troubles += [f"silent: {sensor}" for sensor in self.state.local_models.silent]
        troubles += [str(self.state.doubted)] if self.state.doubted else []
        troubles += [f"measuring: {line}" for line in self.state.measuring.resting()]
        troubles += self.state.scales.troubles()
        troubles += self._publications.complaints(now_ms)
        accuracies = self.state.scoreboard.accuracies()
        counted = {**self.counted(), **self.state.scales.shown_counts()}
        counts = sorted(counted.items())  # one message may skip 2⁵³ numbers
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

    @property
    def warming_up(self) -> str:
        """How far the warm-up is, in words; nothing once it is over."""
        return "" if self.state.warmup is None else self.state.warmup.progress

    def counted(self) -> Counter[str]:
        """Everything that happened since the process began, by its name in `edge_opid.reasons`."""
        return Counter({reason.value: count for reason, count in self.counts.items() if count})

    def _publish_status(self, now_ms: int) -> list[Action]:
        self._status_ms, self._status_silent = now_ms, self.state.local_models.silent
        return [self._publications.status(self.status(now_ms))]


def _told_by(config: TruthConfig, label: str, now_ms: int) -> Told:
    """What a truth that has just arrived is about."""
    from_ms = max(0, now_ms - round(1000 * config.delay_s))
    return Told(now_ms, label, from_ms, from_ms + round(1000 * config.valid_s))


def _without_covered(filters: Sequence[str]) -> list[str]:
    """The filters without those that ask only for what another one asks for.

    >>> _without_covered(["zigbee2mqtt/+", "zigbee2mqtt/hall", "tele/hall/SENSOR"])
    ['zigbee2mqtt/+', 'tele/hall/SENSOR']
    """
    distinct = [Filter(each) for each in dict.fromkeys(filters)]
    return [
        one.text
        for one in distinct
        if not any(other.covers(one) for other in distinct if other is not one)
    ]


def _says_what_is_so(channel: Channel, payload: bytes) -> bool:
    """Whether this is a label about a time, or about now, or takes one back.

    One for an instance by its number is learned once, however often it comes.
    """
    if channel is not Channel.LABEL:
        return channel is Channel.LABEL_NOW
    said = read_label(payload)
    return isinstance(said, Undo) or said.instance is None
