"""Whose labels are believed: who contradicts what the group knows is left out of a batch, by name.

What the group knows of the surviving columns says which class an instance is of, before any label
of the batch is learned. It is not always right; but how often it is, class by class, is much the
same for every node of the group. A node for whose instances it is right in fewer than half as many
as the other nodes make expect, surely not by chance, has a sensor that is not what it says, or
lies. Only nodes that several labels are from are judged, and only beside another: one alone has
nobody to be compared with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gateway.estage.selection import LABELLED_MIN
from gateway.registry import NodeKey

CREDIT = 0.5
"""The share of the expected hits below which a node contradicts the group."""
DOUBT = 2.0
"""How many standard errors make that sure."""


def contradicting(
    hits: NDArray[np.bool_], y: NDArray[np.int64], nodes: Sequence[NodeKey]
) -> dict[NodeKey, str]:
    """The nodes to leave out, and why: where the group was right, the labels, and whose they are.

    >>> y = np.array([0, 1] * 30)
    >>> nodes = [("farm", node) for node in ("a", "b", "liar") for _ in range(20)]
    >>> hits = np.array([node != "liar" for _, node in nodes])
    >>> contradicting(hits, y, nodes)[("farm", "liar")]
    'its labels contradict the group: 0 of 20 agree with the former weights, and 20 were expected'
    """
    brought: defaultdict[NodeKey, list[int]] = defaultdict(list)
    for place, node in enumerate(nodes):
        brought[node].append(place)
    heard = {node: rows for node, rows in brought.items() if len(rows) >= LABELLED_MIN}
    found = {}
    for node, own in heard.items():
        others = [rows for other, rows in heard.items() if other != node]
        usual = _usual([hits[rows] for rows in others], [y[rows] for rows in others])
        shares = [usual.get(int(label), 0.0) for label in y[own]]
        expected, got = sum(shares), int(hits[own].sum())
        doubt = DOUBT * math.sqrt(sum(share * (1 - share) for share in shares))
        if got < CREDIT * expected and expected - got > doubt:
            found[node] = (
                f"its labels contradict the group: {got} of {len(own)} agree with the former "
                "weights, and "
                f"{expected:.0f} were expected"
            )
    return found


def _usual(
    hits: Sequence[NDArray[np.bool_]], labels: Sequence[NDArray[np.int64]]
) -> dict[int, float]:
    """How often the group is right, for each class: the mean of the nodes, each counting once."""
    shares: defaultdict[int, list[float]] = defaultdict(list)
    for right, y in zip(hits, labels, strict=True):
        for label in np.unique(y):
            shares[int(label)].append(float(right[y == label].mean()))
    return {label: sum(each) / len(each) for label, each in shares.items()}
