"""The arithmetic of a learner's hot steps: one C file, and its twin in NumPy.

    >>> from edge_opid import native
    >>> native.name in ("compiled", "numpy")
    True

`python -m edge_opid.native` prints the same. The C file is used wherever `pip install` found a
compiler; set `EDGE_OPID_NATIVE=numpy` to do without it. Both keep the same bytes, agree to
rounding, and each repeats its own bits when the same readings are replayed.
"""

from __future__ import annotations

import os
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from edge_opid.errors import SettingError
from edge_opid.native import numpy_twin

_compiled: ModuleType | None
try:
    from edge_opid.native import _compiled
except ImportError:  # no compiler at install time: the twin does the same, more slowly
    _compiled = None

INTERFACE = 6
"""What the C file must be of; also in `_compiled.c`."""
if _compiled is not None and getattr(_compiled, "INTERFACE", 1) != INTERFACE:
    raise ImportError(
        f"{_compiled.__file__} was compiled from another edge-opid (interface "
        f"{getattr(_compiled, 'INTERFACE', 1)}, not {INTERFACE}): install it again, as with "
        "`pip install -e .`"
    )

available: dict[str, ModuleType] = {"numpy": numpy_twin}
if _compiled is not None:
    available["compiled"] = _compiled

_wanted = os.environ.get("EDGE_OPID_NATIVE", "compiled" if _compiled is not None else "numpy")
if _wanted not in available:
    raise ImportError(f"EDGE_OPID_NATIVE={_wanted!r}: this install has {sorted(available)}")

name: str = _wanted
"""What new float32 learners compute with."""


def choose(wanted: str | None, dtype: DTypeLike) -> str:
    """What a learner computes with: float64 always with NumPy, float32 as wanted, or the default.

    >>> choose(None, np.float64)
    'numpy'
    """
    if wanted is not None and wanted not in available:
        raise SettingError("native", f"must be one of {sorted(available)} here, got {wanted!r}")
    if np.dtype(dtype) != np.float32:
        if wanted == "compiled":
            raise SettingError("native", f"'compiled' works in float32, not in {np.dtype(dtype)}")
        return "numpy"
    return wanted or name
