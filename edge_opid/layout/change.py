"""The difference of two layouts, and how a learner follows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge_opid.learner.contract import Learner

L = TypeVar("L", bound=Learner)
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens to sensors and columns between one layout and the next.

    >>> from edge_opid import GramLearner, Layout
    >>> old, new = Layout(["a", "b", "c"]), Layout(["b", "c", "d"], vanishing=["c"])
    >>> change = old.change_to(new)
    >>> change.kept, change.retired, change.deployed
    (('b', 'c'), ('a',), ('d',))
    >>> change.sources  # new columns c, b, d, bias: where each comes from
    (2, 1, None, 3)
    >>> learner = change.follow(GramLearner(0, 4, classes=2), carry=0.5)
    """

    kept: tuple[str, ...]
    retired: tuple[str, ...]
    deployed: tuple[str, ...]
    sources: tuple[int | None, ...]
    """For each column of the new layout the old column it continues, or None."""
    vanishing: int
    """How many columns of the new layout are planned to vanish."""

    @classmethod
    def between(
        cls,
        old: Mapping[str, range],
        new: Mapping[str, range],
        old_names: Sequence[str],
        new_names: Sequence[str],
        vanishing: int,
        replaces: Mapping[str, str] | None = None,
    ) -> Self:
        """From the columns of every sensor and pair, before and after.

        A sensor's columns continue where it has as many as before (a replacement in the same
        role may have its own reference, scale and knots). With another number it starts anew.
        `replaces` gives, for a sensor of another name, the one whose columns it continues.
        """
        sources: list[int | None] = []
        for name, span in new.items():
            before = old.get((replaces or {}).get(name, name), range(0))
            sources += before if len(before) == len(span) else [None] * len(span)
        was, now = set(old_names), set(new_names)
        return cls(
            kept=tuple(sorted(was & now)),
            retired=tuple(sorted(was - now)),
            deployed=tuple(sorted(now - was)),
            sources=tuple(sources),
            vanishing=vanishing,
        )

    @property
    def continued(self) -> tuple[list[int], list[int]]:
        """The columns of the new layout that continue old ones, and those old ones."""
        pairs = [(place, source) for place, source in enumerate(self.sources) if source is not None]
        return [place for place, _ in pairs], [source for _, source in pairs]

    @property
    def fresh(self) -> list[int]:
        """The columns of the new layout that continue none."""
        return [place for place, source in enumerate(self.sources) if source is None]

    def renewed(self, columns: Collection[int]) -> Change:
        """The same change, with these columns of the new layout continuing none after all."""
        sources = [None if place in columns else old for place, old in enumerate(self.sources)]
        return replace(self, sources=tuple(sources))

    def follow(self, learner: L, carry: float = 1.0, relation: Matrix | None = None) -> L:
        """The learner for the new layout, from what this one knows of the sensors that remain.

        And of the fresh columns, where `relation` says how they follow from the old ones.
        """
        return learner.rearrange(self.sources, self.vanishing, carry, relation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The same sensors with other references, scales or knots, and how what was learned follows.

    >>> from edge_opid import GramLearner, Layout, Sensor
    >>> old, new = Layout([Sensor("lux", 0, 1)]), Layout([Sensor("lux", 100, 50)])
    >>> move = new.move_from(old)
    >>> move.columns.tolist(), move.exact  # lux' = 0.02·lux − 2
    ([[0.02, -2.0], [0.0, 1.0]], True)
    >>> learner = move.follow(GramLearner(0, 2, classes=2))
    """

    columns: Matrix
    """T: the new columns are T times the old ones."""
    weights: Matrix
    """E: new weights that say what the old ones said are E times the old ones."""
    bent: tuple[int, ...]
    """New columns that are, or were, hats, and follow only as well as the knots allow."""
    vanishing: int
    """How many columns of the new layout are planned to vanish."""

    @property
    def exact(self) -> bool:
        """Whether every sum is what it would be had the new layout been there from the start."""
        return not self.bent

    def follow(self, learner: L) -> L:
        """The learner in the new columns, with the readings of this one."""
        return learner.move(self.columns, self.weights, self.vanishing, self.bent)
