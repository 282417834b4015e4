"""TensorBoard of a job through the daemon: `imgcli forward JOB tensorboard`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, processes_with, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon that allows sessions, and an agent."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\nshell: true\n")
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        yield cluster


def restart_agent(cluster: Cluster, program: Path | str) -> None:
    """With that TensorBoard."""
    cluster.agents["a"].terminate()
    cluster.agents["a"].wait()
    (cluster.root / "agent.yaml").write_text(f"tensorboard: {program}\n")
    cluster.start_agent("a", "--config", str(cluster.root / "agent.yaml"))


def run_job(cluster: Cluster) -> int:
    path = cluster.root / "job.yaml"
    path.write_text("name: sleeper\ncommand: {run: 'sleep 600'}\n")
    job = int(cluster.json("submit", str(path))["id"])
    cluster.wait_state(job, "JOB_STATE_RUNNING")
    return job


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body: bytes = answer.read()
    return body


TENSORBOARD = f"""#!{sys.executable}
import http.server, sys
assert sys.argv[1] == "--logdir" and sys.argv[3:5] == ["--host", "127.0.0.1"] and sys.argv[5] == "--port"
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("shows " + sys.argv[2]).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[6])), Handler).serve_forever()
"""


def test_tensorboard_of_a_job_is_started_on_its_node_and_ended_with_the_forward(cluster: Cluster) -> None:
    program = cluster.root / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text(TENSORBOARD)
    program.chmod(0o755)
    job = run_job(cluster)
    none = cluster.cli("forward", str(job), "tensorboard", check=False)
    assert (none.returncode, "there is no TensorBoard on the node" in none.stderr) == (5, True)

    cluster.cli("cancel", str(job), "--wait")
    restart_agent(cluster, program)
    job = run_job(cluster)
    forward = cluster.cli_process("forward", str(job), "tensorboard", "--port", "0")
    assert forward.stdout
    shown = [forward.stdout.readline() for _ in range(2)][1]
    assert "TensorBoard of" in shown
    assert get(shown.split()[0]).decode().startswith(f"shows {cluster.root}/checkpoints/")
    forward.send_signal(signal.SIGINT)
    assert forward.wait(20) == 130
    wait_for("TensorBoard to end", lambda: not processes_with(str(program)))

    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    broken = cluster.cli("forward", str(job), "tensorboard", check=False)
    assert (broken.returncode, "it is broken" in broken.stderr) == (5, True)


def installed_tensorboard() -> str | None:
    """On this machine, or beside the Python that runs the tests."""
    return (os.environ.get("IMGD_TENSORBOARD") or shutil.which("tensorboard")
            or shutil.which("tensorboard", path=Path(sys.executable).parent))  # fmt: skip


def test_the_real_tensorboard_shows_what_a_job_trained(cluster: Cluster, make_job: MakeJob) -> None:
    program = installed_tensorboard()
    if program is None:
        pytest.skip("TensorBoard is not installed (pip install tensorboard; IMGD_TENSORBOARD names it)")
    restart_agent(cluster, program)
    job = cluster.submit(make_job(nodes=1, epochs=50))
    cluster.wait_step(job, 10)
    forward = cluster.cli_process("forward", str(job), "tensorboard", "--port", "0")
    assert forward.stdout
    url = [forward.stdout.readline() for _ in range(2)][1].split()[0]

    def tags() -> list[str]:
        runs: dict[str, dict[str, object]] = json.loads(get(f"{url}data/plugin/scalars/tags"))
        return [tag for run in runs.values() for tag in run]

    wait_for("the curve of the loss", lambda: any("loss" in tag for tag in tags()), 60)
    forward.send_signal(signal.SIGINT)
    assert forward.wait(20) == 130
    cluster.cli("cancel", str(job), "--wait")
