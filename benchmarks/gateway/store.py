"""How long the gateway's store takes: a large save, a small one, and the reading of a fleet.

python -m benchmarks.gateway.store                                # a temporary SQLite file
python -m benchmarks.gateway.store postgresql://user@host/empty   # a database for this alone
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

from benchmarks.common.command import command_line
from gateway.registry import NodeRecord, OrderRecord, Record
from gateway.store import FleetStore

NODES, PAYLOAD_BYTES, ROUNDS = 1_000, 1_024, 7


def records(round_: int) -> list[Record]:
    """A wave of reports and new orders: two records for each node."""
    found: list[Record] = []
    for number in range(NODES):
        name = f"node-{number}"
        found.append(
            NodeRecord(site="street", node=name, group="air", gate=0.5, online=True, seen_ms=round_)
        )
        found.append(
            OrderRecord(
                site="street",
                node=name,
                version=round_,
                layout_version=1,
                payload=os.urandom(PAYLOAD_BYTES),
                at_ms=round_,
            )
        )
    return found


def milliseconds(doing: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    doing()
    return (time.perf_counter() - start) * 1e3


def measure(url: str) -> None:
    """Print the figures of one database."""
    with FleetStore.open(url) as store:
        store.claim()
        waves = [records(each) for each in range(1, ROUNDS + 1)]
        first, *later = [milliseconds(partial(store.save, wave)) for wave in waves]
        single = [milliseconds(partial(store.save, [one])) for one in waves[-1][:200]]
        reading = [milliseconds(store.fleet) for _ in range(ROUNDS)]
    print(f"save of {NODES:,} nodes and {NODES:,} orders of {PAYLOAD_BYTES:,} bytes")
    print(f"  into empty tables  {first:8.1f} ms")
    print(f"  in their place     {statistics.median(later):8.1f} ms (median of {len(later)})")
    print(f"save of one record   {statistics.median(single):8.2f} ms (median of {len(single)})")
    print(f"fleet() of them all  {statistics.median(reading):8.1f} ms (median of {len(reading)})")


def main() -> None:
    """Measure the database whose URL was given, or a file that is gone afterwards."""
    parser = command_line(__doc__)
    parser.add_argument("url", nargs="?")
    url = parser.parse_args().url
    if url is not None:
        measure(url)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(f"sqlite:///{folder}/gateway.sqlite")


if __name__ == "__main__":
    main()
