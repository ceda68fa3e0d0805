"""200 nodes on a real mosquitto whose connections break: nothing lost, nothing twice.

    python -m firmware_sim.resets.run --nodes 200 --seconds 120 --seed 0

Real nodes on real disks, real sources with their spools, some tens of them in a process; between
them and the broker a relay that resets connections every few seconds. At the end the processes are
killed, and what they left on their disks is compared with what was sent. The exit code is 1 if
anything was lost, or is there twice.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: before NumPy is imported

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_opid.service.status_file import read_status
from firmware_sim.chaos.planted import PLANTS
from firmware_sim.live.mosquitto import ROOMY, Mosquitto
from firmware_sim.live.processes import Children, LiveError, wait_until
from firmware_sim.resets.job import COMMIT_S, Job
from firmware_sim.resets.judge import Verdict, judge
from firmware_sim.resets.relay import Relay
from firmware_sim.resets.worker import DRAIN_S, report_file, sent_file

NODES_A_PROCESS = 50  # four threads each; an interpreter of its own for each would take 8 GB
START_S = 120.0  # for the processes to begin, and to catch up, on a busy machine
FILES = 16_384  # two sockets in the relay for each connection, two connections for each node
SECONDS_MAX = 400.0  # a node's journal reaches back that far, and the judge wants all of it


@dataclass(frozen=True)
class ResetsOutcome:
    """What was sent and found, what was done to the connections, and how long it took."""

    nodes: int
    verdict: Verdict
    counts: Counter[str]  # of the workers and of the relay, by a short word
    seconds: float  # from the start of the processes to the last acknowledgement

    def told(self) -> str:
        """For a person."""
        found, counts = self.verdict, self.counts
        return (
            f"{self.nodes} nodes, {found.readings} readings in {self.seconds:.0f} s "
            f"({found.readings / self.seconds:.0f}/s)\n"
            f"{counts['resets']} connections reset at {counts['breaks']} moments, "
            f"{counts['mid_packet']} within a packet; nodes reconnected {counts['reconnects']} "
            f"times\n"
            f"{counts['resent']} readings sent again, {counts['duplicates']} duplicates seen\n"
            f"lost {found.lost}, twice {found.twice}, strange {found.strange}, "
            f"nodes with another state {found.unlike}: {'well' if found.well else 'FAILED'}"
        )


def run(
    folder: Path,
    nodes: int,
    seconds: float,
    seed: int,
    rate: float = 1.0,
    plant: str | None = None,
    commit_s: float = COMMIT_S,
) -> ResetsOutcome:
    """One run in this folder; it leaves the nodes' folders behind, and no process."""
    _allow_files()
    with Children(folder) as children:
        broker = Mosquitto(folder, extra=ROOMY)
        children.add(broker)
        with Relay(broker.port, seed) as relay:
            readings = max(1, round(seconds * rate))
            job = Job(str(folder), relay.port, seed, nodes, readings, rate, plant, commit_s)
            claims, took_s = _played(job, children, relay)
            counts = Counter(resets=relay.resets, breaks=relay.breaks, mid_packet=relay.mid_packet)
    for claim in claims.values():
        counts.update({name: int(n) for name, n in claim.items() if name not in ("boot", "sent")})
    verdict = sum((judge(job, place, claim) for place, claim in claims.items()), Verdict())
    return ResetsOutcome(nodes, verdict, counts, took_s)


def _played(job: Job, children: Children, relay: Relay) -> tuple[dict[int, dict[str, Any]], float]:
    """Start the workers, wait until they have sent and drained, kill them; their claims."""
    path, began = job.write(Path(job.folder) / "job.json"), time.monotonic()
    firsts = range(0, job.nodes, NODES_A_PROCESS)
    workers = [
        children.python(
            f"worker-{first}",
            "firmware_sim.resets.worker",
            path,
            str(first),
            str(min(first + NODES_A_PROCESS, job.nodes)),
        )
        for first in firsts
    ]
    _wait_for([sent_file(path, first) for first in firsts], children, _sending_s(job))
    relay.calm()
    reports = [report_file(path, first) for first in firsts]
    _wait_for(reports, children, DRAIN_S + job.settle_s + START_S)
    took_s = time.monotonic() - began - job.settle_s
    for worker in workers:
        worker.kill()
    return {
        int(place): claim for report in reports for place, claim in read_status(report).items()
    }, took_s


def _sending_s(job: Job) -> float:
    return 2 * job.readings / job.rate + START_S


def _wait_for(files: Sequence[Path], children: Children, most_s: float) -> None:
    what = f"every worker has written its {files[0].name.partition('-')[0]} file"
    wait_until(lambda: all(file.exists() for file in files), what, most_s, children.check, 0.05)


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def main(arguments: Sequence[str] | None = None, say: Callable[[str], object] = print) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="firmware_sim.resets.run", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0, help=f"at most {SECONDS_MAX:g}")
    parser.add_argument("--seed", type=int, default=0, help="of the readings and of the breaks")
    parser.add_argument("--rate", type=float, default=1.0, help="readings a second and node")
    parser.add_argument("--plant", choices=list(PLANTS), help="take a precaution away")
    given = parser.parse_args(arguments)
    if not 0 < given.seconds <= SECONDS_MAX or given.nodes < 1 or given.rate <= 0:
        parser.error(f"there must be nodes, readings, and at most {SECONDS_MAX:g} seconds")
    with tempfile.TemporaryDirectory(prefix="opid-resets-") as folder:
        try:
            outcome = run(
                Path(folder), given.nodes, given.seconds, given.seed, given.rate, given.plant
            )
        except LiveError as error:
            sys.stderr.write(f"firmware_sim.resets.run: {error}\n")
            return 1
    say(outcome.told())
    return 0 if outcome.verdict.well else 1


if __name__ == "__main__":
    sys.exit(main())
