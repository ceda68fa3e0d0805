"""Some nodes with their sources, in one process: `python -m firmware_sim.resets.worker JOB A B`.

Each node is the whole of `opid-node run` in a thread of its own, each source what a sensor script
uses. The process reports twice, by a file: when the last reading was sent, and when every reading
is acknowledged, or nobody believes in it any more. Then it stays, until it is killed: what was
acknowledged must be on the disk already.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge_opid import log
from edge_opid.service.clock import SteadyClock
from edge_opid.service.loop import NodeLoop
from edge_opid.service.status_file import write_status
from edge_opid.service.systemd import Systemd
from edge_opid.service.wiring import open_loop
from edge_opid.source import Source, connect
from firmware_sim.chaos.planted import planted
from firmware_sim.resets.job import SITE, SOURCE, SYNC_S, Job, node_name

DRAIN_S = 120.0  # for everything to be acknowledged once the network is well
STAY_S = 120.0  # for somebody to kill us


@dataclass(frozen=True)
class NodeWithSource:
    """A node and the one source that it has."""

    place: int
    service: NodeLoop
    source: Source

    def report(self) -> dict[str, object]:
        """What its source claims, and what happened on the way."""
        health = self.service.health(SteadyClock().now_ms())
        counts = health["counts"]
        assert isinstance(counts, dict)
        return {
            "boot": self.source.boot,
            "sent": self.source.counters.sent,
            "given_up": self.source.counters.lost + self.source.counters.refused,
            "resent": self.source.resent,
            "duplicates": counts.get("duplicate", 0),
            "reconnects": health["reconnects"],
        }


@contextmanager
def running(job: Job, place: int) -> Iterator[NodeWithSource]:
    """A node and its source, connected or about to be."""
    name = node_name(place)
    with ExitStack() as stack:
        service = stack.enter_context(open_loop(job.config(place), Systemd({})))
        thread = threading.Thread(target=service.run, name=name, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(service.stop)
        options = job.broker(f"{SITE}-{name}-{SOURCE}")
        source = stack.enter_context(
            connect(
                SITE, name, SOURCE, job.spool(place), options, resend_s=job.resend_s, sync_s=SYNC_S
            )
        )
        yield NodeWithSource(place, service, source)


def send_all(job: Job, pairs: Sequence[NodeWithSource]) -> None:
    """Every reading of every node at its moment; the nodes' moments are spread over the period."""
    readings = {pair.place: job.sent(pair.place) for pair in pairs}
    began, period_s = time.monotonic(), 1.0 / job.rate
    for turn in range(job.readings):
        for order, pair in enumerate(pairs):
            due = began + (turn + order / len(pairs)) * period_s
            time.sleep(max(0.0, due - time.monotonic()))
            values, label = readings[pair.place][turn]
            pair.source.send(values, label, time_ms=turn + 1)


def drain(job: Job, pairs: Sequence[NodeWithSource]) -> None:
    """Until every source is told that its node has everything, or the time is up."""
    deadline = time.monotonic() + DRAIN_S
    for pair in pairs:
        pair.source.drained(max(0.0, deadline - time.monotonic()))
    time.sleep(job.settle_s)


def _end_process(died: threading.ExceptHookArgs) -> None:
    """A node whose thread has died must not be taken for one that is slow."""
    threading.__excepthook__(died)
    sys.stderr.flush()
    os._exit(1)


def main() -> int:
    """The command line: the job's file, the first node, and the one after the last."""
    log.set_up("warning")
    threading.excepthook = _end_process
    path, first, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    job = Job.read(path)
    with planted(job.plant), ExitStack() as stack:
        pairs = [stack.enter_context(running(job, place)) for place in range(first, end)]
        send_all(job, pairs)
        write_status(sent_file(path, first), {"sent": job.readings})
        drain(job, pairs)
        write_status(report_file(path, first), {str(p.place): p.report() for p in pairs})
        time.sleep(STAY_S)
    return 0


def sent_file(job: Path, first: int) -> Path:
    """Is there when the last reading was sent."""
    return job.with_name(f"sent-{first}.json")


def report_file(job: Path, first: int) -> Path:
    """Is there when all is acknowledged that will be."""
    return job.with_name(f"report-{first}.json")


if __name__ == "__main__":
    sys.exit(main())
