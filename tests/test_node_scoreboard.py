"""Who is served: chance that is taken for skill, a drift that is missed, records that are lost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edge_opid.node.local_models import LocalModels
from edge_opid.node.memories import Learning
from edge_opid.node.scoreboard import DOUBT, FADING, WINDOW, Blend, Scoreboard
from edge_opid.wire import SensorDescription


def judged(*pairs) -> Scoreboard:
    """A board after instances in which "own" and "bridge" were right or wrong."""
    board = Scoreboard()
    for first, second in pairs:
        board.record({"own": int(first), "bridge": int(second)}, 1)
    return board


@pytest.mark.parametrize("won", range(12))
@pytest.mark.parametrize("lost", range(4))
def test_another_one_is_served_for_a_lead_that_is_chance(won, lost):
    """Only instances that one of the two had right count, however many both had."""
    board = judged(*[(1, 1)] * 50, *[(1, 0)] * lost, *[(0, 1)] * won, *[(0, 0)] * 20)
    ahead = won - lost > DOUBT * math.sqrt(won + lost)
    assert board.best(["own", "bridge"]) == ("bridge" if ahead else "own")
    assert board.accuracy("own") == (50 + lost) / (70 + won + lost)


def test_a_new_one_is_doubted_or_compared_with_instances_it_has_not_seen():
    board = judged(*[(1, 0)] * 30)
    for _ in range(3):
        board.record({"own": 1, "bridge": 0, "model": 0}, 1)
    assert board.best(["model", "own"]) == "model"  # 0 to 3: a lead of 1.7 errors
    for _ in range(2):
        board.record({"own": 1, "bridge": 0, "model": 0}, 1)
    assert board.best(["model", "own"]) == "own"
    assert board.seen("model") == 5


def test_the_window_is_longer_or_shorter_than_it_says():
    board = judged(*[(0, 1)] * WINDOW, *[(1, 0)] * WINDOW)
    assert (board.accuracy("own"), board.accuracy("bridge")) == (1.0, 0.0)
    assert board.seen("own") == WINDOW
    assert board.best(["bridge", "own"]) == "own"


def test_a_saved_board_forgets_the_order_or_the_early_misses():
    board = judged((0, 1), (0, 0), (1, 1), (0, 1))
    assert board.state() == {"own": [0, 0, 1, 0], "bridge": [1, 0, 1, 1]}
    again = Scoreboard.from_state(board.state())
    assert again.state() == board.state()
    assert again.accuracies() == {"own": 0.25, "bridge": 0.75}
    again.move("bridge", to="own")
    assert again.state() == {"own": [1, 0, 1, 1]}


def test_the_blend_differs_from_the_one_by_hand():
    blend = Blend()
    a, b = np.array([0.9, 0.1], np.float32), np.array([0.8, 0.2], np.float32)
    for truth in (0, 1):
        blend.record({"long": a, "lately": b}, truth)
    count = FADING + 1
    errors = (0.02 * FADING + 1.62) / count, (0.08 * FADING + 1.28) / count
    weight = (errors[1] / errors[0]) ** 4  # b is the better one
    expected = (weight * a + b) / (weight + 1)
    np.testing.assert_allclose(blend.of({"long": a, "lately": b}), expected, rtol=1e-6)
    assert Blend.from_state(blend.state()).state() == blend.state()
    blend.forget("long")
    np.testing.assert_allclose(blend.of({"long": a, "lately": b}), (a + b) / 2, rtol=1e-6)


def test_a_perfect_predictor_divides_by_zero():
    blend, right = Blend(), np.array([1.0, 0.0])
    blend.record({"a": right, "b": right[::-1]}, 0)
    np.testing.assert_allclose(blend.of({"a": right, "b": right[::-1]}), right, atol=1e-30)


def test_the_nodes_own_answer_lags_when_the_world_turns_over():
    """The sensor's meaning is reversed: the long memory is wrong for long, the blend is not."""
    sensor = SensorDescription("a", "a", 0.0, 1.0, 60.0)
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
