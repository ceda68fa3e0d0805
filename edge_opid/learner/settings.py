"""What a learner is told once, at its birth, checked in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edge_opid.errors import SettingError

LIMIT = 1e6
"""Far above what `Layout` lets through (8), far below what overflows when squared in float32."""

STIFFNESS_MAX = 1e10
"""The largest (1 + 2λ)·gate²/ρ: how far apart what A holds may be and still be told apart.

Two like sensors in raw units have up to 0.1 % other labels in float32 than in float64 below it,
0.2 % at 3e11, 2 to 6 % at 1e12 to 3e13; and beyond that the death of one of several equal sensors
leaves a matrix that LAPACK refuses (docs/decisions/0019).
"""

EVIDENCE_MAX = 2.0**22
"""A float32 sum of n readings rounds off what is below n/2²⁴ of it (docs/decisions/0002)."""


def stiffness_fault(lam: float, rho: float, gate: float) -> str:
    """Why float32 cannot learn with these three, and what to do; or nothing.

    >>> stiffness_fault(1.0, 1.0, 8.0)
    ''
    >>> print(stiffness_fault(1.0, 0.01, 1e6))
    with rho 0.01 and lam 1 must be at most 5774, got 1e+06: give every sensor a scale, or raise rho
    """
    most = math.sqrt(STIFFNESS_MAX * rho / (1 + 2 * lam))
    if gate <= most:
        return ""
    return (
        f"with rho {rho:g} and lam {lam:g} must be at most {most:.4g}, got {gate:g}: "
        "give every sensor a scale, or raise rho"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The shape of a learner and how it treats what it sees.

    >>> Settings(vanishing=2, surviving=0, classes=3)
    Traceback (most recent call last):
    edge_opid.errors.SettingError: surviving must be at least 1, got 0
    """

    vanishing: int
    """Columns planned to vanish; they come first in every reading."""
    surviving: int
    """Columns expected to survive."""
    classes: int
    lam: float = 1.0
    """λ of Eq. 2: how strongly the two classifiers are tied."""
    rho: float = 1.0
    """ρ of Eq. 2: the ridge."""
    forgetting: float = 1.0
    """β: what an old reading counts for after each new one; 1 never forgets."""
    limit: float = LIMIT
    """The largest |value| learned."""
    evidence_max: float = EVIDENCE_MAX
    """Beyond this many readings, what was learned so far is halved, and so never stalls."""
    dtype: str = "float32"

    def __post_init__(self) -> None:
        least = {"vanishing": 0, "surviving": 1, "classes": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise SettingError(name, f"must be at least {bound}, got {getattr(self, name)}")
        rules = {
            "lam": (0 <= self.lam < math.inf, "at least 0"),
            "rho": (0 < self.rho < math.inf, "above 0"),
            "forgetting": (0 < self.forgetting <= 1, "above 0 and at most 1"),
            "limit": (0 < self.limit <= 1e9, "above 0 and at most 1e9"),
            "evidence_max": (self.evidence_max >= 2, "at least 2"),
            "dtype": (self.dtype in ("float32", "float64"), "float32 or float64"),
        }
        for name, (holds, wanted) in rules.items():
            if not holds:
                raise SettingError(name, f"must be {wanted}, got {getattr(self, name)}")

    @property
    def width(self) -> int:
        """d: the values of a reading."""
        return self.vanishing + self.surviving

    @property
    def size(self) -> int:
        """D: the rows of B. The survivors stand twice, unless nothing is planned to vanish."""
        return self.width + (self.surviving if self.vanishing else 0)

    @property
    def kind(self) -> np.dtype[np.floating]:
        """The dtype as NumPy's object."""
        return np.dtype(self.dtype)
