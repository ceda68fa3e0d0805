"""`classes rename` and `classes remove`: what a stopped node knows of a class, on purpose.

A start refuses a file that lacks a class or calls it otherwise, since it cannot know what is meant.
This says it. The change is a record of the journal; `node.toml` must then say the same.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace

from edge_opid.cli.output import print_lines
from edge_opid.config.service import load_config
from edge_opid.node.actions import Append


def classes(given: Namespace) -> int:
    """Rename or remove a class in the state of a stopped node."""
    config = load_config(given.file, os.environ)
    from edge_opid.service.wiring import open_node  # noqa: PLC0415 - it brings paho along

    now_ms = round(time.time() * 1000)
    with open_node(config, must_have_run=True) as (node, store, _):
        if given.new is None:
            actions = node.remove_class(given.old, now_ms)
            done = f"class {given.old!r} is forgotten"
        else:
            actions = node.rename_class(given.old, given.new, now_ms)
            done = f"class {given.old!r} is {given.new!r} now"
        for action in actions:
            if isinstance(action, Append):
                store.append(action.record)
        store.commit()
        names = ", ".join(f'"{name}"' for name in node.state.settings.classes)
    print_lines([f"{done}; change {given.file} to match: classes = [{names}]"])
    return 0
