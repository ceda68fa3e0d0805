"""The types of columns that not every database has alike."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double
from sqlalchemy.types import TypeEngine, UserDefinedType


class Untyped(UserDefinedType[float]):
    """A column without a type. SQLite's REAL would turn -0.0 into 0: this one keeps every bit."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Nothing at all: SQLite then stores what it is given."""
        return ""


Real: TypeEngine[Any] = Double().with_variant(Untyped(), "sqlite")
Number = BigInteger()
