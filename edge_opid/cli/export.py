"""`export`: the layout and the weights of a stopped node, as a file that NumPy reads."""

from __future__ import annotations

import io
import json
import os
from argparse import Namespace
from typing import Any

import numpy as np

from edge_opid.cli.output import print_lines
from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.errors import OpidError
from edge_opid.node.node import Node
from edge_opid.store.whole_file import write_whole


def _check_learned(node: Node, config: ServiceConfig) -> None:
    """Refuse to write weights of zero in scales that nobody has measured."""
    if node.state.local_models.learner.readings or node.state.pushed_models:
        return
    raise OpidError(
        f"node {config.node.node} in {config.state_folder} has learned nothing yet: there is "
        "nothing to export; send it labelled readings first"
    )


def export(given: Namespace) -> int:
    """Write the layout and the weights of a stopped node to a file that NumPy reads."""
    config = load_config(given.file, os.environ)
    from edge_opid.service.wiring import open_node  # noqa: PLC0415 - it brings paho along

    with open_node(config, must_have_run=True) as (node, _, _):
        _check_learned(node, config)
        local_models = node.state.local_models
        W, W_survivors = local_models.learner.weights()
        held = node.state.pushed_models.parts().items()
        models = {f"{part}_{slot}": each for slot, parts in held for part, each in parts.items()}
    content: dict[str, Any] = {
        "layout": json.dumps(local_models.layout.to_dict()),
        "columns": local_models.layout.columns,
        "classes": node.state.settings.classes,
        "W": W,
        "W_survivors": W_survivors,
        **models,
    }
    file = io.BytesIO()
    np.savez(file, **content)
    write_whole(given.out, file.getvalue())
    print_lines([f"{given.out}: {len(local_models.layout.columns)} columns; {', '.join(content)}"])
    return 0
