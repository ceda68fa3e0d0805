r"""A scenario: a TOML file that says who there is, what is sensed, and what happens when.

Time is counted in readings: `at = 300` is just before the 300th reading of every node, whether the
scenario is played on simulated time or with real processes. A mistake names file, line and key:

>>> text = '[scenario]\nabout = "x"\nworld = "street"\nsensors = ["pm25"]\nlabels = 3'
>>> parse_scenario(text, Path("mine.toml"))
Traceback (most recent call last):
...
edge_opid.errors.ConfigError: mine.toml, line 5: scenario.labels must be from 0 to 1, got 3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edge_opid.config.schema import Document, Shape, Table, kinds_of, read_text
from edge_opid.errors import ConfigError, SettingError, shown
from firmware_sim.scenario.checks import check_scenario
from gateway.policy import Policy

__all__ = ["Event", "Scenario", "Trouble", "load_scenario", "parse_scenario", "shipped"]

FOLDER = Path(__file__).parents[1] / "scenarios"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Event:
    """Something happens to a sensor, on some nodes (none named: on all).

    | `do` | what happens to the sensor in the role `sensor` |
    |---|---|
    | `retire` | it is taken away, and an operator says so |
    | `silence` | it says nothing any more, and nobody says so |
    | `deploy` | it joins, beside the others |
    | `replace` | it is taken away, and another comes: of another make in the same role, or `by` \
one in another role |

    Without a `data_sheet` nobody knows the newcomer's reference and scale: they are measured first.
    """

    at: int
    do: str
    sensor: str
    by: str = ""
    nodes: tuple[str, ...] = ()
    data_sheet: bool = True


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault of `chaos.faults`, once or `every` so many readings; simulated time only.

    `target` is a node, `gateway`, `broker`, or `all`: every node, one after the other. What
    happens to a card happens to that of the node's box.
    """

    at: int
    kind: str
    target: str
    lasts: float = 2.0  # readings
    every: int = 0  # 0: once
    detail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything but the seed.

    >>> scenario = load_scenario("one_retire")
    >>> scenario.names, [event.do for event in scenario.events]
    (('n1', 'n2', 'n3'), ['retire'])
    >>> load_scenario("one_retire", nodes=1).names
    ('n1',)
    """

    about: str
    world: str
    sensors: tuple[str, ...]  # roles that every node has at the beginning
    nodes: int = 4
    readings: int = 400  # of every node
    every_s: float = 300.0  # of the world's time, between two of them
    speed: float = 15.0  # readings a second and node, with real processes
    labels: float = 1.0  # the share of readings whose truth somebody tells …
    label_late: int = 0  # … so many readings later; 0: with the reading itself
    name: str = ""
    events: tuple[Event, ...] = ()
    faults: tuple[Trouble, ...] = ()
    gateway: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of `Policy`

    def __post_init__(self) -> None:
        object.__setattr__(self, "gateway", MappingProxyType(dict(self.gateway)))

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes: n1, n2, …"""
        return tuple(f"n{place + 1}" for place in range(self.nodes))

    def whom(self, event: Event) -> tuple[str, ...]:
        """The nodes that an event is about."""
        return event.nodes or self.names

    def policy(self, period_s: float) -> Policy:
        """How patient the gateway is, where readings are so far apart."""
        usual = {
            "silence_s": 25 * period_s,
            "settle_s": min(0.3, period_s),
            "measure_readings": 30,
            "summary_wait_s": max(3.0, 10 * period_s),
            "batch_max": 120,
            "retry_s": 2.0,
            "retry_max_s": 8.0,
        }
        return Policy(**{**usual, **self.gateway})

    def with_nodes(self, nodes: int) -> Scenario:
        """The same with more or fewer nodes; what would happen to absent ones is left out."""
        made = replace(self, nodes=nodes)
        events = [
            replace(each, nodes=tuple(node for node in each.nodes if node in made.names))
            for each in self.events
        ]
        kept = [
            now for now, was in zip(events, self.events, strict=True) if now.nodes or not was.nodes
        ]
        present = (*made.names, "gateway", "broker", ALL)
        faults = tuple(each for each in self.faults if each.target in present)
        return replace(made, events=tuple(kept), faults=faults)

    def shortened(self, readings: int) -> Scenario:
        """The same story in fewer readings: everything happens at the same share of it."""
        share = readings / self.readings

        def at(place: int) -> int:
            return max(1, round(place * share))

        events = tuple(replace(each, at=at(each.at)) for each in self.events)
        faults = tuple(
            replace(each, at=at(each.at), every=at(each.every) if each.every else 0)
            for each in self.faults
        )
        return replace(self, readings=readings, events=events, faults=faults)


SHAPE = Shape(
    sections={
        "scenario": kinds_of(Scenario, "name", "events", "faults", "gateway"),
        "gateway": kinds_of(Policy),
    },
    lists={"events": Event, "faults": Trouble},
    needed=("scenario.about", "scenario.world", "scenario.sensors"),
)


def shipped() -> dict[str, Path]:
    """The scenarios that come with the package, by name.

    >>> "rolling_replacement" in shipped()
    True
    """
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load_scenario(name: str, nodes: int | None = None) -> Scenario:
    """A scenario by its name, or from a file; with another number of nodes, if one is given.

    >>> load_scenario("rolling")
    Traceback (most recent call last):
    ...
    edge_opid.errors.ConfigError: scenario 'rolling' is neither a file nor one of \
brown_out, hostile_broker, hundred_nodes, label_drought, meeting_rooms, misadventures, one_retire, \
rolling_replacement, silent_death
    """
    path = shipped().get(name, Path(name))
    if not path.is_file():
        known = ", ".join(shipped())
        raise ConfigError(f"scenario {shown(name)} is neither a file nor one of {known}")
    found = parse_scenario(read_text(path), path)
    if nodes is None:
        return found
    changed = found.with_nodes(nodes)
    try:
        check_scenario(changed)
    except SettingError as error:
        raise ConfigError(f"{path.name} with {nodes} nodes: {error}") from error
    return changed


def parse_scenario(text: str, path: Path = Path("scenario.toml")) -> Scenario:
    """The scenario in `text`, which stands in `path`."""
    document = Document.parse(text, path)
    with document.blaming():
        made = _built(SHAPE.check(_without_all(document.tables)), path.stem)
        check_scenario(made)
        made.policy(1.0)
        return made


def _built(found: Table, name: str) -> Scenario:
    return Scenario(
        **found["scenario"],
        name=name,
        events=tuple(Event(**table) for table in found.get("events", [])),
        faults=tuple(Trouble(**table) for table in found.get("faults", [])),
        gateway=found.get("gateway", {}),
    )


def _without_all(tables: Table) -> Table:
    """`nodes = "all"` may be written, and means what leaving it out means."""
    events = tables.get("events")
    if isinstance(events, list):
        for event in events:
            if isinstance(event, dict) and event.get("nodes") == ALL:
                del event["nodes"]
    return tables
