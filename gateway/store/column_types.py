"""The columns of our tables: the types that not every database has alike, and three kinds."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Double, Text
from sqlalchemy.types import TypeEngine, UserDefinedType


class Untyped(UserDefinedType[float]):
    """A column without a type. SQLite's REAL would turn -0.0 into 0: this one keeps every bit."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Nothing at all: SQLite then stores what it is given."""
        return ""


Real: TypeEngine[Any] = Double().with_variant(Untyped(), "sqlite")
Number = BigInteger()
NUMBER_MAX = 2**63 - 1


def key(name: str, kind: Any = Text) -> Column[Any]:
    """A part of what a row is found by; it never counts up by itself."""
    return Column(name, kind, primary_key=True, autoincrement=False)


def must(name: str, kind: Any = Text) -> Column[Any]:
    """Every row has it."""
    return Column(name, kind, nullable=False)


def may(name: str, kind: Any = Text) -> Column[Any]:
    """A row may be without it."""
    return Column(name, kind, nullable=True)
