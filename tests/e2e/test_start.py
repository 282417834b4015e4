"""`./run start` and `./run stop`: what the one leaves running, the other ends, all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from harness import BIN, ROOT, free_port, processes_with, wait_for

JOB = """\
name: long
resources: {nodes: 1, ranks_per_node: 1}
grace: 1s
data: {train: /nowhere}
train: {global_batch: 16}
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The programs, with a trainer that trains nothing and never ends by itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("imgd", "imgagent", "imgagent-shim", "imgcli"):
        shutil.copy(BIN / name, folder)
    trainer = folder / "imgtrain"
    trainer.write_text("#!/bin/sh\nwhile :; do sleep 0.2; done\n")
    trainer.chmod(0o755)
    return folder


def script(command: str, programs: Path, port: int, **env: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "IMGD_BIN": str(programs), "IMGD_RUN_DIR": str(programs.parent / "run"),
                 "IMGD_LISTEN": f"127.0.0.1:{port}", **env}  # fmt: skip
    return subprocess.run([ROOT / "scripts/start.sh", command], env=variables, capture_output=True, text=True,
                          timeout=120)  # fmt: skip


def test_stop_ends_every_job_however_many_wait(programs: Path, tmp_path: Path) -> None:
    port = free_port()
    # Where a client looks is no place to listen on.
    started = script("start", programs, port, IMGD_SERVER="imgd.example:7650")
    assert started.returncode == 0, started.stderr
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    cli = [str(programs / "imgcli"), "--server", f"127.0.0.1:{port}"]
    try:
        subprocess.run([*cli, "submit", job, "--set", "priority=5"], check=True, capture_output=True)
        for _ in range(25):
            subprocess.run([*cli, "submit", job], check=True, capture_output=True)
        wait_for("a rank to run", lambda: processes_with(f"{programs}/imgtrain"))
    finally:
        stopped = script("stop", programs, port)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert processes_with(str(tmp_path)) == []


def test_a_daemon_to_try_things_needs_no_root_and_says_what_is_next(tmp_path: Path) -> None:
    port, web_port = free_port(), free_port()
    command = [str(BIN / "imgd"), "--dev", "--listen", f"127.0.0.1:{port}", "--web-listen", f"127.0.0.1:{web_port}"]
    with subprocess.Popen(command, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as daemon:  # fmt: skip
        try:
            assert daemon.stdout
            told = [daemon.stdout.readline() for _ in range(5)]
            assert str(tmp_path / "imgd") in told[0] and f"imgagent --server 127.0.0.1:{port}" in told[1], told
            assert told[4] == f"The dashboard: http://127.0.0.1:{web_port}\n"
            with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/", timeout=10) as page:
                assert b"<html" in page.read()
            assert (tmp_path / "imgd/state.db").exists()
        finally:
            daemon.terminate()
    assert daemon.returncode == 0
