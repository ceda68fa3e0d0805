"""Digests of what the C file leaves after 1,000 readings: the same bits on every CPU.

Readings come from integer arithmetic alone, so that no libm or BLAS has a say in them. As a program
(`python -m edge_opid.learner.golden_bits`) it prints a line a case and fails on any other digest.
They may change only with the algorithm, and then a stored state no longer replays to the bit.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np
from numpy.typing import NDArray

from edge_opid.learner.gram import GramLearner
from edge_opid.learner.woodbury import WoodburyLearner

Learners = type[WoodburyLearner] | type[GramLearner]
DIGESTS: dict[tuple[Learners, int, int], str] = {
    (WoodburyLearner, 25, 50): "9f00082ac5e6f71e",
    (WoodburyLearner, 0, 40): "99b8d1c456b24f47",
    (GramLearner, 25, 50): "e4d82b47e1b6cedf",
}


def plain_readings(
    width: int, n: int, classes: int = 3
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Readings of so many sensors, and their labels."""
    state, values = 12345, []
    for _ in range(n * width):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(((state >> 40) - 2**23) / 2**21)
    X = np.array(values, np.float32).reshape(n, width)
    return X, (np.abs(X[:, 0] * 8).astype(int) + np.arange(n)) % classes


def digest_of(kind: Learners, vanishing: int, surviving: int) -> str:
    """What the compiled kernel leaves of 1,000 readings."""
    X, y = plain_readings(vanishing + surviving, 1000)
    learner = kind(vanishing, surviving, 3, native="compiled")
    for x, label in zip(X, y, strict=True):
        learner.learn_one(x, label)
    digest = hashlib.sha256()
    for value in learner.state().values():
        if isinstance(value, np.ndarray):
            digest.update(value.tobytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """A line a case; 1 if any is wrong."""
    found = {case: digest_of(*case) for case in DIGESTS}
    for case, digest in found.items():
        kind, *shape = case
        verdict = "ok" if digest == DIGESTS[case] else f"WRONG, not {DIGESTS[case]}"
        sys.stdout.write(f"{kind.__name__} {shape} {digest} {verdict}\n")
    return int(found != DIGESTS)


if __name__ == "__main__":
    sys.exit(main())
