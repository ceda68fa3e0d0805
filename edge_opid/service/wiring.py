"""The real parts of a node, put together: its folder, its broker, its keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from nacl.signing import VerifyKey

from edge_opid import log
from edge_opid.config.service import ServiceConfig
from edge_opid.link.contract import Will
from edge_opid.link.mqtt import MqttLink
from edge_opid.models.matrix import ModelError
from edge_opid.models.tflite import load_tflite
from edge_opid.node.external_model import NAME, ExternalModel
from edge_opid.node.journal_records import JournalError
from edge_opid.node.node import Node
from edge_opid.service.clock import SteadyClock
from edge_opid.service.journal_writer import STORE_LIMITS
from edge_opid.service.loop import NodeLoop
from edge_opid.service.systemd import Systemd
from edge_opid.store import RealDisk, Recovered, Store, StoreError
from edge_opid.wire import Channel, NodeTopics, Status, encode


@contextmanager
def open_node(
    config: ServiceConfig, external_model: ExternalModel | None = None
) -> Iterator[tuple[Node, Store, Recovered]]:
    """The node as its folder remembers it; the folder is ours until the end of the block."""
    keys = [VerifyKey(bytes.fromhex(key)) for key in config.gateway_keys]
    if config.state_must_exist and not config.state_folder.is_dir():
        raise _missing(config)  # before a folder is made where a disk should be mounted
    with RealDisk(config.state_folder) as disk:
        store, recovered = Store.open(disk, STORE_LIMITS)
        if config.state_must_exist and not recovered.end:
            raise _missing(config)
        node = Node(config.node, keys, external_model)
        try:
            node.restore(recovered.snapshot, recovered.records, durable=store.settled)
        except JournalError as error:
            raise JournalError(f"state in {config.state_folder}: {error}") from error
        recovered.snapshot = None  # the node has it: one copy in memory is enough
        yield node, store, recovered


def _missing(config: ServiceConfig) -> StoreError:
    return StoreError(
        "missing",
        f"folder {config.state_folder} holds no state, and state.must_exist says that it must: "
        "mount its disk or restore the folder; to begin anew, set must_exist = false",
    )


def load_external_model(config: ServiceConfig) -> ExternalModel | None:
    """The predictor that the configuration says to serve.

    A file or a runtime that fails is said so and no reason to stop: the node has its own.
    """
    path, classes = config.serve_tflite, config.node.classes
    if path is None:
        return None
    try:
        return ExternalModel(load_tflite(path), classes)
    except ModelError as error:
        log.error("cannot serve", file=path, why=error)
        return ExternalModel(None, classes, f"{NAME} not loaded: {error}")


@contextmanager
def open_loop(config: ServiceConfig, systemd: Systemd) -> Iterator[NodeLoop]:
    """A node on the real disk and the real broker, ready to `run`."""
    with open_node(config, load_external_model(config)) as (node, store, recovered):
        clock = SteadyClock()
        topic = str(NodeTopics(config.node.site, config.node.node).to(Channel.STATUS))
        now = node.status(clock.now_ms())
        will = Status.last_will(now.layout_version, now.model_version, now.version)
        link = MqttLink(replace(config.broker, will=Will(topic, encode(will))))
        loop = NodeLoop(
            node,
            link,
            store,
            clock,
            systemd,
            status_topic=topic,
            status_file=config.status_file,
            saved_at=recovered.index,
        )
        if not recovered.end:
            log.warning("begins anew", folder=config.state_folder, why="it holds no state")
        for note in recovered.notes:
            loop.counts[f"store_{note.kind}"] += 1
            log.warning("store", kind=note.kind, file=note.file, note=note.sentence)
        yield loop
