"""The time of one `learn_one`, beside every peer that installs and beside the limit, in one run.

    python -m benchmarks.update [--sizes 30 125 320] [--seconds 1.0] [--json out/update.json]

Machines differ and are shared, so judge by the ratios: every method is measured in turns with the
others, round after round, and the median of processor time is taken. The limit is one pass that
reads and writes a D×D float32 matrix once; ours stores half of that, so the pass over our own bytes
is given too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: the peers' small matrices too

import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

import edge_opid
from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.verdict import verdict
from benchmarks.update.peers import CLASSES, Contender, contenders, ours

SHAPES = {30: (6, 12), 125: (25, 50), 320: (64, 128), 570: (114, 228), 1250: (250, 500)}
"""D: (vanishing, surviving), with D = vanishing + 2·surviving."""
OURS = "WoodburyLearner, compiled"
PRINTED = "Eq. 10 as printed, NumPy"
VOWPAL = "Vowpal Wabbit, from a ready line"
ROUNDS = 9


def calls_for(step: Callable[[int], object], seconds: float) -> int:
    """How many calls of `step` fit into `seconds`; the first ones warm it up."""
    for i in range(3):
        step(i)
    start = time.process_time()
    step(3)
    return max(1, min(20_000, int(seconds / max(time.process_time() - start, 1e-7))))


def measured(found: list[Contender], seconds: float) -> dict[str, float]:
    """Median microseconds of processor time a call, the contenders taking turns."""
    plan = [(c, calls_for(c.step, seconds / ROUNDS)) for c in found]
    times: dict[str, list[float]] = {c.name: [] for c in found}
    for _ in range(ROUNDS):
        for contender, calls in plan:
            start = time.process_time()
            for i in range(calls):
                contender.step(i)
            times[contender.name].append((time.process_time() - start) / calls * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def table(size: int, micros: dict[str, float], found: list[Contender]) -> str:
    """One Markdown table for one D."""
    mine = micros[OURS]
    lines = [
        "\n**D = {}** ({} vanish, {} survive, {} classes)\n".format(size, *SHAPES[size], CLASSES),
        "| one update | µs | ratio to ours | kB kept |",
        "|---|---|---|---|",
    ]
    for contender in found:
        value, kept = micros[contender.name], contender.bytes_kept
        kb = "–" if kept is None else f"{kept / 1000:.1f}"
        lines.append(f"| {contender.name} | {value:.1f} | {value / mine:.2f} | {kb} |")
    return "\n".join(lines)


def exponent(results: dict[int, dict[str, float]]) -> float:
    """The growth of our time with D: the slope of the log-log line from D = 125 on."""
    sizes = [size for size in results if size >= 125]
    times = [results[size][OURS] for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def beside_linear(size: int, ratio: float) -> str:
    """What an O(d) update takes beside ours, which is O(D²): no aim, but worth knowing."""
    if ratio >= 1:
        return f"         D = {size}: Vowpal Wabbit takes {ratio:.2f} times as long as ours"
    return (
        f"         D = {size}: Vowpal Wabbit's O(d) update is {1 / ratio:.1f} times as fast as "
        "ours: use fewer hats where time matters"
    )


def aims(results: dict[int, dict[str, float]]) -> list[str]:
    """Each aim with the figure it is judged by."""
    lines = []
    for size, micros in results.items():
        mine = micros[OURS]
        lines.append(
            verdict(f"D = {size}: Eq. 10 in NumPy / ours", micros[PRINTED] / mine, 6, at_least=True)
        )
        river = micros.get("river one-vs-rest logistic regression")
        if size == 125 and river is not None:
            lines.append(
                verdict("D = 125: river logistic regression / ours", river / mine, 8, at_least=True)
            )
        if size >= 320:
            limit = micros["limit: read + write D×D once"]
            lines.append(
                verdict(f"D = {size}: ours / read-plus-write pass", mine / limit, 3, at_least=False)
            )
        linear = micros.get(VOWPAL)
        if linear is not None:
            lines.append(beside_linear(size, linear / mine))
    if len([size for size in results if size >= 125]) > 1:
        lines.append(
            verdict("growth exponent from D = 125", exponent(results), 2.1, at_least=False)
        )
    return lines


def main() -> None:
    """Measure, print, and write the figures where asked."""
    parser = command_line(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each method at each D")
    add_json_option(parser)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, ",
        end="",
    )
    print(f"edge-opid's arithmetic: {edge_opid.native.name}")
    results = {}
    for size in options.sizes:
        found = [*ours(*SHAPES[size]), *contenders(*SHAPES[size])]
        results[size] = measured(found, options.seconds)
        print(table(size, results[size], found), flush=True)
    print()
    print("\n".join(aims(results)))
    write_json(options.json, results)


if __name__ == "__main__":
    main()
