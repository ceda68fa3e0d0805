"""From what was heard to lines of a `node.toml`: a `[[foreign]]` for each topic, and its sensors.

The same device is often announced twice. The first system that knows a topic names its values:
zigbee2mqtt before Tasmota before Home Assistant's discovery before the bare topic.
A filter is always a whole topic: a `+` would have to stand for an id, and names of devices have
capitals and blanks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edge_opid.config.toml_text import comment, inline_table, quoted
from edge_opid.discovery import homeassistant, plain, tasmota, zigbee2mqtt
from edge_opid.discovery.availability import availability
from edge_opid.discovery.heard import Heard
from edge_opid.discovery.names import NOTHING_LEFT, cut, sensor_id, slug, unique
from edge_opid.discovery.values import Unmapped, Value, checked, example
from edge_opid.wire.limits import LIMITS

SYSTEMS = (zigbee2mqtt.find, tasmota.find, homeassistant.find, plain.find)
RESERVED = ("bias", "held")
"""Names that a node has for itself: of a column, and of instances that no source completed."""
AWAY = ("absent", "away", "empty", "free", "nobody", "off", "out", "unoccupied", "vacant")
UNMAPPED_MAX = 200  # lines that anybody would read
ALTERNATIVE = """\
# If this is what the node should learn, delete the sensor above and its field (the whole
# [[foreign]], if it has no other), and take:"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a configuration has already: its sensors' ids and roles, how many sensors these are, its
    topics, its classes.
    """

    names: frozenset[str] = frozenset()
    sensors: int = 0
    topics: frozenset[str] = frozenset()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """Values with their ids, by topic, and what is not among them."""

    heard: Heard
    topics: dict[str, dict[str, Value]] = field(default_factory=dict)  # topic → id → value
    unmapped: list[Unmapped] = field(default_factory=list)
    classes: tuple[str, ...] = ()

    @property
    def sensors(self) -> int:
        """How many sensors are proposed."""
        return sum(map(len, self.topics.values())) - (self.learned is not None)

    @property
    def learned(self) -> Value | None:
        """The presence that the node is to learn, where its classes tell, and there is one."""
        found = [each for some in self.topics.values() for each in some.values() if each.presence]
        return found[0] if len(found) == 1 and _tell_presence(self.classes) else None


def propose(heard: Heard, known: Known | None = None) -> Proposal:
    r"""Proposals for everything that is there and that no configuration has yet.

    >>> heard = Heard()
    >>> heard.add("esp-1/sensor/air_temp/state", b"21.5", retained=True, at_s=0.0)
    >>> print("\n".join(toml_lines(propose(heard))))
    # ESPHome: esp-1 (retained, not heard live)
    [[foreign]]
    filter = "esp-1/sensor/air_temp/state"
    source = "esp-1"
    fields = "esp-1-air-temp"
    <BLANKLINE>
    [[sensors]]
    id = "esp-1-air-temp"  # 21.5
    role = "esp-1-air-temp"
    <BLANKLINE>
    """
    known = known or Known()
    proposal = Proposal(heard, classes=known.classes)
    taken = {*known.names, *RESERVED}
    room = LIMITS.sensors_max - known.sensors
    for value in _each_once(heard, proposal.unmapped):
        if value.topic in known.topics:
            continue
        if why := _obstacle(value, proposal, room):
            proposal.unmapped.append(Unmapped(value.topic, value.path, why))
            continue
        name = unique(sensor_id(value.device, value.measure), taken)
        taken.add(name)
        proposal.topics.setdefault(value.topic, {})[name] = value
    return proposal


def _obstacle(value: Value, proposal: Proposal, room: int) -> str:
    """Why there is no place for a value; empty where there is one."""
    beside = proposal.topics.get(value.topic, {}).values()
    if any(bool(each.path) != bool(value.path) for each in beside):
        return "another value of this topic is announced, and they cannot both be its payload"
    return "" if proposal.sensors < room else f"a node has room for {LIMITS.sensors_max} sensors"


def _each_once(heard: Heard, unmapped: list[Unmapped]) -> Iterator[Value]:
    """Every value of the first system that knows its topic; what cannot be goes to `unmapped`."""
    owner: dict[str, object] = {}
    seen: set[tuple[str, str]] = set()
    for system in SYSTEMS:
        for found in system(heard):
            place = found.topic, found.path
            if owner.setdefault(found.topic, system) is not system or place in seen:
                continue
            seen.add(place)
            last = heard.topics.get(found.topic)
            result = checked(found, None if last is None else last.payload)
            if isinstance(result, Value):
                yield result
            else:
                unmapped.append(result)


def toml_lines(proposal: Proposal) -> Iterator[str]:
    """The lines to append to a `node.toml`."""
    learned = proposal.learned
    for topic, values in proposal.topics.items():
        sensors = {name: value for name, value in values.items() if value is not learned}
        if sensors:
            yield from _foreign(topic, sensors, proposal.heard)
        for name, value in sensors.items():
            yield from _sensor(name, value, proposal.heard)
            if value.presence:
                yield ALTERNATIVE
                yield from (
                    comment(each) if each else "" for each in _truth(value, proposal.classes)
                )
    if learned is not None:
        yield "# By its classes, this is what the node should learn, so it is not a sensor."
        yield from _truth(learned, proposal.classes)
    if proposal.unmapped:
        yield "# Not mapped:"
        shown = proposal.unmapped[:UNMAPPED_MAX]
        yield from (comment(f"  {each.what}: {each.why}") for each in shown)
        if len(proposal.unmapped) > len(shown):
            yield f"#   and {len(proposal.unmapped) - len(shown)} more"
    if proposal.heard.left_out:
        yield f"# {proposal.heard.left_out} messages of other topics were left out: give a --filter"


def _foreign(topic: str, sensors: dict[str, Value], heard: Heard) -> Iterator[str]:
    first = next(iter(sensors.values()))
    fields = {value.path: name for name, value in sensors.items()}
    yield comment(f"{first.system}: {first.device} ({_rhythm(topic, heard)})")
    yield "[[foreign]]"
    yield f"filter = {quoted(topic)}"
    yield f"source = {quoted(_source(first.device))}"
    yield f"fields = {quoted(fields['']) if '' in fields else inline_table(fields)}"
    where = availability(topic, sensors.values(), heard)
    if where:
        yield f"availability = {quoted(where)}"
    yield ""


def _source(device: str) -> str:
    name = cut(slug(device)) or NOTHING_LEFT
    return unique(name, RESERVED)


def _sensor(name: str, value: Value, heard: Heard) -> Iterator[str]:
    last = heard.topics.get(value.topic)
    said = None if last is None else example(value, last.payload)
    about = " ".join([*([] if said is None else [f"{said:g}"]), *([value.unit] * bool(value.unit))])
    yield "[[sensors]]"
    yield f"id = {quoted(name)}" + (f"  {comment(about)}" if about else "")
    yield f"role = {quoted(name)}"
    if value.binary:
        yield "reference = 0.0"
        yield "scale = 1.0"
    yield ""


def _truth(value: Value, classes: tuple[str, ...]) -> Iterator[str]:
    """Presence may be what the node is to tell; then it must not be among the sensors, too."""
    meaning = dict(zip(value.words, _there_and_away(classes), strict=True))
    yield "[[truth]]"
    yield f"filter = {quoted(value.topic)}"
    if value.path:
        yield f"field = {quoted(value.path)}"
    yield f"values = {inline_table(meaning)}"
    yield "valid_s = 1800  # for how long it is so, unless the device says otherwise"
    yield ""


def _there_and_away(classes: tuple[str, ...]) -> tuple[str, str]:
    """Which of two classes means that somebody is there, if their names tell.

    >>> _there_and_away(("empty", "in use")), _there_and_away(("dry", "fine", "damp"))
    (('in use', 'empty'), ('occupied', 'empty'))
    """
    away = [each for each in classes if each.lower() in AWAY]
    there = [each for each in classes if each not in away]
    return (there[0], away[0]) if _tell_presence(classes) else ("occupied", "empty")


def _tell_presence(classes: tuple[str, ...]) -> bool:
    """Whether there are two classes, of which one means that nobody is there."""
    return len(classes) == 2 and sum(each.lower() in AWAY for each in classes) == 1


def _rhythm(topic: str, heard: Heard) -> str:
    said = heard.topics.get(topic)
    if said is None:
        return "announced, not heard"
    if not said.live:
        return "retained, not heard live"
    if said.every_s is None:
        return "heard once"
    return f"heard {said.live} times, about every {said.every_s:.3g} s"
