"""Modules that a library names in its imports, and that a node never uses.

paho imports `urllib.request` to ask for a proxy, which it does only where PySocks is installed.
With it come HTTP, e-mail, temporary files and calendars: 1.9 MB of the 64 that a node has.

It also imports `ssl`, and `hashlib` for websockets; either of them loads OpenSSL, 4 MB, which a
link without TLS does not use. `opid-node run` postpones them, too. A script that is a
guest in somebody's program does not: before Python 3.12 two threads that use a postponed module for
the first time at once disturb each other, and these two are used by many.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Postponing:
    """Finds these modules as the import system does, and has them run when they are first used.

    A plain class: `importlib.abc`, which names what it is, would load half of that itself.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def postponed(*names: str) -> Iterator[None]:
    """Within the block, a first import of these modules only notes them.

    Whoever then asks one for anything finds it loaded, so that nothing but memory is different. A
    module that is loaded already stays as it is.

    >>> with postponed("this"):
    ...     import this  # prints a poem, as soon as it is used
    """
    finder = _Postponing(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
