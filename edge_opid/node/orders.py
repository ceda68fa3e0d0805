"""What a gateway may ask of a node, and the rules it must pass. In this order:

1. size, and signature by a trusted key (`wire.open_sealed`); 2. type (`wire.decode`); 3. addressed
to me; 4. newer than my floor, but not absurdly so; an equal version must have equal content;
5. my classes, and a layout that is mine or newer, whose gate lets nothing through that a learner
with my λ and ρ could not take; 6. weights of that layout's shape, finite, and so are their scores.

What fails is refused with a reason to count by, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge_opid.errors import LayoutError, RefusedError
from edge_opid.layout import Layout, Sensor
from edge_opid.learner.settings import LIMIT, stiffness_fault
from edge_opid.models import model_from_weights
from edge_opid.wire import LIMITS, Desired, SensorDescription, decode, digest, open_sealed

if TYPE_CHECKING:  # loaded where there are keys
    from nacl.signing import VerifyKey


class OrderError(RefusedError, ValueError):
    """A document that was refused: `reason` is a word to count by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a node holds when a document arrives."""

    site: str
    node: str
    classes: tuple[str, ...]
    version: int
    """The floor: no document below it is ever taken again."""
    content: str
    """The digest of the document of that version."""
    layout_version: int
    sensors: tuple[SensorDescription, ...]
    vanishing: tuple[str, ...]
    lam: float = 1.0
    rho: float = 1.0


def layout_of(
    sensors: Sequence[SensorDescription], vanishing: Sequence[str], gate: float
) -> Layout:
    """The layout of described sensors: its columns are their roles."""
    made = [Sensor(s.role, s.reference, s.scale, s.knots) for s in sensors]
    return Layout(made, [s.role for s in sensors if s.id in vanishing], gate=gate)


def verified(payload: bytes, trusted: Sequence[VerifyKey], mine: Standing) -> bytes | None:
    """The document to obey, or None where it is the one obeyed already; else an error."""
    document = open_sealed(payload, trusted)
    desired = decode(document, Desired)
    _check_address(desired, mine)
    if desired.version == mine.version and digest(document) == mine.content:
        return None
    _check_version(desired, mine)
    _check_layout(desired, mine)
    return document


def _check_address(desired: Desired, mine: Standing) -> None:
    if (desired.site, desired.node) != (mine.site, mine.node):
        raise OrderError(
            "address",
            f"desired is for {desired.site}/{desired.node}, this is {mine.site}/{mine.node}",
        )


def _check_version(desired: Desired, mine: Standing) -> None:
    version, floor = desired.version, mine.version
    if version == floor:
        raise OrderError(
            "conflict", f"desired version {version} was received before with other content"
        )
    if version < floor:
        raise OrderError("old-version", f"desired version {version} must be > {floor}")
    if version > floor + LIMITS.version_step_max:
        most = floor + LIMITS.version_step_max
        raise OrderError("far-version", f"desired version {version} must be <= {most}")


def _check_layout(desired: Desired, mine: Standing) -> None:
    if desired.classes != mine.classes:
        raise OrderError("classes", f"classes must be {mine.classes}, got {desired.classes}")
    if desired.layout_version < mine.layout_version:
        raise OrderError(
            "layout", f"layout {desired.layout_version} must be >= {mine.layout_version}"
        )
    same = desired.sensors == mine.sensors and desired.vanishing == mine.vanishing
    if desired.layout_version == mine.layout_version and not same:
        raise OrderError(
            "layout", f"layout {mine.layout_version} was received before with other sensors"
        )
    try:
        layout = layout_of(desired.sensors, desired.vanishing, desired.gate)
    except LayoutError as error:
        raise OrderError("layout", f"layout {desired.layout_version}: {error}") from error
    if desired.gate > LIMIT:
        raise OrderError("range", f"gate must be <= {LIMIT:g}, got {desired.gate}")
    fault = stiffness_fault(mine.lam, mine.rho, desired.gate)
    if fault:
        raise OrderError("range", f"gate {fault}")
    if desired.weights is not None:
        width, classes = layout.width, len(desired.classes)
        model_from_weights(desired.weights, desired.version, width, classes)
