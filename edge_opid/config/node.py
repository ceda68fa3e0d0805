"""What a node is told once, at its start: every setting, its default, its reason and its check.

A mistake raises `SettingError`, which names the key as it stands in the file (`node.gate`,
`sensors[1].knots`), so that whoever reads the file can say the line, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType

from edge_opid.config.schema import DURATION_S_MAX, check_name, check_unique, check_within
from edge_opid.errors import SettingError, WireError, shown
from edge_opid.layout.layout import BIAS
from edge_opid.learner.settings import LIMIT, stiffness_fault
from edge_opid.wire.foreign import ForeignTopic
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.schema import Text
from edge_opid.wire.topics import ROOT, Filter

FORMATS = ("msgpack", "json")


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
    timeout_s: float = 60.0  # silent for longer, it counts as dead until it speaks again

    def __post_init__(self) -> None:
        if not self.role:
            object.__setattr__(self, "role", self.id)

    def check(self, key: str) -> None:
        """Refuse what no layout could hold; `key` is where this sensor stands."""
        check_name(self.id, f"{key}.id")
        check_name(self.role, f"{key}.role")
        if BIAS in (self.id, self.role):
            raise SettingError(f"{key}.id", f"must not be {BIAS!r}: that column is the node's")
        if (self.reference is None) != (self.scale is None):
            given, missing = (
                ("reference", "scale") if self.scale is None else ("scale", "reference")
            )
            raise SettingError(f"{key}.{given}", f"needs {missing} beside it: give both or none")
        if self.reference is not None and self.scale is not None:
            check_within(self.reference, f"{key}.reference", -LIMITS.number_max, LIMITS.number_max)
            _above(self.scale, f"{key}.scale")
        _whole(self.knots, f"{key}.knots", 1, LIMITS.knots_max)
        _above(self.timeout_s, f"{key}.timeout_s", at_most=DURATION_S_MAX)


@dataclass(frozen=True, slots=True)
class ForeignConfig:
    """Messages of somebody else (zigbee2mqtt, Tasmota, ESPHome) that carry values of our sensors.

    `fields` says which field of the JSON is which sensor (`"ENERGY.Power"` → `pump-power`), or is
    one sensor id where the payload is a plain number. `{1}` in a source or sensor id stands for
    what the first `+` of the filter matched.

    >>> foreign = ForeignConfig("zigbee2mqtt/+", "{1}", {"temperature": "{1}-temp"})
    >>> foreign.topic.source_of("zigbee2mqtt/attic")
    'attic'
    """

    filter: str
    source: str
    fields: Mapping[str, str] | str = field(hash=False)
    label_field: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fields, str):
            object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    @property
    def topic(self) -> ForeignTopic:
        """The mapping in the words of `foreign`; raises `WireError` if it cannot be."""
        return ForeignTopic(self.filter, self.source, self.fields, self.label_field)

    def check(self, key: str, ids: list[str]) -> None:
        """Refuse what could never match, or would reach our own topics."""
        try:
            Filter(self.filter)
        except WireError as error:
            raise SettingError(f"{key}.filter", f"cannot be: {error}") from error
        if self.filter.split("/")[0] in (ROOT.split("/", maxsplit=1)[0], "#", "+"):
            raise SettingError(
                f"{key}.filter", f"must not reach {ROOT}/, got {shown(self.filter)}: name its root"
            )
        try:
            sensors = self.topic.sensors.values()
        except WireError as error:
            about = "source" if str(error).startswith("source") else "fields"
            raise SettingError(f"{key}.{about}", f"cannot be: {error}") from error
        _known([name for name in sensors if "{" not in name], ids, f"{key}.fields")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything that decides how a node behaves. Its durable state is the rest.

    >>> config = NodeConfig(
    ...     site="farm", node="n1", classes=("fresh", "stale"),
    ...     sensors=(SensorConfig("temp"), SensorConfig("co2", knots=8)), vanishing=("co2",),
    ... )
    >>> config.columns, config.commit_s
    (10, 5.0)
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
    window_ms: int = 0  # values within it are one instance; 0: every reading is its own
    label_tolerance_ms: int = 500  # how far a label's time may be from its instance's
    recent: int = 256  # instances that wait for a late label
    rate_per_second: float = 50.0  # per source …
    rate_burst: int = 500  # … and this many at once, as after an outage
    commit_s: float = 5.0  # the longest an acknowledgement waits; shorter wears the card
    commit_records: int = 128  # half the window of the link, so that it never stalls
    warmup_readings: int = 200  # before reference, scale and knots are frozen
    prediction_format: str = "msgpack"
    foreign: tuple[ForeignConfig, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.site, "node.site")
        check_name(self.node, "node.node")
        self._check_classes()
        self._check_sensors()
        self._check_learning()
        self._check_times()
        self._check_foreign()

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
        check_unique(self.classes, "node.classes")

    def _check_sensors(self) -> None:
        if not 1 <= len(self.sensors) <= LIMITS.sensors_max:
            raise SettingError(
                "sensors", f"must be 1 to {LIMITS.sensors_max}, got {len(self.sensors)}"
            )
        for place, sensor in enumerate(self.sensors):
            sensor.check(f"sensors[{place}]")
        ids = [sensor.id for sensor in self.sensors]
        check_unique(ids, "sensors", "id")
        check_unique([sensor.role for sensor in self.sensors], "sensors", "role")
        if self.columns > LIMITS.columns_max:
            raise SettingError(
                "sensors",
                f"must take at most {LIMITS.columns_max} columns, the bias included, got "
                f"{self.columns}: use fewer knots",
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
        _whole(self.window_ms, "node.window_ms", 0, 3_600_000)
        _whole(self.label_tolerance_ms, "node.label_tolerance_ms", 0, 86_400_000)
        _whole(self.recent, "node.recent", 1, 4_096)
        _above(self.rate_per_second, "node.rate_per_second", at_most=1_000_000)
        _whole(self.rate_burst, "node.rate_burst", 1, 1_000_000)
        _above(self.commit_s, "node.commit_s", at_most=3_600)
        _whole(self.commit_records, "node.commit_records", 1, 10_000)
        if self.prediction_format not in FORMATS:
            raise SettingError(
                "node.prediction_format",
                f"must be {' or '.join(FORMATS)}, got {shown(self.prediction_format)}",
            )

    def _check_foreign(self) -> None:
        ids = [sensor.id for sensor in self.sensors]
        for place, foreign in enumerate(self.foreign):
            foreign.check(f"foreign[{place}]", ids)


def _whole(value: int, key: str, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise SettingError(key, f"must be a whole number from {low} to {high}, got {value}")


def _above(value: float, key: str, at_most: float = math.inf) -> None:
    bound = "" if at_most == math.inf else f" and at most {at_most:g}"
    if not (LIMITS.positive_min <= value <= min(at_most, LIMITS.number_max)):
        raise SettingError(key, f"must be above 0{bound}, got {value}")


def _known(names: Iterable[str], ids: list[str], key: str) -> None:
    for name in names:
        if name not in ids:
            raise SettingError(key, f"names no sensor {shown(name)}; there are {ids}")
