"""Everyone on the streams of `changes.py`, by name: ours, the simple ones, the oracle, the peers.

A method is made for a stream and a seed; it is told of every change, and asked before it is taught.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from benchmarks.changes.ours import Oracle, OurNode, Restart, ZeroFill
from benchmarks.changes.peers_moa import MODELS as MOA_MODELS
from benchmarks.changes.peers_moa import TWO_CLASSES, MoaPeer
from benchmarks.changes.peers_river import MODELS as RIVER_MODELS
from benchmarks.changes.peers_river import RiverPeer
from benchmarks.changes.streams import STREAMS, Row, Stage, StagedStream


class Method(Protocol):
    """What goes through a stream."""

    def change(self, stage: Stage) -> None:
        """The next stage begins."""

    def guess_then_learn(self, row: Row, label: int) -> int:
        """A class for this reading, and only then its label."""


Maker = Callable[[StagedStream, int], Method]
LINEAR, LIFTED = "node, linear", "node, lifted"
DOUBLE = ", float64"
ANEW = ", anew"


def _ours(
    kind: type[OurNode], lifted: bool, stream: StagedStream, seed: int, *, double: bool = False
) -> Method:
    del seed  # nothing of ours rolls dice
    return kind(stream, stream.setting.knots if lifted else 1, double=double)


def _best_form(kind: type[OurNode], stream: StagedStream, seed: int) -> Method:
    return _ours(kind, not stream.setting.binary, stream, seed)


def _river(model: str, anew: bool, stream: StagedStream, seed: int) -> Method:
    return RiverPeer(stream, model, seed, anew=anew)


def _moa(model: str, anew: bool, stream: StagedStream, seed: int) -> Method:
    return MoaPeer(stream, model, seed, anew=anew)


OURS: dict[str, Maker] = {
    LINEAR: partial(_ours, OurNode, False),
    LIFTED: partial(_ours, OurNode, True),
    LINEAR + DOUBLE: partial(_ours, OurNode, False, double=True),
    LIFTED + DOUBLE: partial(_ours, OurNode, True, double=True),
    "restart": partial(_best_form, Restart),
    "zero-fill": partial(_best_form, ZeroFill),
    "oracle": partial(_best_form, Oracle),
}
"""Our own code: the node in both forms and precisions, and three ways a node could be instead."""

RIVALS = ("river LR", "river HT", "river NB", *MOA_MODELS, "river ARF")
"""The slowest last, so that a quick run has the others."""
PEERS: dict[str, Maker] = {
    model + mode: partial(_river if model in RIVER_MODELS else _moa, model, mode == ANEW)
    for model in RIVALS
    for mode in ("", ANEW)
}
METHODS = OURS | PEERS


def product(stream: str) -> str:
    """The form of the node that a stream's verdict is about."""
    return LINEAR if STREAMS[stream].binary else LIFTED


def applies(method: str, stream: str, classes: int) -> bool:
    """Two values cannot be lifted, and FESL has two classes only."""
    if method.startswith(LIFTED):
        return not STREAMS[stream].binary
    return classes == 2 or not method.startswith(TWO_CLASSES)


def installed(methods: list[str]) -> list[str]:
    """Those that can run here; the others are named, with the reason."""
    absent = {
        package: reason
        for package, module in (("river", "river"), ("OpenMOA", "openmoa.classifier"))
        if (reason := _why_not(module))
    }
    for package, reason in absent.items():
        print(f"{package} is left out: {reason}")
    return [method for method in methods if method.split()[0] not in absent]


def _why_not(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - without Java, whatever the bridge to it raises
        return str(error) or type(error).__name__
    return ""
