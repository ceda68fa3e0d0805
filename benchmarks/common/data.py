"""Where the real data sets lie, and what arrays of them are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Beside the checkout, and not part of it."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
