"""The real parts of a node, put together: its folder, its broker, its keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from edge_opid import log
from edge_opid.config.node import NodeConfig
from edge_opid.config.service import ServiceConfig
from edge_opid.link.contract import Will
from edge_opid.link.mqtt import MqttLink
from edge_opid.models.matrix import ModelError
from edge_opid.node.external_model import NAME, ExternalModel
from edge_opid.node.journal_records import JournalError
from edge_opid.node.node import Node
from edge_opid.reasons import ServiceReason
from edge_opid.service.base_loop import write_lines
from edge_opid.service.clock import SteadyClock
from edge_opid.service.journal_writer import STORE_LIMITS
from edge_opid.service.loop import TICK_S, NodeLoop
from edge_opid.service.systemd import Systemd
from edge_opid.store import FolderToRead, RealDisk, Recovered, Store, StoreError
from edge_opid.wire import Channel, NodeTopics, Status, encode_as

if TYPE_CHECKING:  # loaded where there are keys
    from nacl.signing import VerifyKey

STORE_NOTES = {
    "torn": ServiceReason.STORE_TORN,
    "quarantined": ServiceReason.STORE_QUARANTINED,
    "damaged": ServiceReason.STORE_DAMAGED,
    "postponed": ServiceReason.STORE_POSTPONED,
}
"""What the store calls what it noticed when it was opened."""


TICK_LEAST_S = 0.02
LOOKS = 5  # at a folder that somebody else writes to


@contextmanager
def open_node(
    config: ServiceConfig,
    external_model: ExternalModel | None = None,
    *,
    must_have_run: bool = False,
) -> Iterator[tuple[Node, Store, Recovered]]:
    """The node as its folder remembers it; the folder is ours until the end of the block.

    With `must_have_run`, a node without a state is refused, and nothing is made.
    """
    needed = must_have_run or config.state_must_exist
    if needed and not config.state_folder.is_dir():
        # before a folder is made where a disk should be mounted
        raise _missing(config, must_have_run=must_have_run)
    with RealDisk(config.state_folder) as disk:
        store, recovered = Store.open(disk, STORE_LIMITS)
        if needed and not recovered.end and recovered.snapshot is None:
            raise _missing(config, must_have_run=must_have_run)
        node = _node(config, external_model)
        try:
            node.restore(recovered.snapshot, recovered.records, durable=store.settled)
        except JournalError as error:
            raise JournalError(f"state in {config.state_folder}: {error}") from error
        recovered.snapshot = None  # the node has it: one copy in memory is enough
        yield node, store, recovered


def look_at_node(config: ServiceConfig) -> Node | None:
    """The node as its folder remembers it, only to look at; None if there is no state.

    Nothing is locked or written, so it may be done beside a node that runs: what is read while it
    takes a snapshot does not fit together, and is read again.
    """
    for attempt in range(LOOKS):
        try:
            with FolderToRead(config.state_folder) as folder:
                before = folder.names()
                _, recovered = Store.open(folder, STORE_LIMITS)
                node, empty = _node(config), not recovered.end and recovered.snapshot is None
                node.restore(recovered.snapshot, recovered.records)
                if folder.names() == before:
                    return None if empty else node
        except FileNotFoundError:
            if not config.state_folder.is_dir():
                return None
        except StoreError:
            if attempt == LOOKS - 1:
                raise
    raise StoreError("busy", f"folder {config.state_folder} is being written to: try again")


def _node(config: ServiceConfig, external_model: ExternalModel | None = None) -> Node:
    node = Node(config.node, _verify_keys(config.gateway_keys), external_model)
    if config.node.homeassistant:
        from edge_opid.homeassistant.announcer import Announcer  # noqa: PLC0415 - only where asked

        node.homeassistant = Announcer(config.node, node.tally)
    return node


def _verify_keys(keys: tuple[str, ...]) -> list[VerifyKey]:
    if not keys:
        return []  # and no library for them: a node that obeys no gateway is 1 MB smaller
    from nacl.signing import VerifyKey  # noqa: PLC0415 - see above

    return [VerifyKey(bytes.fromhex(key)) for key in keys]


def _missing(config: ServiceConfig, *, must_have_run: bool) -> StoreError:
    if must_have_run:
        return StoreError(
            "missing",
            f"folder {config.state_folder} holds no state: node {config.node.node} has never run "
            "there; start it first, or correct state.folder",
        )
    return StoreError(
        "missing",
        f"folder {config.state_folder} holds no state, and state.must_exist says that it must: "
        "mount its disk or restore the folder; to start from scratch, set must_exist = false",
    )


def load_external_model(config: ServiceConfig) -> ExternalModel | None:
    """The predictor that the configuration says to serve.

    A file or a runtime that fails is said so and no reason to stop: the node has its own.
    """
    path = config.serve_tflite
    if path is None:
        return None
    from edge_opid.models.tflite import load_tflite  # noqa: PLC0415 - only a node that serves one

    try:
        return ExternalModel(load_tflite(path))
    except ModelError as error:
        log.error("cannot serve", file=path, why=error)
        return ExternalModel(None, f"{NAME} not loaded: {error}")


def tick_s(node: NodeConfig) -> float:
    """How often a node looks for what is due: twice a second, or twice in its shortest span.

    >>> from edge_opid.config.node import NodeConfig, SensorConfig
    >>> config = NodeConfig(site="a", node="b", classes=("x", "y"), sensors=(SensorConfig("t"),))
    >>> tick_s(config), tick_s(replace(config, commit_s=0.1))
    (0.5, 0.05)
    """
    spans_s = [node.commit_s, *([node.window_ms / 1000] if node.window_ms else [])]
    return max(TICK_LEAST_S, min(TICK_S, min(spans_s) / 2))


@contextmanager
def open_loop(config: ServiceConfig, systemd: Systemd, speed: float = 1.0) -> Iterator[NodeLoop]:
    """A node on the real disk and the real broker, ready to `run`; `speed` is its clock's."""
    with open_node(config, load_external_model(config)) as (node, store, recovered):
        node.planned()  # what it refuses, it refuses before anybody connects
        clock = SteadyClock(speed=speed)
        topic = str(NodeTopics(config.node.site, config.node.node).to(Channel.STATUS))
        now = node.status(clock.now_ms())
        will = Status.last_will(now.layout_version, now.model_version, now.version)
        link = MqttLink(
            replace(config.broker, will=Will(topic, encode_as(config.node.format, will)))
        )
        loop = NodeLoop(
            node,
            link,
            store,
            clock,
            systemd,
            status_topic=topic,
            status_file=config.status_file,
            broker=f"broker {config.broker.host}:{config.broker.port}",
            saved_at=recovered.index,
            prediction_qos=config.prediction_qos,
            poll_s=tick_s(config.node),
        )
        for note in recovered.notes:
            loop.tally.note(STORE_NOTES[note.kind], about=note.file, file=note.file, why=str(note))
        write_lines([*node.tally.take_lines(), *loop.tally.take_lines()])
        yield loop
