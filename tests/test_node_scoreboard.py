"""Who is served: chance that is taken for skill, a drift that is missed, records that are lost."""

from __future__ import annotations

import numpy as np
import pytest

from edge_opid.node.local_models import LocalModels
from edge_opid.node.memories import Learning
from edge_opid.node.scoreboard import Blend, PredictorName, Scoreboard
from edge_opid.wire import SensorDescription


def judged(*pairs) -> Scoreboard:
    """A board after instances in which "own" and "bridge" were right or wrong."""
    board = Scoreboard()
    for first, second in pairs:
        board.record({"own": int(first), "bridge": int(second)}, 1)
    return board


@pytest.mark.parametrize("won", range(12))
@pytest.mark.parametrize(("lost", "needed"), [(0, 5), (1, 7), (2, 9), (3, 11)])
def test_nothing_else_is_served_for_a_lead_that_may_be_chance(won, lost, needed):
    """Only instances that one of the two had right count, however many both had.

    Two standard errors: `needed` wins are the fewest with (won - lost)² > 4·(won + lost).
    """
    board = judged(*[(1, 1)] * 50, *[(1, 0)] * lost, *[(0, 1)] * won, *[(0, 0)] * 20)
    assert board.best(["own", "bridge"]) == ("bridge" if won >= needed else "own")
    assert board.accuracy("own") == (50 + lost) / (70 + won + lost)


def test_a_new_predictor_is_compared_only_on_instances_it_has_seen():
    """The old one has a record of 30 hits; the new one has none to set against it."""
    board = judged(*[(1, 0)] * 30)
    for _ in range(3):
        board.record({"own": 1, "bridge": 0, "model": 0}, 1)
    assert board.best(["model", "own"]) == "model"  # 0 to 3: a lead of 1.7 errors
    for _ in range(2):
        board.record({"own": 1, "bridge": 0, "model": 0}, 1)
    assert board.best(["model", "own"]) == "own"
    assert board.seen("model") == 5


def test_the_window_is_as_long_as_it_says():
    """After 99 instances of the opposite one of the past is left, after 100 none."""
    board = judged(*[(0, 1)] * 100, *[(1, 0)] * 99)
    assert (board.accuracy("own"), board.accuracy("bridge")) == (0.99, 0.01)
    board.record({"own": 1, "bridge": 0}, 1)
    assert (board.accuracy("own"), board.accuracy("bridge")) == (1.0, 0.0)
    assert board.seen("own") == 100
    assert board.best(["bridge", "own"]) == "own"


def test_a_saved_board_keeps_every_hit_and_miss_in_order():
    """Early misses are leading zeros, which a plain number would lose."""
    board = judged((0, 1), (0, 0), (1, 1), (0, 1))
    assert board.state() == {"own": [0, 0, 1, 0], "bridge": [1, 0, 1, 1]}
    again = Scoreboard.from_state(board.state())
    assert again.state() == board.state()
    assert again.accuracies() == {"own": 0.25, "bridge": 0.75}
    again.move("bridge", to="own")
    assert again.state() == {"own": [1, 0, 1, 1]}


def test_the_blend_is_the_one_computed_by_hand():
    """Two predictors, two instances, one of which both had wrong."""
    blend = Blend()
    a, b = np.array([0.9, 0.1], np.float32), np.array([0.8, 0.2], np.float32)
    for truth in (0, 1):
        blend.record({"long": a, "lately": b}, truth)
    # The first error has faded to 0.95: a 0.019 + 1.62 = 1.639, b 0.076 + 1.28 = 1.356, of 1.95.
    weight = (1.356 / 1.639) ** 4  # 0.4685 of a to 1 of b, the better one
    expected = (weight * a + b) / (weight + 1)
    np.testing.assert_allclose(blend.of({"long": a, "lately": b}), expected, rtol=1e-6)
    np.testing.assert_allclose(expected, [0.8319, 0.1681], atol=5e-5)
    gently = (1.356 / 1.639 * a + b) / (1.356 / 1.639 + 1)
    found = blend.of({"long": a, "lately": b}, ordered=True)
    np.testing.assert_allclose(found, gently, rtol=1e-6)
    assert Blend.from_state(blend.state()).state() == blend.state()
    blend.forget("long")
    np.testing.assert_allclose(blend.of({"long": a, "lately": b}), (a + b) / 2, rtol=1e-6)


def test_a_perfect_predictor_gets_all_the_weight_and_divides_nothing_by_zero():
    """Its squared error is 0, and the blend divides by it."""
    blend, right = Blend(), np.array([1.0, 0.0])
    both = {PredictorName.LONG: right, PredictorName.LATELY: right[::-1]}
    blend.record(both, 0)
    np.testing.assert_allclose(blend.of(both), right, atol=1e-30)


def test_the_nodes_own_answer_follows_when_the_world_turns_over():
    """The sensor's meaning is reversed: the long memory is wrong for long, the blend is not."""
    sensor = SensorDescription(id="a", role="a", reference=0.0, scale=1.0, timeout_s=60.0)
    local_models = LocalModels([sensor], (), 8.0, Learning(2, 1.0, 1.0, 1.0))
    rng, right = np.random.default_rng(1), {"own": 0, "long": 0}
    for place in range(1200):
        value = float(rng.normal())
        label = int((value > 0) == (place < 800))
        x = local_models.encode({"a": value})
        if place >= 950:
            found = local_models.scores(x)
            right = {n: k + int(found[n].argmax() == label) for n, k in right.items()}
        local_models.learn(x, label)
    assert right["own"] > 230  # of 250
    assert right["long"] < 50
    again = LocalModels.restored(local_models.state(), local_models.learning)
    assert np.array_equal(again.scores(x)["own"], local_models.scores(x)["own"])
