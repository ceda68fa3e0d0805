"""A node asks what it does not know, within the budget it was given, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.rig import TOPICS, Rig

from edge_opid.config.node import SensorConfig
from edge_opid.config.service import parse_config
from edge_opid.errors import ConfigError
from edge_opid.node.asking import Asking
from edge_opid.wire import Asked, Channel

SENSORS = tuple(SensorConfig(name, reference=0.0, scale=1.0, timeout_s=1e6) for name in ("a", "b"))
MINUTE_MS = 60_000


def rig_of(per_hour=2.0, **changes):
    return Rig.make(**{"sensors": SENSORS, "asks_per_hour": per_hour, **changes})


def asked(rig):
    return rig.messages(Channel.ASKED, Asked)


def fill(rig, count, label=None, first=1, seed=3):
    rng = np.random.default_rng(seed)
    for seq in range(first, first + count):
        a, b = rng.normal(size=2).tolist()
        truth = "fresh" if a > 0 else "stale"
        known = label is not None and label(seq)
        rig.read(seq, {"a": a, "b": b}, now_ms=MINUTE_MS * seq, label=truth if known else None)


def test_a_node_that_was_not_told_to_ask_does_not():
    rig = rig_of(per_hour=0.0)
    fill(rig, 200)
    assert asked(rig) == []


@pytest.mark.parametrize("per_hour", [0.5, 2.0, 10.0])
def test_no_more_is_asked_than_the_budget_allows(per_hour):
    """In any hour: what it brings and what was saved. Over a day about all of it is spent."""
    rig = rig_of(per_hour=per_hour)
    fill(rig, 1_440)
    times = [each.time_ms for each in asked(rig)]
    assert 0.7 * 24 * per_hour <= len(times) <= 24 * per_hour + 1
    for begin in range(0, 1_440 * MINUTE_MS, 10 * MINUTE_MS):
        within = [at for at in times if begin <= at < begin + 60 * MINUTE_MS]
        assert len(within) <= per_hour + max(1.0, per_hour) + 1
    assert rig.node.counts["asked"] == len(times)
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_question_says_what_is_needed_to_answer_it():
    """The instance, the guess, how sure it is, and all classes; the answer names the instance."""
    rig = rig_of()
    fill(rig, 30, label=lambda seq: seq < 20)
    question = asked(rig)[-1]
    *_, payload = [each[1] for each in rig.published if each[0] == str(TOPICS.to(Channel.ASKED))]
    shown = json.loads(payload)
    assert shown["instance"] == question.instance.plain()
    assert set(shown["scores"]) == {"fresh", "stale", "bad"}
    assert shown["label"] == max(shown["scores"], key=shown["scores"].get)
    assert shown["confidence"] == max(shown["scores"].values())
    before = rig.node.counts["learned"]
    answer = json.dumps({"label": "stale", "instance": question.instance.plain()}).encode()
    rig.handle(TOPICS.to(Channel.LABEL), answer, 31 * MINUTE_MS, token="t")
    assert rig.node.counts["learned"] == before + 1


def test_what_has_a_label_is_not_asked_about():
    rig = rig_of(per_hour=60.0)
    fill(rig, 100, label=lambda _: True)
    assert asked(rig) == []


def test_doubtful_instances_are_asked_about_and_others_are_not():
    """Near the border between two classes; on either side of it the node is sure."""
    rig = rig_of(per_hour=1.0)
    fill(rig, 400, label=lambda _: True)
    fill(rig, 1_200, first=401, seed=4)
    doubts = [1 - sorted(each.scores.values())[-1] for each in asked(rig)]
    said = [1 - max(each.scores.values()) for each in rig.predictions()[400:]]
    assert len(doubts) >= 10
    assert np.mean(doubts[3:]) > 2 * np.mean(said)


def test_a_clock_that_is_set_back_gives_no_budget():
    asking = Asking()
    assert asking.decides(None, 10_000_000, 1.0)
    for now_ms in (5_000_000, 0, 1_000_000, 2_000_000):
        assert not asking.decides(None, now_ms, 1.0)


def test_what_a_quiet_night_did_not_need_is_saved_up_to_eight_questions():
    """A budget that ran over at one question left half of an office's unasked."""
    asking, sure, unsure = Asking(), [1.0, 0.0], [0.5, 0.5]
    for minute in range(0, 100 * 60, 10):
        assert not asking.decides(sure, minute * MINUTE_MS, 0.5)
    now_ms = 100 * 60 * MINUTE_MS
    found = [asking.decides(unsure, now_ms + second, 0.5) for second in range(40)]
    assert sum(found) == 8


def test_the_file_says_how_often():
    text = (
        '[node]\nsite="s"\nnode="n"\nclasses=["a","b"]\n[state]\nfolder="x"\n[[sensors]]\nid="t"\n'
    )
    assert parse_config(text, {}).node.asks_per_hour == 0
    assert parse_config(text + "[asking]\nper_hour = 3\n", {}).node.asks_per_hour == 3
    with pytest.raises(ConfigError, match=r"asking.per_hour must be from 0 to 3600"):
        parse_config(text + "[asking]\nper_hour = -1\n", {})
