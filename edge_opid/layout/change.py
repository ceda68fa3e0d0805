"""The difference of two layouts, and how a learner follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from edge_opid.learner.contract import Learner

L = TypeVar("L", bound=Learner)


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

    def follow(self, learner: L, carry: float = 1.0) -> L:
        """The learner for the new layout, from what this one knows of the sensors that remain."""
        return learner.rearrange(self.sources, self.vanishing, carry)
