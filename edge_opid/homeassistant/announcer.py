"""When a node announces itself to Home Assistant, and what it tells it of its sensors.

The rules:

1. The broker's retained copy is the memory: at each connection the node reads what it last
   announced, so that a role that went while it was away is taken away, too. Nothing of this is
   durable here.
2. The document is published some seconds after each connection, after Home Assistant says that it
   has started (its birth message, which nobody keeps), and when a role or its sensor changes.
3. A role that is gone is in one document in full, and seconds later in the next one as a tombstone
   (see `documents`). Tombstones are kept: a Home Assistant that was away meanwhile needs both.
4. Nodes do not all answer a birth message at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from edge_opid.config.node import NodeConfig
from edge_opid.errors import WireError
from edge_opid.homeassistant.documents import (
    ASKED,
    DEPLOYED,
    RETIRED,
    Described,
    Kept,
    announcement,
    birth_topic,
    config_topic,
    event_topic,
    kind_of,
    object_id,
    question,
    sensor_event,
)
from edge_opid.node.actions import Action, Publish
from edge_opid.node.effects import Effect
from edge_opid.node.state import NodeState
from edge_opid.reasons import NodeReason
from edge_opid.tally import Tally
from edge_opid.wire import Asked, SensorReturned, SensorSilent

SETTLE_MS = 2_000  # after a connection: what the broker has kept of us arrives
BIRTH_MS = 5_000  # Home Assistant says that it is there before all of it is
SPREAD_MS = 5_000  # within which the nodes of a house answer a birth message
STEP_MS = 3_000  # between a document with a role in full, and the one with its tombstone
GONE_MAX = 64  # tombstones; older ones have been seen by every Home Assistant that will be


class Announcer:
    """What Home Assistant was told, and so what it is to be told next."""

    def __init__(self, config: NodeConfig, tally: Tally) -> None:
        self._site, self._node = config.site, config.node
        self._prefix, self._tally = config.homeassistant_prefix, tally
        place = self._prefix, config.site, config.node
        self._birth = birth_topic(self._prefix)
        self._config, self._events = config_topic(*place), event_topic(*place)
        self._late_ms = zlib.crc32(object_id(config.site, config.node).encode()) % SPREAD_MS
        self._connected = False
        self._described: Described | None = None  # as announced last
        self._source: tuple[object, ...] = ()  # what that was made from
        self._gone: dict[str, None] = {}  # roles with a tombstone, the oldest first
        self._kept: Kept | None = None  # what the broker had kept of us, until it is looked at
        self._has_spoken = False  # in this life of the process
        self._announce_ms: int | None = None
        self._bury_ms: int | None = None

    @property
    def filters(self) -> tuple[str, ...]:
        """What to subscribe to."""
        return self._birth, self._config

    def hear(self, topic: str, payload: bytes, now_ms: int, *, retained: bool) -> bool:
        """Whether this was for us: a birth message, or what the broker has kept of us."""
        if topic == self._birth:
            if payload == b"online":
                self._tally.note(NodeReason.HOMEASSISTANT_STARTED)
                self._announce_ms = now_ms + BIRTH_MS + self._late_ms
            return True
        if topic != self._config:
            return False
        if retained and payload:  # else it is the echo of our own, or somebody took it away
            try:
                self._kept = Kept.read(payload)
            except WireError as error:
                self._tally.note(NodeReason.HOMEASSISTANT_UNFIT, why=str(error))
        return True

    def on_connected(self, now_ms: int) -> None:
        """Whoever listens now may not have listened before."""
        self._connected, self._kept = True, None
        self._announce_ms, self._bury_ms = now_ms + SETTLE_MS, None

    def on_disconnected(self) -> None:
        """The next connection begins anew."""
        self._connected = False
        self._announce_ms = self._bury_ms = None

    def tell(self, effect: Effect) -> list[Action]:
        """What has happened, if it is something to tell."""
        kind, node = kind_of(effect), self._described
        if not kind or node is None:
            return []
        if kind == ASKED and isinstance(effect, Asked):
            return [Publish(self._events, question(effect, node))]
        sensor = effect.sensor if isinstance(effect, SensorSilent | SensorReturned) else ""
        roles = {each: role for role, each in node.roles.items()}
        return [Publish(self._events, sensor_event(kind, sensor, roles.get(sensor, sensor)))]

    def take_due(self, state: NodeState, now_ms: int) -> list[Action]:
        """What is to be published now."""
        actions = self._take_changes(state, now_ms)
        if not self._connected or self._described is None:
            return actions
        if self._announce_ms is not None and now_ms >= self._announce_ms:
            self._announce_ms = None
            self._bury_ms = now_ms + STEP_MS if self._gone else None
            return [*actions, self._publish(leaving=self._gone)]
        if self._bury_ms is not None and now_ms >= self._bury_ms:
            self._bury_ms = None
            return [*actions, self._publish(gone=self._gone)]
        return actions

    def _publish(self, **roles: dict[str, None]) -> Publish:
        assert self._described is not None
        self._has_spoken = True
        self._tally.counts[NodeReason.ANNOUNCED] += 1
        document = announcement(self._described, self._prefix, **roles)
        return Publish(self._config, document, retain=True)

    def _take_changes(self, state: NodeState, now_ms: int) -> list[Action]:
        """Notice other roles and sensors: against what was announced, by us or an earlier life."""
        source = state.local_models.sensors, state.measuring, state.settings
        unchanged = all(one is other for one, other in zip(self._source, source, strict=False))
        if self._source and unchanged and self._kept is None:
            return []
        before, kept = self._described, self._kept
        self._source, self._kept = source, None
        roles = roles_of(state)
        self._described = Described(self._site, self._node, state.settings.classes, roles)
        known = {} if before is None else before.roles
        if kept is not None:
            self._bury(kept.announced | kept.buried, roles)
            if not self._has_spoken:  # it is of an earlier life, which had other sensors, perhaps
                known = dict.fromkeys(kept.announced, "")
        self._bury(known, roles)
        if before is not None and before != self._described:
            self._announce_ms = now_ms
        return self._told(known, roles) if known else []

    def _bury(self, roles: Iterable[str], living: Mapping[str, str]) -> None:
        """Remember which of these roles are gone, and which are there again."""
        for role in sorted(roles):
            self._gone[role] = None
        self._gone = {role: None for role in self._gone if role not in living}
        for role in list(self._gone)[:-GONE_MAX]:
            del self._gone[role]

    def _told(self, before: Mapping[str, str], after: Mapping[str, str]) -> list[Action]:
        """An event for each sensor that has gone and for each that has come.

        Of an earlier life only the roles are known, without their sensors.
        """
        gone = [(s, role) for role, s in before.items() if _is_another(s, after.get(role))]
        come = [(s, role) for role, s in after.items() if _is_another(before.get(role), s)]
        said = [sensor_event(RETIRED, *each) for each in gone]
        said += [sensor_event(DEPLOYED, *each) for each in come]
        return [Publish(self._events, each) for each in said]


def _is_another(sensor: str | None, other: str | None) -> bool:
    """Whether a role has lost, got or changed its sensor; an empty one may have been any."""
    return None in (sensor, other) or (sensor != other and "" not in (sensor, other))


def roles_of(state: NodeState) -> dict[str, str]:
    """The sensor in each role: those in the layout, and those that wait for a scale."""
    waiting = state.measuring.until
    found = {each.role: each.id for each in state.settings.sensors if each.id in waiting}
    return {**found, **{each.role: each.id for each in state.local_models.sensors.values()}}
