"""Where each rank's time went, as the API has it of a real run."""

from __future__ import annotations

import json
import statistics
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeJob
from harness import Cluster, Slowed


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, ["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        cluster.start_agent("b")
        yield cluster


def metrics(cluster: Cluster, job: int, query: str) -> Any:
    url = f"http://127.0.0.1:{cluster.web_port}/api/v1/jobs/{job}/metrics?{query}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_each_ranks_steps_are_there_once_the_job_has_ended(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=2, epochs=4))
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    told = metrics(cluster, job, "names=loss,gpu_busy_mean_ratio&ranks=true")
    ranks = told["ranks"]
    assert ranks and all(len(one["own_seconds"]) == len(one["wait_seconds"]) == 2 for one in ranks)
    first = [int(one["first_step"]) for one in ranks]
    assert first == sorted(set(first)) and first[0] == 1
    last = int(ranks[-1]["first_step"]) + int(ranks[-1]["steps"]) - 1
    assert last == int(cluster.job(job)["last_step"]["step"])
    assert all(float(seconds) > 0 for one in ranks for seconds in one["own_seconds"])
    # On CPU slots there is no GPU to be busy.
    assert all(point[3] is None for point in told["series"][1]["points"])
    assert "ranks" not in metrics(cluster, job, "names=loss")


def test_of_a_slow_rank_the_own_work_is_what_takes_longer(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=2, epochs=9), "limits={silence: 10m, step: 10m, input: 10m, autotune: 10m}")
    begun = int(cluster.wait_step(job, 5, 120)["last_step"]["step"])
    with Slowed(cluster.rank_pids(job)[1]):
        ended = int(cluster.wait_step(job, begun + 60, 240)["last_step"]["step"])
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    told = metrics(cluster, job, f"names=slowest_rank&ranks=true&points=10000&from={begun + 5}&to={ended - 5}")
    stretches = [one for one in told["ranks"] if begun + 5 <= int(one["first_step"]) <= ended - 5]
    assert len(stretches) >= 10
    # The other one waits for it.
    for seconds, slow in (("own_seconds", 1), ("wait_seconds", 0)):
        of = [statistics.fmean(float(one[seconds][rank]) for one in stretches) for rank in (0, 1)]
        assert of[slow] > 1.5 * of[1 - slow], (seconds, of)
    slowest = [point[3] for point in told["series"][0]["points"]]
    assert slowest.count(1) > len(slowest) * 0.8
