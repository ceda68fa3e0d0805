"""What a gateway reads back from its store: at its start, and for a fit."""

from __future__ import annotations

from dataclasses import replace

from gateway.decisions.gateway import Gateway
from gateway.fitting.job import FitJob
from gateway.registry import ChangeRecord, FitRecord
from gateway.registry.fleet import StoredFleet
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


def fit_job(store: FleetStore, gateway: Gateway, change_id: int, size: int) -> FitJob:
    """Everything a fit depends on."""
    policy, change = gateway.policy, gateway.fleet.changes[change_id]
    group = gateway.fleet.groups[change.group]
    summaries, examples = store.summaries(group.keys), store.examples(change_id)
    keys = {(each.site, each.node, each.layout_version) for each in summaries}
    keys |= {(each.site, each.node, each.layout_version) for each in examples}
    return FitJob(
        change=change,
        size=size,
        classes=group.classes,
        layouts={layout.key: layout for layout in store.layouts(keys)},
        newest={
            key: gateway.fleet.layouts[key] for key in group.keys if key in gateway.fleet.layouts
        },
        summaries=summaries,
        examples=examples,
        previous=pushed_fit(store, change),
        lam=policy.lam,
        rho=policy.rho,
        weights=policy.weights,
        kernels=policy.kernels,
        archives=store.archives(group.id),
    )
