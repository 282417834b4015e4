"""`imgcli profile` on a running job."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import MakeJob
from harness import Cluster


def test_a_rank_of_a_running_job_is_profiled_and_the_job_goes_on(
    cluster: Cluster, make_job: MakeJob, tmp_path: Path
) -> None:
    job = cluster.submit(make_job(epochs=500))
    cluster.wait_step(job, 2)
    trace = tmp_path / "trace.json"
    shown = cluster.cli("profile", str(job), "--rank", "1", "--steps", "3", "-o", str(trace)).stdout
    assert shown.startswith("3 steps from step ")
    assert "communication" in shown and "convolution" in shown
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event.get("name") == "imgtrain: forward" and event.get("ph") == "X" for event in events) == 3
    (profile,) = [event["profile"] for event in cluster.events(job) if "profile" in event]
    assert profile["rank"] == 1
    assert cluster.wait_step(job, int(profile["step"]) + 2)

    none = cluster.cli("profile", str(job), "--rank", "2", check=False)
    assert (none.returncode, "has ranks 0 to 1; found 2" in none.stderr) == (3, True)
    cluster.cli("cancel", str(job), "--wait")
    ended = cluster.cli("profile", str(job), check=False)
    assert ended.returncode == 5
    assert "does not run now: it is CANCELLED" in ended.stderr
