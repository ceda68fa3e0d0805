"""A real Dask cluster of two workers: fits and archives come out as at home, to the bit."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.archives import GROUP_ROWS, rows, write_fleet, write_parquet
from test_gateway_fits_elsewhere import job_of, outcomes_of

from gateway.__main__ import main
from gateway.archive.sources import parquet
from gateway.fitting.elsewhere import fitter_for
from gateway.fitting.settings import FitSettings, Where
from gateway.fitting.worker import attempt
from gateway.store import FleetStore

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, about its loop and its sockets


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes with nannies, which start a dead one anew; loopback alone."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as made:
        yield made


def test_fits_on_a_cluster_are_those_of_the_gateway_even_when_a_worker_dies(cluster):
    """Every worker is killed while it has jobs; the jobs are made again elsewhere."""
    settings = FitSettings(where=Where.DASK, address=cluster.scheduler_address)
    fitter = fitter_for(settings)
    jobs = [job_of(number) for number in range(1, 5)]
    try:
        for job in jobs:
            fitter.submit(job, 7)
        time.sleep(0.3)  # some are under way
        kill_one(cluster)
        found = outcomes_of(fitter, len(jobs))
    finally:
        fitter.stop()
    assert found == [attempt(job, 7) for job in jobs]


def kill_one(cluster) -> None:
    worker = next(iter(cluster.workers.values()))
    if worker.process is not None and worker.process.pid:
        os.kill(worker.process.pid, signal.SIGKILL)


def test_an_archive_on_a_cluster_is_the_archive_at_home(cluster, tmp_path, monkeypatch):
    """Twelve parts on two workers, and on one process."""
    monkeypatch.setattr(parquet, "PART_ROWS", GROUP_ROWS)
    config = write_fleet(tmp_path)
    write_parquet(tmp_path / "years", rows())
    mapping = str(tmp_path / "mapping.toml")
    words = [str(config), "air", str(tmp_path / "years"), "--mapping", mapping]
    assert main(["backfill", *words, "--name", "home", "--workers", "1"]) == 0
    assert main(["backfill", *words, "--name", "away", "--dask", cluster.scheduler_address]) == 0
    with FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite") as store:
        found = store.archives("air")
    home = [each.payload for each in found if each.archive == "home"]
    away = [each.payload for each in found if each.archive == "away"]
    assert home == away
    assert len(home) == 3
