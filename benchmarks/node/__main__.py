"""A node beside what a user would write instead, on the same broker, in the same run.

    python -m benchmarks.node [--quick | --memory] [--sizes few many] [--json out/node.json]

The peers (`peers.py`) are a bare paho echo and thirty lines each of paho with river, Vowpal Wabbit
and scikit-learn, the first two with SQLite and a commit per 128 readings. All are given the same
labelled readings at the same QoS; each predicts, learns and publishes what it predicted.

Machines differ and are shared, so judge by the ratios: the contenders take turns, the figure is the
processor time (user and system) of the whole process for each reading, and a ratio is the median of
those of the rounds. Memory: a node with TLS, a client certificate and a signed document with
weights, at D = 125, beside an interpreter that has only loaded numpy, paho and msgpack; the aim is
about that. A node runs optimised, without docstrings, and keeps paho from loading what it does not
use, so the same interpreter under the same terms is measured, too.

Each part is printed as soon as it is measured. With `--json` it is also written, and what the file
has already is not measured again: a run that was stopped is taken up by the same command.
"""

from __future__ import annotations

import itertools
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.measuring import memory_mb
from benchmarks.common.verdict import verdict
from benchmarks.node.contenders import (
    CLASSES,
    KEY,
    SITE,
    SIZES,
    WINDOW,
    Contender,
    as_a_service,
    client,
    contenders,
    names,
    node,
    paced,
    publication,
    readings,
    saturate,
)
from benchmarks.node.parts import certificates
from edge_opid.wire import Ack, Channel, Desired, Matrix, Status, Weights, decode, seal_desired
from firmware_sim.live.introductions import standardised
from firmware_sim.live.mosquitto import HOST, ROOMY, Mosquitto, free_port
from firmware_sim.live.processes import Child

PACES = {"10 a second": 10.0, "100 a second": 100.0}
SATURATED = "saturated"
MEMORY_READINGS = 30_000
WARM = 256  # readings of the first round
SLOW = {"sklearn": 8}
"""It takes ten times as long as the others, and no aim is about it: a share of the readings."""
Figures = dict[str, float]
AIMS = {
    (SATURATED, "river"): (0.8, 0.6),
    (SATURATED, "vowpal"): (0.7, 0.7),
    (SATURATED, "echo"): (1.25, 1.5),
    ("10 a second", "echo"): (1.5, 1.6),
}
"""The most that a node may take of a peer's processor time, with few sensors and with many."""
MEMORY_AIM_MB = 6.0


class Effort(NamedTuple):
    """How much is measured: rounds of so many readings, and seconds at a pace."""

    rounds: int
    each_round: int
    seconds: float


QUICK, FULL = Effort(3, 640, 5.0), Effort(5, 1_280, 10.0)


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[int, int]]:
    """A mosquitto's plain port and its TLS port."""
    tls = free_port()
    files = {"cafile": "ca.pem", "certfile": "broker.pem", "keyfile": "broker.key"}
    encrypted = (
        f"listener {tls} {HOST}",
        *(f"{option} {folder / name}" for option, name in files.items()),
        "require_certificate true",
    )
    with Mosquitto(folder, extra=(*ROOMY, *encrypted)) as broker:
        yield broker.port, tls


# --- processor time and latency -------------------------------------------------------------------


def compare(
    folder: Path, port: int, size: str, qos: int, effort: Effort, known: Collection[str]
) -> Iterator[tuple[str, dict[str, Figures]]]:
    """Every contender's figures under every load that is not known yet: contender → figure."""
    loads = {SATURATED: 0.0, **(PACES if qos else {})}
    if loads.keys() <= set(known):
        return
    with contenders(folder, size, port, qos) as all_of:
        for place, (load, per_s) in enumerate(loads.items(), 1):
            if load in known:
                continue
            boot = 100 * place
            if load == SATURATED:
                yield load, saturated(port, all_of, size, boot, effort)
            else:
                yield load, at_pace(port, all_of, size, boot, per_s, effort.seconds)


def at_pace(
    port: int, all_of: list[Contender], size: str, boot: int, per_s: float, seconds: float
) -> dict[str, Figures]:
    """All of them in one run, each reading of one followed by that of the next."""
    number = max(20, int(seconds * min(per_s, 30.0)))
    packets = {each.name: readings(each.reading_topic, size, number, boot) for each in all_of}
    return {
        name.split(",")[0]: {
            "cpu_us": pace.cpu_us,
            "p50_ms": pace.percentile(50),
            "p99_ms": pace.percentile(99),
        }
        for name, pace in paced(port, all_of, packets, per_s).items()
    }


def saturated(
    port: int, all_of: list[Contender], size: str, boot: int, effort: Effort
) -> dict[str, Figures]:
    """All of them in turns; the first round only warms up."""
    cpu_us: dict[str, list[float]] = {each.name: [] for each in all_of}
    for turn in range(effort.rounds + 1):
        for each in all_of:
            slow = SLOW.get(each.name.split(",")[0], 1)
            count = effort.each_round // slow if turn else WARM // slow
            packets = readings(each.reading_topic, size, count, boot + turn)
            cpu_us[each.name].append(saturate(port, each, packets))
    own = cpu_us[all_of[0].name]
    return {
        each.name.split(",")[0]: {
            "cpu_us": statistics.median(cpu_us[each.name][1:]),
            "node_share": statistics.median(
                mine / its for mine, its in zip(own[1:], cpu_us[each.name][1:], strict=True)
            ),
            "resident_mb": memory_mb(each.process.pid)[0],
        }
        for each in all_of
    }


# --- memory --------------------------------------------------------------------------------------


def order(size: str, to: str) -> bytes:
    """A signed document: the same sensors as a new layout, and weights for them."""
    vanishing, surviving = names(size)
    described = standardised({name: name for name in (*vanishing, *surviving)})
    W = [[0.0] * len(CLASSES)] * (len(described) + 1)
    document = Desired(
        site=SITE,
        node=to,
        version=1,
        layout_version=1,
        sensors=described,
        vanishing=tuple(vanishing),
        gate=8.0,
        classes=CLASSES,
        weights=Weights("matrix", {"W": Matrix.of(W)}),
    )
    return seal_desired(document, KEY)


def in_windows(port: int, contender: Contender, size: str, count: int, boot: int) -> None:
    """As `Source` sends: never more than 256 on their way."""
    ack_topic = str(contender.topics.to(Channel.ACK, "s"))
    with client(port, "hearer", ack_topic) as hearer, client(port, "sender") as sender:
        acks = (decode(payload, Ack) for _, payload in hearer.messages())
        sent = acknowledged = 0
        packets = readings(contender.reading_topic, size, count, boot)
        while acknowledged < count:
            sender.send_all(packets[sent : acknowledged + WINDOW])
            sent = min(count, acknowledged + WINDOW)
            acknowledged = next(ack.seq for ack in acks if ack.boot == boot)


def memory(folder: Path, ports: tuple[int, int]) -> Figures:
    """Resident MB of a node in full use, and of the interpreter alone."""
    port = ports[0]
    files = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"}
    tls = [f'tls_{name} = "{folder / file}"' for name, file in files.items()]
    found: Figures = {}
    with node(folder / "memory", "many", ports, "\n".join(tls)) as tested:
        status = str(tested.topics.to(Channel.STATUS))
        with client(port, "watcher", status) as listener, client(port, "orderer") as sender:
            desired = str(tested.topics.to(Channel.DESIRED))
            sender.send(publication(desired, order("many", tested.topics.node), 1))
            while decode(next(listener.messages())[1], Status).model_version != 1:
                pass
        for boot, share in enumerate(("node_mb", "later_mb"), 1):
            in_windows(port, tested, "many", MEMORY_READINGS // boot, boot)
            found[share], found["most_mb"] = memory_mb(tested.process.pid)
    found["idle_mb"] = interpreter_mb(folder)
    with as_a_service(folder / "compiled"):
        found["alike_mb"] = interpreter_mb(folder, "postponing")
    return found


def interpreter_mb(folder: Path, *how: str) -> float:
    """Resident MB of `parts.idle`."""
    command = [sys.executable, str(Path(__file__).with_name("parts.py")), *how]
    with Child("idle", command, folder / "idle.log", piped=True) as idle:
        assert idle.line() == "ready"
        return memory_mb(idle.pid)[0]


# --- the report -----------------------------------------------------------------------------------


def sensors(size: str) -> str:
    """How a report names it."""
    return f"{sum(SIZES[size])} sensors"


def table(load: str, figures: dict[str, Figures], size: str, qos: int) -> str:
    """One load as Markdown, the node's share of each peer beside."""
    lines = [
        f"{load}, {sensors(size)}, QoS {qos}",
        "",
        "| | CPU a reading | node / it | p50 | p99 | resident |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in figures.items():
        late = [f"{found[key]:.1f} ms" if key in found else "" for key in ("p50_ms", "p99_ms")]
        resident = f"{found['resident_mb']:.1f} MB" if "resident_mb" in found else ""
        lines.append(
            f"| {name} | {found['cpu_us']:.0f} µs | {share(figures, name):.2f} "
            f"| {late[0]} | {late[1]} | {resident} |"
        )
    return "\n".join([*lines, ""])


def share(figures: dict[str, Figures], peer: str) -> float:
    """What the node takes of a peer's processor time; between rounds where there were any."""
    between_medians = figures["node"]["cpu_us"] / figures[peer]["cpu_us"]
    return figures[peer].get("node_share", between_medians)


def aims(found: dict[str, dict[str, dict[str, Figures]]], used: Figures) -> list[str]:
    """Each aim with the figure it is judged by."""
    lines = []
    for (load, peer), most in AIMS.items():
        for size, aim in zip(SIZES, most, strict=True):
            if f"{size}, QoS 1" in found:
                ratio = share(found[f"{size}, QoS 1"][load], peer)
                what = f"{load}, {sensors(size)}: {peer}"
                lines.append(verdict(what, ratio, aim, at_least=False))
    above = used["node_mb"] - used["idle_mb"]
    lines.append(verdict("MB above the interpreter", above, MEMORY_AIM_MB, at_least=False))
    growth = used["later_mb"] - used["node_mb"]
    lines.append(verdict("MB grown in the 15,000 readings after", growth, 0.1, at_least=False))
    return lines


def read_figures(path: Path | None) -> dict[str, Any]:
    """What an earlier run has left there."""
    if path is None or not path.exists():
        return {"found": {}, "memory": {}}
    known: dict[str, Any] = json.loads(path.read_text())
    return known


def main() -> None:
    """Measure, print, and write the figures where asked."""
    parser = command_line(__doc__)
    parser.add_argument("--quick", action="store_true", help="a look, in two minutes")
    parser.add_argument("--memory", action="store_true", help="resident memory alone")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    add_json_option(parser)
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    measured = read_figures(options.json)
    found, used = measured["found"], measured["memory"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates(folder)
        with brokers(folder) as ports:
            for qos, size in itertools.product((1, 0), () if options.memory else options.sizes):
                part = found.setdefault(f"{size}, QoS {qos}", {})
                for load, figures in part.items():
                    print(table(load, figures, size, qos), flush=True)
                where = folder / f"{size}-{qos}"
                for load, figures in compare(where, ports[0], size, qos, effort, [*part]):
                    part[load] = figures
                    write_json(options.json, measured)
                    print(table(load, figures, size, qos), flush=True)
            if not used:
                used.update(memory(folder, ports))
                write_json(options.json, measured)
    print(
        f"resident, D = 125, TLS, signed, after {MEMORY_READINGS:,} readings: "
        f"{used['node_mb']:.1f} MB (at the most {used['most_mb']:.1f}), interpreter with numpy, "
        f"paho and msgpack: {used['idle_mb']:.1f} MB, the same optimised as the node is and "
        f"without what it postpones: {used['alike_mb']:.1f} MB"
    )
    print("\n" + "\n".join(aims(found, used)))


if __name__ == "__main__":
    main()
