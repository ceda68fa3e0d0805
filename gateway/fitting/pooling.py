"""What a whole group of nodes knows: their summaries added up, and W^(s) for the actual survivors.

G = Σx̃x̃ᵀ and Σx̃yᵀ are sums over readings, so the sums of many nodes are those of one learner that
had seen all their readings. Columns are found by role, in whatever order a node has them. Rules, in
this order; a summary that breaks one is refused by name and the others go on:

1. It has as many columns as roles, and the Gram entries for them.
2. It has the group's classes.
3. Every number is finite.
4. None is larger than so many readings within the node's gate can add up to.
5. Its Gram matrix has no negative eigenvalue beyond what float32 rounding explains.
6. No moment is larger than its column's sum of squares and the evidence allow.

A summary can keep all of these and still be a lie. So nobody's word outweighs the others': in a
pool of n members none counts for more than (n − 1)/2 times the one in the middle, which is half of
all the others together where they know equally much (`shares`). Who is counted for less is listed.

An archive is no word of a node: an operator vouches for it, and it moves nobody's bound. But it is
of the past, so all archives together count for a few readings a column and no more, however many
they have (docs/decisions/0050): a fleet starts with them, and its own readings soon decide.

A node without one of the roles in question is no error: it is left out, and listed.

Where nodes say how their sensors go together in all readings, labelled or not, those sums are added
up by the same rules, and W^(s) is distilled from them (docs/decisions/0032): the labels teach W̃ of
all columns, and the readings without a label teach the survivors to say what W̃ says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import numpy as np

from edge_opid.errors import MismatchError
from edge_opid.learner import Summary
from edge_opid.learner.handover import READINGS_PER_LABEL, careful_ridge, distilled
from edge_opid.learner.settings import EVIDENCE_MAX, LIMIT
from edge_opid.learner.statistics import Matrix, Statistics, positive_part, solve

ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""How far below zero an eigenvalue may be, as a share of the trace: each entry was rounded once."""
OUTWEIGH_MIN = 1.5
"""In a small pool: less would weigh nodes that differ by chance; with 2, one of three would win."""
LEARNED_FROM = 10
"""Readings a column, up to which a member counts in full: where the others have only just begun,
what one has learned for long is not held against it."""
ARCHIVE_LABELLED, ARCHIVE_READINGS = 20, 200
"""Readings a column that archives count for together at most: with a label, and of all."""
SLACK = 1.01
"""Sums in float32 over millions of readings may be a little above what exact ones could be."""
ROOM = 1.1
"""For a Gram matrix that was found by inverting: hardly used columns have few digits."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node's summary, and the role of each of its columns (hats: `temp.0`, `temp.1`, …)."""

    node: str
    roles: tuple[str, ...]
    summary: Summary
    largest: float = LIMIT
    """No column is ever larger: the gate of its layout, or what a learner takes at most."""
    everything: Summary | None = None
    """The same columns in all readings, labelled or not: no moments, d×0."""
    archive: bool = False
    """Whether an operator has learned it from an archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The group's statistics for some roles: the vanishing columns first, then the survivors."""

    roles: tuple[str, ...]
    vanishing: int
    known: Statistics
    nodes: tuple[str, ...]
    """Whose readings are in."""
    lacking: dict[str, tuple[str, ...]]
    """Nodes left out, and the roles each does not have."""
    refused: dict[str, str]
    """Nodes whose summary cannot be right, and why."""
    reduced: dict[str, float] = field(default_factory=dict)
    """Nodes that would outweigh the others, and the share of their readings that counts."""
    everything: Statistics | None = None
    """The sums over all readings, labelled or not; None where nobody has said them."""
    archived: float = 1.0
    """The share of the archives' labelled readings that counts."""

    @property
    def is_distilled(self) -> bool:
        """Whether readings without labels teach the survivors: there are enough of them."""
        if self.everything is None:
            return False
        return self.everything.evidence >= READINGS_PER_LABEL * self.known.evidence > 0

    def survivors_weights(self, lam: float, rho: float) -> Matrix:
        """W^(s), survivors×c, as if one learner had seen every reading of the group.

        Distilled where most readings have no label, and else of Eq. 4.
        """
        if self.everything is not None and self.is_distilled:
            return distilled(self.known, self.everything.gram, self._survivors, rho)
        return solve(self.known, self.vanishing, lam, rho)[1]

    def survivors_gram(self) -> Matrix:
        """The survivors' part of the Gram matrix: how sure the group is of their weights.

        Where they were distilled, as sure as labels make it, in the directions of all readings.
        """
        gram = self.known.gram
        if self.everything is not None and self.is_distilled:
            gram = self.known.evidence / self.everything.evidence * self.everything.gram
        return gram[self.vanishing :, self.vanishing :]

    def survivors_ridge(self, rho: float) -> float:
        """The ridge that W^(s) was solved with, or its teacher."""
        if not self.is_distilled:
            return rho
        return careful_ridge(self.known, self._survivors, rho)

    @property
    def _survivors(self) -> range:
        return range(self.vanishing, len(self.roles))


def pool(
    members: Iterable[Member],
    survivors: Sequence[str],
    classes: int,
    vanishing: Sequence[str] = (),
    faults: Mapping[str, str] | None = None,
) -> Pool:
    """Add up the summaries of all members that have these roles.

    `faults` by node, where somebody has judged all members before.

    >>> from edge_opid import GramLearner
    >>> def taught(values, y):
    ...     learner = GramLearner(vanishing=0, surviving=2, classes=2)
    ...     learner.learn_one(values, y)
    ...     return learner.summary()
    >>> found = pool(
    ...     [
    ...         Member("attic", ("temp", "co2"), taught([1.0, 2.0], 0)),
    ...         Member("cellar", ("co2", "temp"), taught([4.0, 3.0], 1)),
    ...         Member("shed", ("temp", "pm25"), taught([9.0, 9.0], 1)),
    ...     ],
    ...     survivors=["temp", "co2"],
    ...     classes=2,
    ... )
    >>> found.nodes, found.lacking, found.known.gram.tolist()
    (('attic', 'cellar'), {'shed': ('co2',)}, [[10.0, 14.0], [14.0, 20.0]])
    """
    roles = (*vanishing, *survivors)
    if len(set(roles)) != len(roles) or not survivors:
        raise MismatchError(
            f"roles to pool must differ, and at least one must survive, got {list(roles)}"
        )
    known, lacking, refused = {}, {}, {}
    readings: dict[str, Statistics] = {}
    archives: set[str] = set()
    for member in members:
        archives |= {member.node} if member.archive else set()
        missing = tuple(role for role in roles if role not in member.roles)
        fault = fault_of(member, classes) if faults is None else faults[member.node]
        if member.node in known or member.node in refused:
            raise MismatchError(f"node {member.node!r} came twice: pool one summary per node")
        if fault:
            refused[member.node] = fault
        elif missing:
            lacking[member.node] = missing
        else:
            columns = [member.roles.index(role) for role in roles]
            known[member.node] = member.summary.statistics().ordered(columns)
            if member.everything is not None:
                readings[member.node] = member.everything.statistics().ordered(columns)
    counted, archived = _all_shares(known, archives, ARCHIVE_LABELLED * len(roles))
    reduced = _reduced(counted, archives)
    everything = None
    if readings:
        # Whoever says only what was labelled has at least read that.
        mute = {n: replace(s, moments=s.moments[:, :0]) for n, s in known.items()}
        readings = {**mute, **readings}
        weights, _ = _all_shares(readings, archives, ARCHIVE_READINGS * len(roles))
        everything = _added_up(readings, weights, 0, len(roles))
        fewer = _reduced(weights, archives)
        reduced = {n: min(reduced.get(n, 1.0), fewer.get(n, 1.0)) for n in {**reduced, **fewer}}
    return Pool(
        roles=roles,
        vanishing=len(vanishing),
        known=_added_up(known, counted, classes, len(roles)),
        nodes=tuple(known),
        lacking=lacking,
        refused=refused,
        reduced=reduced,
        everything=everything,
        archived=archived,
    )


def _all_shares(
    known: Mapping[str, Statistics], archives: Collection[str], most: float
) -> tuple[dict[str, float], float]:
    """The share of everybody that counts, and that of the archives, which have the same one."""
    counted = shares({name: each for name, each in known.items() if name not in archives})
    past = sum(known[name].evidence for name in known if name in archives)
    share = min(1.0, most / max(past, 1.0))
    return {name: counted.get(name, share) for name in known}, share


def _reduced(counted: Mapping[str, float], archives: Collection[str]) -> dict[str, float]:
    return {name: each for name, each in counted.items() if each < 1 and name not in archives}


def _added_up(
    known: Mapping[str, Statistics], counted: Mapping[str, float], classes: int, width: int
) -> Statistics:
    """The sums of all nodes, of each as much as counts."""
    nothing = Statistics(np.zeros((width, width)), np.zeros((width, classes)), 0, 0.0)
    parts = (weighed(each, counted[node]) for node, each in known.items())
    total = reduce(add, parts, nothing)
    return replace(total, gram=positive_part(total.gram))


def shares(known: Mapping[str, Statistics]) -> dict[str, float]:
    """Which share of each node's statistics counts: 1, except for who would outweigh the others.

    Both the evidence and the sum of squares are bounded: large values weigh as much as many.

    >>> one = Statistics(np.eye(1), np.ones((1, 2)), 100, 100.0)
    >>> group = {"a": weighed(one, 100.0), "b": weighed(one, 100.0), "liar": weighed(one, 1e4)}
    >>> {node: round(share, 3) for node, share in shares(group).items()}
    {'a': 1.0, 'b': 1.0, 'liar': 0.015}
    """
    if len(known) < 2:
        return dict.fromkeys(known, 1.0)
    factor = max(OUTWEIGH_MIN, (len(known) - 1) / 2)
    found = dict.fromkeys(known, 1.0)
    for mass in ({n: s.evidence for n, s in known.items()}, _squares(known)):
        middle = sorted(mass.values())[(len(mass) - 1) // 2]  # the lower one of two
        for node, own in mass.items():
            most = max(factor * middle, _in_full(known[node], own))
            found[node] = min(found[node], most / own if own > most else 1.0)
    return found


def _squares(known: Mapping[str, Statistics]) -> dict[str, float]:
    return {node: float(np.trace(each.gram)) for node, each in known.items()}


def _in_full(one: Statistics, mass: float) -> float:
    """The part of a mass that is of the first few readings of each column."""
    return mass * min(1.0, LEARNED_FROM * len(one.gram) / max(one.evidence, 1.0))


def weighed(known: Statistics, share: float) -> Statistics:
    """The same readings, as if each counted for this much."""
    if share == 1:
        return known  # to the bit
    return replace(
        known,
        gram=share * known.gram,
        moments=share * known.moments,
        readings=round(share * known.readings),
        evidence=share * known.evidence,
    )


def fault_of(member: Member, classes: int) -> str:
    """Why this summary cannot be right, or nothing."""
    width = len(member.roles)
    if len(set(member.roles)) != width:
        return f"roles {list(member.roles)} are not all different"
    fault = _fault_of_sums(member.summary, width, classes, member.largest)
    if fault or member.everything is None:
        return fault
    fault = _fault_of_sums(member.everything, width, 0, member.largest)
    return fault and f"its sums of all readings: {fault}"


def _fault_of_sums(summary: Summary, width: int, classes: int, largest: float) -> str:
    entries = width * (width + 1) // 2
    if summary.moments.ndim != 2 or len(summary.moments) != width:
        return f"moments must have {width} rows, one a role, got {summary.moments.shape}"
    if summary.gram.shape != (entries,):
        return f"{width} roles need {entries} Gram entries, got {summary.gram.shape}"
    if summary.moments.shape[1] != classes:
        return f"the group has {classes} classes, the summary {summary.moments.shape[1]}"
    if not (np.isfinite(summary.gram).all() and np.isfinite(summary.moments).all()):
        return "its numbers must be finite, but are not"
    x, gram = max(1.0, largest), summary.statistics().gram
    return _too_large(summary, gram, x) or _indefinite(gram) or _unequal(summary, gram, x)


def _too_large(summary: Summary, gram: Matrix, x: float) -> str:
    """One absurd summary would outweigh the whole group, and weights beyond a node's limit."""
    most = min(summary.readings, EVIDENCE_MAX)
    for what, got, bound in (
        ("evidence", summary.evidence, most),
        ("sum of squares", float(gram.diagonal().max()), most * x * x),
        ("moment", float(np.abs(summary.moments).max(initial=0)), most * x),
    ):
        if got > SLACK * bound:
            return f"{summary.readings} readings within {x:g} give no {what} of {got:.3g}"
    return ""


def _unequal(summary: Summary, gram: Matrix, x: float) -> str:
    """|Σxy|² ≤ Σx²·Σy², whatever the readings: moments without squares would weigh too much."""
    squares, most = np.maximum(gram.diagonal(), 0), summary.evidence
    bounds = ROOM * np.sqrt(squares * most) + (ROOM - 1) * most
    over = np.abs(summary.moments).max(1, initial=0) > bounds
    if float(squares.max()) > ROOM * most * x * x or over.any():
        return f"its moments or squares are too large for an evidence of {most:.3g}"
    return ""


def _indefinite(gram: Matrix) -> str:
    lowest, floor = float(np.linalg.eigvalsh(gram)[0]), -ROUNDING * max(0.0, float(np.trace(gram)))
    if lowest < floor:
        return (
            f"its Gram matrix is not a sum of squares: eigenvalue {lowest:.3g}, below {floor:.3g}"
        )
    return ""
