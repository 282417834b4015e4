"""The dashboard of a real daemon, in a real browser, while a real job runs on two ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from gpus import ILL, gpu_agent
from harness import BIN, CHROMIUM, NODE, ROOT, Cluster, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon with plain HTTP and two agents."""
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, server_args=["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        cluster.start_agent("b")
        yield cluster


def end_daemon(cluster: Cluster) -> None:
    assert cluster.daemon
    cluster.daemon.terminate()
    cluster.daemon.wait(10)


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium: apt-get install chromium, or IMGD_CHROMIUM")
@pytest.mark.skipif(not NODE.exists(), reason="there is no Node.js: ./run setup")
@pytest.mark.skipif(not (BIN / "imgtrain").exists(), reason="there is no imgtrain: ./run build")
def test_a_job_from_its_submission_to_its_end(cluster: Cluster, make_job: MakeJob) -> None:
    """web/test/live.ts submits, watches, cancels and compares; the daemon is away meanwhile."""
    job = make_job(nodes=2, epochs=200)
    script = subprocess.Popen(
        [NODE, ROOT / "web/test/live.ts", f"http://{cluster.host}:{cluster.web_port}", job],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "IMGD_CHROMIUM": str(CHROMIUM)})  # fmt: skip
    assert script.stdin
    assert script.stdout
    done = []
    try:
        for line in script.stdout:
            done.append(line.strip())
            if done[-1] == "stop the daemon":
                # It waits for the devices of the first, and runs when that is cancelled.
                cluster.submit(job, "name=other", "optimizer.lr=0.05", "train.epochs=1", "resources.nodes=1")
                end_daemon(cluster)
            elif done[-1] == "start the daemon":
                cluster.start_daemon()
            script.stdin.write("done\n")
            script.stdin.flush()
        assert script.wait(20) == 0, script.stderr.read() if script.stderr else ""
    finally:
        script.kill()
        script.wait()
    assert done == ["stop the daemon", "start the daemon"]
    first = cluster.job(1)
    assert (first["state"], first["owner"]) == ("JOB_STATE_CANCELLED", "ada")
    assert int(first["generation"]) == 1, "it went on while the daemon was away"
    assert cluster.history(1)[-1]["state_change"]["text"] == "cancelled by ada"


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium: apt-get install chromium, or IMGD_CHROMIUM")
@pytest.mark.skipif(not NODE.exists(), reason="there is no Node.js: ./run setup")
def test_what_ails_a_gpu_is_told_on_the_page(cluster: Cluster) -> None:
    """From NVML by agent and imgd to the browser: a GPU that is throttled, one with an Xid, one that can't be read."""
    gpu_agent(cluster, "ill", ILL)

    def read() -> bool:
        devices = next(n for n in cluster.json("nodes") if n["name"] == "ill")["devices"]
        return len(devices) == 8 and any(d.get("reading", {}).get("xid") == 79 for d in devices)

    wait_for("the readings", read, 30)
    done = subprocess.run(
        [NODE, ROOT / "web/test/gpus.ts", f"http://{cluster.host}:{cluster.web_port}", "ill"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "IMGD_CHROMIUM": str(CHROMIUM)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["notes"]) == 8
    assert "held back by heat" in told["notes"][0]
    assert "Xid 79" in told["notes"][2]
    assert "power" in told["notes"][3]
    assert [told["notes"][i] for i in (1, 5, 6, 7)] == [""] * 4
    assert told["cells"] >= 3
    shown = cluster.cli("node", "show", "ill").stdout
    assert re.search(r"^  device 3 +power can't be read: ", shown, re.M), "as the runbook of GpuReadingFails says"
    assert re.findall(r"^  device (\d)", shown, re.M) == ["0", "2", "3"]
