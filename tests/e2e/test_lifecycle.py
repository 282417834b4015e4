"""A job's life: it runs, waits, is cancelled, survives every kind of death. Real processes throughout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import FINAL, Cluster, alive, processes_with, wait_for


def assert_each_step_once(cluster: Cluster, job: int, total: int) -> None:
    """Of the last generation that did it, every step was reported, and none twice in one generation."""
    seen: dict[tuple[int, int], int] = {}
    for event in cluster.events(job):
        if "step" in event:
            key = (int(event["generation"]), int(event["step"]["step"]))
            seen[key] = seen.get(key, 0) + 1
    assert max(seen.values()) == 1, "a step was reported twice in one generation"
    assert {step for _, step in seen} == set(range(1, total + 1)), "steps are missing"


def log_numbers(cluster: Cluster, job: int, rank: int) -> list[int]:
    out = cluster.cli("logs", str(job), "--rank", str(rank), "-o", "json").stdout
    return [int(json.loads(line)["line_number"]) for line in out.splitlines()]


def test_a_job_runs_on_two_agents_to_its_end(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=2))
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert int(done["last_epoch"]["val_images"]) == 40
    assert {p["node"] for p in done["placements"]} == {"a", "b"}
    assert_each_step_once(cluster, job, 20)
    states = [h["state_change"]["to"] for h in cluster.history(job)]
    assert states == ["JOB_STATE_QUEUED", "JOB_STATE_STARTING", "JOB_STATE_RUNNING", "JOB_STATE_COMPLETED"]
    assert all(int(d["job_id"]) == 0 for n in cluster.json("nodes") for d in n["devices"])
    wait_for("no process of the job to be left", lambda: not cluster.processes_of(job), 10)


def test_kill_9_of_a_rank_in_mid_epoch_resumes_from_the_checkpoint(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=5))
    cluster.wait_step(job, 13)
    os.kill(cluster.rank_pids(job)[1], signal.SIGKILL)
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert int(done["generation"]) == 2
    changes = [h["state_change"] for h in cluster.history(job)]
    requeued = [c for c in changes if c["to"] == "JOB_STATE_QUEUED" and c["from"] != "JOB_STATE_UNSPECIFIED"]
    assert [c["reason"] for c in requeued] == ["REASON_CODE_RANK_KILLED"]
    assert "rank 1" in requeued[0]["text"] and "signal 9" in requeued[0]["text"]
    second = [e["step"] for e in cluster.events(job) if "step" in e and int(e["generation"]) == 2]
    assert int(second[0]["step"]) > 10, "the second start did not go on from a checkpoint"
    assert_each_step_once(cluster, job, 50)
    first = {int(e["step"]["step"]): e["step"]["loss"] for e in cluster.events(job)
             if "step" in e and int(e["generation"]) == 1}  # fmt: skip
    repeated = [(first[int(s["step"])], s["loss"]) for s in second if int(s["step"]) in first]
    for before, after in repeated:
        assert after == pytest.approx(before, rel=0.02), "the loss curve does not continue"


def test_training_goes_on_while_the_daemon_is_dead(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=8))
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
    cluster.wait_step(job, 30)
    assert cluster.rank_pids(job) == pids and all(alive(p) for p in pids.values())
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    shown, _ = watch.communicate(timeout=30)
    assert watch.returncode == 0, shown
    assert "COMPLETED" in shown
    assert int(cluster.job(job)["generation"]) == 1
    assert_each_step_once(cluster, job, 80)


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


def test_cancel_in_mid_step_frees_the_slots_within_2_seconds(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500))
    cluster.wait_step(job, 3)
    pids = cluster.rank_pids(job)
    begun = time.monotonic()
    cluster.cli("cancel", str(job))
    cluster.wait_state(job, "JOB_STATE_CANCELLED", seconds=2)
    assert time.monotonic() - begun <= 2
    assert not any(alive(p) for p in pids.values())
    assert all(int(d["job_id"]) == 0 for n in cluster.json("nodes") for d in n["devices"])
    wait_for("no process of the job to be left", lambda: not cluster.processes_of(job), 5)


def test_cancel_with_checkpoint_saves_first(cluster: Cluster, make_job: MakeJob, tmp_path: Path) -> None:
    job = cluster.submit(make_job(epochs=500), "checkpoint.every_steps=0")
    cluster.wait_step(job, 3)
    cluster.cli("cancel", str(job), "--checkpoint")
    cluster.wait_state(job, "JOB_STATE_CANCELLED", seconds=15)
    saved = cluster.job(job)["last_checkpoint"]
    assert (Path(saved["path"]) / "manifest.json").exists()
    assert int(saved["step"]) >= 3


def test_cancel_of_a_trainer_that_ignores_sigterm(tmp_path: Path, make_job: MakeJob) -> None:
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM INT\n(setsid sleep 997 &)\nwhile :; do sleep 0.2; done\n")
    stubborn.chmod(0o755)
    cluster = Cluster(tmp_path)
    try:
        cluster.start_daemon()
        cluster.start_agent("a", "--trainer", str(stubborn))
        job = cluster.submit(make_job(nodes=1), "grace=2s")
        wait_for("the trainer to run", lambda: cluster.processes_of(job), 20)
        grandchild = wait_for("its child to run", lambda: processes_with("sleep 997"), 20)
        begun = time.monotonic()
        cluster.cli("cancel", str(job))
        cluster.wait_state(job, "JOB_STATE_CANCELLED", seconds=4)
        assert 1.5 <= time.monotonic() - begun <= 4
        assert not cluster.processes_of(job)
        assert not any(alive(p) for p in grandchild)
    finally:
        cluster.close()


@pytest.mark.long
def test_a_second_job_waits_says_why_and_starts_by_itself(cluster: Cluster, make_job: MakeJob) -> None:
    first = cluster.submit(make_job(epochs=6), "name=first")
    second = cluster.submit(make_job(epochs=1), "name=second")
    cluster.wait_state(first, "JOB_STATE_RUNNING")
    waiting = cluster.job(second)
    assert waiting["state"] == "JOB_STATE_QUEUED"
    assert waiting["reason"] in ("REASON_CODE_WAITS_FOR_DEVICES", "REASON_CODE_WAITS_BEHIND_JOB")
    assert "2 nodes" in waiting["reason_text"] and "first" in waiting["reason_text"]
    assert waiting["reason_text"] in cluster.cli("show", str(second)).stdout.replace("\n", " ")
    cluster.wait_state(second, "JOB_STATE_COMPLETED")
    assert cluster.job(first)["state"] == "JOB_STATE_COMPLETED"


def test_a_lost_node_gets_nothing_until_its_ranks_are_gone(tmp_path: Path, make_job: MakeJob) -> None:
    (tmp_path / "checkpoints").mkdir()
    config = tmp_path / "imgd.yaml"
    config.write_text("heartbeat: 300ms\nlost_after: 3s\n")
    cluster = Cluster(tmp_path, server_args=["--config", str(config)])
    try:
        cluster.start_daemon()
        for name in ("a", "b", "c"):
            cluster.start_agent(name)
        job = cluster.submit(make_job(epochs=8))
        cluster.wait_step(job, 5)
        victim = cluster.job(job)["placements"][1]["node"]
        pid = cluster.rank_pids(job)[1]
        cluster.agents[victim].send_signal(signal.SIGSTOP)
        wait_for("the node to be lost", lambda: cluster.node_state(victim) == "NODE_STATE_LOST", 20)
        wait_for("the gang to start elsewhere", lambda: int(cluster.job(job)["generation"]) >= 2, 30)
        assert victim not in {
            p["node"] for p in cluster.wait_state(job, "JOB_STATE_RUNNING", "JOB_STATE_COMPLETED")["placements"]
        }
        cluster.agents[victim].send_signal(signal.SIGCONT)
        wait_for("the old rank to be gone", lambda: not alive(pid), 20)
        wait_for("the node to be ready", lambda: cluster.node_state(victim) == "NODE_STATE_READY", 20)
        cluster.wait_state(job, "JOB_STATE_COMPLETED")
    finally:
        cluster.close()


def test_an_acknowledged_job_survives_the_daemons_death(cluster: Cluster, make_job: MakeJob) -> None:
    cluster.agents["a"].terminate()
    cluster.agents["a"].wait()
    job = cluster.submit(make_job())
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    assert cluster.job(job)["state"] == "JOB_STATE_QUEUED"
    cluster.restart_agent("a")
    cluster.wait_state(job, "JOB_STATE_COMPLETED")


def test_watch_can_be_piped_and_interrupted(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500))
    cluster.wait_step(job, 2)
    watch = cluster.cli_process("watch", str(job))
    assert watch.stdout
    assert watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    rest, _ = watch.communicate(timeout=10)
    assert watch.returncode == 130 and "goes on" in rest
    head = subprocess.run(f"{cluster_cli(cluster)} watch {job} | head -n 1", shell=True, capture_output=True, text=True,
                          timeout=20)  # fmt: skip
    assert head.stdout.count("\n") == 1 and not head.stderr
    cluster.cli("cancel", str(job))


def cluster_cli(cluster: Cluster) -> str:
    from harness import BIN

    return f"{BIN / 'imgcli'} --server {cluster.address}"
