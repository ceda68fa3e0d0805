"""A configuration that changes between two lives of a node."""

from __future__ import annotations

import numpy as np
import pytest
from support.rig import CLASSES, KEY, TOPICS, Rig, config

from edge_opid.config.node import NodeConfig
from edge_opid.errors import SettingError
from edge_opid.node.journal_records import Configured, unpack_record
from edge_opid.node.node import Node
from edge_opid.reasons import NodeReason
from edge_opid.wire import Channel, Label, encode


def lived(given: NodeConfig | None = None, readings: int = 60, *, gateway: bool = False) -> Rig:
    """A node that has learned three classes from three sensors."""
    rig = Rig(Node(given or config(), [KEY.verify_key] if gateway else ()))
    rig.run(rig.node.start(0), 0)
    teach(rig, 1, readings)
    rig.commit(0)
    return rig


def teach(rig: Rig, first: int, readings: int) -> None:
    random = np.random.default_rng(7)
    for seq in range(1, first + readings):
        truth = int(random.integers(3))
        a, b, c = random.normal([truth, -truth, truth == 1])
        label = CLASSES[truth] if seq % 4 else None  # some wait for their label
        if seq >= first:
            rig.read(seq, {"a": float(a), "b": float(b), "c": float(c)}, label)


def restarted(rig: Rig, *, snapshot: bool = False, gateway: bool = False, **changes) -> Rig:
    """The next life of the node, with these settings in its file."""
    node = Node(config(**changes), [KEY.verify_key] if gateway else ())
    again = Rig(node, durable=list(rig.durable))
    node.restore(rig.frozen() if snapshot else None, [] if snapshot else rig.durable)
    again.run(node.start(100_000), 100_000)
    return again


def answers(rig: Rig) -> list[tuple[str, dict[str, float], str]]:
    return [(each.label, dict(each.scores), each.predictor) for each in rig.predictions()]


def test_the_first_record_of_a_life_is_its_settings() -> None:
    """Without it a replay would have to guess what the readings were learned under."""
    rig = lived()
    first, *others = map(unpack_record, rig.durable)
    assert isinstance(first, Configured)
    assert not any(isinstance(each, Configured) for each in others)
    again = restarted(rig)
    assert again.durable == rig.durable  # the same settings are not written twice
    assert again.frozen() == rig.frozen()


def test_a_life_that_begins_anew_says_when() -> None:
    """A status that said "begun-anew, 20774 days ago", since it was noted before any clock."""
    node = Node(config())
    node.restore(None, [])
    node.start(1_700_000_000_000)
    assert node.tally.shown()["begun-anew"]["at_ms"] == 1_700_000_000_000
    assert node.counts[NodeReason.BEGUN_ANEW] == 1


@pytest.mark.parametrize("snapshot", [False, True])
def test_classes_in_another_order_give_the_same_answers_to_the_bit(snapshot: bool) -> None:
    """Reordering the list in node.toml once inverted every prediction, and nothing said so."""
    rig = lived()
    again = restarted(rig, snapshot=snapshot, classes=("bad", "stale", "fresh"))
    undisturbed = restarted(rig)
    teach(again, 61, 40)
    teach(undisturbed, 61, 40)
    assert answers(again) == answers(undisturbed)
    assert again.frozen() == undisturbed.frozen()


def test_a_node_with_a_gateway_follows_the_order_in_its_file() -> None:
    """The gateway takes a node only with its group's order; the answers stay those of the names."""
    rig = lived(gateway=True)
    again = restarted(rig, gateway=True, classes=("bad", "stale", "fresh"))
    undisturbed = restarted(rig, gateway=True)
    teach(again, 61, 40)
    teach(undisturbed, 61, 40)
    assert again.node.state.settings.classes == ("bad", "stale", "fresh")
    for mine, theirs in zip(answers(again), answers(undisturbed), strict=True):
        assert (mine[0], mine[2]) == (theirs[0], theirs[2])
        # Probabilities are added up from the first class to the last: in another order the last
        # bit is another one.
        assert mine[1] == pytest.approx(theirs[1], rel=1e-12)


def test_a_class_that_is_added_is_a_column_of_zeros() -> None:
    """What is known of the others is kept to the bit; the new one is learned from its labels."""
    rig = lived()
    again = restarted(rig, classes=("fog", *CLASSES))
    assert again.node.state.settings.classes == (*CLASSES, "fog")
    before, after = (each.node.state.local_models.learner for each in (rig, again))
    assert np.array_equal(after.B[:, :3], before.B)
    assert not after.B[:, 3].any()
    assert np.array_equal(after.inverse(), before.inverse())
    for seq in range(61, 91):
        again.read(seq, {"a": -5.0, "b": -5.0, "c": -5.0}, "fog")
    assert again.predictions()[-1].label == "fog"
    assert again.node.tally.counts[NodeReason.UNKNOWN_CLASS] == 0


@pytest.mark.parametrize("classes", [("fresh", "stale"), ("fresh", "stale", "rotten")])
def test_a_class_that_is_gone_from_the_file_is_refused_and_nothing_changes(classes) -> None:
    """A typing error in the list must not throw away what was learned of a class."""
    rig = lived()
    node = Node(config(classes=classes))
    node.restore(None, rig.durable)
    with pytest.raises(SettingError, match=r"node\.classes lacks 'bad'"):
        node.start(0)
    assert node.snapshot() == rig.frozen()


@pytest.mark.parametrize("name", ["site", "node"])
def test_a_state_of_another_node_is_refused(name) -> None:
    """A folder that was copied from a neighbour answers with the neighbour's sensors."""
    rig = lived()
    node = Node(config(**{name: "other"}))
    node.restore(None, rig.durable)
    with pytest.raises(SettingError, match=f"node.{name} is 'other'.* that of farm/n1"):
        node.start(0)
    assert node.snapshot() == rig.frozen()


def test_a_replay_applies_every_reading_under_the_settings_of_its_time() -> None:
    """Changes between lives are records: the whole journal gives the bits of the last life."""
    rig = lived(readings=20)
    changes = [
        {"classes": ("fog", *CLASSES)},
        {"classes": (*CLASSES, "fog"), "window_ms": 250, "recent": 8},
        {"classes": ("fog", *CLASSES), "lam": 0.5, "rho": 2.0, "forgetting": 0.99},
    ]
    for place, change in enumerate(changes, 1):
        rig = restarted(rig, **change)
        teach(rig, 20 * place + 1, 20)
        rig.commit(0)
    kinds = [type(unpack_record(record)) for record in rig.durable]
    assert kinds.count(Configured) == 1 + len(changes)
    replayed = restarted(rig, **changes[-1])
    assert replayed.frozen() == rig.frozen()
    assert restarted(rig, snapshot=True, **changes[-1]).frozen() == rig.frozen()


def test_lam_and_rho_are_those_of_a_learner_that_always_had_them() -> None:
    """The sums determine the solution for every λ and ρ: float32 rounding is all that differs."""
    rig = lived(config(vanishing=("a",)))
    again = restarted(rig, vanishing=("a",), lam=0.3, rho=4.0)
    always = lived(config(vanishing=("a",), lam=0.3, rho=4.0))
    found, oracle = (each.node.state.local_models.learner.weights() for each in (again, always))
    for mine, theirs in zip(found, oracle, strict=True):
        assert np.abs(mine - theirs).max() < 1e-5  # 60 readings in float32: some 60 × 2⁻²⁴
    assert np.abs(found[0] - rig.node.state.local_models.learner.weights()[0]).max() > 1e-3


def test_a_label_for_an_instance_of_the_life_before_is_learned_by_name() -> None:
    """The instance waits in the ring with guesses by number, and the numbers have changed."""
    rig = lived()
    again = restarted(rig, gateway=True, classes=("bad", "stale", "fresh"))
    waiting = next(e for e in again.node.state.recent._entries if not e.lesson)
    frequency = list(again.node.state.frequency.counts)
    label = Label("fresh", waiting.numbers[0], None)
    again.handle(TOPICS.to(Channel.LABEL), encode(label), 100_100)
    assert again.node.state.frequency.counts == [frequency[0], frequency[1], frequency[2] + 1]
