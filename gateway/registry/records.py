"""What the gateway must not forget: frozen records, one class a table, no I/O.

A record replaces the one with the same key. Times are milliseconds since 1970, arrays are
little-endian float32 bytes, names are tuples of text, so that a store needs no knowledge of them.

| record | key | what |
|---|---|---|
| `NodeRecord` | site, node | whose group it is in, and what it last reported |
| `SensorRecord` | site, node, id | where a sensor is in its life |
| `LayoutRecord` | site, node, version | every layout a node was ever told, and in which change |
| `OrderRecord` | site, node | the signed `desired` in force |
| `SummaryRecord` | site, node, layout_version | what a node's learner knew of a layout |
| `ChangeRecord` | id | a cohort: nodes that go through the same change, one batch, one fit |
| `ExampleRecord` | change, site, node, source, boot, seq | a labelled instance of the batch |
| `FitRecord` | change, size | a fit: its candidates, what was chosen, and the weights |
| `DoubtRecord` | site, node, kind | what the gateway was told, or found, and does not believe |
| `MinutesRecord`, `HourRecord`, `LifeRecord` | | what was: `registry.history` |
| `HeardRecord` | site | when each node of a large site was last heard: `registry.heard` |
| `IssuedRecord` | site, node | the highest version given out, where orders had to go below it |
| `ForgottenRecord` | site, node | not kept: saving it deletes everything of the node |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar

from edge_opid.wire import SensorDescription
from gateway.registry.heard import HeardRecord
from gateway.registry.history import HourRecord, LifeRecord, MinutesRecord
from gateway.registry.lifecycle import SensorState

NodeKey = tuple[str, str]
"""Site and node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node, and what it last said of itself."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node")
    site: str
    node: str
    group: str
    gate: float
    online: bool = False
    seen_ms: int = 0
    reported_version: int = 0
    """The last order it has obeyed."""
    reported_layout: int = 0
    reported_model: int = 0
    """The version of the order whose weights it holds; 0: none."""
    status: bytes = b""
    """Its last status message, as it came."""

    @property
    def key(self) -> NodeKey:
        """Site and node."""
        return self.site, self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecord:
    """A sensor of a node. Reference and scale are None as long as it is being measured."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node", "id")
    site: str
    node: str
    id: str
    role: str
    state: SensorState
    since_ms: int
    """When it came into this state."""
    timeout_s: float | None = None
    """None: the node goes by the sensor's own rhythm."""
    reference: float | None = None
    scale: float | None = None
    knots: tuple[float, ...] = ()
    unit: str | None = None
    end_of_life_ms: int | None = None
    replaces: str | None = None
    reason: str = ""
    """Why it is in this state, in the words of whoever said so."""
    announced_ms: int = 0
    """The time written on the last announcement about it: an older one is a late copy."""
    together: int = 0
    """Readings heard of it together with the sensor it replaces, before it has a column."""
    judged: int = 0
    """Of these, how many a model of the node was asked about, with either sensor."""
    agreed: int = 0
    """… and how often its answer was the same."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Site, node and id."""
        return self.site, self.node, self.id

    @property
    def is_known(self) -> bool:
        """Whether its values can be used: reference and scale are there."""
        return self.reference is not None and self.scale is not None

    def description(self) -> SensorDescription:
        """The sensor as the wire describes it in a layout."""
        if self.reference is None or self.scale is None:
            raise ValueError(f"sensor {self.id!r} of {self.node!r} has not been measured yet")
        return SensorDescription(
            id=self.id,
            role=self.role,
            reference=self.reference,
            scale=self.scale,
            timeout_s=self.timeout_s,
            knots=self.knots,
            unit=self.unit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRecord:
    """A layout that a node has, or is told to take. `change` is 0 where it brought its own."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node", "version")
    site: str
    node: str
    version: int
    sensors: tuple[SensorDescription, ...]
    vanishing: tuple[str, ...]
    gate: float
    change: int
    at_ms: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Site, node and version."""
        return self.site, self.node, self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRecord:
    """The `desired` in force for a node: signed once, published until it is reported."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node")
    site: str
    node: str
    version: int
    layout_version: int
    payload: bytes
    at_ms: int
    fit: int = -1
    """The size of the fit whose weights it carries; -1: none."""

    @property
    def key(self) -> NodeKey:
        """Site and node."""
        return self.site, self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRecord:
    """A node's statistics for one layout, as the wire brought them."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node", "layout_version")
    site: str
    node: str
    layout_version: int
    payload: bytes
    at_ms: int


class ChangeState(StrEnum):
    """How far a change has come."""

    GATHERING = "gathering"
    """Nodes report labelled instances; the model is fitted anew as the batch grows."""
    CLOSED = "closed"
    """The batch is full, its time is over, or every node has moved on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """A cohort: nodes of one group on their way to the same columns, from the same survivors."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: int
    group: str
    retired: tuple[str, ...]
    """Roles that went, sorted."""
    arrived: tuple[str, ...]
    """Roles the survivors' statistics do not know, sorted."""
    columns: tuple[str, ...]
    """Every column of the new layout by name, sorted: the order of the fitted matrix."""
    opened_ms: int
    state: ChangeState = ChangeState.GATHERING
    fitted: int = -1
    """The size of the batch at the last fit; -1: not yet fitted."""
    pushed: int = -1
    """The size of the batch at the last fit that was pushed; -1: none was."""
    closed_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRecord:
    """A labelled instance of a change's batch: raw values by sensor id."""

    KEY: ClassVar[tuple[str, ...]] = ("change", "site", "node", "source", "boot", "seq")
    change: int
    site: str
    node: str
    source: str
    boot: int
    seq: int
    layout_version: int
    label: str
    values: dict[str, float]
    place: int
    """Its number in the batch, from 0, in the order of arrival."""

    @property
    def owner(self) -> NodeKey:
        """Site and node."""
        return self.site, self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecord:
    """One fit of a change: what the candidates scored, which was chosen, why, and its weights."""

    KEY: ClassVar[tuple[str, ...]] = ("change", "size")
    change: int
    size: int
    """Labelled instances it was fitted on."""
    at_ms: int
    chosen: str
    why: str
    pushed: bool
    candidates: tuple[dict[str, Any], ...]
    """name, accuracy, behind, error and tier of every candidate."""
    pooled: tuple[str, ...]
    """The nodes whose statistics are in W^(s)."""
    refused: dict[str, str]
    """Nodes whose summary or labels cannot be right, and why."""
    readings: int
    """How many readings W^(s) rests on."""
    rounding_loss: float
    """Accuracy given up by the precision the weights travel in."""
    parts: dict[str, bytes]
    """W, W_s, V_z, V_a, bias in float32: rows of W in the order of the change's columns. Those of a
    kernel are W_s, centre, scale, support, A_s, A_b, bias and kernel: `gateway.fitting.models`."""
    survivors: tuple[str, ...] = ()
    """The columns whose weights come from statistics: the rows of W_s, in order."""
    new: tuple[str, ...] = ()
    """The columns learned from the batch alone: the rows of V_a, in order."""
    compact_loss: float = 0.0
    """Accuracy on held-out instances that a kernel on landmarks gives up against the exact one."""

    @property
    def is_kernel(self) -> bool:
        """Whether nodes get a kernel, and not one matrix."""
        return "kernel" in self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtRecord:
    """What was said and is not believed, for whoever looks: the last time, and how often."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node", "kind")
    site: str
    node: str
    """Empty where the doubt is about the gateway's own clock; so is the site, where it has all."""
    kind: str
    sentence: str
    """Empty once there is no doubt any more."""
    count: int
    at_ms: int

    @property
    def key(self) -> tuple[str, str, str]:
        """Site, node and kind."""
        return self.site, self.node, self.kind


@dataclass(frozen=True, slots=True)
class IssuedRecord:
    """The highest version ever given to a node whose order in force has a lower one."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node")
    site: str
    node: str
    version: int

    @property
    def key(self) -> NodeKey:
        """Site and node."""
        return self.site, self.node


@dataclass(frozen=True, slots=True)
class ForgottenRecord:
    """A node that an operator had forgotten: what was saved of it before goes."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node")
    site: str
    node: str


Record = (
    NodeRecord
    | SensorRecord
    | LayoutRecord
    | OrderRecord
    | SummaryRecord
    | ChangeRecord
    | ExampleRecord
    | FitRecord
    | DoubtRecord
    | IssuedRecord
    | ForgottenRecord
    | MinutesRecord
    | HourRecord
    | LifeRecord
    | HeardRecord
)


def key_of(record: Any) -> tuple[Any, ...]:
    """The values of the fields that tell a record from all others of its class.

    >>> key_of(IssuedRecord("street", "north", 7)), key_of(HeardRecord.of("street", {}))
    (('street', 'north'), ('street',))
    """
    kind = type(record)
    getter = _KEY_GETTERS.get(kind) or _KEY_GETTERS.setdefault(kind, _key_getter(kind))
    return getter(record)


_KEY_GETTERS: dict[type[Any], Callable[[Any], tuple[Any, ...]]] = {}
"""Made once for each class: every record that is put or saved is asked for its key."""


def _key_getter(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    names: tuple[str, ...] = kind.KEY
    if len(names) == 1:  # of one name `attrgetter` gives no tuple
        return lambda record: (getattr(record, names[0]),)
    return attrgetter(*names)
