"""What the operator decides once: groups of nodes, and how patient and how thorough to be.

A mistake raises `SettingError`, which names the key as it stands in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edge_opid.config.schema import (
    DURATION_S_MAX,
    check_classes,
    check_name,
    check_unique,
    check_within,
)
from edge_opid.errors import SettingError
from edge_opid.wire import LIMITS

DTYPES = ("float32", "float16")


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one site with the same task: what one has learned serves the others.

    >>> Group("air", "street", ("fresh", "stale"), ("north", "south")).keys
    (('street', 'north'), ('street', 'south'))
    """

    id: str
    site: str
    classes: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Site and node of every member."""
        return tuple((self.site, node) for node in self.nodes)

    def check(self, key: str) -> None:
        """Refuse what no fleet could be; `key` is where this group stands."""
        for name, value in (("id", self.id), ("site", self.site)):
            check_name(value, f"{key}.{name}")
        for place, node in enumerate(self.nodes):
            check_name(node, f"{key}.nodes[{place}]")
        if not 2 <= len(self.classes) <= LIMITS.classes_max:
            complaint = f"must be 2 to {LIMITS.classes_max} names, got {len(self.classes)}"
            raise SettingError(f"{key}.classes", complaint)
        check_classes(self.classes, f"{key}.classes")
        check_unique(self.nodes, f"{key}.nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the gateway behaves. Each default has its reason beside it.

    >>> Policy(first_batch=3)
    Traceback (most recent call last):
    ...
    edge_opid.errors.SettingError: gateway.first_batch must be from 6 to 960, got 3
    """

    silence_s: float = 3_600.0  # a sensor silent for longer is retired; nodes bridge meanwhile
    settle_s: float = 5.0  # announcements of a node within it are one change
    measure_readings: int = 50  # first values, its own and its peers', for reference and scale
    overlap_readings: int = 50  # of a new sensor beside the living one it replaces; 0: no overlap
    summary_wait_s: float = 60.0  # for nodes to upload what they knew before a change
    first_batch: int = 30  # labelled instances for the first fit; then twice as many each time
    batch_max: int = 960  # of a change: then it is closed
    gather_s: float = 14 * 86_400.0  # the longest a change stays open for more labels
    retry_s: float = 30.0  # before an unreported order is published again; doubles each time …
    retry_max_s: float = 3_600.0  # … up to this
    lam: float = 1.0  # λ of Eq. 2
    rho: float = 1.0  # ρ of Eq. 2
    weights: str = "float32"  # or float16: half the bytes; the price is reported with each fit
    kernels: bool = False  # offer kernels, too: for what no matrix can tell; more bytes, more time

    def __post_init__(self) -> None:
        for name in ("silence_s", "settle_s", "summary_wait_s", "gather_s", "retry_s"):
            check_within(getattr(self, name), f"gateway.{name}", 0, DURATION_S_MAX)
        check_within(self.lam, "gateway.lam", 0, LIMITS.number_max)
        check_within(self.rho, "gateway.rho", LIMITS.positive_min, LIMITS.number_max)
        check_within(self.retry_max_s, "gateway.retry_max_s", self.retry_s, DURATION_S_MAX)
        check_within(self.measure_readings, "gateway.measure_readings", 2, 10_000)
        check_within(self.overlap_readings, "gateway.overlap_readings", 0, 10_000)
        check_within(self.batch_max, "gateway.batch_max", 6, 100_000)
        check_within(self.first_batch, "gateway.first_batch", 6, self.batch_max)
        if self.weights not in DTYPES:
            complaint = f"must be {' or '.join(DTYPES)}, got {self.weights!r}"
            raise SettingError("gateway.weights", complaint)

    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which a change is fitted: none yet, the first ones, then doubling.

        >>> Policy(batch_max=300).batch_sizes()
        (0, 30, 60, 120, 240, 300)
        """
        found, size = [0], self.first_batch
        while size < self.batch_max:
            found.append(size)
            size *= 2
        return (*found, self.batch_max)


def check_groups(groups: Iterable[Group]) -> None:
    """Each group is sound, and no node is in two of them."""
    ids: set[str] = set()
    owner: dict[tuple[str, str], str] = {}
    for place, group in enumerate(groups):
        group.check(f"groups[{place}]")
        if group.id in ids:
            raise SettingError(f"groups[{place}].id", f"must differ, got {group.id!r} twice")
        ids.add(group.id)
        for key in group.keys:
            if key in owner:
                both = f"{owner[key]!r} and {group.id!r}"
                complaint = f"must have each node once, got {'/'.join(key)} in {both}"
                raise SettingError(f"groups[{place}].nodes", complaint)
            owner[key] = group.id
