"""A state folder as a node leaves it, made in this process: no broker, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from edge_opid.config.service import load_config
from edge_opid.node.actions import Append
from edge_opid.service.wiring import open_node
from edge_opid.wire import Channel, NodeTopics, Reading, encode

Rows = Iterable[tuple[Mapping[str, float], str | None]]


def live(toml: Path, rows: Rows, first: int = 1) -> None:
    """Let the node of this file start, and read these rows from a source of its own."""
    config = load_config(toml, {})
    topic = str(NodeTopics(config.node.site, config.node.node).to(Channel.READING, "s"))
    with open_node(config) as (node, store, _):
        actions = node.start(0)
        for seq, (values, label) in enumerate(rows, first):
            payload = encode(Reading(1, seq, seq, dict(values), label))
            actions += node.handle(topic, payload, 1_000 * seq, None)
        for action in actions:
            if isinstance(action, Append):
                store.append(action.record)
        store.commit()


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to see that nothing has changed."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
