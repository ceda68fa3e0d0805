"""What a gateway reads back from its store: at its start, for a fit, and of a node by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.decisions.actions import Fit
from gateway.decisions.gateway import Gateway
from gateway.fitting.job import FitJob
from gateway.fitting.long_memory import LongMemory, long_memory
from gateway.registry import (
    ChangeRecord,
    ExampleRecord,
    FitRecord,
    LayoutRecord,
    NodeKey,
    SummaryRecord,
)
from gateway.registry.fleet import Fleet, StoredFleet
from gateway.store import FleetStore


def recalled(store: FleetStore) -> tuple[StoredFleet, dict[int, FitRecord]]:
    """What the store remembers of the fleet, and the fits whose weights are in force."""
    stored = store.fleet()
    examples = {
        change.id: [(e.site, e.node, e.source, e.boot, e.seq) for e in store.examples(change.id)]
        for change in stored.changes
    }
    fits = {change.id: pushed_fit(store, change) for change in stored.changes}
    return replace(stored, examples=examples), {i: fit for i, fit in fits.items() if fit}


def pushed_fit(store: FleetStore, change: ChangeRecord) -> FitRecord | None:
    """The fit whose weights the members of a change have."""
    if change.pushed < 0:
        return None
    return next((fit for fit in store.fits(change.id) if fit.size == change.pushed), None)


def layouts_of(
    store: FleetStore, records: Sequence[SummaryRecord] | Sequence[ExampleRecord]
) -> dict[tuple[str, str, int], LayoutRecord]:
    """The layouts that these are of."""
    keys = {(each.site, each.node, each.layout_version) for each in records}
    return {layout.key: layout for layout in store.layouts(keys)}


def long_memories(
    store: FleetStore, fleet: Fleet, keys: Iterable[NodeKey]
) -> dict[NodeKey, LongMemory | None]:
    """What each of these nodes has last said of what it knows, if it can be right."""
    found: dict[NodeKey, LongMemory | None] = dict.fromkeys(keys)
    summaries = store.summaries(found)
    layouts = layouts_of(store, summaries)
    for key in found:
        group = fleet.group_of(key)
        if group is not None:
            own = [each for each in summaries if (each.site, each.node) == key]
            found[key] = long_memory(own, layouts, group.classes)
    return found


MEMBERS_AT_ONCE = 250
"""Members that are read for a fit in one round of the loop: in some 50 ms."""


class FitPreparation:
    """Everything a fit depends on, read a few members at a time: messages are answered meanwhile.

    The batch, which has a limit of its own, is read first and at once: once the change is closed it
    is forgotten.
    """

    def __init__(self, store: FleetStore, gateway: Gateway, wanted: Fit) -> None:
        self._store, self._fleet = store, gateway.fleet
        policy, change = gateway.policy, gateway.fleet.changes[wanted.change]
        group = gateway.fleet.groups[change.group]
        self._left = sorted(group.keys)
        self._summaries: list[SummaryRecord] = []
        self._newest: dict[NodeKey, LayoutRecord] = {}
        examples = store.examples(change.id)
        self._layouts = layouts_of(store, examples)
        self._batch = FitJob(
            change=change,
            size=wanted.size,
            classes=group.classes,
            layouts={},
            summaries=(),
            examples=examples,
            previous=pushed_fit(store, change),
            lam=policy.lam,
            rho=policy.rho,
            weights=policy.weights,
            kernels=policy.kernels,
            archives=store.archives(group.id),
        )

    def read_some(self) -> FitJob | None:
        """Read the next members; the job, once they are all there."""
        keys = self._left[:MEMBERS_AT_ONCE]
        summaries = self._store.summaries(keys)
        self._layouts |= layouts_of(self._store, summaries)
        # nothing below fails, so a portion that the database refused is read again as a whole
        self._summaries += summaries
        self._newest |= {k: self._fleet.layouts[k] for k in keys if k in self._fleet.layouts}
        self._left = self._left[MEMBERS_AT_ONCE:]
        if self._left:
            return None
        return replace(
            self._batch, layouts=self._layouts, summaries=self._summaries, newest=self._newest
        )
