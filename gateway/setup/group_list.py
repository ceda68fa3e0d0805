"""More nodes in the `[[groups]]` of a file that people edit: their comments and order stay.

The text is changed, not written anew; then it is read as the gateway will read it, and must say
exactly what it said before, and the new nodes. Where somebody wrote the list in a way this cannot
follow, it is left to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edge_opid.config.schema import line_of, place
from edge_opid.config.toml_text import array, quoted
from edge_opid.errors import ConfigError
from gateway.config import GatewayConfig, parse_config
from gateway.policy import Group, check_groups
from gateway.setup.file_writer import FolderError
from gateway.setup.plan import SetupPlan
from gateway.setup.starting_files import group_toml

_LIST = re.compile(r"(\s*[\"']?nodes[\"']?\s*=\s*\[)([^\]#]*?)([\s,]*)\]")


def with_nodes(text: str, path: Path, plan: SetupPlan, environment: Mapping[str, str]) -> str:
    """The text of the gateway's file with every node of the plan in its group."""
    before = parse_config(text, environment, path)
    index = next((i for i, each in enumerate(before.groups) if each.id == plan.group), None)
    if index is None:
        groups = (*before.groups, Group(plan.group, plan.site, plan.classes, plan.nodes))
        changed = f"{text.rstrip()}\n\n{group_toml(plan)}"
    else:
        group = before.groups[index]
        _refuse_another_task(group, plan, place(text, f"groups[{index}].id", path))
        new = [node for node in plan.nodes if node not in group.nodes]
        wanted = replace(group, nodes=(*group.nodes, *new))
        groups = (*before.groups[:index], wanted, *before.groups[index + 1 :])
        changed = _inserted(text, index, new) if new else text
    check_groups(groups)
    if not _reads(changed, path, replace(before, groups=groups), environment):
        where = place(text, f"groups[{index or 0}].nodes", path)
        example = f"nodes = {array(groups[index or 0].nodes)}"
        raise FolderError(f"{where}: cannot add to this list: write it as {example}, then again")
    return changed


def _inserted(text: str, index: int, new: list[str]) -> str:
    """The new nodes behind the last one of the list, wherever it ends."""
    lines = text.splitlines(keepends=True)
    start = len("".join(lines[: (line_of(text, f"groups[{index}].nodes") or 1) - 1]))
    found = _LIST.match(text, start)
    if found is None:
        return text
    comma = ", " if found[2].strip() else ""
    addition = comma + ", ".join(quoted(node) for node in new)
    return text[: found.end(2)] + addition + text[found.start(3) :]


def _reads(text: str, path: Path, wanted: GatewayConfig, environment: Mapping[str, str]) -> bool:
    try:
        return parse_config(text, environment, path) == wanted
    except ConfigError:
        return False


def _refuse_another_task(group: Group, plan: SetupPlan, where: str) -> None:
    for name in ("site", "classes"):
        old, new = getattr(group, name), getattr(plan, name)
        if old != new:
            raise FolderError(
                f"{where}: group {group.id!r} has {name} {old!r}, the plan {new!r}: a group "
                "has one task; give the same, or another group"
            )
