"""Whose fault a failure is: the job's, a node's, nobody's. Real daemons and agents; stand-ins for ranks that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from gpus import WELL, gpu_agent
from harness import Cluster, Json, wait_for

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """A daemon whose configuration has these lines; agents are the test's own."""
    (tmp_path / "checkpoints").mkdir()
    clusters: list[Cluster] = []

    def start(config: str = "") -> Cluster:
        (tmp_path / "imgd.yaml").write_text(config)
        cluster = Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")])
        clusters.append(cluster)
        cluster.start_daemon()
        return cluster

    yield start
    for cluster in clusters:
        print(cluster.tails())
        cluster.close()


def failing(folder: Path, name: str, line: str, code: int = 1) -> Path:
    """A trainer that says something and that line, and fails."""
    program = folder / name
    program.write_text(f"#!/bin/sh\necho reading images\necho '{line}, in process '$$ >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


def node(cluster: Cluster, name: str) -> Json:
    return next(n for n in cluster.json("nodes") if n["name"] == name)


def codes(cluster: Cluster, *args: str) -> list[str]:
    out = cluster.cli("events", "-o", "json", *args).stdout
    return [part.split('"')[0] for part in out.split('"REASON_CODE_')[1:]]


def test_a_job_that_crashes_the_same_way_three_times_running_ends(
    start_cluster: MakeCluster, make_job: MakeJob, tmp_path: Path
) -> None:
    cluster = start_cluster()
    trainer = failing(tmp_path, "trainer", "IndexError: label 1000 is out of range")
    for name in ("a", "b"):
        cluster.start_agent(name, "--trainer", str(trainer))
    job = cluster.submit(make_job(nodes=1), "max_restarts=50")
    wait_for("the second start", lambda: int(cluster.job(job)["generation"]) >= 2, 30)
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    done = cluster.wait_state(job, "JOB_STATE_FAILED", seconds=60)
    assert done["reason"] == "REASON_CODE_SAME_PLACE"
    assert int(done["generation"]) == 3 and int(done["restarts"]) == 2
    assert "failed 3 times running in the same place without a checkpoint between, on a, b, so" in done["reason_text"]
    assert "IndexError: label 1000 is out of range" in done["reason_text"]
    placed = [
        h["state_change"]["text"] for h in cluster.history(job) if h["state_change"]["to"] == "JOB_STATE_STARTING"
    ]
    assert [text.split()[2].rstrip(";") for text in placed] == ["a", "a", "b"], "a sick node would have ended it"
    assert not node(cluster, "a").get("struck_by"), "it failed on another node too"


@pytest.mark.long
def test_a_node_where_three_jobs_fail_is_set_aside_and_comes_back_by_hand(
    start_cluster: MakeCluster, make_job: MakeJob, tmp_path: Path
) -> None:
    cluster = start_cluster()
    cluster.start_agent("a", "--trainer", str(failing(tmp_path, "broken", "wrong answer from the GPU")))
    cluster.start_agent("b")
    jobs = []
    for name in ("one", "two", "three"):
        assert not node(cluster, "a").get("set_aside")
        job = cluster.submit(make_job(nodes=1, epochs=1), f"name={name}")
        done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
        assert [p["node"] for p in done["placements"]] == ["b"]
        jobs.append(job)
    aside = wait_for("node a to be set aside", lambda: node(cluster, "a").get("set_aside"), 10)
    assert aside["by_imgd"] is True
    named = f"{jobs[0]} (one), {jobs[1]} (two), {jobs[2]} (three)"
    assert f"3 different jobs failed there in a row: {named}" in aside["reason"]
    assert "set aside" in cluster.cli("nodes").stdout
    assert "SET_ASIDE_BY_IMGD" in codes(cluster, "--node", "a")
    four = cluster.submit(make_job(nodes=1, epochs=1), "name=four")
    assert int(cluster.wait_state(four, "JOB_STATE_COMPLETED")["generation"]) == 1, "it never was on the broken node"
    cluster.cli("node", "undrain", "a")
    assert "set_aside" not in node(cluster, "a") and not node(cluster, "a").get("struck_by")


def test_the_operators_pattern_ends_a_job_and_a_built_in_one_sets_a_node_aside(
    start_cluster: MakeCluster, make_job: MakeJob, tmp_path: Path
) -> None:
    cluster = start_cluster(
        "log_patterns:\n  - name: licence\n    match: 'licence server .* refused'\n    action: no_retry\n"
        "    label: nobody has paid\n"
    )
    cluster.start_agent("a", "--trainer", str(failing(tmp_path, "paid", "licence server lic-1 refused us", 3)))
    job = cluster.submit(make_job(nodes=1))
    done = cluster.wait_state(job, "JOB_STATE_FAILED", seconds=30)
    assert done["reason"] == "REASON_CODE_LOG_PATTERN" and int(done["generation"]) == 1
    text = done["reason_text"]
    assert 'its log says "licence server lic-1 refused us, in process' in text
    assert text.endswith(": nobody has paid (pattern licence); it is not tried again")
    assert done["rank_exits"][0]["match"]["pattern"] == "licence"
    assert not node(cluster, "a").get("struck_by"), "the node has no part in it"

    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    gpu_agent(cluster, "b", WELL, "--trainer", str(failing(tmp_path, "ecc", ecc)))
    cluster.cli("node", "cordon", "a")
    job = cluster.submit(make_job(nodes=1, epochs=1), "max_restarts=0")
    wait_for("node b to be set aside", lambda: "set_aside" in node(cluster, "b"), 30)
    cluster.start_agent("c")
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [p["node"] for p in done["placements"]] == ["c"]
    requeued = next(h["state_change"]["text"] for h in cluster.history(job)
                    if h["state_change"]["reason"] == "REASON_CODE_RANK_FAILED")  # fmt: skip
    assert "the memory of a GPU is broken (pattern ecc); node b is set aside" in requeued
    assert "pattern ecc" in node(cluster, "b")["reason_text"]


def test_what_a_rank_without_a_gpu_says_of_gpus_is_its_own_fault(
    start_cluster: MakeCluster, make_job: MakeJob, tmp_path: Path
) -> None:
    cluster = start_cluster()
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    for name in "ab":
        cluster.start_agent(name, "--trainer", str(failing(tmp_path, "ecc", ecc)))
    job = cluster.submit(make_job(nodes=1), "max_restarts=0")
    assert "pattern" not in cluster.wait_state(job, "JOB_STATE_FAILED")["reason_text"]
    assert "set_aside" not in node(cluster, "a") and "set_aside" not in node(cluster, "b")


def test_a_sick_node_gets_nothing_until_it_is_well(
    start_cluster: MakeCluster, make_job: MakeJob, tmp_path: Path
) -> None:
    cluster = start_cluster()
    strict = tmp_path / "agent.yaml"
    strict.write_text("health: {min_disk_free_mib: 1000000000}\n")
    cluster.start_agent("a", "--config", str(strict))
    assert node(cluster, "a")["problems"][0]["kind"] == "PROBLEM_KIND_DISK"
    assert "sick" in cluster.cli("nodes").stdout
    job = cluster.submit(make_job(nodes=1, epochs=1))
    wait_for("the reason to name the disk", lambda: "node a is sick: it has" in cluster.job(job)["reason_text"], 10)
    cluster.agents["a"].terminate()
    cluster.agents["a"].wait()
    strict.write_text("")
    cluster.restart_agent("a")
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [c for c in codes(cluster, "--node", "a") if c.startswith("NODE_") and c != "NODE_SILENT"][:3] == [
        "NODE_JOINED", "NODE_SICK", "NODE_WELL"]  # fmt: skip


def test_a_gpu_that_is_broken_or_taken_by_others_keeps_gangs_off_its_node(
    start_cluster: MakeCluster, make_job: MakeJob
) -> None:
    cluster = start_cluster()
    gpu_agent(cluster, "broken", WELL + "xid 1 79\n")
    gpu_agent(cluster, "taken", WELL + f"memory * {80 << 30} {60 << 30}\n")
    job = cluster.submit(make_job(nodes=1, epochs=1))
    wait_for("the reason to name both", lambda: cluster.job(job)["reason_text"].count("is sick") == 2, 10)
    reason = cluster.job(job)["reason_text"]
    assert "GPU 1 reported Xid 79" in reason
    assert "GPU 0 has 60.00 GiB of its 80.00 GiB of memory in use by what is no run of imgd's" in reason
    assert [p["kind"] for n in ("broken", "taken") for p in node(cluster, n)["problems"]] == ["PROBLEM_KIND_GPU"] * 2
    assert cluster.job(job)["state"] == "JOB_STATE_QUEUED"
