"""Many nodes in one change at one time: what they know together, and what one moment hides."""

from __future__ import annotations

import numpy as np
import pytest
from support import fleet_rig
from support.fleet_rig import CLASSES, SITE, FleetRig, SeenWorld

from edge_opid.learner import GramLearner
from edge_opid.wire import Channel, NodeTopics, Reading, SensorDeployed, SensorRetired, encode
from gateway.fitting import fit as fitting
from gateway.fitting.fit import CONTINUED, continued, is_too_brief
from gateway.fitting.job import FitJob
from gateway.fitting.models import fitted_model
from gateway.fitting.pooling import Member, pool
from gateway.policy import Policy
from gateway.registry import ChangeRecord, ExampleRecord, SensorState
from gateway.registry.measuring import OWN_MIN

MANY = tuple(f"n{number}" for number in range(1, 13))
POLICY = Policy(settle_s=1, silence_s=600, summary_wait_s=5, first_batch=30, batch_max=60)


def job(examples: list[str], columns=("a", "b", "bias", "new")) -> FitJob:
    """A change with one instance of each of these nodes, in this order."""
    records = [
        ExampleRecord(
            change=1,
            site=SITE,
            node=node,
            source="box",
            boot=1,
            seq=seq,
            layout_version=2,
            label="calm",
            values={},
            place=seq,
        )
        for seq, node in enumerate(examples)
    ]
    change = ChangeRecord(
        id=1, group="air", retired=(), arrived=("new",), columns=columns, opened_ms=0
    )
    return FitJob(
        change=change,
        size=len(records),
        classes=CLASSES,
        layouts={},
        summaries=[],
        examples=records,
        previous=None,
        lam=1.0,
        rho=1.0,
    )


# -- the batch -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("examples", "brief"),
    [
        (["n1"] * 30, False),
        (["n1"] * 6, False),  # one node: each instance is a moment of its own
        (["n1", "n2", "n3"] * 10, True),
        (["n1", "n2"] * 29, True),
        (["n1", "n2"] * 30, False),
        (["n1"] * 30 + ["n2"], False),  # the second has just joined
        ([], False),
    ],
    ids=["one long", "one brief", "three", "29 of two", "30 of two", "one joined late", "nobody"],
)
def test_instances_of_one_moment_are_not_taken_for_a_long_batch(examples, brief):
    """What counts is how long the best known node was heard."""
    assert is_too_brief(job(examples)) == brief


def test_a_continued_fit_is_the_ridge_on_every_reading_of_everybody():
    """Oracle: all readings in one float64 solve, the newcomer at its reference before it came."""
    rng = np.random.default_rng(3)
    old, y_old = rng.normal(size=(90, 3)), rng.integers(0, 3, 90)
    new, y_new = rng.normal(size=(24, 4)), rng.integers(0, 3, 24)
    members = []
    for number, rows in enumerate(np.array_split(np.arange(90), 3)):
        learner = GramLearner(vanishing=0, surviving=3, classes=3)
        for row in rows:
            learner.learn_one(old[row], int(y_old[row]))
        members.append(Member(f"n{number}", ("bias", "b", "a"), learner.summary()))
    found = pool(members, ("a", "b", "bias"), 3)
    asked = job([f"n{number % 8}" for number in range(24)])
    W, best = continued(asked, found, new, y_new)

    before = np.zeros((90, 4))
    before[:, [2, 1, 0]] = old  # a, b, bias, new: in the order of the change
    X, Y = np.vstack([before, new]), np.eye(3)[np.append(y_old, y_new)]
    oracle = np.linalg.solve(X.T @ X + np.eye(4), X.T @ Y)
    np.testing.assert_allclose(W, oracle, atol=1e-5)  # the nodes' sums are float32
    assert best.chosen == CONTINUED
    assert set(best.hits) <= {0.0, 1.0}
    assert "24 instances of 8 nodes" in best.why


class Hours(SeenWorld):
    """Some hours have hardly an alarm, others hardly anything else."""

    shares = (1 / 3, 1 / 3, 1 / 3)

    def instance(self, roles):
        """As in any hour, with this hour's classes."""
        truth = int(self.rng.choice(len(CLASSES), p=self.shares))
        views = {sensor: self._views[sum(map(ord, role)) % 64] for sensor, role in roles.items()}
        noise = self.rng.normal(size=len(views))
        values = {
            sensor: float(view[truth] + 0.9 * wobble)
            for (sensor, view), wobble in zip(views.items(), noise, strict=True)
        }
        return values, CLASSES[truth]


def lived(shares) -> FleetRig:
    """Twelve nodes that lose a sensor, and send their whole batch within one hour."""
    fleet = FleetRig(names=MANY, policy=POLICY)
    fleet.world = Hours(5)
    fleet.pass_s(2)
    fleet.read_all(60)
    for name in MANY:
        fleet.event(name, SensorRetired(f"pm-{name}", fleet.now_ms, "worn out"))
    fleet.pass_s(8)
    fleet.world.shares = shares
    for _ in range(6):
        for name in MANY:
            fleet.read(name)
        fleet.pass_s(1)
    return fleet


def right_at_another_hour(fleet: FleetRig, fit) -> float:
    (change,) = fleet.gateway.fleet.changes.values()
    world = Hours(9)
    world.shares = (0.05, 0.05, 0.9)
    model, right = fitted_model(fit, change), 0
    for _ in range(500):
        values, truth = world.instance({c: c for c in change.columns if c != "bias"})
        x = np.array([[values.get(column, 1.0) for column in change.columns]])
        right += CLASSES[int(model.scores(x).argmax())] == truth
    return right / 500


def test_a_batch_of_one_hour_does_not_overturn_what_the_group_knew(monkeypatch):
    """An hour without alarms: the forms of the E-stage unlearn them, the continued fit does not."""
    quiet = (0.55, 0.43, 0.02)
    fleet = lived(quiet)
    first, *_, last = fleet.fits
    assert [fit.size for fit in fleet.fits] == [0, 30, 60]
    assert last.chosen == CONTINUED
    kept = right_at_another_hour(fleet, last)
    known = right_at_another_hour(fleet, first)  # z, from the group's statistics
    assert kept > 0.8 * known

    monkeypatch.setattr(fitting, "is_too_brief", lambda _: False)
    monkeypatch.setattr(fleet_rig, "FITTED", {})
    other = lived(quiet)
    assert right_at_another_hour(other, other.fits[-1]) < 0.5 * known, "it proves nothing"
    assert fleet.agreed()


def test_what_others_know_of_the_newcomer_is_continued_too():
    """Eight nodes have had the sensor for long; four get it, and few moments of them say more."""
    late = MANY[:4]
    fleet = FleetRig(names=MANY, policy=POLICY, lacking=dict.fromkeys(late, ("pm",)))
    fleet.learn_for_a_while(60)
    for name in late:
        fleet.event(
            name,
            SensorDeployed(f"pm-{name}", role="pm", at_ms=fleet.now_ms, reference=0.0, scale=1.0),
        )
    fleet.pass_s(8)
    for _ in range(16):
        for name in late:
            fleet.read(name)
        fleet.pass_s(1)
    first, _, last = fleet.fits
    assert (first.size, last.size, last.chosen) == (0, 60, CONTINUED)
    assert set(first.pooled) == set(last.pooled) == {f"{SITE}/{name}" for name in MANY[4:]}
    assert fleet.agreed()


# -- measuring -------------------------------------------------------------------------------------


def say(fleet: FleetRig, name: str, value: float) -> None:
    """One value of the new sensor of a node, and nothing else."""
    fleet.seq[name] = fleet.seq.get(name, 0) + 1
    reading = Reading(1, fleet.seq[name], fleet.now_ms, {f"voc-{name}": value}, None)
    fleet.publish(str(NodeTopics(SITE, name).to(Channel.READING, "box")), encode(reading))
    fleet.deliver()


def measuring(*names: str) -> FleetRig:
    fleet = FleetRig(names=names, policy=POLICY)
    fleet.pass_s(2)
    for name in names:
        fleet.event(name, SensorDeployed(f"voc-{name}", role="voc", at_ms=fleet.now_ms))
    fleet.pass_s(2)
    return fleet


def newcomer(fleet: FleetRig, name: str):
    return fleet.gateway.fleet.sensors[SITE, name][f"voc-{name}"]


def test_a_hundred_new_sensors_are_not_measured_one_by_one():
    """Peers have enough values together after a few readings, and get one reference and scale."""
    fleet = measuring(*MANY)
    rng = np.random.default_rng(1)
    for count in range(OWN_MIN):
        assert newcomer(fleet, "n1").state == SensorState.MEASURING, count
        for name in MANY:
            say(fleet, name, 200.0 + 30.0 * rng.normal())
    found = {(newcomer(fleet, name).reference, newcomer(fleet, name).scale) for name in MANY}
    assert {newcomer(fleet, name).state for name in MANY} == {SensorState.ACTIVE}
    ((reference, scale),) = found
    assert abs(reference - 200.0) < 10
    assert 20 < scale < 40
    fleet.pass_s(10)
    (change,) = fleet.gateway.fleet.changes.values()  # one cohort
    assert len(fleet.gateway.fleet.members(change.id)) == len(MANY)
    assert fleet.listening == frozenset()


def test_another_make_among_the_peers_is_measured_alone():
    """It counts in other units: it takes its own first readings, and nobody takes its scale."""
    fleet = measuring(*MANY)
    rng = np.random.default_rng(2)
    for _ in range(OWN_MIN):
        for name in MANY:
            say(fleet, name, (5e5 if name == "n2" else 200.0) + 30.0 * rng.normal())
    assert newcomer(fleet, "n2").state == SensorState.MEASURING
    assert 20 < newcomer(fleet, "n1").scale < 40
    for _ in range(POLICY.measure_readings - OWN_MIN):
        say(fleet, "n2", 5e5 + 30.0 * rng.normal())
    assert newcomer(fleet, "n2").state == SensorState.ACTIVE
    assert abs(newcomer(fleet, "n2").reference - 5e5) < 50
    assert 20 < newcomer(fleet, "n2").scale < 40


def test_an_absurd_peer_does_not_spoil_the_scale_of_the_only_other():
    """Half of the values are absurd, and so is what they say together."""
    fleet = measuring("n1", "n2")
    rng = np.random.default_rng(3)
    for _ in range(POLICY.measure_readings):
        for name, scale in (("n1", 1.0), ("n2", 1e9)):
            if newcomer(fleet, name).state == SensorState.MEASURING:
                say(fleet, name, scale * (20.0 + rng.normal()))
    assert newcomer(fleet, "n1").state == SensorState.ACTIVE
    assert 0.5 < newcomer(fleet, "n1").scale < 2
    assert abs(newcomer(fleet, "n1").reference - 20.0) < 1
