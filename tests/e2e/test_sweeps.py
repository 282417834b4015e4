"""Jobs after others, and sweeps that stop their worst. Real processes throughout."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, Json, wait_for


def submit(cluster: Cluster, job: Path, *arguments: str) -> int:
    return int(cluster.json("submit", str(job), *arguments)["id"])


def test_a_job_starts_after_another_and_over_a_restart(cluster: Cluster, make_job: MakeJob) -> None:
    pre = submit(cluster, make_job(nodes=1, epochs=3), "--name", "pre")
    main = submit(cluster, make_job(nodes=2, epochs=1), "--name", "main", "--after", "pre")
    other = submit(cluster, make_job(nodes=1, epochs=1), "--name", "other")
    assert cluster.job(main)["reason_text"] == f"waits for job {pre} (pre) to complete"
    assert f"job {pre} (pre) to complete" in cluster.cli("show", str(main)).stdout
    cluster.wait_state(other, "JOB_STATE_COMPLETED")

    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    done = cluster.wait_state(pre, "JOB_STATE_COMPLETED")
    started = cluster.wait_state(main, "JOB_STATE_COMPLETED")
    assert int(started["started_us"]) >= int(done["ended_us"])


@pytest.mark.long
def test_a_job_whose_other_fails_fails_too_and_one_for_that_case_starts(cluster: Cluster, make_job: MakeJob) -> None:
    # It waits for the first, so that the others are submitted before it fails.
    first = submit(cluster, make_job(nodes=2, epochs=2), "--name", "first")
    bad = submit(cluster, make_job(nodes=1, epochs=1), "--name", "bad", "--set", "data.train=/nowhere",
                 "--after", str(first))  # fmt: skip
    ok = submit(cluster, make_job(nodes=1, epochs=1), "--name", "ok", "--after", "bad")
    tidy = submit(cluster, make_job(nodes=1, epochs=1), "--name", "tidy", "--after", "bad:failed")
    late = submit(cluster, make_job(nodes=1, epochs=1), "--name", "late", "--after", "tidy", "--not-before", "5s")
    failed = wait_for("the job after the bad one to fail",
                      lambda: (j := cluster.job(ok))["state"] == "JOB_STATE_FAILED" and j, 60)  # fmt: skip
    assert failed["reason"] == "REASON_CODE_AFTER_NEVER"
    assert failed["reason_text"] == f"job {bad} (bad) ended as FAILED, and this one was to start only if it completed"
    cluster.wait_state(tidy, "JOB_STATE_COMPLETED")
    done = cluster.wait_state(late, "JOB_STATE_COMPLETED")
    assert int(done["started_us"]) >= int(done["submitted_us"]) + 5_000_000
    refused = cluster.cli("submit", str(make_job(nodes=1, epochs=1)), "--after", "bad", check=False)
    assert refused.returncode != 0 and "has ended as FAILED already" in refused.stderr


def is_out(sweep: Json, job: int) -> bool:
    """By the results that imgd kept: as many others of the sweep are better at a rung as may go on."""
    for rung in sweep["halving"]["rungs"]:
        results = {int(id_): float(value) for id_, value in rung["results"].items()}
        if job not in results:
            continue
        better = sum((value, -id_) > (results[job], -job) for id_, value in results.items())
        if better >= int(rung["kept"]):
            return True
    return False


@pytest.mark.long
def test_a_sweep_stops_its_worst(cluster: Cluster, make_job: MakeJob) -> None:
    # The steps of these are so small that the two that are left nearly stand still.
    sweep = ("sweep={grid: {optimizer.lr: [0.02, 0.05, 1.0e-6, 1.0e-7]}, max_running: 2, "
             "halving: {first: 1, factor: 2}}")  # fmt: skip
    job = make_job(nodes=1, epochs=4)
    dry = cluster.cli("submit", str(job), "--set", sweep, "--dry-run").stdout
    assert "(4 jobs of 1 node with 1 rank each, at most 2 at once)" in dry
    assert "small[3]  optimizer.lr=1.0e-6" in dry
    first = submit(cluster, job, "--set", sweep)
    members = range(first, first + 4)
    cluster.wait_step(first, 1)
    assert cluster.job(first + 3)["reason"] == "REASON_CODE_SWEEP_FULL"
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    ended = {member: cluster.wait_state(member, "JOB_STATE_COMPLETED") for member in members}

    shown = cluster.json("sweep", "small")
    assert [int(j["id"]) for j in shown["jobs"]] == list(members)
    assert [int(rung["epoch"]) for rung in shown["sweep"]["halving"]["rungs"]] == [1, 2]
    assert len(shown["sweep"]["halving"]["rungs"][0]["results"]) == 4
    stopped = [m for m in members if ended[m]["reason"] == "REASON_CODE_HALVED"]
    assert stopped, "nobody was stopped"
    for member in members:
        halved = ended[member]["reason"] == "REASON_CODE_HALVED"
        assert is_out(shown["sweep"], member) or not halved, f"job {member} was stopped though it is among the best"
        if halved:
            assert f"of the 4 of sweep {first} (small)" in ended[member]["reason_text"]
    assert any(ended[m]["reason"] == "REASON_CODE_FINISHED" for m in members)
    for member in members:
        during = [m for m in members if int(ended[m]["started_us"]) <= int(ended[member]["started_us"])
                  < int(ended[m]["ended_us"])]  # fmt: skip
        assert len(during) <= 2, "more ran at once than may"
    table = cluster.cli("sweep", str(first)).stdout
    assert "small[1]" in table and "best" in table
    assert not cluster.processes_of(stopped[0])


def test_a_sweep_is_ended_as_a_whole_and_a_bad_one_is_not_stored(cluster: Cluster, make_job: MakeJob) -> None:
    job = make_job(nodes=1, epochs=500)
    bad = cluster.cli("submit", str(job), "--set", "sweep={grid: {optimizer.lr: [0.1, x]}}", check=False)
    assert bad.returncode != 0 and "sweep member 2 (optimizer.lr=x): optimizer.lr: found 'x'" in bad.stderr
    assert cluster.json("jobs") == []
    first = submit(cluster, job, "--set", "sweep={grid: {seed: [1, 2, 3]}}")
    cluster.wait_step(first, 1)
    assert "3 jobs of sweep" in cluster.cli("cancel", "--sweep", "small").stdout
    for member in range(first, first + 3):
        cluster.wait_state(member, "JOB_STATE_CANCELLED")
    assert len(cluster.json("jobs", "--sweep", "small")) == 3
