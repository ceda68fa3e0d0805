"""Whole MQTT packets, mutated by the million, both ways: nothing may end, no session may be stuck.

    python -m benchmarks.fuzz.packets [--inputs 1000000] [--fleet 10000] [--seed 0] ...

From the broker: a broker that lies sends mutants to the real link (`fuzz_link`), 5,000 to each.
To the broker: a client of bare bytes sends `--fleet` of the inputs to a real mosquitto, on which a
real node and a real gateway live in processes of their own (`fuzz_fleet`).

Each generation has its own seed. Ends with 1 at the first broken promise, with the seed and the
packets; threads make a rare order of events hard to repeat, the packets are always the same.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: its threads only wait

import logging
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from benchmarks.common.command import command_line
from benchmarks.fuzz import fleet
from benchmarks.fuzz.link import LyingBroker
from benchmarks.fuzz.messages import corpus, table

GENERATION = 5_000


def generation(seed: str, number: int, count: int) -> tuple[Counter[str], str]:
    """So many mutants for one link: what became of them, and the first finding, to repeat it by."""
    logging.disable()  # the link reports every odd answer: here they are all odd
    words: Counter[str] = Counter()
    broker = LyingBroker(f"{seed}/{number}", words, corpus())
    try:
        broker.run(count)
    except Exception:  # noqa: BLE001 - the very thing this is looking for
        sent = b"".join(broker.last)
        after = f"after: {sent[:2_000].hex()}{' ...' if len(sent) > 2_000 else ''}"
        again = f"again: python -m benchmarks.fuzz.packets --seed {seed} --first {number}"
        return words, f"{traceback.format_exc()}\n{after}\n{again}"
    return words, ""


def to_the_link(count: int, seed: str, first: int, jobs: int, words: Counter[str]) -> str:
    """All generations, so many at a time; the first finding."""
    counts = [min(GENERATION, count - done) for done in range(0, count, GENERATION)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        found = pool.map(generation, repeat(seed), range(first, first + len(counts)), counts)
        for some, finding in found:
            if finding:
                pool.shutdown(cancel_futures=True)
                return finding
            words.update(some)
    return ""


def main() -> int:
    """Run as many inputs as asked for."""
    parser = command_line(__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--fleet", type=int, default=10_000, help="of them, to node and gateway")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--first", type=int, default=0, help="the generation to begin with")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    asked = parser.parse_args()
    words: Counter[str] = Counter()
    start = time.monotonic()
    lies = asked.inputs - asked.fleet
    finding = to_the_link(lies, asked.seed, asked.first, asked.jobs, words)
    if asked.fleet and not finding:
        finding = fleet.run(asked.fleet, asked.seed, words)
    if finding:
        print(finding)
        return 1
    print("\n".join(table(words)))
    print(
        f"{asked.inputs:,} packets in {time.monotonic() - start:.0f} s: "
        f"{lies:,} from a lying broker to the real link, "
        f"{asked.fleet:,} through mosquitto towards a node and a gateway; "
        "0 ended processes, 0 dead threads, 0 stuck sessions"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
