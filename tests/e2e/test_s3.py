"""A gang whose nodes share no folder, with its checkpoints in a bucket."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import MakeJob
from fake_s3 import BUCKET, FakeS3
from harness import Cluster, wait_for


@pytest.mark.long
def test_a_gang_goes_on_from_a_bucket_and_imgcli_finds_its_checkpoints_by_name(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = FakeS3()
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    try:
        with Cluster(tmp_path) as cluster:
            cluster.start_daemon()
            for node in ("a", "b"):
                cluster.start_agent(node)
            job = cluster.submit(make_job(nodes=2, epochs=3), f"checkpoint.dir=s3://{BUCKET}/ckpt/")
            first = wait_for("a checkpoint", lambda: cluster.job(job).get("last_checkpoint"))
            root = first["path"].rsplit("/", 2)[0]
            assert root.startswith(f"s3://{BUCKET}/ckpt/small-")
            os.kill(cluster.rank_pids(job)[1], signal.SIGKILL)
            cluster.wait_state(job, "JOB_STATE_COMPLETED", seconds=120)
            listed = cluster.json("checkpoints", "small")
            assert listed[0]["folder"] == f"{root}/g2/step30"
            cluster.cli("export", "small", "--to", "torch", "-o", str(tmp_path / "small.pth"))
            assert (tmp_path / "small.pth").read_bytes()[:2] == b"PK"
    finally:
        s3.close()
