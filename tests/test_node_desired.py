"""Attacks on `desired`, each refused, counted by reason, and without effect."""

from __future__ import annotations

import numpy as np
import pytest
from support.rig import KEY, OTHER_KEY, TOPICS, Rig, desired, folded

from edge_opid.wire import Channel, Matrix, Weights, encode, seal, seal_desired

DESIRED = TOPICS.to(Channel.DESIRED)
MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)  # a, b, c and the bias, three classes
W = folded(MATRIX)
QUANTUM = Weights("quantum", {"W": Matrix.of(MATRIX)})
HALF_A_KERNEL = Weights("kernel", {"W_s": Matrix.of(MATRIX)})  # test_node_kernel.py has the rest
FOLDED_KERNEL = Weights("kernel", {"W": Matrix.of(MATRIX)})


@pytest.fixture
def rig():
    """A node that has obeyed version 7: layout 1, with weights."""
    rig = Rig.make()
    rig.order(desired(7, weights=W))
    rig.commit(0)
    return rig


def raw_nan_weights():
    """NaN passes no constructor, so its bytes are written over those of good weights."""
    good = encode(desired(8, weights=W))
    return seal(good.replace(np.float32(5.0).tobytes(), np.float32("nan").tobytes()), KEY)


ATTACKS = {
    "unsigned": (lambda: encode(desired(8, weights=W)), "signature"),
    "wrong key": (lambda: seal_desired(desired(8, weights=W), OTHER_KEY), "signature"),
    "other node": (lambda: seal_desired(desired(8, node="n2"), KEY), "address"),
    "other site": (lambda: seal_desired(desired(8, site="yard"), KEY), "address"),
    "old version": (lambda: seal_desired(desired(6, weights=W), KEY), "old-version"),
    "equal version, other content": (
        lambda: seal_desired(desired(7, weights=folded(-MATRIX)), KEY),
        "conflict",
    ),
    "version far ahead": (lambda: seal_desired(desired(8 + 2**20, weights=W), KEY), "far-version"),
    "wrong layout": (lambda: seal_desired(desired(8, sensors=("a", "b")), KEY), "layout"),
    "older layout": (
        lambda: seal_desired(desired(8, layout_version=1, vanishing=("a",)), KEY),
        "layout",
    ),
    "wrong shape": (lambda: seal_desired(desired(8, weights=folded(MATRIX[:3])), KEY), "shape"),
    "NaN": (raw_nan_weights, "nonfinite"),
    "oversized": (lambda: seal_desired(desired(8, weights=W), KEY) + bytes(2**20), "size"),
    "truncated": (lambda: seal_desired(desired(8, weights=W), KEY)[:-9], "signature"),
    "cut to nothing": (lambda: b"opd1", "truncated"),
    "unknown form": (lambda: seal_desired(desired(8, weights=QUANTUM), KEY), "form"),
    "half a kernel": (lambda: seal_desired(desired(8, weights=HALF_A_KERNEL), KEY), "form"),
    "a matrix that says it is a kernel": (
        lambda: seal_desired(desired(8, weights=FOLDED_KERNEL), KEY),
        "form",
    ),
    "other classes": (lambda: seal_desired(desired(8, classes=("x", "y", "z")), KEY), "classes"),
}


@pytest.mark.parametrize(("payload", "reason"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_on_desired_is_refused_counted_and_changes_nothing(rig, payload, reason):
    before, journal = rig.frozen(), list(rig.durable)
    rig.handle(DESIRED, payload(), now_ms=5, token="attack")
    assert rig.node.counts[f"refused-{reason}"] == 1
    assert rig.released[-1] == "attack"
    assert not rig.pending
    assert rig.frozen() == before
    assert rig.durable == journal


def test_the_same_document_again_is_no_news(rig):
    """It is retained: every connection brings it again."""
    before = rig.frozen()
    rig.order(desired(7, weights=W))
    assert not any(reason.startswith("refused") for reason in rig.node.counts)
    assert rig.frozen() == before


def test_the_floor_survives_a_restart(rig):
    """An attacker who waits for the node to restart gains nothing."""
    again = rig.reborn()
    before = again.frozen()
    again.order(desired(6, weights=W))
    assert again.node.counts["refused-old-version"] == 1
    assert again.frozen() == before == rig.frozen()


def test_a_newer_document_is_obeyed_and_reported(rig):
    rig.order(desired(8, weights=folded(2 * MATRIX)), now_ms=9)
    status = rig.statuses()[-1]
    assert (status.layout_version, status.model_version) == (1, 8)
    assert rig.node.state.pushed_models.version("previous") == 7
