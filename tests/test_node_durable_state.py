"""What a node reads back at its start: whether it may be acknowledged, and whether it is ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rig import Rig, config

from edge_opid.cli import main
from edge_opid.node.node import Node
from edge_opid.node.publications import COMPLAINT_SHOWN_MS
from edge_opid.reasons import NodeReason
from edge_opid.service.journal_writer import STORE_LIMITS
from edge_opid.store import RealDisk, Store
from edge_opid.wire import Ack
from firmware_sim.live.toml import toml_table

GOLDEN = Path(__file__).parent / "golden"
CONFIG = (
    toml_table("node", site="farm", node="n1", classes=["dry", "wet"])
    + toml_table("[sensors]", id="a", reference=0.0, scale=1.0)
    + toml_table("state", folder="{state}")
)


def test_what_was_read_back_is_not_acknowledged_before_the_next_commit() -> None:
    """The disk gave it back but may lose it at the next power cut: the sender must keep it."""
    first = Rig.make()
    first.read(1, {"a": 1.0, "b": 1.0, "c": 1.0})
    first.read(2, {"a": 1.0, "b": 1.0, "c": 1.0})
    again = Rig(Node(config()), durable=list(first.durable))
    again.node.restore(None, first.durable, durable=False)
    again.read(2, {"a": 1.0, "b": 1.0, "c": 1.0})  # a copy: its acknowledgement was lost
    again.read(5, {"a": 1.0, "b": 1.0, "c": 1.0})  # too early: 3 would be asked for by an Ack
    again.tick(10_000)
    assert again.acks() == []
    assert again.node.counts["ack-withheld"] == 2
    again.commit(10_100)
    again.read(2, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert again.acks() == [Ack(1, 2)]
    assert again.frozen() == first.frozen()


def test_a_state_folder_that_is_gone_withholds_acknowledgements_until_it_is_back() -> None:
    """Its disk was unmounted: what was committed before is not where a restart would look."""
    rig = Rig.make()
    rig.read(1, {"a": 1.0, "b": 1.0, "c": 1.0})
    rig.read(2, {"a": 1.0, "b": 1.0, "c": 1.0})
    rig.run(rig.node.on_commit_failed("state-gone", 300, durable=False), 300)
    rig.run(rig.node.on_commit_failed("disk: full", 400), 400)  # a smaller trouble mends nothing
    said = len(rig.acks())
    rig.read(1, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert len(rig.acks()) == said
    rig.commit(500)
    rig.read(1, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert rig.acks()[said:] == [Ack(1, 2)]


def test_a_complaint_leaves_the_status_after_an_hour() -> None:
    """It once stayed for good: a node that had mended itself looked broken for years."""
    rig = Rig.make()
    rig.node._publications.complain(NodeReason.INPUT_FAILED, "it failed", 1_000)
    rig.run(rig.node.tick(1_000), 1_000)
    assert rig.node.status(1_000 + COMPLAINT_SHOWN_MS - 1).degraded == ("it failed",)
    assert rig.node.status(1_000 + COMPLAINT_SHOWN_MS).degraded == ()
    assert rig.node.counts["input-failed"] == 1
    assert [(each.event, each.times) for each in rig.warned] == [("input failed", 1)]


def write_state(folder: Path, snapshot: bytes | None, records: list[bytes]) -> dict[str, bytes]:
    """A state folder with these in it, and its bytes."""
    with RealDisk(folder) as disk:
        store, _ = Store.open(disk, STORE_LIMITS)
        if snapshot is not None:
            store.snapshot(snapshot)
        for record in records:
            store.append(record)
        store.commit()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("part", ["snapshot", "record"])
@pytest.mark.parametrize("written", [1, 2])
def test_a_state_of_a_format_before_is_refused_with_a_sentence(
    written: int, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both files were written by the last commit of that format; one of them is enough."""
    old = bytes.fromhex((GOLDEN / f"state_format_{written}" / f"{part}.hex").read_text())
    folder, toml = tmp_path / "state", tmp_path / "node.toml"
    before = write_state(folder, *((old, []) if part == "snapshot" else (None, [old])))
    toml.write_text(CONFIG.format(state=folder))
    assert main(["export", str(tmp_path / "out.npz"), str(toml)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"opid-node: state in {folder}: a {'journal ' * (part == 'record')}{part} was written by "
        f"an older edge-opid (format {written}, this one reads 3): run that version on this state, "
        "or move the state away to start from scratch; nothing was changed\n"
    )
    assert not (tmp_path / "out.npz").exists()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
