"""What is in the state, and what is in `node.toml`: compared by name at every start.

`compare` says what a start puts in force, and tells every difference in a sentence. What would
spoil what was learned is refused, with what to do instead. What it decides is journalled
(`Configured`); the state only does it.

| what differs | what a start does |
|---|---|
| site or node | refuses: it is another node's state |
| classes in another order | keeps the state's order: the same answers, to the bit |
| a class more | adds it, exactly: nothing is known of it |
| a class less, or another name | refuses: `opid-node classes` does it on purpose |
| a sensor more, less, or in the place of another | another layout, which inherits what remains |
| a sensor's reference and scale | moves what was learned, exactly where it is a straight column |
| a sensor's role | keeps its columns under the new name |
| a sensor's knots | new columns; hats after as many values as a warm-up takes |
| vanishing | another split of the same columns |
| gate | takes it where no sensor has hats, whose knots end at the gate; else refuses |
| lam, rho | solves for the new ones from the sums |
| everything else | takes it from here on |

Once a gateway has given orders, it decides over sensors, vanishing and gate: differences in these
are told, and not applied. The order of the classes is then the file's, as the gateway has one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edge_opid.config.node import NodeSettings, SensorConfig
from edge_opid.config.schema import check_classes
from edge_opid.errors import SettingError, WireError
from edge_opid.layout import Sensor
from edge_opid.layout.sensor import knots_within
from edge_opid.wire import SensorDescription
from edge_opid.wire.schema import Text

KEYS = {"asks_per_hour": "asking.per_hour"}
"""Settings that stand under other names in the file."""
APART = ("site", "node", "classes", "sensors", "vanishing", "gate")
"""Settings with rules of their own; any state can go on with other values of the rest."""
GATEWAYS = ("id", "role", "reference", "scale", "knots", "timeout_s", "replaces")
"""What of a sensor the gateway decides, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What of the state the comparison needs."""

    settings: NodeSettings
    sensors: Mapping[str, SensorDescription]
    """Those in the layout, by id; during a warm-up their references and scales mean nothing."""
    vanishing: tuple[str, ...]
    gate: float
    measuring: Mapping[str, str] = field(default_factory=dict)
    """Sensors that are measured before they join, and who stays until then ("" for nobody)."""
    ordered: bool = False
    """A gateway has given orders."""
    warming_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLayout:
    """Other sensors than before, and what to take over from whom."""

    sensors: tuple[SensorDescription, ...]
    vanishing: tuple[str, ...]
    gate: float
    continues: Mapping[str, str]
    """For a new role, the role whose columns it takes over."""
    measuring: Mapping[str, str]
    """As in `Memory`, from here on."""

    def plain(self) -> dict[str, Any]:
        """Plain values, for the journal and `restored`."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**found, "sensors": [sensor.plain() for sensor in self.sensors]}

    @classmethod
    def restored(cls, plain: Mapping[str, Any]) -> NewLayout:
        """What `plain` described."""
        sensors = tuple(description(each) for each in plain["sensors"])
        vanishing = tuple(plain["vanishing"])
        return cls(**{**plain, "sensors": sensors, "vanishing": vanishing})


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings to be in force, other sensors if there are any, and a sentence for each."""

    settings: NodeSettings
    layout: NewLayout | None = None
    sentences: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """What the file says and a gateway decides."""


def compare(mine: Memory, wanted: NodeSettings, *, gateway: bool) -> Plan:
    """What a start with these settings changes; a `SettingError` where it may not.

    `gateway`: whether the node obeys one.
    """
    before = mine.settings
    if wanted == before:
        return Plan(before)
    _check_owner(before, wanted)
    classes = _classes(before, wanted, follow=gateway)
    layout: NewLayout | None = None
    told: list[str] = []
    ignored: tuple[str, ...] = ()
    if gateway and mine.ordered:
        ignored = tuple(_left_to_the_gateway(mine, wanted))
        sensors = _sensors_under_gateway(mine, wanted)
        settings = replace(
            wanted, classes=classes, sensors=sensors, vanishing=before.vanishing, gate=before.gate
        )
    else:
        layout, told = _layout(mine, wanted)
        settings = replace(wanted, classes=classes)
    sentences = (*_told_of_classes(before, settings), *told, *_told_of_rest(before, wanted))
    return Plan(settings, layout, sentences, ignored)


def _check_owner(mine: NodeSettings, wanted: NodeSettings) -> None:
    for key in ("site", "node"):
        there, here = getattr(mine, key), getattr(wanted, key)
        if there != here:
            raise SettingError(
                f"node.{key}",
                f"is {here!r}, and the state is that of {mine.site}/{mine.node}: give this node a "
                "folder of its own (state.folder), or its name back",
            )


# -- classes -----------------------------------------------------------------------------------


def _classes(mine: NodeSettings, wanted: NodeSettings, *, follow: bool) -> tuple[str, ...]:
    """The state's order, new ones last; the file's where a gateway has one to compare it with."""
    gone = [name for name in mine.classes if name not in wanted.classes]
    new = [name for name in wanted.classes if name not in mine.classes]
    if gone:
        other = f"opid-node classes rename {gone[0]!r} {new[0]!r}" if new else ""
        raise SettingError(
            "node.classes",
            f"lacks {gone[0]!r}, which the state has learned: put it back, or say what is meant: "
            + (f"{other}, or " if other else "")
            + f"opid-node classes remove {gone[0]!r}",
        )
    return wanted.classes if follow else (*mine.classes, *new)


def renamed(mine: NodeSettings, old: str, new: str) -> NodeSettings:
    """The settings with another name for a class; a `SettingError` if there is no such class.

    >>> from edge_opid.config.node import SensorConfig
    >>> mine = NodeSettings(site="s", node="n", classes=("a", "b"), sensors=(SensorConfig("t"),))
    >>> renamed(mine, "a", "c").classes
    ('c', 'b')
    """
    _check_known(mine, old)
    if new in mine.classes:
        raise SettingError("node.classes", f"has {new!r} already: two classes cannot become one")
    try:
        Text().check(new, "a class")
    except WireError as error:
        raise SettingError("node.classes", f"cannot have it: {error}") from error
    classes = tuple(new if name == old else name for name in mine.classes)
    check_classes(classes, "node.classes")
    return replace(mine, classes=classes)


def removed(mine: NodeSettings, name: str) -> NodeSettings:
    """The settings without a class; a `SettingError` if there is no such class, or no third one."""
    _check_known(mine, name)
    if len(mine.classes) == 2:
        raise SettingError("node.classes", f"must be 2 at least: {name!r} is one of the last two")
    return replace(mine, classes=tuple(each for each in mine.classes if each != name))


def _check_known(mine: NodeSettings, name: str) -> None:
    if name not in mine.classes:
        known = ", ".join(mine.classes)
        raise SettingError("node.classes", f"has no {name!r}; the state knows {known}")


def _told_of_classes(before: NodeSettings, now: NodeSettings) -> Iterator[str]:
    for name in now.classes:
        if name not in before.classes:
            yield (
                f"class {name!r} is added: nothing is known about it yet, and everything about "
                "the others is kept"
            )
    if [name for name in now.classes if name in before.classes] != list(before.classes):
        yield f"the classes now have the order of the file: {', '.join(now.classes)}"


def _told_of_rest(before: NodeSettings, now: NodeSettings) -> Iterator[str]:
    for each in fields(NodeSettings):
        was, given = getattr(before, each.name), getattr(now, each.name)
        if each.name not in APART and was != given:
            key = KEYS.get(each.name, f"node.{each.name}")
            yield f"{key} is {given} from now on; it was {was}"


# -- sensors -----------------------------------------------------------------------------------


def _layout(mine: Memory, wanted: NodeSettings) -> tuple[NewLayout | None, list[str]]:
    """The layout that the file asks for, and what changes; None where nothing of it does."""
    before = mine.settings
    if (before.sensors, before.vanishing, before.gate) == (
        wanted.sensors,
        wanted.vanishing,
        wanted.gate,
    ):
        return None, []
    found = _Sensors(mine, wanted)
    gate = wanted.gate if wanted.gate != before.gate else mine.gate
    hats = [s.id for s in found.described.values() if s.knots]
    if gate != mine.gate and hats and not mine.warming_up:
        raise SettingError(
            "node.gate",
            f"is {gate:g} and was {mine.gate:g}: {hats[0]!r} has hats, whose knots end at the "
            "gate; give the gate its value back, or these sensors knots = 1",
        )
    if gate != mine.gate:
        found.told.append(f"node.gate is {gate:g} from now on; it was {mine.gate:g}")
    vanishing = wanted.vanishing if wanted.vanishing != before.vanishing else mine.vanishing
    if vanishing != mine.vanishing:
        found.told.append(f"planned to vanish: {', '.join(vanishing) or 'none'}")
    layout = NewLayout(
        sensors=tuple(found.described.values()),
        vanishing=tuple(id_ for id_ in vanishing if id_ in found.described),
        gate=gate,
        continues=found.continues,
        measuring=found.measuring,
    )
    return layout, found.told


class _Sensors:
    """The sensors of the file, matched with those of the state by id."""

    def __init__(self, mine: Memory, wanted: NodeSettings) -> None:
        self.described: dict[str, SensorDescription] = {}
        self.continues: dict[str, str] = {}
        self.measuring: dict[str, str] = {}
        self.told: list[str] = []
        self._mine, self._wanted = mine, wanted
        self._before = {sensor.id: sensor for sensor in mine.settings.sensors}
        listed = {sensor.id for sensor in wanted.sensors}
        left = [sensor for id_, sensor in mine.sensors.items() if id_ not in listed]
        self._former = self._replaced(left)
        inherited = {sensor.id for sensor in self._former.values()}
        ours = {*self._before, *mine.measuring.values()}
        for current in left:  # those of a former gateway stay
            if current.id not in ours and current.id not in inherited:
                self.described[current.id] = current
        for sensor in wanted.sensors:
            self._match(sensor)
        columns = [current.id for current in left if current.id in ours]
        waiting = [id_ for id_ in self._before if id_ not in mine.sensors and id_ not in listed]
        for id_ in (*columns, *waiting):
            if id_ not in inherited:
                self.told.append(f"{id_} is removed: what was learned with the others is kept")
        self._check()

    def _replaced(self, left: Sequence[SensorDescription]) -> dict[str, SensorDescription]:
        """Whose columns each new sensor takes over: those of whom it replaces, or of its role.

        During a warm-up nothing is settled that could be taken over.
        """
        found: dict[str, SensorDescription] = {}
        if self._mine.warming_up:
            return found
        for sensor in self._wanted.sensors:
            if sensor.id not in self._mine.sensors:
                for former in left:
                    is_named = former.id == sensor.replaces
                    if is_named or (not sensor.replaces and former.role == sensor.role):
                        found[sensor.id] = former
        return found

    def _match(self, sensor: SensorConfig) -> None:
        current = self._mine.sensors.get(sensor.id)
        before = self._before.get(sensor.id)
        if current is None and before is not None and self._warms_up(sensor.id):
            self._tell_keys(sensor, before)  # it has not moved yet, and stays in the warm-up
        elif current is None:
            self._join(sensor)
        elif before is None or replace(before, replaces=sensor.replaces) == sensor:
            self.described[sensor.id] = current  # as it was, or known from a gateway
            self._go_on_measuring(sensor)
        else:
            self._alter(sensor, current, before)

    def _warms_up(self, id_: str) -> bool:
        return self._mine.warming_up and id_ not in self._mine.measuring

    def _join(self, sensor: SensorConfig) -> None:
        mine, former = self._mine, self._former.get(sensor.id)
        how = (
            "joins" if former is None else f"takes over from {former.id}, with what it has learned"
        )
        basis = self._basis(sensor, former)
        if basis is None:
            self.measuring[sensor.id] = former.id if former is not None else ""
            if former is not None and former.id not in self.described:
                self.described[former.id] = former
            if sensor.id not in mine.measuring:
                count = self._wanted.warmup_readings
                self.told.append(
                    f"{sensor.id} {how}: after its first {count} values, which give it a "
                    "reference and a scale"
                )
            return
        if former is not None and former.role != sensor.role:
            self.continues[sensor.role] = former.role
        self.described[sensor.id] = described(sensor, knots=basis)
        self.told.append(
            f"{sensor.id} {how}: reference {sensor.reference:g}, scale {sensor.scale:g}"
        )

    def _basis(
        self, sensor: SensorConfig, former: SensorDescription | None
    ) -> tuple[float, ...] | None:
        """The knots of a new sensor; None if it has to be measured first."""
        if sensor.reference is None:
            return None
        if sensor.knots == 1:
            return ()
        same = former is not None and len(former.knots) == sensor.knots
        return former.knots if former is not None and same else None

    def _alter(
        self, sensor: SensorConfig, current: SensorDescription, before: SensorConfig
    ) -> None:
        """A sensor of the state whose lines in the file are others now."""
        if sensor.role != current.role:
            self.continues[sensor.role] = current.role
            self.told.append(f"{sensor.id} has the role {sensor.role} now; it was {current.role}")
        reference, scale = current.reference, current.scale
        if sensor.reference is not None and sensor.scale is not None:
            reference, scale = sensor.reference, sensor.scale
        knots = moved_knots(current, reference, scale, self._mine.gate)
        if (reference, scale) != (current.reference, current.scale) and not self._mine.warming_up:
            self.told.append(
                f"{sensor.id} is rescaled: reference {reference:g}, scale {scale:g}; they were "
                f"{current.reference:g} and {current.scale:g}, and what was learned is converted"
            )
        if sensor.knots != before.knots and not self._mine.warming_up:
            self.told.append(self._other_knots(sensor, before))
            knots = () if sensor.knots == 1 else knots
            if sensor.knots > 1:
                self.measuring[sensor.id] = ""
        else:
            self._go_on_measuring(sensor)
        self._tell_keys(sensor, before)
        self.described[sensor.id] = replace(
            current,
            role=sensor.role,
            reference=reference,
            scale=scale,
            knots=knots,
            timeout_s=sensor.timeout_s,
        )

    def _tell_keys(self, sensor: SensorConfig, before: SensorConfig) -> None:
        """What is others than it was, but for what has a sentence of its own."""
        apart = ("role",) if self._mine.warming_up else GATEWAYS[:5]
        for each in fields(SensorConfig):
            was, given = getattr(before, each.name), getattr(sensor, each.name)
            if each.name not in (*apart, "replaces") and was != given:
                self.told.append(
                    f"{sensor.id}: {each.name} is {_or_left_out(given)} from now on; it was "
                    f"{_or_left_out(was)}"
                )

    def _other_knots(self, sensor: SensorConfig, before: SensorConfig) -> str:
        columns = "a straight column" if sensor.knots == 1 else f"{sensor.knots} hats"
        when = "from here on"
        if sensor.knots > 1:
            when = f"after its next {self._wanted.warmup_readings} values, which say where"
        return f"{sensor.id} gets {columns}, {when}; knots was {before.knots}"

    def _go_on_measuring(self, sensor: SensorConfig) -> None:
        if sensor.id in self._mine.measuring:
            self.measuring[sensor.id] = self._mine.measuring[sensor.id]

    def _check(self) -> None:
        if not self.described and self._mine.warming_up:
            self.measuring.clear()  # the warm-up is theirs
        elif not self.described:
            first = next(iter(self.measuring))
            raise SettingError(
                "sensors",
                f"would all have to be measured first: give {first!r} a reference and a scale, or "
                "leave "
                "one of the former sensors in the file until it has been measured",
            )
        roles = Counter(sensor.role for sensor in self.described.values())
        role, times = roles.most_common(1)[0] if roles else ("", 1)
        if times > 1:
            ids = [s.id for s in self.described.values() if s.role == role]
            raise SettingError(
                "sensors",
                f"{' and '.join(ids)} would both have the role {role!r}: give the new one another "
                f"role, or say that it replaces {ids[0]!r}",
            )


def _or_left_out(value: object) -> str:
    return "left out" if value is None else str(value)


# -- where a gateway decides -------------------------------------------------------------------


def _left_to_the_gateway(mine: Memory, wanted: NodeSettings) -> Iterator[str]:
    """What the file says otherwise than the layout that the gateway has ordered."""
    before = {sensor.id: sensor for sensor in mine.settings.sensors}
    listed = {sensor.id: sensor for sensor in wanted.sensors}
    decides = "the gateway decides about this node's sensors"
    for id_ in listed:
        if id_ not in mine.sensors and id_ not in before:
            yield f"{id_} is not used: {decides}: opid-gateway sensor deploy"
    for id_ in mine.sensors:
        if id_ not in listed and id_ in before:
            yield (
                f"{id_} stays, although it is no longer in the file: {decides}: opid-gateway "
                "sensor retire"
            )
    for id_, sensor in listed.items():
        was = before.get(id_, sensor)
        keys = [key for key in GATEWAYS if getattr(was, key) != getattr(sensor, key)]
        if keys:
            yield f"{id_}: {', '.join(keys)} of the file are not used: {decides}"
    for key in ("vanishing", "gate"):
        if getattr(mine.settings, key) != getattr(wanted, key):
            yield f"node.{key} of the file is not used: {decides}"


def _sensors_under_gateway(mine: Memory, wanted: NodeSettings) -> tuple[SensorConfig, ...]:
    """What the node itself decides of the sensors is the file's; the rest as it was."""
    listed = {sensor.id: sensor for sensor in wanted.sensors}
    own = [each.name for each in fields(SensorConfig) if each.name not in GATEWAYS]
    found = {}
    for was in mine.settings.sensors:
        given = listed.get(was.id, was)
        found[was.id] = replace(was, **{name: getattr(given, name) for name in own})
    for id_, sensor in listed.items():
        if id_ in mine.sensors:
            found.setdefault(id_, sensor)
    return tuple(found.values())


# -- descriptions ------------------------------------------------------------------------------


def described(sensor: SensorConfig, knots: tuple[float, ...] = ()) -> SensorDescription:
    """A sensor as the file gives it."""
    return SensorDescription(
        id=sensor.id,
        role=sensor.role,
        reference=sensor.reference or 0.0,
        scale=sensor.scale or 1.0,
        timeout_s=sensor.timeout_s,
        knots=knots,
    )


def measured(sensor: SensorConfig, guess: Sensor, gate: float) -> SensorDescription:
    """A sensor with what the file gives, and what its values suggest for the rest."""
    reference = guess.reference if sensor.reference is None else sensor.reference
    scale = guess.scale if sensor.scale is None else sensor.scale
    return SensorDescription(
        id=sensor.id,
        role=sensor.role,
        reference=reference,
        scale=scale,
        timeout_s=sensor.timeout_s,
        knots=moved_knots(guess, reference, scale, gate),
    )


def description(plain: Mapping[str, Any]) -> SensorDescription:
    """The sensor whose `plain` was kept."""
    return SensorDescription(**{**plain, "knots": tuple(plain.get("knots", ()))})


def moved_knots(
    sensor: Sensor | SensorDescription, reference: float, scale: float, gate: float
) -> tuple[float, ...]:
    """The knots of a sensor under another reference and scale: the ends stay at the gate.

    What is next to each other there may be the same here, as far as float32 can tell.
    """
    if not sensor.knots or (reference, scale) == (sensor.reference, sensor.scale):
        return sensor.knots
    at, unit = sensor.reference, sensor.scale
    inner = [((knot * unit + at) - reference) / scale for knot in sensor.knots[1:-1]]
    return knots_within(gate, inner)
