"""Which kernel does the arithmetic: the compiled one, or its NumPy twin.

    >>> from edge_opid import kernel
    >>> kernel.name in ("compiled", "numpy")
    True

`python -m edge_opid.native` prints the same. The compiled kernel is used wherever `pip install`
found a compiler; set `EDGE_OPID_KERNEL=numpy` to do without it. Both keep the same bytes, agree
to rounding, and each repeats its own bits when the same readings are replayed.
"""

from __future__ import annotations

import os
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from edge_opid.native import numpy_twin

_compiled: ModuleType | None
try:
    from edge_opid.native import _compiled
except ImportError:  # no compiler at install time: the twin does the same, more slowly
    _compiled = None

available: dict[str, ModuleType] = {"numpy": numpy_twin}
if _compiled is not None:
    available["compiled"] = _compiled

_wanted = os.environ.get("EDGE_OPID_KERNEL", "compiled" if _compiled is not None else "numpy")
if _wanted not in available:
    raise ImportError(f"EDGE_OPID_KERNEL={_wanted!r}: this install has {sorted(available)}")

name: str = _wanted
"""The kernel that new float32 learners use."""


def choose(wanted: str | None, dtype: DTypeLike) -> str:
    """The kernel for a learner: float64 is always NumPy's, float32 as wanted, or the default.

    >>> choose(None, np.float64)
    'numpy'
    """
    if wanted is not None and wanted not in available:
        raise ValueError(f"kernel {wanted!r}: this install has {sorted(available)}")
    if np.dtype(dtype) != np.float32:
        if wanted == "compiled":
            raise ValueError(f"the compiled kernel works in float32, not in {np.dtype(dtype)}")
        return "numpy"
    return wanted or name
