"""Who starts when and where: labels, preemption, quotas. Real processes throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, wait_for
from test_operations import states, step_counts


@pytest.fixture
def zones(tmp_path: Path) -> Iterator[Cluster]:
    """A node in each of two zones. A user has at most two slots, and at most two jobs that wait."""
    (tmp_path / "checkpoints").mkdir()
    config = tmp_path / "imgd.yaml"
    config.write_text("quotas: {user: {devices: 2, queued: 2}}\n")
    with Cluster(tmp_path, server_args=["--config", str(config)]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a", "--label", "zone=x")
        cluster.start_agent("b", "--label", "zone=y", "--label", "capacity=spot")
        yield cluster


@pytest.mark.long
def test_a_job_of_a_higher_priority_gets_the_node_that_it_asks_for(zones: Cluster, make_job: MakeJob) -> None:
    """The one that was there saves, waits for that zone, and loses no step."""
    in_y = "resources.labels={zone: y}"
    low = zones.submit(make_job(nodes=1, epochs=6), in_y, "checkpoint.every_steps=0")
    assert [p["node"] for p in zones.wait_step(low, 12)["placements"]] == ["b"]
    high = zones.submit(make_job(nodes=1, epochs=1), in_y, "name=high", "priority=5")
    needs = "needs 1 node with 1 free device each, labelled zone=y"
    wait_for("the lower one to wait", lambda: needs in zones.job(low)["reason_text"] or None, 30)
    waits = zones.job(low)["reason_text"]
    assert "(high) holds b" in waits
    zones.wait_state(high, "JOB_STATE_COMPLETED")
    done = zones.wait_state(low, "JOB_STATE_COMPLETED")
    assert [p["node"] for p in done["placements"]] == ["b"]
    assert int(done["restarts"]) == 0
    assert step_counts(zones, low) == Counter(range(1, 61)), "a step was done twice or never"
    assert "PREEMPTING" in states(zones, low)
    why = [e["state_change"]["text"] for e in zones.history(low) if e["state_change"]["to"] == "JOB_STATE_PREEMPTING"]
    [text] = why
    assert text.startswith(f"preempted for job {high} (high), whose priority is 5: its own is 0, and of what would "
                           "make room its end loses the least, ")  # fmt: skip
    assert text.endswith(" device-minutes of work; a checkpoint is written first")


def test_a_quota_is_a_reason_to_wait_and_to_refuse(zones: Cluster, make_job: MakeJob) -> None:
    never = zones.submit(make_job(nodes=1, epochs=1), "name=never", "resources.labels={zone: z}")
    assert "labelled zone=z, which no node can give; known: 2 nodes with 1 cpu" in zones.job(never)["reason_text"]
    zones.cli("cancel", str(never))
    running = zones.submit(make_job(nodes=2, epochs=500))
    zones.wait_step(running, 1)
    zones.start_agent("c")
    one = zones.submit(make_job(nodes=1, epochs=1), "name=one")
    wait_for("the quota to be named", lambda: zones.job(one)["reason"] == "REASON_CODE_QUOTA" or None, 10)
    assert "may have 2 devices at once and has 2; it needs 1" in zones.job(one)["reason_text"]
    zones.submit(make_job(nodes=1, epochs=1), "name=two")
    refused = zones.cli("submit", str(make_job(nodes=1, epochs=1)), check=False)
    assert refused.returncode != 0 and "has as many jobs waiting as the quota allows, 2" in refused.stderr
    zones.cli("cancel", str(running))
    zones.wait_state(one, "JOB_STATE_COMPLETED")


POLICIES = """\
policies:
  - name: caps
    text: ask Bob for more
    projects: [vision]
    defaults: {time_limit: 1h}
    at_most: {time_limit: 2h, priority: 5, resources.ranks: 4, sweep.jobs: 2}
    one_of: {data.train: [DATA/*], checkpoint.dir: [/shared/*]}
"""


def test_what_breaks_a_policy_is_refused_with_its_words_now_and_later(make_job: MakeJob, dataset: Path,
                                                                      tmp_path: Path) -> None:  # fmt: skip
    config = tmp_path / "imgd.yaml"
    config.write_text(POLICIES.replace("DATA", str(dataset)))
    vision = ["--set", "project=vision", "--set", "checkpoint.dir=/shared/a"]
    job_file = str(make_job(nodes=1))
    with Cluster(tmp_path, server_args=["--config", str(config)]) as cluster:
        cluster.start_daemon()

        def refused(*sets: str) -> str:
            flags = [word for s in sets for word in ("--set", s)]
            done = cluster.cli("submit", job_file, *vision, *flags, check=False)
            assert done.returncode == 2 and not done.stdout, done
            return done.stderr

        words = "allowed by policy caps (ask Bob for more)"
        assert f"time_limit: is 3h, and at most 2h is {words}" in refused("time_limit=3h")
        assert f"resources.ranks: is 1 to 8, and at most 4 is {words}" in refused("resources.nodes={min: 1, max: 8}")
        assert f"sweep.jobs: is 3, and at most 2 is {words}" in refused("sweep={grid: {seed: [1, 2, 3]}}")
        assert f"data.train: is '{dataset.parent}/x', and {dataset}/* is {words}" in refused(
            f"data.train={dataset}/../x"
        )
        assert f"checkpoint.dir: is '/tmp/c', and /shared/* is {words}" in refused("checkpoint.dir=/tmp/c")
        others = int(cluster.json("submit", job_file, "--set", "time_limit=3h")["id"])
        assert int(cluster.job(others)["time_limit_ms"]) == 3 * 3_600_000, "it is of no project"

        job = cluster.json("submit", job_file, *vision)["id"]
        assert int(cluster.job(int(job))["time_limit_ms"]) == 3_600_000, "the default"
        for what in (["priority", job, "6"], ["extend", job, "90m"], ["extend", job, "--to", "none"]):
            done = cluster.cli(*what, check=False)
            assert done.returncode == 2 and words in done.stderr, done
        assert "time_limit is 150m, and at most 2h" in cluster.cli("extend", job, "90m", check=False).stderr
        cluster.cli("priority", job, "5")
        cluster.cli("extend", job, "1h")
        shown = cluster.job(int(job))
        assert (shown["priority"], int(shown["time_limit_ms"])) == (5, 2 * 3_600_000)
