"""Which column continues which: the arguments of `resplit` and `inherit` as one list.

The list has an entry for each column of the next learner, in its order: the old column it
continues, or None for a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_opid.errors import LayoutError


def resplit(width: int, vanishing: Sequence[int]) -> list[int | None]:
    """The same columns with these first.

    >>> resplit(5, vanishing=[3, 1])
    [3, 1, 0, 2, 4]
    """
    return _first(list(range(width)), vanishing)


def inherit(
    width: int, kept: Sequence[int], new: int, vanishing: Sequence[int]
) -> list[int | None]:
    """The kept columns and then the new ones, those at the places in `vanishing` first.

    >>> inherit(5, kept=[0, 2, 4], new=1, vanishing=[2])
    [4, 0, 2, None]
    """
    if new < 0:
        raise LayoutError(f"new must be at least 0, got {new}")
    _check_columns("kept", kept, width)
    return _first([*kept, *[None] * new], vanishing)


def check(sources: Sequence[int | None], width: int, vanishing: int, carry: float) -> None:
    """Refuse a change that names a column twice or not at all, or carries more than there is."""
    _check_columns("sources", [source for source in sources if source is not None], width)
    if not 0 <= vanishing < len(sources):
        raise LayoutError(
            f"vanishing must be 0..{len(sources) - 1} of {len(sources)} columns "
            f"(one has to survive), got {vanishing}"
        )
    if not 0 <= carry <= 1:
        raise LayoutError(f"carry must be 0..1, got {carry}")


def _first(columns: list[int | None], chosen: Sequence[int]) -> list[int | None]:
    _check_columns("vanishing", chosen, len(columns))
    rest = [place for place in range(len(columns)) if place not in set(chosen)]
    return [columns[place] for place in [*chosen, *rest]]


def _check_columns(name: str, columns: Sequence[int], width: int) -> None:
    for column in columns:
        if not 0 <= column < width:
            raise LayoutError(f"{name}: column {column} must be 0..{width - 1}")
    if len(set(columns)) != len(columns):
        raise LayoutError(f"{name}: a column is named twice in {list(columns)}")
