"""A job's checkpoints as imgcli finds them: through the daemon, by the job's name."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import MakeJob
from harness import Cluster, wait_for


def test_a_jobs_checkpoints_are_pinned_kept_and_exported_by_its_name(
    cluster: Cluster, make_job: MakeJob, tmp_path: Path
) -> None:
    job = cluster.submit(make_job(nodes=1, epochs=500), "checkpoint.keep=3", "checkpoint.keep_best=0")
    wait_for("a checkpoint", lambda: cluster.job(job).get("last_checkpoint"))
    pinned = cluster.cli("checkpoints", "pin", "small").stdout.split(" is pinned")[0]
    # Enough more that it would be gone.
    step = int(Path(pinned).name.removeprefix("step"))
    cluster.wait_step(job, step + 25)
    cluster.cli("cancel", str(job), "--checkpoint")
    cluster.wait_state(job, "JOB_STATE_CANCELLED", seconds=15)
    listed = cluster.json("checkpoints", str(job))
    assert [c["pinned"] for c in listed] == [False, False, False, True]
    assert listed[-1]["folder"] == pinned
    lineage = json.loads((Path(pinned) / "lineage.json").read_text())
    assert lineage["job"] == {"id": job, "name": "small"}
    assert lineage["generation"] == 1
    out = tmp_path / "small.pth"
    cluster.cli("export", f"small:{step}", "--to", "torch", "-o", str(out))
    assert out.read_bytes()[:4] == b"PK\x03\x04"
    # Its job has ended: the newest is nobody's any more.
    cluster.cli("checkpoints", "delete", "small", "--yes")
    cluster.cli("checkpoints", "unpin", pinned)
    assert [c["pinned"] for c in cluster.json("checkpoints", "small")] == [False, False, False]
