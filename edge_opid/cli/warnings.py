"""What is probably a mistake in a configuration, though a node can live with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from edge_opid.config.node import NO_STATES, NodeConfig
from edge_opid.node.state import NodeState

ENOUGH = 20  # values of a sensor that tell something about its scale


def warnings(node: NodeConfig, state: NodeState | None) -> Iterator[str]:
    """A sentence for each, with its key and value; `state` is what the node has seen."""
    for name in node.classes:
        if name.lower() in NO_STATES:
            yield (
                f"node.classes has {name!r}, which Home Assistant shows as unknown: choose "
                "another name (opid-node classes rename)"
            )
    for place, sensor in enumerate(node.sensors):
        key = f"sensors[{place}]"
        if sensor.timeout_s is not None and 1000 * sensor.timeout_s <= node.window_ms:
            yield (
                f"{key}.timeout_s = {sensor.timeout_s:g} of {sensor.id} is shorter than "
                f"node.window_ms = {node.window_ms}: it may count as silent within one instance"
            )
    if state is not None:
        yield from _seen(node, state)


def _seen(node: NodeConfig, state: NodeState) -> Iterator[str]:
    """What the last instances say of the scales and of the sensors that the file names."""
    seen: dict[str, list[float]] = defaultdict(list)
    for instance in state.recent.values():
        for id_, value in instance.items():
            seen[id_].append(value)
    known = {*state.local_models.sensors, *state.measuring.until}
    for place, given in enumerate(node.sensors):
        key, values = f"sensors[{place}]", seen[given.id]
        if given.replaces and given.id not in known:
            yield f"{key}.replaces = {given.replaces!r}: the state has no such sensor"
        patience_ms = state.silence.rhythms.patience_ms(given.id)
        if given.timeout_s is not None and 1000 * given.timeout_s < patience_ms:
            yield (
                f"{key}.timeout_s = {given.timeout_s:g} of {given.id} is shorter than its rhythm: "
                "judging by its reports, silence means something only after "
                f"{patience_ms / 1000:g} s; "
                "leave the key out, and its rhythm decides"
            )
        sensor = state.local_models.sensors.get(given.id)
        if sensor is None or len(values) < ENOUGH or state.warmup is not None:
            continue
        gate = state.local_models.gate
        beyond = sum(abs(v - sensor.reference) >= gate * sensor.scale for v in values)
        scales = f"reference {sensor.reference:g}, scale {sensor.scale:g}"
        if 4 * beyond >= len(values):
            yield (
                f"{key}: {beyond} of the last {len(values)} values of {given.id} are beyond the "
                f"gate ({scales}): they all count the same; give it another reference and scale"
            )
        elif len(set(values)) == 1:
            yield (
                f"{key}: {given.id} was {values[0]:g} in all of its last {len(values)} values: "
                f"they give no scale ({scales})"
            )
