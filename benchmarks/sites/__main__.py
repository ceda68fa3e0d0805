"""Several gateways that share sites, killed and frozen in the middle of changes.

    python -m benchmarks.sites [--sites 12] [--nodes 20] [--gateways 3] [--kills 20] [--freezes 3]
        [--at-once 4] [--lease 4] [--seed 0] [--json out/sites.json]

A real PostgreSQL, a real mosquitto, real gateway processes, thin nodes. In each round some sites go
through a change, and at a random moment of it one gateway is killed with `kill -9`, or stopped with
SIGSTOP until its sites are another's, and woken. The same story is told to one gateway undisturbed.
Judged: when each site was served again; that every round ends with the same orders for every node;
that no version of an order exists twice; and, from what the gateways wrote of their own acts, that
no two acted for a site at the same time, nor one for a site it had lost.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.sites.town import Town, story
from firmware_sim.live.postgres import Postgres

MOMENT_S = 4.0  # a kill comes somewhere within the first seconds of a change


def disturbed(town: Town, rounds: Sequence[list[str]], kills: int, seed: int) -> None:
    """Every round with a kill, then with a freeze."""
    chance = random.Random(seed)
    for number, changing in enumerate(rounds):
        victim, after_s = chance.randrange(town.gateways), MOMENT_S * chance.random()
        harm = town.kill if number < kills else town.freeze
        began_s, before = time.monotonic(), len(town.served_s)
        town.round(changing, lambda: harm(victim, after_s))  # noqa: B023 - called at once
        town.settle()
        took = ", ".join(f"{each:.1f}" for each in sorted(town.served_s[before:])) or "none held"
        what = "kill" if number < kills else "freeze"
        elapsed_s = time.monotonic() - began_s
        print(f"  {what} {number + 1}: served again after {took} s; round {elapsed_s:.0f} s")
        sys.stdout.flush()


def main() -> None:
    """Print the figures; exit code 1 where a promise is broken."""
    parser = command_line(__doc__)
    for name, default in (("sites", 12), ("nodes", 20), ("gateways", 3), ("kills", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--freezes", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--lease", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    add_json_option(parser)
    given = parser.parse_args()
    sites = [f"site{n:02}" for n in range(given.sites)]
    rounds = story(given.seed, sites, given.kills + given.freezes, given.at_once)
    with tempfile.TemporaryDirectory() as folder, Postgres() as server:
        with Town(
            Path(folder) / "alone", server.database("alone"), sites, given.nodes, 1, given.lease
        ) as alone:
            for changing in rounds:
                alone.round(changing)
            print(f"one gateway, undisturbed: {len(rounds)} rounds")
        with Town(
            Path(folder) / "shared",
            server.database("shared"),
            sites,
            given.nodes,
            given.gateways,
            given.lease,
        ) as town:
            disturbed(town, rounds, given.kills, given.seed)
            acts = sum(map(len, town.acts().values()))
            differ = sum(a != b for a, b in zip(town.states, alone.states, strict=True))
            found: dict[str, float] = {
                "served again, median s": statistics.median(town.served_s),
                "served again, worst s": max(town.served_s),
                "sites taken over": len(town.served_s),
                "of them in the middle of a change": town.interrupted,
                "rounds that ended otherwise than with one gateway": differ,
                "orders twice": len(town.orders_twice()),
                "acts": acts,
                "acts that contradict another gateway": len(town.contradictions()),
            }
    for name, value in found.items():
        print(f"  {name}: {value:g}")
    write_json(given.json, found)
    broken = found["orders twice"] + found["acts that contradict another gateway"] + differ
    sys.exit(1 if broken or not acts else 0)


if __name__ == "__main__":
    main()
