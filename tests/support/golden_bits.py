"""Digests of what the C file leaves after 1,000 readings: the same bits on every CPU.

Readings come from integer arithmetic alone, so that no libm or BLAS has a say in them. Run as a
script (by `.ci/arm`, under emulation) it prints a line a case and fails on any other digest.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from edge_opid import GramLearner, WoodburyLearner

DIGESTS = {
    (WoodburyLearner, 25, 50): "9f00082ac5e6f71e",
    (WoodburyLearner, 0, 40): "99b8d1c456b24f47",
    (GramLearner, 25, 50): "e4d82b47e1b6cedf",
}


def plain_readings(width, n, classes=3):
    state, values = 12345, []
    for _ in range(n * width):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(((state >> 40) - 2**23) / 2**21)
    X = np.array(values, np.float32).reshape(n, width)
    return X, (np.abs(X[:, 0] * 8).astype(int) + np.arange(n)) % classes


def digest_of(kind, vanishing, surviving):
    X, y = plain_readings(vanishing + surviving, 1000)
    learner = kind(vanishing, surviving, 3, native="compiled")
    for x, label in zip(X, y, strict=True):
        learner.learn_one(x, label)
    digest = hashlib.sha256()
    for value in learner.state().values():
        if isinstance(value, np.ndarray):
            digest.update(value.tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    found = {case: digest_of(*case) for case in DIGESTS}
    for (kind, *shape), digest in found.items():
        print(kind.__name__, *shape, digest, "ok" if digest == DIGESTS[kind, *shape] else "WRONG")
    sys.exit(found != DIGESTS)
