"""The life of a change: gather a batch, fit it at growing sizes, keep what is better, close.

A fit takes seconds and happens elsewhere: `take_due` asks for it, `keep_fit` keeps the result.
Which fits are due follows from the records alone, so a gateway that was killed while fitting asks
again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from edge_opid.reasons import Reason
from edge_opid.wire import Example
from gateway.decisions.actions import Action, Fit, ForgetExamples
from gateway.decisions.cohorts import close
from gateway.fitting.models import PushedWeights, fitted_model
from gateway.policy import Policy
from gateway.reasons import GatewayReason
from gateway.registry import (
    ChangeRecord,
    ChangeState,
    EventError,
    ExampleRecord,
    FitRecord,
    NodeKey,
)
from gateway.registry.fleet import Fleet


class Changes:
    """What is gathered and fitted for the open changes of a fleet."""

    def __init__(self, fleet: Fleet, policy: Policy, pushed: Mapping[int, FitRecord]) -> None:
        self._fleet, self._policy = fleet, policy
        self._models = {change: self._model(fit) for change, fit in pushed.items()}
        self._tried: dict[int, int] = {}
        """The size last asked for, of changes that are being fitted or could not be."""
        self._asked: dict[NodeKey, tuple[int, int]] = {}
        """In which change, and for how many instances in all, this life has asked each node."""

    def _model(self, fit: FitRecord) -> PushedWeights:
        model = fitted_model(fit, self._fleet.changes[fit.change])
        return PushedWeights(fit.size, model, self._policy.weights)

    def model(self, change: int) -> PushedWeights | None:
        """The weights that members of this change should have."""
        return self._models.get(change)

    def ask(self, key: NodeKey, change: ChangeRecord) -> int:
        """How many labelled instances the next order asks of this member; more are refused.

        Twice its share of what is lacking, since some will be lost; and of the whole batch never
        more than twice its share: a batch that one member could fill alone would be its word alone.
        """
        quota = self._quota(key, change)
        number, asked = self._asked.get(key, (change.id, 0))
        self._asked[key] = change.id, quota + (asked if number == change.id else 0)
        return quota

    def _quota(self, key: NodeKey, change: ChangeRecord) -> int:
        if change.state != ChangeState.GATHERING:
            return 0
        batch, members = self._fleet.examples[change.id], self._fleet.size_of(change.id)
        lacking = self._policy.batch_max - len(batch)
        left = twice_a_share(self._policy.batch_max, members) - batch.given_by(key)
        return max(0, min(lacking, twice_a_share(lacking, members), left))

    def _check_asked(self, key: NodeKey, change: ChangeRecord) -> None:
        """Refuse what nobody asked for, and what is more than that."""
        given = self._fleet.examples[change.id].given_by(key)
        if key not in self._asked:  # asked by a former life of this gateway
            self._asked[key] = change.id, given + self._quota(key, change)
        number, asked = self._asked[key]
        share = twice_a_share(self._policy.batch_max, self._fleet.size_of(change.id))
        most = min(share, asked) if number == change.id else 0
        if given >= most:
            raise EventError(
                "quota",
                f"{'/'.join(key)} sent one more labelled instance than the {most} it was asked "
                f"for in change {change.id}",
            )

    def gather(self, key: NodeKey, example: Example) -> Reason:
        """Take a labelled instance of this node into its change; what became of it."""
        layout = self._fleet.layouts.get(key)
        change = self._fleet.changes.get(layout.change) if layout else None
        if layout is None or change is None or layout.version != example.layout_version:
            return GatewayReason.EXAMPLE_OTHER_LAYOUT
        batch = self._fleet.examples[change.id]
        if change.state != ChangeState.GATHERING or len(batch) >= self._policy.batch_max:
            return GatewayReason.EXAMPLE_NOT_NEEDED
        group = self._fleet.groups.get(change.group)
        if group is None:
            return (
                GatewayReason.EXAMPLE_NOT_NEEDED
            )  # taken out of the configuration, see `take_due`
        if example.label not in group.classes:
            sentence = f"label {example.label!r} of {'/'.join(key)} is none of {group.classes}"
            raise EventError("class", sentence)
        instance = example.instance
        if (*key, instance.source, instance.boot, instance.seq) in batch:
            return GatewayReason.EXAMPLE_TWICE
        self._check_asked(key, change)
        self._fleet.put(
            ExampleRecord(
                change=change.id,
                site=key[0],
                node=key[1],
                source=instance.source,
                boot=instance.boot,
                seq=instance.seq,
                layout_version=layout.version,
                label=example.label,
                values=dict(example.values),
                place=len(batch),
            )
        )
        return GatewayReason.EXAMPLES

    # -- what is due ---------------------------------------------------------------------------

    def take_due(self, now_ms: int, *, sure: bool = True) -> list[Action]:
        """Fits to make, and raw readings to forget; by a doubted clock no time is over."""
        actions: list[Action] = []
        agenda = self._fleet.agenda
        waited_before_ms = math.floor(now_ms - 1000 * self._policy.summary_wait_s) + 1
        over_before_ms = now_ms - 1000 * self._policy.gather_s if sure else None
        for number in agenda.take_changes(waited_before_ms, over_before_ms):
            change = self._fleet.changes.get(number)
            if change is None:
                continue
            if change.state == ChangeState.CLOSED:
                actions += self._tidy(change)
            elif change.group in self._fleet.groups:  # if not, it waits until it is back
                actions += self._look_at(change, now_ms, sure=sure)
        return actions

    def _look_at(self, change: ChangeRecord, now_ms: int, *, sure: bool) -> list[Action]:
        """An open change: the fit that is due, or its end."""
        agenda, size = self._fleet.agenda, self._due_size(change, now_ms)
        if size is not None:
            self._tried[change.id] = size
            agenda.stir(change.id)  # the batch may have outrun more than one size
            agenda.put_back_change(change)
            return [Fit(change.id, size)]
        if self._is_over(change, now_ms, sure=sure):
            close(self._fleet, change, now_ms)
        return []

    def _due_size(self, change: ChangeRecord, now_ms: int) -> int | None:
        """The batch size to fit now: the next of the plan, if it is there.

        None is left out, even where the batch has outrun the fits, so that what is pushed does not
        depend on when somebody looked.
        """
        count = len(self._fleet.examples[change.id])
        done = max(change.fitted, self._tried.get(change.id, -1))
        reached = [size for size in self._policy.batch_sizes() if done < size <= count]
        return reached[0] if reached and self._summaries_in(change, now_ms) else None

    def _summaries_in(self, change: ChangeRecord, now_ms: int) -> bool:
        """Whether every member has said what it knew, or has had the time to."""
        if now_ms - change.opened_ms >= 1000 * self._policy.summary_wait_s:
            return True
        return self._fleet.agenda.all_reported(change.id)

    def _is_over(self, change: ChangeRecord, now_ms: int, *, sure: bool) -> bool:
        full = change.fitted >= self._policy.batch_max
        return full or (sure and now_ms - change.opened_ms > 1000 * self._policy.gather_s)

    def _tidy(self, change: ChangeRecord) -> list[Action]:
        """Once closed, its raw readings go; once nobody is in it, it is history."""
        if self._fleet.examples.pop(change.id, None):
            self._fleet.agenda.stir(change.id)
            return [ForgetExamples(change.id)]
        if not self._fleet.size_of(change.id):
            self._fleet.forget_change(change.id)
            self._models.pop(change.id, None)
            self._tried.pop(change.id, None)
        return []

    def keep_fit(self, fit: FitRecord) -> bool:
        """Keep a fit; whether the members should have its weights."""
        change = self._fleet.changes.get(fit.change)
        if change is None or fit.size <= change.fitted:
            return False
        pushed = fit.size if fit.pushed else change.pushed
        self._fleet.put(fit)
        self._fleet.put(replace(change, fitted=fit.size, pushed=pushed))
        if fit.pushed:
            self._models[change.id] = self._model(fit)
        return fit.pushed


QUOTA_MIN = 8
"""Labels are seldom: in a large cohort, whoever has a few may send them."""


@lru_cache(maxsize=64)  # all members of a wave have the same
def twice_a_share(instances: int, members: int) -> int:
    """What one of so many members may bring of so many instances.

    >>> twice_a_share(960, 3), twice_a_share(960, 10_000)
    (640, 8)
    """
    return max(QUOTA_MIN, -(-2 * instances // max(1, members)))
