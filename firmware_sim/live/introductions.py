"""What a node says of itself, for whoever plays one in front of a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_opid.wire import Introduction, SensorDescription


def standardised(roles: Mapping[str, str]) -> tuple[SensorDescription, ...]:
    """Sensors, given the role of each id, whose values need no scaling."""
    return tuple(
        SensorDescription(id=each, role=role, reference=0.0, scale=1.0, timeout_s=60.0)
        for each, role in roles.items()
    )


def first_introduction(roles: Mapping[str, str], classes: Sequence[str]) -> Introduction:
    """The words of a node that no gateway has ordered anything yet."""
    return Introduction(
        version=0,
        layout_version=0,
        sensors=standardised(roles),
        vanishing=(),
        gate=8.0,
        classes=tuple(classes),
        window_ms=0,
    )
