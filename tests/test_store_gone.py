"""The folder is deleted, moved or unmounted under a running node, or is empty when it starts."""

from __future__ import annotations

import shutil

import pytest
from support.mosquitto import Mosquitto
from support.node_process import WAIT_S, NodeProcess, listening, wait_until
from support.rig import CLASSES

from edge_opid.source import connect
from edge_opid.store import RealDisk, Store, StoreError
from edge_opid.wire import Ack, Channel, Status
from firmware_sim.live.toml import toml_table

SETTINGS = toml_table("node", site="farm", node="n1", classes=CLASSES, commit_s=0.05) + toml_table(
    "[sensors]", id="a", reference=0.0, scale=1.0
)


def deleted(folder):
    shutil.rmtree(folder)


def moved(folder):
    folder.rename(folder.with_name("elsewhere"))


def covered(folder):
    """As after `umount -l`: the path leads to another, empty folder."""
    moved(folder)
    folder.mkdir()


def emptied(folder):
    for path in folder.iterdir():
        path.unlink()


def replaced(folder):
    """As a restored backup: the same names, other files."""
    shutil.copytree(folder, folder.with_name("copy"))
    emptied(folder)
    for path in folder.with_name("copy").iterdir():
        path.rename(folder / path.name)


def bereft(disk, lost, folder):
    """A store with one record committed before its folder was lost, and one pending since."""
    store, _ = Store.open(disk)
    store.append(b"kept")
    store.commit()
    lost(folder)
    store.append(b"pending")
    return store


@pytest.mark.parametrize("lost", [deleted, moved, covered, emptied, replaced])
def test_a_commit_that_the_next_start_would_not_find_is_refused(tmp_path, lost):
    """The kernel takes writes and syncs of a file that has lost its name."""
    folder = tmp_path / "state"
    with RealDisk(folder) as disk:
        store = bereft(disk, lost, folder)
        for _ in range(3):
            with pytest.raises(StoreError, match=str(folder)) as caught:
                store.commit()
            assert caught.value.reason == "state-gone"
        assert (store.committed, store.pending) == (1, 1)
        assert not store.settled  # what was acknowledged before may not be there any more


@pytest.mark.parametrize("lost", [moved, covered])
def test_a_folder_that_is_back_takes_what_had_to_wait(tmp_path, lost):
    """The disk is mounted again, or the folder moved back: nobody has to restart the node."""
    folder = tmp_path / "state"
    with RealDisk(folder) as disk:
        store = bereft(disk, lost, folder)
        with pytest.raises(StoreError):
            store.commit()
        with pytest.raises(StoreError):
            store.snapshot(b"state after one")
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_name("elsewhere").rename(folder)
        assert store.commit() == 2
        assert store.settled
    with RealDisk(folder) as disk:
        _, found = Store.open(disk)
        assert (list(found.records), found.notes) == ([b"kept", b"pending"], ())


def test_a_node_whose_folder_is_gone_acknowledges_nothing_and_says_so(tmp_path):
    """An operator deletes the wrong folder, a disk is unmounted: sources keep their readings."""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        listening(broker.port, "opid/1/farm/n1/ack/s", "opid/1/farm/n1/status") as listener,
        NodeProcess(tmp_path, broker.port, SETTINGS) as node,
        connect("farm", "n1", "s", tmp_path / "spool", port=broker.port, resend_s=0.5) as source,
    ):

        def acknowledged() -> int:
            return max((ack.seq for ack in listener.all(Channel.ACK, Ack)), default=0)

        def troubles() -> tuple[str, ...]:
            status = listener.last(Channel.STATUS, Status)
            return () if status is None else status.degraded

        for _ in range(10):
            source.send({"a": 1.0})
        wait_until(lambda: acknowledged() == 10, "ten are acknowledged")
        covered(node.state_folder)
        for _ in range(10):
            source.send({"a": 2.0})
        wait_until(lambda: "state-gone" in troubles() or acknowledged() > 10, "it notices")
        assert acknowledged() == 10
        assert source.pending == 10
        assert list(node.state_folder.iterdir()) == []
        assert "reason=commit-failed why=state-gone" in node.log()

        node.state_folder.rmdir()
        (tmp_path / "elsewhere").rename(node.state_folder)
        wait_until(lambda: acknowledged() == 20, "the folder is back")
        assert node.stop() == 0


def test_a_start_on_an_empty_folder_is_said_and_where_a_state_must_be_refused(tmp_path):
    """The disk was not mounted: the empty mount point looks like a node's first life."""
    with Mosquitto(tmp_path / "broker") as broker:
        node = NodeProcess(tmp_path, broker.port, SETTINGS)
        with listening(broker.port, "opid/1/farm/n1/status") as listener:
            node.start()
            try:
                wait_until(lambda: listener.last(Channel.STATUS, Status), "it is there")
                assert listener.last(Channel.STATUS, Status).counts["begun-anew"] == 1
                assert 'event="begins anew"' in node.log()
                with connect("farm", "n1", "s", tmp_path / "spool", port=broker.port) as source:
                    source.send({"a": 1.0})
                    wait_until(source.drained, "a state is there")
                assert node.stop() == 0

                must_exist = node.toml.read_text() + "must_exist = true\n"
                node.toml.write_text(must_exist)
                wait_until(lambda: not listener.last(Channel.STATUS, Status).online, "goodbye")
                node.start()
                wait_until(lambda: listener.last(Channel.STATUS, Status).online, "it found it")
                assert "begun-anew" not in listener.last(Channel.STATUS, Status).counts
                assert node.stop() == 0
            finally:
                node.kill()

        for lost in (covered, deleted):
            lost(node.state_folder)
            node.start()
            assert node.process.wait(WAIT_S) == 1
            assert "must_exist" in node.log().splitlines()[-1]
            found = list(node.state_folder.iterdir()) if node.state_folder.exists() else []
            assert found == []
        assert not node.state_folder.exists()
