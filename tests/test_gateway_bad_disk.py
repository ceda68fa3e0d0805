"""A card that stumbles: the gateway waits for it, acknowledges nothing meanwhile, and goes on."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.failing_files import failing_files
from support.fleet_rig import CLASSES, SITE, FleetRig
from support.gateway_process import GatewayProcess
from support.inline_fitter import InlineFitter
from support.mosquitto import Mosquitto
from support.node_process import listening, wait_until

from edge_opid.service.systemd import Systemd
from edge_opid.testing import MemoryBroker, MemoryLink
from edge_opid.wire import (
    Channel,
    NodeTopics,
    SensorRetired,
    encode,
)
from firmware_sim.live.introductions import first_introduction
from gateway.clock import GatewayClock
from gateway.loop import GatewayLoop
from gateway.reasons import GatewayReason
from gateway.store import DatabaseError, FleetStore

UNIT = Path(__file__).parent.parent / "gateway" / "opid-gateway.service"
NODES = ("n1", "n2")


def introduce(ear, name) -> None:
    message = first_introduction({f"{role}-{name}": role for role in ("pm", "no")}, CLASSES)
    topic = NodeTopics(SITE, name).to(Channel.EVENT)
    assert ear.link.publish(str(topic), encode(message))


def known(gateway) -> set[str]:
    return {node.node for node in gateway.remembers().nodes}


@pytest.mark.parametrize("calls", ["read", "write", "read write"])
def test_a_disk_that_fails_for_a_while_costs_nothing_that_was_said(tmp_path, monkeypatch, calls):
    """EIO while SQLite read ended the gateway; what came meanwhile must come again, once."""
    with Mosquitto(tmp_path / "broker") as broker, listening(broker.port, "opid/#") as ear:
        gateway = GatewayProcess(tmp_path / "gateway", broker.port, NODES)
        environment, trouble = failing_files(tmp_path, "gateway.sqlite", calls)
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            gateway.start()
        try:
            wait_until(lambda: "event=connected" in gateway.log(), "it runs")
            # Nodes introduce themselves until they are heard: it may not have subscribed yet.
            wait_until(lambda: introduce(ear, "n1") or known(gateway) == {"n1"}, "n1 is adopted")
            trouble.touch()
            retired = encode(SensorRetired("pm-n1", 10**13, "broken"))
            # Another process writes: the gateway's cache is old now.
            with FleetStore.open(gateway.database) as store:
                number = store.submit(SITE, "n1", retired, 1)
            introduce(ear, "n2")
            wait_until(lambda: gateway.log().count("the database refuses") >= 2, "it says so")
            gateway.check()
            assert known(gateway) == {"n1"}
            trouble.unlink()
            wait_until(lambda: known(gateway) == {"n1", "n2"}, "n2 is adopted, too")
            with FleetStore.open(gateway.database) as store:
                wait_until(lambda: store.command(number).outcome, "the operator is obeyed")
                assert store.command(number).outcome == "done"
            gateway.check()
            assert gateway.stop() == 0
        finally:
            gateway.kill()


def test_what_waits_for_its_database_is_alive_for_systemd_and_says_what_for():
    """A watchdog that kills a gateway which waits for its server would only start it again."""
    said = []
    fleet = FleetRig(names=NODES)
    notify = Systemd({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "3000000"})
    notify._send = said.append
    link = MemoryLink(MemoryBroker(), "gateway")
    runner = GatewayLoop(fleet.gateway, link, fleet.store, GatewayClock(), InlineFitter(), notify)
    refusals = [DatabaseError(f"no {n}", transient=n != 1, unsure=n == 1) for n in range(2)]

    def attempt() -> None:
        if refusals:
            raise refusals.pop(0)

    assert runner._insist(attempt)
    assert said[0] == "STATUS=waiting for the database: no 0"
    assert said[-1] == "STATUS="
    assert "WATCHDOG=1" in said
    with pytest.raises(DatabaseError, match="rights"):
        runner._insist(lambda: (_ for _ in ()).throw(DatabaseError("rights", transient=False)))


def test_told_to_stop_while_the_database_refuses_it_forgets_nothing_that_it_acknowledges():
    """SIGTERM while a card stumbles, which answers again for the last save: what was decided before
    was gone, and the messages it came from were acknowledged.
    """
    fleet, broker = FleetRig(names=NODES), MemoryBroker()
    link, node = MemoryLink(broker, "gateway"), MemoryLink(broker, "n1")
    parts = fleet.store, GatewayClock(), InlineFitter(), Systemd({})
    runner = GatewayLoop(fleet.gateway, link, *parts, poll_s=0.0)
    runner.start()
    node.start()
    runner.round()
    retired = encode(SensorRetired("pm-n1", 10**13, "broken"))
    assert node.publish(str(NodeTopics(SITE, "n1").to(Channel.EVENT)), retired)
    save, refused = fleet.store.save, []

    def stumble(*given):
        if not refused:
            refused.append(given)
            runner.stop()
            raise DatabaseError("the card stumbles", transient=True)
        save(*given)

    fleet.store.save = stumble
    runner.round()
    assert refused
    runner.drain()
    states = {each.id: str(each.state) for each in fleet.store.fleet().sensors}
    assert (link.counters.acknowledged, states["pm-n1"]) == (1, "retired")


class WrittenMeanwhile(Counter):
    """What another thread adds to while somebody goes through it."""

    def items(self):
        every = iter(super().items())
        yield next(every)
        self[object()] = 1
        yield from every


def test_the_health_of_a_loop_may_be_asked_for_by_another_thread():
    """The supervisor of many sites does; a reason counted for the first time meanwhile ended it,
    and all sites of the process with it.
    """
    fleet, link = FleetRig(names=NODES), MemoryLink(MemoryBroker(), "gateway")
    parts = fleet.store, GatewayClock(), InlineFitter(), Systemd({})
    runner = GatewayLoop(fleet.gateway, link, *parts)
    runner._note(GatewayReason.RECLAIMED)
    before = runner.health()
    fleet.gateway.tally.counts = WrittenMeanwhile(fleet.gateway.tally.counts)
    runner.tally.counts = WrittenMeanwhile(runner.tally.counts)
    runner.tally.latest = WrittenMeanwhile(runner.tally.latest)
    found = runner.health()
    assert (found["counts"], found["noted"]) == (before["counts"], before["noted"])


# -- the unit --------------------------------------------------------------------------------------


def test_systemd_takes_the_unit_and_starts_the_gateway_again_whatever_ended_it(tmp_path):
    """No unit was shipped: what had ended stayed ended."""
    text = UNIT.read_text("utf-8")
    for line in ("Type=notify", "Restart=always", "RestartPreventExitStatus=2", "UMask=0077"):
        assert f"\n{line}\n" in text
    assert "\nWatchdogSec=" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed: apt-get install systemd")
    program = "/opt/opid-gateway/bin/opid-gateway"
    unit = tmp_path / "opid-gateway.service"
    unit.write_text(text.replace(program, shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ours == []
    unit.write_text(text.replace("Restart=always", "Restart=perhaps"))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "perhaps" in done.stderr  # it does read it
