"""False clocks: before NTP has answered, years ahead, set forward or back meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fleet_rig import CLASSES, SITE, FleetRig
from support.inline_fitter import InlineFitter
from support.rig import KEY

from edge_opid.link.contract import Connected
from edge_opid.service.systemd import Systemd
from edge_opid.wire import SensorDeployed, Status
from gateway.__main__ import main
from gateway.clock import GatewayClock
from gateway.decisions.gateway import Gateway
from gateway.loop import GatewayLoop
from gateway.policy import Policy
from gateway.recall import recalled
from gateway.registry import ChangeState, SensorState
from gateway.store import FleetStore

QUICK = Policy(settle_s=1, silence_s=30, summary_wait_s=3, first_batch=20, batch_max=20)
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
TRUE_MS = 1_800_000_000_000  # January 2027
NAMES = ("n1", "n2", "n3")


class Dark:
    """A link on which nothing is heard but that it is connected."""

    def __init__(self):
        self.events = [Connected(True, "MQTT 5")]
        self.subscribe = self.unsubscribe = self.start = self.check = self.serve = lambda *_: None
        self.publish = lambda *_, **__: True

    def poll(self, _timeout_s):
        return None

    def poll_event(self):
        return self.events.pop(0) if self.events else None


class Life:
    """One process of the gateway: a real runner on the fleet's database, and clocks to set."""

    def __init__(self, fleet, wall_ms):
        self.fleet, self.wall_ms, self.passed_ms = fleet, wall_ms, 0
        stored, pushed = recalled(fleet.store)
        self.gateway = Gateway(QUICK, [fleet.group], KEY, stored, pushed)
        clock = GatewayClock(lambda: self.wall_ms / 1000, lambda: self.passed_ms / 1000)
        fitter, notify = InlineFitter(), Systemd({})
        self.runner = GatewayLoop(self.gateway, Dark(), fleet.store, clock, fitter, notify)
        self.runner.start()

    def pass_s(self, seconds):
        for _ in range(seconds):
            self.wall_ms += 1000
            self.passed_ms += 1000
            self.runner.round()

    def hear(self, name, silent=(), wrong_ms=0):
        """A status of a node, whose clock may be another."""
        now_ms = self.wall_ms + wrong_ms
        before = self.gateway.fleet.nodes[SITE, name]
        status = Status(
            online=True,
            layout_version=before.reported_layout,
            model_version=before.reported_model,
            time_ms=now_ms,
            version=before.reported_version,
            silent=silent,
        )
        self.gateway._status((SITE, name), status, b"", self.wall_ms)

    def state(self, sensor, name="n1"):
        return self.gateway.fleet.sensors[SITE, name][sensor].state


def fleet_at(now_ms) -> FleetRig:
    """Nodes n1 to n3; a sensor of each wears out in ten years; a change is open."""
    fleet = FleetRig(names=NAMES, policy=QUICK, now_ms=now_ms)
    fleet.pass_s(3)
    for name in NAMES:
        end = TRUE_MS + 10 * YEAR_MS
        new = SensorDeployed(
            f"x-{name}",
            role="x",
            at_ms=fleet.now_ms,
            unit=None,
            reference=0.0,
            scale=1.0,
            end_of_life_ms=end,
        )
        fleet.event(name, new)
    fleet.pass_s(65)  # longer than a status that says nothing new waits for a write
    assert fleet.gateway.fleet.changes[1].state == ChangeState.GATHERING
    return fleet


def kept(life) -> bool:
    """Whether nothing was given up: no sensor, no change."""
    sensors = [each for some in life.gateway.fleet.sensors.values() for each in some.values()]
    alive = all(each.state != SensorState.RETIRED for each in sensors)
    return alive and life.gateway.fleet.changes[1].state == ChangeState.GATHERING


def said(fleet, folder, capsys) -> str:
    """What `node list` remarks, on a file with the same records."""
    (folder / "key").touch(mode=0o600)
    (folder / "gateway.toml").write_text(
        f'[gateway]\ndatabase = "sqlite:///copy"\nkey = "key"\n[[groups]]\nid = "air"\n'
        f'site = "{SITE}"\nclasses = {list(CLASSES)}\nnodes = {list(NAMES)}\n'
    )
    stored = fleet.store.fleet()
    with FleetStore.open(f"sqlite:///{folder}/copy") as copy:
        copy.save([*stored.nodes, *stored.layouts, *stored.doubts])
    assert main(["node", "list", str(folder / "gateway.toml")]) == 0
    return capsys.readouterr().err


def test_silence_that_began_before_the_clock_was_right_counts_from_now():
    """A life before NTP noted a silence in 1970; the next life, on time, saw 57 years of it."""
    fleet = fleet_at(100_000)
    early = Life(fleet, fleet.now_ms)
    early.hear("n1", silent=("pm-n1",))
    early.pass_s(3)
    assert early.state("pm-n1") == SensorState.SILENT
    life = Life(fleet, TRUE_MS)
    life.pass_s(20)
    assert life.state("pm-n1") == SensorState.SILENT
    assert kept(life)
    life.pass_s(15)
    assert life.state("pm-n1") == SensorState.RETIRED  # it was silent for 30 s of ours


@pytest.mark.parametrize("ahead_ms", [72 * YEAR_MS, 2 * DAY_MS])
def test_a_clock_years_ahead_retires_nothing_until_nodes_agree_with_it(ahead_ms, tmp_path, capsys):
    """2099: every end of life was over, every change was closed and its examples deleted."""
    fleet = fleet_at(TRUE_MS)
    start_ms = fleet.now_ms + ahead_ms
    for _ in range(2):  # a restart does not make it truer
        life = Life(fleet, start_ms)
        life.pass_s(10)
        for name in NAMES:
            life.hear(name, wrong_ms=-ahead_ms)
        life.pass_s(10)
        assert kept(life)
        [doubt] = [each for each in life.gateway.fleet.doubts.values() if each.sentence]
        assert doubt.kind == "clock"
        assert "until most nodes agree" in said(fleet, tmp_path, capsys)
        start_ms = life.wall_ms
    life = Life(fleet, start_ms)
    for name in NAMES[:2]:
        life.hear(name)
    life.hear("n3", wrong_ms=-ahead_ms)  # one of them is wrong, and in the minority
    life.pass_s(5)
    assert [each for each in life.gateway.fleet.doubts.values() if each.sentence] == []
    expired = life.state("x-n1") == SensorState.RETIRED
    assert expired == (ahead_ms > 10 * YEAR_MS)
    assert said(fleet, tmp_path, capsys) == ""


@pytest.mark.parametrize("first_ms", [100_000, TRUE_MS + 72 * YEAR_MS], ids=["1970", "2099"])
def test_a_clock_that_is_set_while_it_runs_is_followed_and_gives_nobody_up(first_ms):
    """NTP answers in the middle of a life: everything measured so far goes on being measured."""
    fleet = fleet_at(TRUE_MS)
    life = Life(fleet, first_ms)
    life.hear("n1", silent=("pm-n1",), wrong_ms=TRUE_MS - first_ms)
    life.pass_s(20)
    life.wall_ms = fleet.now_ms + 60_000
    life.pass_s(5)
    assert life.runner.counts["clock-set"] == 1
    assert kept(life)
    since_ms = life.gateway.fleet.sensors[SITE, "n1"]["pm-n1"].since_ms
    assert 24_000 <= life.wall_ms - since_ms <= 27_000
    life.pass_s(15)
    assert life.state("pm-n1") == SensorState.RETIRED
    new = SensorDeployed("y", role="y", at_ms=life.wall_ms, unit=None, reference=0.0, scale=1.0)
    assert life.gateway.command((SITE, "n2"), new, life.wall_ms) == ""
    life.pass_s(5)
    assert "y" in {each.id for each in life.gateway.fleet.layouts[SITE, "n2"].sensors}


def test_a_clock_set_back_does_not_keep_the_watchdog_or_an_order_waiting():
    """What is due by the clock of before would have been due in 73 years."""
    fleet = fleet_at(TRUE_MS)
    life = Life(fleet, fleet.now_ms)
    fed = []
    life.runner._systemd = Systemd({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "3000000"})
    life.runner._systemd._send = fed.append
    sent = []
    life.runner._link.publish = lambda topic, *_, **__: sent.append(topic) or True
    node = life.gateway.fleet.nodes[SITE, "n1"]
    life.gateway.fleet.put(replace(node, online=True, reported_version=0))
    life.gateway.publisher.note_report((SITE, "n1"), life.wall_ms)
    life.pass_s(3)
    life.wall_ms -= 73 * YEAR_MS
    fed.clear()
    life.pass_s(40)
    assert fed.count("WATCHDOG=1") >= 10
    assert any(topic.endswith("n1/desired") for topic in sent)
    assert kept(life)


def test_nobody_is_given_up_for_the_time_in_which_the_gateway_was_away():
    """Off for a week: whether a sensor spoke meanwhile nobody has heard."""
    fleet = fleet_at(TRUE_MS)
    life = Life(fleet, fleet.now_ms)
    life.hear("n1", silent=("pm-n1",))
    life.pass_s(3)
    week = Life(fleet, fleet.now_ms + 7 * DAY_MS)
    week.pass_s(10)
    assert week.state("pm-n1") == SensorState.SILENT
    assert kept(week)
    for name in NAMES:
        week.hear(name, silent=("pm-n1",) if name == "n1" else ())
    week.pass_s(25)
    assert week.state("pm-n1") == SensorState.RETIRED
