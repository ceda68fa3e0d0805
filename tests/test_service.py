"""The loop between a node, a link and a store: over memory, with a disk that fails on demand."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from support.store_life import SMALL, state_after

from edge_opid import log
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.link import SubscriptionGranted, SubscriptionRefused, Will
from edge_opid.node.actions import Append, Commit, Publish, Release
from edge_opid.reasons import NodeReason
from edge_opid.service.clock import SteadyClock
from edge_opid.service.loop import NodeLoop
from edge_opid.service.status_file import read_status
from edge_opid.service.systemd import Systemd
from edge_opid.store import Store
from edge_opid.tally import LogLine, Tally
from edge_opid.testing import MemoryBroker, MemoryLink
from edge_opid.testing.memory_broker import Outgoing
from edge_opid.wire import Status, decode
from firmware_sim.simulated.disk import TornDisk

STATUS = "opid/1/farm/n1/status"
ACK = "opid/1/farm/n1/ack/s"
PREDICTION = "opid/1/farm/n1/prediction"


class FakeNode:  # its methods take what `Node`'s take
    """Has `Node`'s interface, and keeps every payload: its state is all of them, in order."""

    config = NodeConfig(
        site="farm", node="n1", classes=("fresh", "stale"), sensors=(SensorConfig(id="temp"),)
    )

    def __init__(self, commit_records: int = 2) -> None:
        self.commit_records = commit_records
        self.history: list[bytes] = []
        self.tokens: list[object] = []
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self.pending = 0
        self.due: list[object] = []
        self.link_trouble = self.warming_up = ""
        self.tally = Tally()
        self.durable = True

    def restore(self, snapshot, records, *, durable=True):
        self.durable = durable
        count = int(snapshot.split()[2].rstrip(b":")) if snapshot else 0
        self.history = [b"?"] * count + list(records)

    def handle(self, topic, payload, now_ms, token, retained=False):  # noqa: ARG002
        self._called("handle")
        self.history.append(payload)
        self.tokens.append(token)
        self.pending += 1
        actions = [Append(payload), Publish(PREDICTION, b"p")]
        return [*actions, Commit()] if self.pending % self.commit_records == 0 else actions

    def start(self, now_ms):  # noqa: ARG002
        return []

    def tick(self, now_ms):  # noqa: ARG002
        self.calls["tick"] += 1
        due, self.due = self.due, []
        return due

    def on_committed(self, now_ms):  # noqa: ARG002
        self._called("committed")
        self.durable = True
        released, self.tokens, self.pending = self.tokens, [], 0
        return [*map(Release, released), Publish(ACK, b"%d" % len(self.history))]

    def on_commit_failed(self, reason, now_ms, *, durable):  # noqa: ARG002
        self.durable = durable
        self._called(f"commit_failed {reason}")
        return []

    def on_connected(self, now_ms):  # noqa: ARG002
        self._called("connected")
        return [Publish(STATUS, b"online", retain=True)]

    def on_disconnected(self):
        self._called("disconnected")
        self.tokens = []

    def snapshot(self):
        self._called("snapshot")
        return state_after(self.history)

    def subscriptions(self):
        return {"in/#": 1}

    def status(self, now_ms, online=True):
        return Status(
            online=online,
            layout_version=1,
            model_version=2,
            time_ms=now_ms,
            counts={"readings": len(self.history)},
        )

    def _called(self, what):
        self.calls[what.split()[0]] += 1
        self.order.append(what)


class World:
    """A service and everything around it."""

    def __init__(self, disk=None, node=None, **options):
        self.disk, self.node = disk or TornDisk(), node or FakeNode()
        self.broker, self.now_s = MemoryBroker(queue_max=100_000), 0.0
        outbox = options.pop("outbox", 1_024)
        will = Will(STATUS, b"gone")
        self.link = MemoryLink(self.broker, "n1", will=will, outbox_messages_max=outbox)
        self.ears = MemoryLink(self.broker, "ears")
        self.ears.start()
        self.ears.subscribe(["opid/#"])
        clock = SteadyClock(wall=lambda: 1_000.0, monotonic=lambda: self.now_s)
        self.store, found = Store.open(self.disk, SMALL, lambda: Random(1).randbytes(8))
        self.node.restore(found.snapshot, found.records, durable=self.store.settled)
        options = {"status_topic": STATUS, "poll_s": 0.0, "saved_at": found.index, **options}
        notify = options.pop("notify", Systemd({}))
        self.service = NodeLoop(self.node, self.link, self.store, clock, notify, **options)

    def send(self, *payloads: bytes):
        for payload in payloads:
            self.broker.publish(Outgoing("in/x", payload, 1, False))

    def heard(self, topic) -> list[bytes]:
        found = []
        while (delivery := self.ears.poll()) is not None:
            self.ears.acknowledge(delivery)
            found += [delivery.payload] if delivery.topic == topic else []
        return found

    def unacknowledged(self) -> int:
        session = self.broker.sessions["n1"]
        return len(session.inflight) + len(session.queue)

    def rounds(self, count=1, seconds=0.0):
        for _ in range(count):
            self.service.round()
            self.now_s += seconds

    def durable(self) -> list[bytes]:
        """What a restart would find, as the node's history."""
        node = FakeNode()
        _, found = Store.open(self.disk, SMALL)
        if found.snapshot is not None:
            assert found.snapshot == state_after(self.node.history[: found.index])
        node.restore(found.snapshot, found.records)
        return self.node.history[: found.index] + node.history[found.index :]


def full(operation, _name, _step):
    return errno.ENOSPC if operation in ("write", "create") else None


def working(_operation, _name, _step):
    return None


# --- as it should be ------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_predictions_go_out_at_the_qos_that_was_asked_for_and_all_else_at_1(qos):
    """Whoever chose 0 for predictions must not lose the acknowledgement of a reading."""
    world = World(prediction_qos=qos)
    world.ears.subscribe(["opid/#"], 1)
    world.service.start()
    world.send(b"1", b"2")
    world.rounds(2)
    heard = []
    while (delivery := world.ears.poll()) is not None:
        heard.append((delivery.topic, delivery.qos))
    assert {each for each in heard if each[0] == PREDICTION} == {(PREDICTION, qos)}
    assert {each for each in heard if each[0] == ACK} == {(ACK, 1)}


def test_a_delivery_is_released_and_acknowledged_after_its_commit_and_not_before():
    world = World()
    world.service.start()
    world.send(b"1")
    world.rounds()
    assert (world.unacknowledged(), world.heard(ACK)) == (1, [])
    world.send(b"2")
    world.rounds()
    assert (world.unacknowledged(), world.heard(ACK)) == (0, [b"2"])
    assert world.durable() == [b"1", b"2"]


def test_a_burst_does_not_keep_the_node_from_its_tick():
    world = World()
    world.service.start()
    world.send(*(b"%d" % i for i in range(200)))
    world.rounds()
    assert world.node.calls["handle"] == 64
    assert world.node.calls["tick"] == 1


def test_snapshots_are_taken_when_due_and_a_restart_finds_the_same():
    world = World()
    world.service.start()
    for i in range(300):
        world.send(b"%d" % i * 100)
        world.rounds()
    assert world.node.calls["snapshot"] > 3
    assert world.store.committed == 300
    assert world.durable() == world.node.history


def test_records_larger_than_a_commit_makes_room_for_are_kept():
    """The node asks for no commit, and the store's memory is full long before: commit early."""
    world = World(node=FakeNode(commit_records=1_000))
    world.service.start()
    world.send(*(b"x" * 900 + b"%d" % i for i in range(6)))
    world.rounds()
    assert world.node.calls["committed"] == 0, "nobody asked"
    assert (world.store.committed, world.store.pending) == (4, 2)
    assert world.unacknowledged() == 6


def test_stopping_commits_takes_a_snapshot_and_says_goodbye():
    world = World(node=FakeNode(commit_records=1_000))
    world.service.start()
    world.send(b"1", b"2", b"3")
    world.rounds()
    world.service.stop()
    assert world.service.run() == 0
    assert world.durable() == [b"1", b"2", b"3"]
    assert world.node.order[-2:] == ["committed", "snapshot"]
    assert decode(world.broker.retained[STATUS].payload, Status).online is False
    assert world.unacknowledged() == 0
    assert not world.link.connected


def test_stopping_without_news_writes_nothing():
    first = World()
    first.service.start()
    first.send(b"1", b"2")
    first.rounds()
    first.service.drain()
    again = World(disk=first.disk)
    steps = first.disk.step
    again.service.start()
    again.rounds()
    again.service.drain()
    assert again.node.calls["snapshot"] == 0
    assert first.disk.counts["create"] == 2, "the journal's segment and the first snapshot"
    assert first.disk.step - steps <= 4


# --- the disk fails -------------------------------------------------------------------------------


def test_a_full_disk_acknowledges_nothing_and_goes_on_predicting_until_it_recovers():
    world = World()
    world.service.start()
    world.send(b"1", b"2")
    world.rounds()
    world.heard(ACK)
    world.disk.fail = full
    world.send(*(b"%d" % i for i in range(3, 9)))
    world.rounds(20, seconds=0.1)
    assert world.heard(PREDICTION) == [b"p"] * 6
    assert world.unacknowledged() == 6
    assert world.node.order.count("committed") == 1
    assert "commit_failed disk: No space left on device" in world.node.order
    world.disk.fail = working
    world.rounds(20, seconds=0.1)
    assert world.unacknowledged() == 0
    assert world.heard(ACK) == [b"8"]
    assert world.durable() == [b"%d" % i for i in range(1, 9)]


def test_a_disk_that_refuses_is_asked_once_a_second():
    world = World()
    world.service.start()
    world.disk.fail = full
    world.send(b"1", b"2")
    world.rounds(101, seconds=0.05)
    assert world.node.calls["commit_failed"] == 6  # at once, and after each of five seconds


def test_when_nothing_more_can_wait_in_memory_the_broker_keeps_it():
    """A node that goes on appending to a full disk: intake stops, and nothing is out of order."""
    world = World()
    world.service.start()
    world.rounds()
    world.disk.fail = full
    sent = [b"%03d" % i + b"x" * 500 for i in range(41)]
    world.send(*sent)
    world.rounds(30, seconds=0.1)
    taken = world.node.calls["handle"]
    assert taken == 5, "four fit the store's memory, one more waits"
    assert world.unacknowledged() == 41
    assert world.service.health(0)["pending"] == taken
    world.disk.fail = working
    world.rounds(30, seconds=0.1)
    assert world.node.history == sent
    assert world.durable() == sent
    assert world.unacknowledged() == 0


def test_a_small_record_does_not_overtake_a_large_one_that_waits():
    """And nobody but the service asks for a commit: it tries again by itself."""
    world = World()
    world.service.start()
    world.disk.fail = full
    world.node.history = [letter * 900 for letter in (b"a", b"b", b"c")] + [b"small"]
    world.node.due = [*map(Append, world.node.history)]
    world.rounds(15, seconds=0.1)
    assert world.service.health(0)["pending"] == 4
    world.disk.fail = working
    world.rounds(15, seconds=0.1)
    assert world.durable() == world.node.history
    assert world.node.calls["committed"] == 1


def test_a_node_that_insists_does_not_make_the_disk_work_harder():
    world = World()
    world.service.start()
    world.disk.fail = full
    world.send(b"1", b"2")
    for _ in range(50):
        world.node.due = [Commit()]
        world.rounds(seconds=0.1)
    assert world.node.calls["commit_failed"] == 5


def test_stopping_while_the_journal_is_refused_saves_no_state_that_is_ahead_of_it():
    world = World()
    world.service.start()
    world.send(b"1", b"2")
    world.rounds()
    world.disk.fail = lambda operation, name, _: (
        errno.EIO if operation == "write" and "journal" in name else None
    )
    world.send(b"3", b"4")
    world.rounds()
    world.service.drain()
    world.disk.fail = working
    durable = (
        world.durable()
    )  # compares the snapshot, too; a failed write may be there all the same
    assert durable in ([b"1", b"2"], [b"1", b"2", b"3", b"4"])
    assert world.unacknowledged() == 2


def test_a_kept_state_is_not_saved_for_another_commit_than_its_own():
    """So much at once that the journal is full before the node's state could be taken again."""
    world = World()
    world.service.start()
    world.disk.fail = lambda _, name, __: errno.ENOSPC if "snapshot" in name else None
    while world.service.counts["snapshot-refused"] < 3:
        world.send(b"x" * 300)
        world.rounds(seconds=0.1)
    world.disk.fail = working
    many = [b"%03d" % i + b"y" * 1_000 for i in range(80)]
    world.node.history += many
    world.node.due = [*map(Append, many), Commit()]
    world.rounds(3, seconds=1.0)
    durable = world.durable()  # compares the snapshot, too
    assert durable == world.node.history[: len(durable)]


def test_what_waits_in_memory_comes_again_after_a_power_cut():
    world = World()
    world.service.start()
    world.send(b"1", b"2")
    world.rounds()
    world.disk.fail = full
    world.send(b"3", b"4")
    world.rounds(5, seconds=0.1)
    world.link.abort()
    after = World(disk=world.disk.crash(Random(3)))
    assert after.node.history == [b"1", b"2"], "what was acknowledged, and no more"
    assert world.unacknowledged() == 2


def test_a_journal_that_filled_up_while_snapshots_were_refused_is_emptied_when_they_are_taken():
    world = World()
    world.service.start()
    world.disk.fail = lambda _, name, __: errno.ENOSPC if "snapshot" in name else None
    for i in range(400):
        world.send(b"%d" % i * 100)
        world.rounds(seconds=0.1)
        if world.node.calls["commit_failed"]:
            break
    segments = [name for name in world.disk.files if name.startswith("journal")]
    assert len(segments) == SMALL.segments_max
    assert world.service.counts["snapshot-refused"] > 3
    world.disk.fail = working
    world.send(*(b"more" for _ in range(20)))
    world.rounds(30, seconds=0.1)
    assert world.unacknowledged() == 0
    assert world.durable() == world.node.history
    assert world.node.history[-1] == b"more"


def test_a_node_learns_from_its_loop_whether_what_was_read_back_is_durable():
    """It must not acknowledge what the next power cut may take: `Node` withholds it."""
    first = World()
    first.service.start()
    first.send(b"1", b"2")
    first.rounds()
    first.disk.fail = lambda operation, *_: errno.EIO if operation == "sync" else None
    again = World(disk=first.disk)
    assert not again.store.settled
    again.service.start()
    again.rounds()
    assert (again.node.durable, again.heard(ACK)) == (False, [])
    first.disk.fail = working
    again.rounds(20, seconds=0.1)
    assert again.store.settled
    assert again.node.durable
    assert again.heard(ACK)[-1] == b"2"


def test_a_snapshot_is_the_state_after_exactly_the_committed_records():
    """A record after the commit in the same list is in the state: it is committed first."""
    world = World()
    world.service.start()
    for i in range(60):
        before, after = b"a%d" % i * 90, b"b%d" % i * 90
        world.node.history += [before, after]
        world.node.due = [Append(before), Commit(), Append(after)]
        world.rounds()
        durable = world.durable()  # compares the snapshot, too
        assert durable == world.node.history[: len(durable)]
    assert world.node.calls["snapshot"] > 1


# --- the link fails -------------------------------------------------------------------------------


def test_the_end_of_a_connection_is_told_before_the_next_ones_messages():
    world = World(node=FakeNode(commit_records=3))
    world.service.start()
    world.send(b"1", b"2")
    world.rounds()
    world.broker.drop("n1")
    world.send(b"3")
    world.rounds()
    assert world.node.order[:4] == ["connected", "handle", "handle", "disconnected"]
    assert world.node.order[4:6] == ["connected", "handle"]
    assert world.link.counters.acks_stale == 0


def test_a_topic_that_is_heard_again_is_no_longer_called_deaf():
    """The broker refused it, its rules were mended: the status must not complain for ever."""
    world = World()
    world.service.start()
    world.link._events.put_event(SubscriptionRefused("a/#", "Not authorized"))
    world.link._events.put_event(SubscriptionRefused("b/#", "Not authorized"))
    world.rounds()
    assert world.service.connection()["not_heard"] == ["a/#: Not authorized", "b/#: Not authorized"]
    world.link._events.put_event(SubscriptionGranted("a/#"))
    world.rounds()
    assert world.service.connection()["not_heard"] == ["b/#: Not authorized"]


def test_what_the_node_says_of_itself_is_logged_and_counted(caplog):
    """A doubted model, or codes in a warm-up: whoever reads only the log should know."""
    logging.getLogger("edge_opid").propagate = True
    world = World()
    world.service.start()
    sentence = "model 7 is doubted: right in 3 of 64"
    world.node.due = [LogLine(NodeReason.MODEL_DOUBTED, n, {"why": sentence}) for n in (1, 2)]
    world.send(b"1")
    with caplog.at_level("WARNING", "edge_opid"):
        world.rounds(3)
    lines = [record for record in caplog.records if record.getMessage() == "weights doubted"]
    assert [line.fields for line in lines] == [{"why": sentence, "count": n} for n in (1, 2)]


def test_a_publication_that_is_refused_is_counted_and_logged(caplog):
    logging.getLogger("edge_opid").propagate = True
    world = World(outbox=2)
    world.broker.up = False
    world.service.start()
    world.node.due = [Publish(PREDICTION, b"%d" % i) for i in range(7)]
    with caplog.at_level("WARNING", "edge_opid"):
        world.rounds()
    assert world.service.counts["unsent-queue-full"] == 5
    refused = [r for r in caplog.records if r.getMessage() == "publication dropped"]
    assert [record.fields["count"] for record in refused] == [1, 2, 4]
    world.broker.restart()
    world.rounds(2)
    assert world.heard(PREDICTION) == [b"0", b"1"]


def test_a_bug_ends_the_service_and_the_broker_says_so():
    world = World()
    world.node.handle = lambda *_: 1 / 0
    world.send(b"1")
    world.link.subscribe(["in/#"])
    world.link.start()
    world.send(b"2")
    with pytest.raises(ZeroDivisionError):
        world.service.run()
    assert world.broker.retained[STATUS].payload == b"gone"
    assert world.unacknowledged() == 1


# --- what it tells --------------------------------------------------------------------------------


def test_a_clock_that_is_set_does_not_move_the_nodes_time():
    wall, passed = [1_000.0], [5.0]
    clock = SteadyClock(wall=lambda: wall[0], monotonic=lambda: passed[0])
    wall[0], passed[0] = 9_999_999.0, 6.5
    assert clock.now_ms() == 1_001_500


def test_the_status_file_is_replaced_every_few_seconds(tmp_path):
    path = tmp_path / "status.json"
    world = World(status_file=path)
    world.service.start()
    world.send(b"1", b"2")
    world.rounds()
    found = read_status(path)
    assert (found["online"], found["connected"], found["committed"]) == (True, True, 2)
    assert found["counts"] == {"readings": 2}
    path.unlink()
    world.rounds(20, seconds=0.1)
    assert not path.exists()
    world.rounds(12, seconds=0.1)
    assert path.exists()
    world.service.drain()
    assert read_status(path)["online"] is False
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]


def test_the_status_file_is_written_through_no_planted_link(tmp_path):
    """Somebody who may write to the folder lays links to a file of the node's under its names."""
    victim, folder = tmp_path / "node.toml", tmp_path / "run"
    folder.mkdir()
    victim.write_text("precious")
    path = folder / "status.json"
    planted = [path, folder / f".status.json.{os.getpid()}", folder / "status.json.new"]
    for name in planted:
        name.symlink_to(victim)
    world = World(status_file=path)
    world.service.start()
    world.rounds(3, seconds=5.0)
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert read_status(path)["online"] is True
    assert world.service.counts["status-file-refused"] == 0
    left = {each.name for each in folder.iterdir() if not each.is_symlink()}
    assert left == {"status.json", "status.json.watch"}


def test_a_status_file_that_cannot_be_written_is_counted_and_nothing_else(tmp_path):
    world = World(status_file=tmp_path / "absent" / "status.json")
    world.service.start()
    world.send(b"1", b"2")
    world.rounds()
    assert world.service.counts["status-file-refused"] == 1
    assert world.durable() == [b"1", b"2"]


def test_systemd_hears_ready_alive_and_stopping(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("notify")
        systemd.setblocking(False)
        notify = Systemd({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "3000000"})
        world = World(notify=notify)
        world.service.start()
        world.rounds(25, seconds=0.1)
        world.service.drain()
        heard = []
        while len(heard) < 5:
            heard.append(systemd.recv(100))
    assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_watchdog_meant_for_another_process_is_never_fed(tmp_path, monkeypatch):
    """The variables of the parent are inherited: fed by a child, a hung parent would live on."""
    monkeypatch.chdir(tmp_path)
    inherited = {"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "3000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("notify")
        systemd.setblocking(False)
        for watched in (os.getppid(), os.getpid()):
            notify = Systemd({**inherited, "WATCHDOG_PID": str(watched)})
            notify.tell_alive(0)
            notify.tell_alive(60_000)
            notify.tell_stopping()
        heard = [systemd.recv(100) for _ in range(4)]
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
    assert heard == [b"STOPPING=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_log_line_holds_what_happened_and_no_secret(tmp_path):
    path = Path(tmp_path / "log")
    with path.open("w") as file:
        log.set_up("info", {"JOURNAL_STREAM": "1:2"}, file)
        log.info("started", committed=3)
        log.warning("odd", text='say "a=b"\nlevel=forged', password="hunter2")
    lines = path.read_text().splitlines()
    assert lines == [
        "level=info event=started committed=3",
        r'level=warning event=odd text="say \"a=b\"\nlevel=forged" password=***',
    ]
    logging.getLogger("edge_opid").handlers = []
