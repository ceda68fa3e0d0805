"""What a node is told once, at its start: every setting, its default, its reason and its check.

A mistake raises `SettingError`, which names the key as it stands in the file (`node.gate`,
`sensors[1].knots`), so that whoever reads the file can say the line, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields
from dataclasses import field as dataclass_field
from types import MappingProxyType
from typing import Any

from edge_opid.config.schema import (
    DURATION_S_MAX,
    check_classes,
    check_name,
    check_unique,
    check_within,
)
from edge_opid.errors import SettingError, WireError, shown
from edge_opid.layout.layout import BIAS
from edge_opid.learner.settings import LIMIT, stiffness_fault
from edge_opid.wire.foreign import ForeignTopic, TruthTopic
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.schema import Text
from edge_opid.wire.topics import ROOT, Filter, check_topic

FORMATS = ("json", "msgpack")
INSTANCES = ("readings", "labels", "beat")
NO_STATES = ("none", "unknown", "unavailable")
"""Home Assistant shows these as "unknown": nobody could tell the class from a missing answer."""
OWN_SOURCE = "held"
"""The source of instances that no reading completed: made of what is held."""


MEMORY_MB = 64
"""What every node has, and its default."""
NODE_MB = 50
"""A node with TLS and signatures, saturated, beside what its columns take."""
COLUMN_BYTES = 250
"""Times the square of the columns: what a change of sensors needs at its peak, when the sums are
solved in float64. While nothing changes it is a tenth of that (decision 43)."""


def columns_for(memory_mb: float) -> int:
    """How many columns a node with this memory can have, the bias included.

    >>> columns_for(64), columns_for(1000)
    (236, 320)
    """
    room = math.isqrt(int(max(0.0, memory_mb - NODE_MB) * 1e6) // COLUMN_BYTES)
    return min(LIMITS.columns_max, room)


def memory_for(columns: int) -> int:
    """The MB of memory that a node with so many columns needs.

    >>> memory_for(237), columns_for(memory_for(237)) >= 237
    (65, True)
    """
    return NODE_MB + math.ceil(COLUMN_BYTES * columns * columns / 1e6)


@dataclass(frozen=True, slots=True)
class SensorConfig:
    """One sensor. Without reference and scale, the first readings of the node say what they are.

    The `id` is the physical thing, the `role` its column (`pm25`). `knots`: 1 for a linear column,
    m from 2 up for m hats, a piecewise-linear function of the sensor.

    >>> SensorConfig("pm-7", role="pm25").knots, SensorConfig("door").role
    (1, 'door')
    """

    id: str
    _: KW_ONLY
    role: str = ""
    reference: float | None = None
    scale: float | None = None
    knots: int = 1
    replaces: str = ""  # the sensor whose columns, and what they have learned, it takes over
    timeout_s: float | None = None  # silent for longer, it counts as dead; None: by its rhythm
    hold_s: float | None = None  # how long its last value stands for it; None: by its rhythm

    def __post_init__(self) -> None:
        if not self.role:
            object.__setattr__(self, "role", self.id)

    def check(self, key: str) -> None:
        """Refuse what no layout could hold; `key` is where this sensor stands."""
        check_name(self.id, f"{key}.id")
        check_name(self.role, f"{key}.role")
        if BIAS in (self.id, self.role):
            raise SettingError(
                f"{key}.id", f"must not be {BIAS!r}: the node uses that column itself"
            )
        if (self.reference is None) != (self.scale is None):
            given, missing = (
                ("reference", "scale") if self.scale is None else ("scale", "reference")
            )
            raise SettingError(f"{key}.{given}", f"needs {missing} beside it: give both or none")
        if self.reference is not None and self.scale is not None:
            check_within(self.reference, f"{key}.reference", -LIMITS.number_max, LIMITS.number_max)
            _above(self.scale, f"{key}.scale")
        _whole(self.knots, f"{key}.knots", 1, LIMITS.knots_max)
        if self.replaces:
            check_name(self.replaces, f"{key}.replaces")
        if self.timeout_s is not None:
            _above(self.timeout_s, f"{key}.timeout_s", at_most=DURATION_S_MAX)
        if self.hold_s is not None:
            check_within(self.hold_s, f"{key}.hold_s", 0, DURATION_S_MAX)


@dataclass(frozen=True, slots=True)
class ForeignConfig:
    """Messages of somebody else (zigbee2mqtt, Tasmota, ESPHome) that carry values of our sensors.

    `fields` says which field of the JSON is which sensor (`"ENERGY.Power"` → `pump-power`), or is
    one sensor id where the payload is a plain number. `{1}` in a source or sensor id stands for
    what the first `+` of the filter matched. `availability` is where it says that it is there, or
    the broker that it is not: a word, or JSON with one under `state`.

    >>> foreign = ForeignConfig("zigbee2mqtt/+", "{1}", {"temperature": "{1}-temp"})
    >>> foreign.topic.source_of("zigbee2mqtt/attic")
    'attic'
    """

    filter: str
    source: str
    fields: Mapping[str, str] | str = dataclass_field(hash=False)
    label_field: str | None = None
    availability: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.fields, str):
            object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    @property
    def topic(self) -> ForeignTopic:
        """The mapping in the words of `foreign`; raises `WireError` if it cannot be."""
        return ForeignTopic(
            self.filter, self.source, self.fields, self.label_field, self.availability
        )

    def check(self, key: str, ids: list[str]) -> None:
        """Refuse what could never match, or would reach our own topics."""
        check_foreign_filter(self.filter, f"{key}.filter")
        if self.availability:
            check_foreign_filter(self.availability, f"{key}.availability")
        try:
            sensors = self.topic.sensors.values()
        except WireError as error:
            words = [each for each in ("source", "availability") if str(error).startswith(each)]
            about = words[0] if words else "fields"
            raise SettingError(f"{key}.{about}", f"cannot be: {error}") from error
        if self.source == OWN_SOURCE:
            raise SettingError(
                f"{key}.source", f"must not be {OWN_SOURCE!r}: instances made here have that name"
            )
        _known([name for name in sensors if "{" not in name], ids, f"{key}.fields")
        if self.topic.plain and self.label_field is not None:
            raise SettingError(
                f"{key}.label_field",
                f"cannot be used where the payload is a plain number, which has no field "
                f"{shown(self.label_field)}: leave it out, or map the fields of JSON",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthConfig:
    """Messages of somebody else that say what is so: a presence sensor, a button, a switch.

    `field` is a path into JSON, or empty where the payload is the value itself. `values` says which
    class each value means; without it the value is the class. A truth is about the moment `delay_s`
    before it arrived, and holds for `valid_s` from then on, or until another one comes.

    >>> presence = TruthConfig(
    ...     filter="zigbee2mqtt/hall", field="occupancy", values={"true": "there", "false": "away"}
    ... )
    >>> presence.topic.label_in(b'{"occupancy": true, "battery": 97}')
    'there'
    """

    filter: str
    field: str = ""
    values: Mapping[str, str] = dataclass_field(default_factory=dict, hash=False)
    valid_s: float = 0.0
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def topic(self) -> TruthTopic:
        """The mapping in the words of `foreign`; raises `WireError` if it cannot be."""
        return TruthTopic(self.filter, self.field, self.values)

    def check(self, key: str, classes: tuple[str, ...]) -> None:
        """Refuse what could never be a truth of this node, or would reach our own topics."""
        check_foreign_filter(self.filter, f"{key}.filter")
        try:
            _ = self.topic
        except WireError as error:
            raise SettingError(f"{key}.field", f"cannot be: {error}") from error
        for value, meant in self.values.items():
            if meant not in classes:
                raise SettingError(
                    f"{key}.values",
                    f"says that {shown(value)} means {shown(meant)}; classes are {list(classes)}",
                )
        check_within(self.valid_s, f"{key}.valid_s", 0, DURATION_S_MAX)
        check_within(self.delay_s, f"{key}.delay_s", 0, DURATION_S_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The part of the configuration that decides what is learned and answered.

    It is part of the durable state: the journal says which settings were in force when, so that a
    restart with another `node.toml` replays no reading under settings it never knew. They were
    checked when they were read (`NodeConfig`) and are not checked again.
    """

    site: str
    node: str
    classes: tuple[str, ...]
    sensors: tuple[SensorConfig, ...]
    vanishing: tuple[str, ...] = ()  # sensor ids planned to go first
    gate: float = 8.0  # values more scales from their reference than this are not believed
    lam: float = 1.0  # λ of Eq. 2
    rho: float = 1.0  # ρ of Eq. 2
    forgetting: float = 1.0  # β: 1 never forgets
    learn_unlabelled: bool = True  # keep the Gram matrix of all readings, too: 2·d·(d+1) bytes
    instances: str = "readings"  # what makes one: a reading, only a label, or a steady beat
    window_ms: int = 0  # values within it are one instance; 0: every reading is its own
    label_tolerance_ms: int = 500  # how far a label's time may be from its instance's
    now_tolerance_ms: int = 30_000  # how old the last instance may be when a person says "now"
    recent: int = 256  # instances that wait for a late label
    asks_per_hour: float = 0.0  # how often the node may ask what an instance was; 0: never
    warmup_readings: int = 200  # before reference, scale and knots are frozen

    def plain(self) -> dict[str, Any]:
        """Plain values, for the journal and `restored`."""
        found = {each.name: getattr(self, each.name) for each in fields(NodeSettings)}
        return {**found, "sensors": [asdict(sensor) for sensor in self.sensors]}

    @classmethod
    def restored(cls, plain: Mapping[str, Any]) -> NodeSettings:
        """The settings that `plain` described.

        >>> settings = NodeSettings(
        ...     site="farm", node="n1", classes=("dry", "wet"), sensors=(SensorConfig("soil"),)
        ... )
        >>> NodeSettings.restored(settings.plain()) == settings
        True
        """
        found: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        found["sensors"] = tuple(SensorConfig(**each) for each in plain["sensors"])
        return NodeSettings(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(NodeSettings):
    """Everything that decides how a node behaves. Its durable state is the rest.

    What is here and not in `NodeSettings` may differ at every start, and changes nothing learned.

    >>> config = NodeConfig(
    ...     site="farm", node="n1", classes=("fresh", "stale"),
    ...     sensors=(SensorConfig("temp"), SensorConfig("co2", knots=8)), vanishing=("co2",),
    ... )
    >>> config.columns, config.commit_s
    (10, 5.0)
    """

    every_s: float = 60.0  # between two beats
    rate_per_second: float = 50.0  # per source …
    rate_burst: int = 500  # … and this many at once, as after an outage
    commit_s: float = 5.0  # the longest an acknowledgement waits; shorter wears the card
    commit_records: int = 128  # half the window of the link, so that it never stalls
    format: str = "json"  # of what the world reads: predictions, the status, events of sensors
    retain_predictions: bool = False  # the broker keeps the last one for whoever subscribes later
    confidence_min: float = 0.0  # a prediction less sure than this is published as "unknown"
    memory_mb: float = 64.0  # what the machine has for this node: how many columns fit in
    foreign: tuple[ForeignConfig, ...] = ()
    truth: tuple[TruthConfig, ...] = ()
    homeassistant: bool = False  # announce this node as a device of Home Assistant
    homeassistant_prefix: str = "homeassistant"  # where it looks for announcements

    def __post_init__(self) -> None:
        check_name(self.site, "node.site")
        check_name(self.node, "node.node")
        self._check_classes()
        self._check_sensors()
        self._check_learning()
        self._check_times()
        self._check_foreign()
        if self.homeassistant:
            self._check_homeassistant()

    @property
    def settings(self) -> NodeSettings:
        """What of it belongs into the durable state."""
        return NodeSettings(
            **{each.name: getattr(self, each.name) for each in fields(NodeSettings)}
        )

    @property
    def columns(self) -> int:
        """How many columns the sensors take at most, the bias included."""
        return sum(sensor.knots for sensor in self.sensors) + 1

    def _check_classes(self) -> None:
        if not 2 <= len(self.classes) <= LIMITS.classes_max:
            raise SettingError(
                "node.classes",
                f"must be 2 to {LIMITS.classes_max} names, got {len(self.classes)}",
            )
        for name in self.classes:
            try:
                Text().check(name, "a class")
            except WireError as error:
                raise SettingError("node.classes", f"cannot be: {error}") from error
        check_classes(self.classes, "node.classes")

    def _check_sensors(self) -> None:
        if not 1 <= len(self.sensors) <= LIMITS.sensors_max:
            raise SettingError(
                "sensors", f"must be 1 to {LIMITS.sensors_max}, got {len(self.sensors)}"
            )
        for place, sensor in enumerate(self.sensors):
            sensor.check(f"sensors[{place}]")
        ids = [sensor.id for sensor in self.sensors]
        check_unique(ids, "sensors", "id")
        for place, sensor in enumerate(self.sensors):
            if sensor.replaces in ids:
                raise SettingError(
                    f"sensors[{place}].replaces",
                    f"names {shown(sensor.replaces)}, which is still in the file: remove it",
                )
        check_unique([s.replaces for s in self.sensors if s.replaces], "sensors", "replaces")
        check_unique([sensor.role for sensor in self.sensors], "sensors", "role")
        check_within(self.memory_mb, "node.memory_mb", MEMORY_MB, 1e6)
        room = columns_for(self.memory_mb)
        if self.columns > room:
            more = (
                f", or a node.memory_mb of {memory_for(self.columns)}"
                if self.columns <= LIMITS.columns_max
                else ""
            )
            raise SettingError(
                "sensors",
                f"must take at most {room} columns, the bias included, in {self.memory_mb:g} MB, "
                f"got {self.columns}: use fewer knots{more}",
            )
        check_unique(self.vanishing, "node.vanishing")
        _known(self.vanishing, ids, "node.vanishing")

    def _check_learning(self) -> None:
        _above(self.gate, "node.gate", at_most=LIMIT)
        check_within(self.lam, "node.lam", 0, LIMITS.number_max)
        _above(self.rho, "node.rho")
        fault = stiffness_fault(self.lam, self.rho, self.gate)
        if fault:
            raise SettingError("node.gate", fault)
        _above(self.forgetting, "node.forgetting", at_most=1)
        # 4 bytes a value are kept until the end of the warm-up: 10,000 × 160 would be 6.4 MB.
        _whole(self.warmup_readings, "node.warmup_readings", 2, 10_000)

    def _check_times(self) -> None:
        if self.instances not in INSTANCES:
            raise SettingError(
                "node.instances",
                f"must be {' or '.join(INSTANCES)}, got {shown(self.instances)}",
            )
        check_within(self.every_s, "node.every_s", 0.1, 86_400)
        _whole(self.window_ms, "node.window_ms", 0, 3_600_000)
        _whole(self.label_tolerance_ms, "node.label_tolerance_ms", 0, 86_400_000)
        _whole(self.now_tolerance_ms, "node.now_tolerance_ms", 0, 86_400_000)
        _whole(self.recent, "node.recent", 1, 4_096)
        check_within(self.asks_per_hour, "asking.per_hour", 0, 3_600)
        _above(self.rate_per_second, "node.rate_per_second", at_most=1_000_000)
        _whole(self.rate_burst, "node.rate_burst", 1, 1_000_000)
        _above(self.commit_s, "node.commit_s", at_most=3_600)
        _whole(self.commit_records, "node.commit_records", 1, 10_000)
        check_within(self.confidence_min, "node.confidence_min", 0, 1)
        if self.format not in FORMATS:
            raise SettingError(
                "node.format", f"must be {' or '.join(FORMATS)}, got {shown(self.format)}"
            )

    def _check_foreign(self) -> None:
        ids = [sensor.id for sensor in self.sensors]
        for place, foreign in enumerate(self.foreign):
            foreign.check(f"foreign[{place}]", ids)
        self._check_every_foreign_has_its_turn()
        for place, truth in enumerate(self.truth):
            truth.check(f"truth[{place}]", self.classes)

    def _check_homeassistant(self) -> None:
        """Whether Home Assistant would understand what this node says."""
        try:
            check_topic(self.homeassistant_prefix)
        except WireError as error:
            raise SettingError("homeassistant.prefix", f"cannot be: {error}") from error
        check_foreign_filter(self.homeassistant_prefix, "homeassistant.prefix")
        if self.format != "json":
            raise SettingError(
                "node.format",
                f"must be json for homeassistant.discovery, got {shown(self.format)}: Home "
                "Assistant reads what the node publishes",
            )
        for name in self.classes:
            if name.lower() in NO_STATES:
                raise SettingError(
                    "node.classes",
                    f"has {shown(name)}, which Home Assistant shows as unknown: write another word "
                    f"here, and tell a node that has run: opid-node classes rename {name} NEW",
                )

    def _check_every_foreign_has_its_turn(self) -> None:
        """A message is dealt with by the first mapping that matches it, and by no other."""
        for place, later in enumerate(self.foreign):
            for before, first in enumerate(self.foreign[:place]):
                if Filter(first.filter).covers(Filter(later.filter)):
                    raise SettingError(
                        f"foreign[{place}].filter",
                        f"is {shown(later.filter)}: foreign[{before}] takes all of these messages "
                        f"({shown(first.filter)}), and a message has one mapping; put the fields "
                        "into one, or the narrower filter first",
                    )


def _whole(value: int, key: str, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise SettingError(key, f"must be a whole number from {low} to {high}, got {value}")


def _above(value: float, key: str, at_most: float = math.inf) -> None:
    bound = "" if at_most == math.inf else f" and at most {at_most:g}"
    if not (LIMITS.positive_min <= value <= min(at_most, LIMITS.number_max)):
        raise SettingError(key, f"must be above 0{bound}, got {value}")


def check_foreign_filter(pattern: str, key: str) -> None:
    """A topic of somebody else: none of ours."""
    try:
        Filter(pattern)
    except WireError as error:
        raise SettingError(key, f"cannot be: {error}") from error
    if pattern.split("/", maxsplit=1)[0] in (ROOT.split("/", maxsplit=1)[0], "#", "+"):
        raise SettingError(key, f"must not reach {ROOT}/, got {shown(pattern)}: name its root")


def _known(names: Iterable[str], ids: list[str], key: str) -> None:
    for name in names:
        if name not in ids:
            raise SettingError(key, f"names no sensor {shown(name)}; there are {ids}")
