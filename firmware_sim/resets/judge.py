"""Every reading in its node, once: judged from what a killed node left on its disk.

Two witnesses, for each node: its journal, where each reading must stand once, under its number and
with its values; and its state, which must be, to the bit, that of one undisturbed process that was
given the same readings in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from edge_opid.errors import OpidError
from edge_opid.node import journal_records
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Configured, pack_state
from edge_opid.node.node import Node
from edge_opid.node.state import NodeState
from edge_opid.service.journal_writer import STORE_LIMITS
from edge_opid.store import RealDisk, Store
from firmware_sim.resets.job import SOURCE, Job


class JudgeError(OpidError, RuntimeError):
    """Nobody can say whether a reading was lost."""


@dataclass(frozen=True)
class Verdict:
    """How many readings, and what became of them; verdicts on several nodes add up."""

    readings: int = 0  # that a source took
    lost: int = 0  # and no node has
    twice: int = 0  # copies that a node learned from
    strange: int = 0  # that nobody sent, or not like this
    unlike: int = 0  # nodes whose state is not that of an undisturbed one

    def __add__(self, other: Verdict) -> Verdict:
        mine = (getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        return Verdict(*mine)

    @property
    def well(self) -> bool:
        """Nothing lost, nothing twice, nothing else."""
        return self == Verdict(self.readings)


def judge(job: Job, place: int, claim: Mapping[str, Any]) -> Verdict:
    """One node, against the boot and the number of readings that its source claims."""
    boot, count = int(claim["boot"]), int(claim["sent"])
    sent = job.sent(place)[:count]
    records, state = _left(job, place)
    changes = [journal_records.unpack_record(record) for record in records]
    found = [each for each in changes if isinstance(each, Accepted)]
    others = [each for each in changes if not isinstance(each, Accepted | Configured)]
    expected = {(SOURCE, boot, seq): (values, label) for seq, (values, label) in enumerate(sent, 1)}
    times = Counter((each.source, each.boot, each.seq) for each in found)
    altered = sum(
        (each.values, each.label) != expected.get((each.source, each.boot, each.seq))
        for each in found
    )
    return Verdict(
        readings=count,
        lost=sum(number not in times for number in expected),
        twice=sum(n - 1 for n in times.values()),
        strange=altered + len(others),
        unlike=int(state != _undisturbed(job, place, expected, found)),
    )


def _left(job: Job, place: int) -> tuple[list[bytes], bytes]:
    """The journal, and the state that the node's next life would begin with."""
    config = job.config(place)
    with RealDisk(config.state_folder) as disk:
        _, recovered = Store.open(disk, STORE_LIMITS)
        if recovered.snapshot is not None:
            raise JudgeError(f"node {place} has given up its first records: choose a shorter run")
        records = list(recovered.records)
        node = Node(config.node)
        node.restore(None, records)
        return records, node.snapshot()


def _undisturbed(
    job: Job,
    place: int,
    sent: Mapping[tuple[str, int, int], tuple[dict[str, float], str]],
    found: list[Accepted],
) -> bytes:
    """The state of a node that heard each reading when it was sent.

    Of the node's clock, which the sender does not know, the state keeps when sensors were heard,
    and their rhythm: that is borrowed from the journal.
    """
    heard_ms = {(each.source, each.boot, each.seq): each.now_ms for each in found}
    state = NodeState(job.config(place).node)
    for (source, boot, seq), (values, label) in sent.items():
        now_ms = heard_ms.get((source, boot, seq), 0)
        apply(state, Accepted(now_ms, source, boot, seq, seq, values, label))
    return pack_state(state.state())
