"""`label import`: truths written down elsewhere become labels of the nodes they are about.

The whole file is looked at first: if one line is wrong nothing is sent. Then each line is left as a
command, and the gateway publishes it to its node. Whether a node still remembers an instance of
that time only the node knows; what it cannot learn it counts and logs.
"""

from __future__ import annotations

import csv
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from edge_opid.cli.label import typed_millis, typed_stretch
from edge_opid.errors import OpidError
from edge_opid.wire import Label, encode
from gateway.cli.context import CommandContext, OperatorError, find_node, open_context
from gateway.cli.output import Terminal
from gateway.cli.wait import DONE, Deadline, submit
from gateway.registry import NodeKey
from gateway.registry.fleet import Fleet
from gateway.store.commands import SETTLED_KEPT

COLUMNS = ("node", "label", "time", "from", "until")
LINES_MAX = 100_000  # each is a row of the database


def import_labels(given: Namespace, screen: Terminal) -> int:
    """Send them; 2 where the gateway refused some, 3 where time ran out."""
    deadline = Deadline(given.wait_s)
    with open_context(given.config) as context:
        found = read_labels(given.file, context.fleet())
        at_ms = time.time_ns() // 1_000_000
        numbers = [
            submit(context, screen, key, encode(label), at_ms)[0] for key, label in found[:1]
        ]
        numbers += [context.store.submit(*key, encode(label), at_ms) for key, label in found[1:]]
        nodes = {key for key, _ in found}
        screen.lines([f"{len(numbers)} labels for {len(nodes)} nodes"])
        return _wait(context, screen, numbers, deadline) if given.wait_s else 0


def read_labels(path: Path, fleet: Fleet) -> list[tuple[NodeKey, Label]]:
    """Every line, checked; the first that is wrong is told with its number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            _check_columns(path, table.fieldnames or ())
            found = [_label(path, table.line_num, line, fleet) for line in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OperatorError(f"{path} cannot be read: {error}") from error
    if not found:
        raise OperatorError(f"{path} has no labels, only a header: nothing was sent")
    return found


def _check_columns(path: Path, names: object) -> None:
    given = list(names) if isinstance(names, list | tuple) else []
    unknown = [name for name in given if name not in COLUMNS]
    if unknown or not {"node", "label"} <= set(given) or not {"time", "from"} & set(given):
        raise OperatorError(
            f"{path} must begin with a header: node, label, and time, or from and until; "
            f"got {', '.join(map(str, given)) or 'nothing'}"
        )


def _label(
    path: Path, number: int, line: Mapping[str, str | None], fleet: Fleet
) -> tuple[NodeKey, Label]:
    if number > LINES_MAX:
        raise OperatorError(f"{path} has more than {LINES_MAX} lines: split it")
    said = {name: (text or "").strip() or None for name, text in line.items() if name in COLUMNS}
    try:
        key = find_node(fleet, said["node"] or "")
        group = fleet.group_of(key)
        classes = group.classes if group is not None else ()
        if said["label"] not in classes:
            known = ", ".join(classes) or "none: it is in no group"
            raise OperatorError(f"{said['label']!r} is not a class of {'/'.join(key)} ({known})")
        at_ms = typed_millis(said.get("time"), "time", time.time)
        begin, until = ((said.get(name), name) for name in ("from", "until"))
        from_ms, until_ms = typed_stretch(begin, until, time.time)
        if at_ms is None and from_ms is None:
            raise OperatorError("neither time nor from is given")
        return key, Label(said["label"], None, at_ms, from_ms, until_ms)
    except OpidError as error:
        raise OperatorError(f"{path}, line {number}: {error}; nothing was sent") from error


def _wait(context: CommandContext, screen: Terminal, numbers: list[int], deadline: Deadline) -> int:
    """Until the gateway has sent or refused each of them."""
    refused: dict[str, int] = {}
    forgotten = 0
    waiting = list(numbers)
    while waiting:
        for number in list(waiting):
            command = context.store.command(number)
            if command is None or command.outcome:
                waiting.remove(number)
            if command is None:
                forgotten += 1
            elif command.outcome not in ("", DONE):
                refused[command.outcome] = refused.get(command.outcome, 0) + 1
        if waiting and not deadline.pause():
            screen.remark(f"{len(waiting)} labels have not been sent after {deadline.seconds:g} s")
            return 3
    for why, count in refused.items():
        screen.remark(f"{count} refused: {why}")
    if forgotten:
        screen.remark(
            f"{forgotten} sent or refused, which of the two is forgotten: the gateway remembers "
            f"its last {SETTLED_KEPT} commands, and its log says what it refused"
        )
    sent = len(numbers) - sum(refused.values()) - forgotten
    screen.lines([f"sent: {sent} of {len(numbers)}"])
    return 2 if refused else 0
