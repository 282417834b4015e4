"""A gang that grows and shrinks with the nodes that there are. Real processes throughout."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, Json, processes_with, wait_for
from test_operations import first_step, step_counts

STEPS = 110


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon that gives nodes up soon, and node a."""
    (tmp_path / "checkpoints").mkdir()
    config = tmp_path / "imgd.yaml"
    config.write_text("heartbeat: 500ms\nlost_after: 5s\n")
    with Cluster(tmp_path, server_args=["--config", str(config)]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        yield cluster


def wait_start(cluster: Cluster, job: int, generation: int, nodes: list[str]) -> Json:
    """That start trains, on these nodes."""

    def probe() -> Json | None:
        shown = cluster.job(job)
        return shown if int(shown["generation"]) >= generation and shown["state"] == "JOB_STATE_RUNNING" else None

    shown = wait_for(f"start {generation} of the job", probe, 60)
    assert int(shown["generation"]) == generation
    assert [p["node"] for p in shown["placements"]] == nodes
    return shown


def kill_node(cluster: Cluster, name: str) -> None:
    """All that is on it at once, as when its power is cut."""
    cluster.agents[name].kill()
    for pid in processes_with(f"{cluster.root}/{name}/runs/"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.agents[name].wait()


def texts(cluster: Cluster, job: int, reason: str) -> list[str]:
    changes = [event["state_change"] for event in cluster.history(job)]
    return [c["text"] for c in changes if c["reason"] == reason and c["to"] != "JOB_STATE_QUEUED"]


@pytest.mark.long
def test_it_grows_when_a_node_joins_and_shrinks_when_that_one_dies(one_node: Cluster, make_job: MakeJob) -> None:
    elastic = ("resources.nodes={min: 1, max: 2}", "resources.resize_interval=2s")
    said = one_node.cli("submit", "--dry-run", str(make_job(nodes=1)), "--set", elastic[0]).stdout
    assert "it needs 1 to 2 nodes with 1 rank each" in said
    job = one_node.submit(make_job(nodes=1, epochs=STEPS // 10), *elastic, "grace=2s")
    wait_start(one_node, job, 1, ["a"])
    assert "1 to 2 nodes with 1 rank each; 1 node now" in one_node.cli("show", str(job)).stdout
    one_node.wait_step(job, 3)

    one_node.start_agent("b")
    grown = wait_start(one_node, job, 2, ["a", "b"])
    saved = int(grown["last_checkpoint"]["step"])
    assert first_step(one_node, job, 1) == 1
    one_node.wait_step(job, saved + 7)
    assert first_step(one_node, job, 2) == saved + 1
    assert step_counts(one_node, job).most_common(1)[0][1] == 1, "to grow costs no step"
    assert set(one_node.rank_pids(job)) == {0, 1}
    assert "1 (1-2)" not in one_node.cli("jobs").stdout and "2 (1-2)" in one_node.cli("jobs").stdout

    kill_node(one_node, "b")
    shrunk = wait_start(one_node, job, 3, ["a"])
    kept = int(shrunk["last_checkpoint"]["step"])
    assert shrunk["nodes_now"] == 1 and shrunk["nodes"] == 1 and shrunk["max_nodes"] == 2
    done = one_node.wait_state(job, "JOB_STATE_COMPLETED", seconds=240)
    assert int(done["generation"]) == 3
    assert first_step(one_node, job, 3) == kept + 1
    again = step_counts(one_node, job)
    assert set(again) == set(range(1, STEPS + 1)), "a step was never done"
    once = {step for step, count in again.items() if count == 1}
    assert once >= set(range(1, kept + 1)), "only what came after the last checkpoint was done again"
    assert Counter(again.values()).keys() <= {1, 2}

    assert texts(one_node, job, "REASON_CODE_GROWS") == [
        "is to go on with 2 nodes instead of 1: node b is free; a checkpoint is written first"
    ]
    resized = texts(one_node, job, "REASON_CODE_RESIZED")
    assert [text.split(";")[0] for text in resized] == [
        "goes on with 2 nodes instead of 1: node b is free",
        "goes on with 1 node instead of 2: node b is lost",
    ]
    assert int(done["restarts"]) == 1, "of the lost node, and not of the growing"
