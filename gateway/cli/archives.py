"""`backfill`, `archive list`, `archive forget`: what an owner measured for years teaches a group.

The operator vouches for an archive: nothing in it was said by a node. It is kept under a name;
learning one of the same name again replaces it. When it is learned, the running gateway fits the
group's weights anew, as if its sensors had just changed, and the archive is among those pooled.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from edge_opid.errors import ConfigError, OpidError, SettingError
from edge_opid.wire.ids import check_id
from gateway.cli.context import CommandContext, OperatorError, open_context
from gateway.cli.output import NOTHING, Terminal, moment, names, number
from gateway.policy import Group
from gateway.registry.archives import ArchiveRecord
from gateway.store import RELEARN

HEADINGS = "archive", "group", "node", "epoch", "sensors", "labelled", "readings", "from", "until"


def backfill(given: Namespace, screen: Terminal) -> int:
    """Learn an archive, or say with `--dry-run` what would be learned."""
    from gateway.archive.mapping import ArchiveMapping, read_mapping  # noqa: PLC0415 - with pyarrow
    from gateway.archive.plan import plan  # noqa: PLC0415
    from gateway.archive.sources import open_archive  # noqa: PLC0415

    with open_context(given.config) as context:
        group = _group(context, given.group)
        name = _name(given)
        mapping = read_mapping(given.mapping) if given.mapping else ArchiveMapping()
        mapping = mapping.with_options(
            columns=dict(given.columns),
            label=given.label,
            node=given.node,
            time=given.time,
            table=given.table,
            labels=dict(given.labels),
            every_s=given.every_s,
        )
        try:
            archive = open_archive(given.source, mapping.check(group.classes))
            found = plan(archive, context.fleet(), group, given.since, given.until)
        except SettingError as error:
            where = f"{given.mapping.name}: " if given.mapping else ""
            raise ConfigError(f"{where}{error}", error.key) from error
        screen.lines(_rehearsed(name, group, archive, found))
        if given.dry_run:
            screen.lines(_first_part(archive, found.task))
            return 0
        return _learn(given, screen, context, group, name, archive, found)


def _learn(
    given: Namespace,
    screen: Terminal,
    context: CommandContext,
    group: Group,
    name: str,
    archive: Any,
    found: Any,
) -> int:
    from gateway.archive.learning import Checkpoint, learn  # noqa: PLC0415 - with pyarrow
    from gateway.archive.records import archive_records, refused_counts  # noqa: PLC0415

    folder = given.checkpoint or given.config.absolute().parent
    checkpoint = Checkpoint(folder / f"backfill-{group.id}-{name}.npz", archive, found.task)
    with ExitStack() as stack:
        hands = _hands(given)
        stack.callback(hands.close)
        advance = stack.enter_context(screen.bar(f"rows of {name}"))
        total = learn(archive, found.task, hands, checkpoint, advance)
    policy, now_ms = context.config.policy, time.time_ns() // 1_000_000
    records = archive_records(total, found.task, group.id, name, policy.lam, policy.rho, now_ms)
    for reason, count in sorted(refused_counts(total).items()):
        screen.remark(f"{count} rows {WORDS[reason]}")
    if not records:
        raise OperatorError("the archive has no readings to learn from: nothing was changed")
    replaced = context.store.replace_archive(group.id, name, records)
    checkpoint.remove()
    screen.table(HEADINGS, map(_row, records))
    if replaced:
        screen.remark(f"archive {name} existed already, and is replaced")
    return _tell(given, screen, context, group)


WORDS = {
    "non-finite": "with an infinite value are left out",
    "empty": "without any value are left out",
    "unknown-label": "with a label that is not one of the group's classes count as unlabelled",
}


def _tell(given: Namespace, screen: Terminal, context: CommandContext, group: Group) -> int:
    """Ask the gateway to fit the group's nodes anew."""
    known = [key for key in group.keys if key in context.fleet().nodes]
    if given.store_only or not known:
        why = "no node of the group is known yet" if not known else "as you said"
        screen.lines([f"kept; the next change of group {group.id} uses it ({why})"])
        return 0
    for site, node in known:
        context.store.submit(site, node, RELEARN, time.time_ns() // 1_000_000)
    screen.lines([f"kept; {len(known)} nodes of group {group.id} get weights of it"])
    if not context.store.has_leader():
        screen.remark("no gateway is running: it will be done when one starts")
    return 0


def _hands(given: Namespace) -> Any:
    from gateway.archive.hands import DaskHands, OwnHands, ProcessHands  # noqa: PLC0415

    if given.dask:
        from gateway.fitting.elsewhere import dask_client  # noqa: PLC0415 - with Dask
        from gateway.fitting.settings import check_address  # noqa: PLC0415

        check_address(given.dask, "--dask")
        try:
            return DaskHands(dask_client(given.dask))
        except OSError as error:
            raise OperatorError(f"no Dask scheduler answers at {given.dask}: {error}") from error
    workers = given.workers or len(os.sched_getaffinity(0))
    return OwnHands() if workers == 1 else ProcessHands(workers)


def _group(context: CommandContext, name: str) -> Group:
    for group in context.config.groups:
        if group.id == name:
            return group
    there = ", ".join(group.id for group in context.config.groups)
    raise OperatorError(f"there is no group {name!r}: there are {there}")


def _name(given: Namespace) -> str:
    try:
        return check_id(given.name, "--name")
    except OpidError as error:
        raise OperatorError(str(error)) from error


# -- what would be learned -------------------------------------------------------------------------


def _rehearsed(name: str, group: Group, archive: Any, found: Any) -> Iterator[str]:
    task, mapping = found.task, archive.mapping
    rows, parts = archive.rows, len(archive.parts)
    yield f"archive {name} for group {group.id}: {archive.kind}, {rows} rows in {parts} parts"
    for sensor in task.layout.sensors:
        hats = f", {len(sensor.knots)} hats" if sensor.knots else ""
        column, origin = mapping.by_role[sensor.name], found.origins[sensor.name]
        scale = f"{number(sensor.scale)} about {number(sensor.reference)}"
        yield f"  {column} is {sensor.name}: scale {scale}{hats} ({origin})"
    yield f"  classes {names(group.classes)} from {mapping.label or 'nowhere: no label is given'}"
    if task.layouts:
        yield f"  on scales of their own: {names(sorted(task.layouts))}"
    yield f"  {task.layout.width} columns a summary"


def _first_part(archive: Any, task: Any) -> Iterator[str]:
    """What the first part alone says, so that a wrong label or node is seen before the years."""
    from gateway.archive.task import gather_part  # noqa: PLC0415 - with pyarrow

    part = archive.parts[0]
    yield f"its first part, {part.rows} rows:"
    for epoch in gather_part(part, task):
        node = epoch.node or "one node"
        counts = epoch.sums.moments[-1]
        seen = (
            f"{round(count)} {name}"
            for name, count in zip(task.wanted.classes, counts, strict=True)
        )
        heard = names(epoch.sensors)
        yield f"  {node}: {epoch.sums.readings} labelled ({names(seen)}), {epoch.sums.others} not"
        yield f"    heard: {heard}"
        for reason, count in sorted(epoch.sums.refused.items()):
            if count:
                yield f"    {count} rows {WORDS[reason]}"
    yield "nothing was learned: leave out --dry-run to learn it"


# -- list, forget ----------------------------------------------------------------------------------


def list_archives(given: Namespace, screen: Terminal) -> int:
    """Every archive that a group has learned."""
    with open_context(given.config) as context:
        records = context.store.archives()
    if given.json:
        screen.json([_facts(each) for each in records])
    else:
        screen.table(HEADINGS, map(_row, records))
    return 0


def forget_archive(given: Namespace, screen: Terminal) -> int:
    """An archive is not used any more; weights that were fitted with it stay."""
    with open_context(given.config) as context:
        group = _group(context, given.group)
        found = [each for each in context.store.archives(group.id) if each.archive == given.name]
        if not found:
            there = names(sorted({each.archive for each in context.store.archives(group.id)}))
            raise OperatorError(f"group {group.id} has no archive {given.name!r}: it has {there}")
        context.store.replace_archive(group.id, given.name, ())
    screen.lines([f"archive {given.name}: {len(found)} summaries are forgotten"])
    return 0


def _facts(record: ArchiveRecord) -> dict[str, Any]:
    return {
        "group": record.group,
        "archive": record.archive,
        "node": record.node,
        "epoch": record.epoch,
        "sensors": [each.role for each in record.sensors],
        "labelled": record.labelled,
        "readings": record.readings,
        "from_ms": record.from_ms,
        "until_ms": record.until_ms,
        "at_ms": record.at_ms,
    }


def _row(record: ArchiveRecord) -> list[str]:
    return [
        record.archive,
        record.group,
        record.node or NOTHING,
        str(record.epoch),
        names(each.role for each in record.sensors),
        str(record.labelled),
        str(record.readings),
        moment(record.from_ms),
        moment(record.until_ms),
    ]


def pair(text: str) -> tuple[str, str]:
    """NAME=NAME of the command line.

    >>> pair("sensor.attic=temp")
    ('sensor.attic', 'temp')
    """
    left, sign, right = text.rpartition("=")
    if not (sign and left and right):
        raise ValueError(f"must be THEIRS=OURS, got {text!r}")
    return left, right
