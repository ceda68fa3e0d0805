"""What an archive taught, as the gateway keeps it: the message that a node would have sent."""

from __future__ import annotations

from collections import Counter, defaultdict

from edge_opid.learner.summary import Summary
from edge_opid.wire import LIMITS, SensorDescription, SummaryMessage, encode, to_bytes
from edge_opid.wire.documents import AllReadings
from gateway.archive.learning import Total
from gateway.archive.task import Epoch, Task
from gateway.registry.archives import ArchiveRecord

ENVELOPE_BYTES = 1_024


def archive_records(
    total: Total, task: Task, group: str, archive: str, lam: float, rho: float, now_ms: int
) -> list[ArchiveRecord]:
    """A record of each node and set of sensors; those of nothing are left out."""
    numbers: defaultdict[str, int] = defaultdict(int)
    found = []
    for epoch in total.epochs.values():
        if not epoch.sensors or not epoch.sums.readings + epoch.sums.others:
            continue
        numbers[epoch.node] += 1
        found.append(_record(epoch, numbers[epoch.node], task, group, archive, lam, rho, now_ms))
    return found


def _record(
    epoch: Epoch,
    number: int,
    task: Task,
    group: str,
    archive: str,
    lam: float,
    rho: float,
    now_ms: int,
) -> ArchiveRecord:
    layout = task.layout_of(epoch.node)
    sensors = tuple(
        SensorDescription(
            id=each.name,
            role=each.name,
            reference=each.reference,
            scale=each.scale,
            knots=each.knots,
        )
        for each in layout.sensors
        if each.name in epoch.sensors
    )
    known = epoch.sums.summary(0, lam, rho)
    message = SummaryMessage(
        layout_version=number,
        width=len(known.moments),
        classes=known.moments.shape[1],
        sensors=epoch.sensors,
        vanishing=(),
        lam=lam,
        rho=rho,
        readings=known.readings,
        evidence=known.evidence,
        gram=to_bytes(known.gram),
        moment=to_bytes(known.moments),
        everything=_all_readings(epoch.sums.everything(0, lam, rho), known),
    )
    return ArchiveRecord(
        group=group,
        archive=archive,
        node=epoch.node,
        epoch=number,
        sensors=sensors,
        gate=layout.gate,
        payload=encode(message),
        readings=epoch.sums.readings + epoch.sums.others,
        labelled=epoch.sums.readings,
        from_ms=epoch.from_ms,
        until_ms=epoch.until_ms,
        at_ms=now_ms,
    )


def _all_readings(every: Summary, known: Summary) -> AllReadings | None:
    """The sums over all readings, where both Gram matrices fit into one message."""
    numbers = 4 * (2 * len(every.gram) + known.moments.size)
    names = len(known.moments) * (LIMITS.id_chars_max + 2)
    if numbers + names + ENVELOPE_BYTES > LIMITS.payload_bytes_max:
        return None
    return AllReadings(readings=every.readings, evidence=every.evidence, gram=to_bytes(every.gram))


def refused_counts(total: Total) -> Counter[str]:
    """Rows and labels that were left out, by reason."""
    found: Counter[str] = Counter()
    for epoch in total.epochs.values():
        found += epoch.sums.refused
    return found
