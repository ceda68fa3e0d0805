"""What two nodes that lived through the same inputs have in common, whenever they heard them."""

from __future__ import annotations

from typing import Any

from edge_opid.node.journal_records import pack_state


def but_for_times(state: dict[str, Any]) -> bytes:
    """Every bit of a node's state that does not say when the node heard something.

    Rhythms are made of arrivals, and so are the ages of held values.
    """
    last = {"values": state["last"]["values"]}
    register = {name: part for name, part in state["register"].items() if name != "heard"}
    entries = [[*entry[:7], *entry[8:]] for entry in state["recent"]["entries"]]  # but for ages
    recent = {**state["recent"], "entries": entries}
    kept = {name: part for name, part in state.items() if name != "silence"}
    return pack_state({**kept, "last": last, "register": register, "recent": recent})
