"""Arrays as little-endian bytes: a shape is a length check, and every number is finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_opid.errors import WireError
from edge_opid.wire.schema import Bytes, Checked, Ordinal, Text

DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
DtypeName = Annotated[str, Text("float32|float16")]


def to_bytes(array: ArrayLike, dtype: str = "float32") -> bytes:
    """The numbers of `array`, row by row, little-endian.

    >>> to_bytes([[1.0, 2.0]]).hex()
    '0000803f00000040'
    """
    # What overflows becomes inf here, and is refused by the message it goes into.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, DTYPES[dtype]).tobytes()


def from_bytes(data: bytes, dtype: str = "float32") -> NDArray[np.float32]:
    """The numbers in `data` as one float32 row: a read-only view where that is possible."""
    return np.frombuffer(data, DTYPES[dtype]).astype(np.float32, copy=False)


def check_numbers(data: bytes, count: int, where: str, dtype: str = "float32") -> None:
    """`data` is exactly `count` finite numbers."""
    expected = count * DTYPES[dtype].itemsize
    if len(data) != expected:
        raise WireError(
            "shape", f"{where} must be {count} {dtype} = {expected} bytes, got {len(data)}"
        )
    finite = np.isfinite(from_bytes(data, dtype))
    if not finite.all():
        first = int(finite.argmin())
        raise WireError("nonfinite", f"{where} must be finite, got NaN or Inf at number {first}")


@dataclass(frozen=True, slots=True)
class Matrix(Checked):
    """A named part of a model: `rows` × `cols` numbers, row by row, in float32 or float16.

    >>> W = Matrix.of([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float16")
    >>> W.rows, W.cols, len(W.data), float(W.array()[1, 2])
    (2, 3, 12, 6.0)
    >>> Matrix(2, 3, W.data[:-1], "float16")
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: matrix.data must be 6 float16 = 12 bytes, got 11
    """

    kind: ClassVar[str] = "matrix"
    rows: Ordinal
    cols: Ordinal
    data: Bytes
    dtype: DtypeName = "float32"

    def check_together(self) -> None:
        """The bytes fill the shape with finite numbers."""
        check_numbers(self.data, self.rows * self.cols, "matrix.data", self.dtype)

    @classmethod
    def of(cls, array: ArrayLike, dtype: str = "float32") -> Matrix:
        """A matrix from an array of two dimensions."""
        rows, cols = np.shape(array)
        return cls(rows, cols, to_bytes(array, dtype), dtype)

    def array(self) -> NDArray[np.float32]:
        """The matrix as float32, whatever it travelled as."""
        return from_bytes(self.data, self.dtype).reshape(self.rows, self.cols)
