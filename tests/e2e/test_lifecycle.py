"""A job's life and its times: it runs, waits, is cancelled; test_deaths.py has who dies. Real processes throughout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, alive, assert_each_step_once, processes_with, wait_for


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
    child = f"tail -f {stubborn}"
    stubborn.write_text(f"#!/bin/sh\ntrap '' TERM INT\n(setsid {child} &)\nwhile :; do sleep 0.2; done\n")
    stubborn.chmod(0o755)
    cluster = Cluster(tmp_path)
    try:
        cluster.start_daemon()
        cluster.start_agent("a", "--trainer", str(stubborn))
        job = cluster.submit(make_job(nodes=1), "grace=2s")
        wait_for("the trainer to run", lambda: cluster.processes_of(job), 20)
        grandchild = wait_for("its child to run", lambda: processes_with(child), 20)
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

        refused = cluster.cli("node", "forget", victim, check=False)
        assert refused.returncode == 5 and "it is not lost" in refused.stderr
        cluster.agents[victim].kill()
        cluster.agents[victim].wait()
        wait_for("the node to be lost again", lambda: cluster.node_state(victim) == "NODE_STATE_LOST", 20)
        assert f"{victim} is forgotten" in cluster.cli("node", "forget", victim).stdout
        assert cluster.daemon
        cluster.daemon.kill()
        cluster.daemon.wait()
        cluster.start_daemon()
        assert victim not in {node["name"] for node in cluster.json("nodes")}
        cluster.start_agent(victim)
        assert cluster.node_state(victim) == "NODE_STATE_READY"
    finally:
        cluster.close()


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


def test_the_cores_thread_goes_before_all_others_where_it_may(cluster: Cluster) -> None:
    asks = [sys.executable, "-c", "import os; os.setpriority(os.PRIO_PROCESS, 0, -10)"]
    may = subprocess.run(asks, stderr=subprocess.DEVNULL).returncode == 0
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    nice = []
    assert cluster.daemon
    for thread in Path(f"/proc/{cluster.daemon.pid}/task").iterdir():
        with suppress(ProcessLookupError):
            nice.append(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    assert sorted(nice)[:2] == [-10 if may else usual, usual]
