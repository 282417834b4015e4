"""A job survives the death of its ranks, its agents and the daemon, in any order. Real processes throughout."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import FINAL, Cluster, alive, assert_each_step_once, wait_for


def log_numbers(cluster: Cluster, job: int, rank: int) -> list[int]:
    out = cluster.cli("logs", str(job), "--rank", str(rank), "-o", "json").stdout
    return [int(json.loads(line)["line_number"]) for line in out.splitlines()]


def test_kill_9_of_a_rank_in_mid_epoch_resumes_from_the_checkpoint(cluster: Cluster, make_job: MakeJob) -> None:
    # The second checkpoint is far off: the steps between the first one and the death are done twice.
    job = cluster.submit(make_job(epochs=3), "checkpoint.every_steps=12")
    cluster.wait_step(job, 15)
    os.kill(cluster.rank_pids(job)[1], signal.SIGKILL)
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert int(done["generation"]) == 2
    changes = [h["state_change"] for h in cluster.history(job)]
    requeued = [c for c in changes if c["to"] == "JOB_STATE_QUEUED" and c["from"] != "JOB_STATE_UNSPECIFIED"]
    assert [c["reason"] for c in requeued] == ["REASON_CODE_RANK_KILLED"]
    assert "rank 1" in requeued[0]["text"] and "signal 9" in requeued[0]["text"]
    second = [e["step"] for e in cluster.events(job) if "step" in e and int(e["generation"]) == 2]
    assert int(second[0]["step"]) > 12, "the second start did not go on from a checkpoint"
    assert_each_step_once(cluster, job, 30)
    first = {int(e["step"]["step"]): e["step"]["loss"] for e in cluster.events(job)
             if "step" in e and int(e["generation"]) == 1}  # fmt: skip
    repeated = [(first[int(s["step"])], s["loss"]) for s in second if int(s["step"]) in first]
    assert repeated, "no step was done twice: nothing shows that the loss curve continues"
    for before, after in repeated:
        assert after == pytest.approx(before, rel=1e-3), "the loss curve does not continue"


def test_training_goes_on_while_the_daemon_is_dead(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=4))
    cluster.wait_step(job, 5)
    pids = cluster.rank_pids(job)
    watch = cluster.cli_process("watch", str(job))
    assert watch.stdout and watch.stdout.readline()
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    events_file = next((cluster.root / "a/runs").glob("*/events.0"))
    size = events_file.stat().st_size
    wait_for("the trainer to go on", lambda: events_file.stat().st_size > size + 200, 30)
    cluster.start_daemon()
    cluster.wait_step(job, 20)
    assert cluster.rank_pids(job) == pids and all(alive(p) for p in pids.values())
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    shown, _ = watch.communicate(timeout=30)
    assert watch.returncode == 0, shown
    assert "COMPLETED" in shown
    assert int(cluster.job(job)["generation"]) == 1
    assert_each_step_once(cluster, job, 40)


@pytest.mark.long
def test_the_same_trainers_train_on_when_the_agent_dies(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=8))
    cluster.wait_step(job, 5)
    pids = cluster.rank_pids(job)
    for _ in range(3):
        cluster.agents["a"].kill()
        cluster.agents["a"].wait()
        cluster.restart_agent("a")
    assert all(alive(p) for p in pids.values())
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert cluster.rank_pids(job) == pids
    assert_each_step_once(cluster, job, 80)
    numbers = log_numbers(cluster, job, 0)
    assert numbers == list(range(1, len(numbers) + 1)), "log lines are missing or doubled"
    assert len(numbers) > 5


def test_no_log_line_is_lost_or_doubled_whoever_dies(tmp_path: Path, make_job: MakeJob) -> None:
    """A stand-in prints 3,000 numbered lines while the agent and the daemon are killed in turn."""
    talker = tmp_path / "talker"
    talker.write_text(
        "#!/bin/sh\ni=0\nwhile [ $i -lt 3000 ]; do\n"
        "  i=$((i+1)); echo line $i; [ $((i % 10)) -ne 0 ] || sleep 0.02\ndone\n"
    )
    talker.chmod(0o755)
    cluster = Cluster(tmp_path)
    try:
        cluster.start_daemon()
        cluster.start_agent("a", "--trainer", str(talker))
        job = cluster.submit(make_job(nodes=1), "max_restarts=0", "checkpoint.dir=" + str(tmp_path))
        for _ in range(3):
            time.sleep(0.5)  # so that each death comes at another line
            cluster.agents["a"].kill()
            cluster.agents["a"].wait()
            cluster.restart_agent("a")
            assert cluster.daemon
            cluster.daemon.kill()
            cluster.daemon.wait()
            cluster.start_daemon()
        wait_for("the job to end", lambda: cluster.job(job)["state"] in FINAL, 60)
        wait_for("the whole log", lambda: len(log_numbers(cluster, job, 0)) >= 3000, 20)
        out = cluster.cli("logs", str(job), "-o", "json").stdout
        assert [json.loads(line)["text"] for line in out.splitlines()] == [f"line {i}" for i in range(1, 3001)]
    finally:
        cluster.close()


def test_an_acknowledged_job_survives_the_daemons_death(cluster: Cluster, make_job: MakeJob) -> None:
    cluster.agents["a"].terminate()
    cluster.agents["a"].wait()
    job = cluster.submit(make_job(epochs=1))
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    assert cluster.job(job)["state"] == "JOB_STATE_QUEUED"
    cluster.restart_agent("a")
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
