"""Years of readings at once: rows a second, memory, and the same bits whoever gathered them.

    python -m benchmarks.archive --rows 20000000 [--keep FOLDER]

Twelve sensors in Parquet files, straight columns (13) and with eight hats each (97). Beside us:

- **sums**: pyarrow reads, NumPy stacks and multiplies. No scales, no gate, no missing values; with
  hats, the same hats without a guard. It is what any program of this kind has to do at least.
- **DuckDB**: the same sums as SQL, one thread. 97 columns are 4,753 sums; it gets fewer rows.

Every run is a process of its own; CPU is that of the process and its children. `--out` writes the
page. With `--keep` the archive and what was measured stay in a folder: started again after it was
stopped, it goes on with the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gateway.archive import learning
from gateway.archive.hands import DaskHands, Hands, OwnHands, ProcessHands
from gateway.archive.learning import Checkpoint, Total, learn
from gateway.archive.mapping import ArchiveMapping, GivenSensor
from gateway.archive.plan import plan
from gateway.archive.sources import open_archive
from gateway.policy import Group
from gateway.registry.fleet import Fleet
from gateway.workers import use_one_blas_thread

SENSORS = tuple(f"s{number:02}" for number in range(12))
CLASSES = ("calm", "busy", "alarm")
KNOTS = (-8.0, -1.5, -0.8, -0.3, 0.3, 0.8, 1.5, 8.0)
FILE_ROWS = 2_000_000
GROUP_ROWS = 2**18
BATCH_ROWS = 2**16
DUCKDB_HAT_ROWS = 65_536
PAGE = Path("benchmarks/results/archive.md")
Found = dict[str, Any]
Run = tuple[str, bool, Found]
"""The mode, whether with hats, and what was found."""


# -- the archive -----------------------------------------------------------------------------------


def write_archive(folder: Path, rows: int) -> None:
    """Float32 sensors about their own references, one label in three classes for every row."""
    import pyarrow as pa  # noqa: PLC0415 - of the extra `archive`
    import pyarrow.parquet as pq  # noqa: PLC0415

    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        path, n = folder / f"{number:03}.parquet", min(FILE_ROWS, rows - start)
        if path.exists():
            continue
        rng = np.random.default_rng([0, number])
        truth = rng.integers(len(CLASSES), size=n).astype(np.int8)
        columns = {
            name: (place + 0.3 * truth + rng.standard_normal(n, np.float32)).astype(np.float32)
            for place, name in enumerate(SENSORS)
        }
        labels = pa.DictionaryArray.from_arrays(pa.array(truth), pa.array(CLASSES))
        table = pa.table({**columns, "state": labels})
        pq.write_table(table, path.with_suffix(".part"), row_group_size=GROUP_ROWS)
        path.with_suffix(".part").rename(path)


# -- one run, in a process of its own --------------------------------------------------------------


def ours(folder: Path, hats: bool, hands: Hands, work: Path) -> Found:
    """As `opid-gateway backfill` learns it."""
    given = {
        name: GivenSensor(reference=float(place), scale=1.0, knots=KNOTS if hats else ())
        for place, name in enumerate(SENSORS)
    }
    mapping = ArchiveMapping(columns={n: n for n in SENSORS}, label="state", sensors=given)
    archive = open_archive([str(folder)], mapping)
    group = Group("air", "street", CLASSES, ("n1",))
    task = plan(archive, Fleet([group]), group).task
    checkpoint = Checkpoint(work / "checkpoint.npz", archive, task)
    total = learn(archive, task, hands, checkpoint, lambda *_: None)
    hands.close()
    return {"rows": archive.rows, "digest": digest_of(total)}


def digest_of(total: Total) -> str:
    """The bits of all sums."""
    found = hashlib.blake2b(digest_size=8)
    for epoch in total.epochs.values():
        for array in (epoch.sums.labelled, epoch.sums.unlabelled, epoch.sums.moments):
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def sums_alone(folder: Path, hats: bool) -> Found:
    """NumPy and pyarrow, and nothing that a year of real sensors would need."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    use_one_blas_thread()
    rows, gram, moments = 0, 0.0, 0.0
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path, read_dictionary=["state"])
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            Y = np.eye(len(CLASSES))[batch.column("state").indices.to_numpy()]
            X = plain_columns(batch, hats)
            gram = gram + X @ X.T
            moments = moments + X @ Y
            rows += len(batch)
    return {"rows": rows, "digest": ""}


def plain_columns(batch: Any, hats: bool) -> np.ndarray:
    """The columns of a batch, a row each, in float64."""
    ones = np.ones((1, len(batch)))
    if not hats:
        columns = [batch.column(name).to_numpy() for name in SENSORS]
        return np.concatenate([np.stack(columns).astype(np.float64), ones])
    knots = np.array(KNOTS)
    rise, fall = 1 / np.diff(knots), 1 / np.diff(knots)
    X = np.empty((len(SENSORS) * len(knots) + 1, len(batch)))
    row = 0
    for place, name in enumerate(SENSORS):
        z = batch.column(name).to_numpy().astype(np.float64) - place
        for k, knot in enumerate(knots):
            left = 1 + (z - knot) * rise[k - 1] if k else np.inf
            right = 1 - (z - knot) * fall[k] if k + 1 < len(knots) else np.inf
            np.clip(np.minimum(left, right), 0.0, 1.0, out=X[row])
            row += 1
    X[row] = 1.0
    return X


def duckdb_sums(folder: Path, hats: bool, limit: int) -> Found:
    """The same sums in SQL."""
    import duckdb  # noqa: PLC0415 - of the extra `bench`

    columns = list(sql_columns(hats))
    names = [f"x{place}" for place in range(len(columns))]
    inner = ", ".join(f"{sql} AS {name}" for sql, name in zip(columns, names, strict=True))
    products = [f"sum({a} * {b})" for i, a in enumerate(names) for b in names[i:]]
    classes = [f"sum({a}) FILTER (state = '{label}')" for a in names for label in CLASSES]
    source = f"(SELECT * FROM read_parquet('{folder}/*.parquet') LIMIT {limit})"
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    statement = (
        f"SELECT {', '.join([*products, *classes])} FROM (SELECT {inner}, state FROM {source})"
    )
    connection.execute(statement).fetchone()
    return {"rows": limit, "digest": ""}


def sql_columns(hats: bool) -> Iterator[str]:
    """Each column as an expression."""
    for place, name in enumerate(SENSORS):
        z = f"({name}::DOUBLE - {place})"
        if not hats:
            yield z
            continue
        for k, knot in enumerate(KNOTS):
            sides = []
            if k:
                sides.append(f"1 + ({z} - ({knot})) / {knot - KNOTS[k - 1]}")
            if k + 1 < len(KNOTS):
                sides.append(f"1 - ({z} - ({knot})) / {KNOTS[k + 1] - knot}")
            yield f"greatest(0, least(1, {', '.join(sides)}))"
    yield "1.0::DOUBLE"


def run_here(mode: str, folder: Path, hats: bool, work: Path, limit: int) -> Found:
    """One run of one kind, timed."""
    kind, _, number = mode.partition("-")
    if kind == "dask":  # the cluster's start is not the archive's
        hands: Hands = DaskHands(dask_cluster(int(number)))
    else:
        hands = OwnHands() if mode == "ours-1" else ProcessHands(int(number or 1))
    if kind == "killed":
        die_after(int(number))
        hands = OwnHands()
    does: dict[str, Callable[[], Found]] = {
        "sums": lambda: sums_alone(folder, hats),
        "duckdb": lambda: duckdb_sums(folder, hats, limit),
    }
    began, used = time.perf_counter(), cpu_s()
    found = does.get(kind, lambda: ours(folder, hats, hands, work))()
    wall = time.perf_counter() - began
    return {**found, "wall_s": wall, "cpu_s": cpu_s() - used, "peak_mb": peak_mb()}


def peak_mb() -> float:
    """The most memory this process had. `ru_maxrss` would be that of the parent, if it had more."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def cpu_s() -> float:
    """Of this process, and of its children that have ended."""
    own, theirs = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime


def dask_cluster(workers: int) -> Any:
    """A client of a cluster of its own, on loopback."""
    from distributed import Client, LocalCluster  # noqa: PLC0415 - of the extra `dask`

    cluster: Any = LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    )
    client: Any = Client(cluster)  # type: ignore[no-untyped-call]
    client.wait_for_workers(workers)
    return client


def die_after(parts: int) -> None:
    """Let this process end by SIGKILL as soon as it has saved so many parts."""
    learning.CHECKPOINT_S = 0.0
    save = Checkpoint.save

    def save_and_die(self: Checkpoint, total: Total) -> None:
        save(self, total)
        if total.parts >= parts:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.save = save_and_die  # type: ignore[method-assign]


# -- all runs --------------------------------------------------------------------------------------


def measured(mode: str, folder: Path, hats: bool, work: Path, limit: int = 0) -> Found | None:
    """One run in a process of its own; None where it was killed."""
    words = ["--mode", mode, "--folder", str(folder), "--work", str(work), "--limit", str(limit)]
    command = [sys.executable, "-m", "benchmarks.archive", *words, *(["--hats"] if hats else [])]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode == -signal.SIGKILL:
        return None
    done.check_returncode()
    found: Found = json.loads(done.stdout.splitlines()[-1])
    rates = f"{found['rows'] / found['wall_s']:,.0f} rows/s, {found['peak_mb']:.0f} MB"
    cpu = f"{1e6 * found['cpu_s'] / found['rows']:.3f} µs CPU a row"
    print(f"{mode:8} {'hats' if hats else 'line'} {rates}, {cpu} {found['digest']}", flush=True)
    return found


def planned(repeats: int) -> Iterator[tuple[str, bool]]:
    """Every mode in turn, so that each meets the machine's load alike: straight, then with hats."""
    for hats in (False, True):
        for _ in range(repeats):
            for mode in ("sums", "ours-1", "ours-2", "dask-2"):
                yield mode, hats
        for mode in ("duckdb", "ours-4", "resumed"):
            yield mode, hats


def one_run(mode: str, hats: bool, folder: Path, work: Path, rows: int) -> Found:
    """A run from nothing; `resumed` is killed half way, and what is told is the rest."""
    (work / "checkpoint.npz").unlink(missing_ok=True)
    if mode == "resumed":
        parts = len(list(folder.glob("*.parquet")))  # about half of them: two parts a file
        assert measured(f"killed-{parts}", folder, hats, work) is None
        mode = "ours-1"
    limit = DUCKDB_HAT_ROWS if hats else rows
    found = measured(mode, folder, hats, work, min(limit, rows))
    assert found is not None
    return found


def all_runs(folder: Path, rows: int, repeats: int) -> list[Run]:
    """Make the archive and run everything, except what is in the folder already."""
    write_archive(folder, rows)
    done, runs = folder / "runs.json", list[Run]()
    if done.exists():
        runs = [(mode, hats, found) for mode, hats, found in json.loads(done.read_text())]
    for mode, hats in list(planned(repeats))[len(runs) :]:
        runs.append((mode, hats, one_run(mode, hats, folder, folder, rows)))
        done.write_text(json.dumps(runs))
    return runs


WORDS = {
    "sums": "NumPy + pyarrow, the sums alone",
    "ours-1": "backfill, one process",
    "ours-2": "backfill, two worker processes",
    "ours-4": "backfill, four worker processes",
    "dask-2": "backfill, a Dask cluster of two workers",
    "duckdb": "DuckDB, SQL, one thread",
    "resumed": "backfill, killed half way: the rest",
}


def page(runs: list[Run], rows: int) -> str:
    """The results as a page."""
    lines = [
        "# Archives: rows a second, memory, bits",
        "",
        f"`make bench-archive`, {rows:,} rows × 12 sensors (float32, snappy) in Parquet, a label",
        "in every row. Each line is the best of its runs, which were made in turn. CPU is that of",
        "the whole process, its start left out; of Dask it is the client's, not the workers'. Peak",
        "memory is that of the process that adds up. The machine has "
        f"{os.cpu_count()} cores and was shared with",
        "other work: compare CPU, and wall time only with care.",
        "",
    ]
    for hats in (False, True):
        lines += [
            f"## {'Eight hats a sensor: 97 columns' if hats else 'Straight: 13 columns'}",
            "",
            "| what | rows/s (wall) | rows/s of CPU | of the sums alone | peak MB | bits |",
            "|---|---|---|---|---|---|",
        ]
        best: dict[str, Found] = {}
        for mode, lifted, found in runs:
            if lifted == hats and (mode not in best or found["cpu_s"] < best[mode]["cpu_s"]):
                best[mode] = found
        alone = best["sums"]["rows"] / best["sums"]["cpu_s"]
        for mode, found in best.items():
            wall, cpu = found["rows"] / found["wall_s"], found["rows"] / found["cpu_s"]
            known = mode not in ("dask-2", "resumed")
            shown = f"{cpu:,.0f} | {cpu / alone:.2f}" if known else "– | –"
            speed = f"{wall:,.0f}" if mode != "resumed" else "–"
            what = f"{WORDS[mode]} ({found['rows']:,} rows)" if mode == "duckdb" else WORDS[mode]
            lines.append(
                f"| {what} | {speed} | {shown} | {found['peak_mb']:.0f} | `{found['digest']}` |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Make an archive in a temporary folder, run everything, say and perhaps write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, help=f"the page, {PAGE}")
    parser.add_argument("--keep", type=Path, help="where archive and measurements stay")
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hats", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mode:
        found = run_here(given.mode, given.folder, given.hats, given.work, given.limit)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as passing:
        folder = given.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        runs = all_runs(folder, given.rows, given.repeats)
    bits = {
        hats: {found["digest"] for _, lifted, found in runs if lifted == hats and found["digest"]}
        for hats in (False, True)
    }
    text = page(runs, given.rows)
    print(text)
    if given.out:
        given.out.write_text(text)
    if any(len(each) != 1 for each in bits.values()):
        sys.exit(f"bits differ: {bits}")


if __name__ == "__main__":
    main()
