"""What people ask of jobs and nodes while they run: pause and resume, drain. Real processes throughout."""

from __future__ import annotations

from collections import Counter

import pytest
from conftest import MakeJob
from harness import Cluster, Json, wait_for


def step_counts(cluster: Cluster, job: int) -> Counter[int]:
    """How often each step was reported, over all starts."""
    return Counter(int(step["step"]) for step in cluster.steps(job))


def first_step(cluster: Cluster, job: int, generation: int) -> int:
    return min(int(e["step"]["step"]) for e in cluster.events(job)
               if "step" in e and int(e["generation"]) == generation)  # fmt: skip


def states(cluster: Cluster, job: int) -> list[str]:
    out: list[str] = []
    for event in cluster.history(job):
        state = event["state_change"]["to"].removeprefix("JOB_STATE_")
        if not out or out[-1] != state:
            out.append(state)
    return out


def node(cluster: Cluster, name: str) -> Json:
    return next(n for n in cluster.json("nodes") if n["name"] == name)


@pytest.mark.long
def test_a_paused_job_frees_its_nodes_and_goes_on_with_the_next_step(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=4), "checkpoint.every_steps=0")
    cluster.wait_step(job, 12)
    said = cluster.cli("pause", str(job), "--wait").stdout
    paused = cluster.job(job)
    assert paused["state"] == "JOB_STATE_PAUSED"
    saved = int(paused["last_checkpoint"]["step"])
    assert saved >= 12
    assert f"goes on from the checkpoint of step {saved}" in said and "lost" not in said
    assert all(int(d["job_id"]) == 0 for n in cluster.json("nodes") for d in n["devices"])
    wait_for("no process of the job to be left", lambda: not cluster.processes_of(job), 10)
    again = cluster.cli("pause", str(job), check=False)
    assert again.returncode == 5 and "is paused already" in again.stderr

    other = cluster.submit(make_job(epochs=1), "name=other")
    cluster.wait_state(other, "JOB_STATE_COMPLETED")
    assert cluster.job(job)["state"] == "JOB_STATE_PAUSED"

    cluster.cli("resume", str(job))
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert int(done["generation"]) == 2 and int(done["restarts"]) == 0
    assert first_step(cluster, job, 2) == saved + 1
    assert step_counts(cluster, job) == Counter(range(1, 41)), "a step was done twice or never"
    assert states(cluster, job) == ["QUEUED", "STARTING", "RUNNING", "PREEMPTING", "PAUSED", "QUEUED", "STARTING",
                                    "RUNNING", "COMPLETED"]  # fmt: skip
    told = cluster.cli("events", "--job", str(job)).stdout
    assert "paused by " in told and "resumed by " in told


@pytest.mark.long
def test_a_moved_job_goes_on_elsewhere_and_keeps_its_longer_limit(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=1, epochs=3), "checkpoint.every_steps=0", "time_limit=2h")
    cluster.wait_step(job, 12)
    here = cluster.job(job)["placements"][0]["node"]
    assert "3h00m" in cluster.cli("extend", str(job), "1h").stdout
    cluster.cli("move", str(job))
    wait_for("the job to be elsewhere", lambda: int(cluster.job(job)["generation"]) == 2, 60)
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [p["node"] for p in done["placements"]] == list({"a", "b"} - {here})
    assert int(done["time_limit_ms"]) == 3 * 3600 * 1000
    assert int(done["generation"]) == 2 and int(done["restarts"]) == 0
    assert step_counts(cluster, job) == Counter(range(1, 31)), "a step was done twice or never"


def test_a_drained_nodes_job_moves_to_the_other_node(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=1, epochs=3), "checkpoint.every_steps=0")
    cluster.wait_step(job, 12)
    drained = cluster.job(job)["placements"][0]["node"]
    (other,) = {"a", "b"} - {drained}
    said = cluster.cli("node", "drain", drained, "--reason", "bad fan", "--wait").stdout
    assert f"{drained} is drained and empty" in said
    assert node(cluster, drained)["set_aside"]["empty"] is True

    big = cluster.submit(make_job(nodes=2, epochs=1), "name=big")
    wait_for("the reason to name the node",
             lambda: f"node {drained} is drained by" in cluster.job(big)["reason_text"], 10)  # fmt: skip
    assert "bad fan" in cluster.job(big)["reason_text"]

    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    wait_for("the node to be back", lambda: node(cluster, drained)["set_aside"]["empty"], 20)

    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [p["node"] for p in done["placements"]] == [other]
    assert int(done["restarts"]) == 0
    assert step_counts(cluster, job) == Counter(range(1, 31)), "a step was done twice or never"
    assert cluster.job(big)["state"] == "JOB_STATE_QUEUED"
    cluster.cli("node", "undrain", drained)
    cluster.wait_state(big, "JOB_STATE_COMPLETED")

    shown = cluster.json("node", "show", drained)
    assert [int(run["job_id"]) for run in shown["runs"]] == [big, job]
    assert "is drained by" in shown["runs"][1]["ended_text"]
    # A slow machine may find the node out of reach while the daemon restarts.
    reach = {"NODE_SILENT", "NODE_HEARD"}
    reasons = [e["reason"].removeprefix("REASON_CODE_") for e in shown["events"] if e["node"]]
    reasons = [reason for reason in reasons if reason not in reach]
    assert reasons == ["NODE_JOINED", "SET_ASIDE_BY_USER", "NODE_EMPTY", "RETURNED_BY_USER"]
