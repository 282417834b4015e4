"""`./run start` and `./run stop`: what the one leaves running, the other ends, all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, ROOT, free_port, processes_with, wait_for

NOBODY = (65534, 65534)
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


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of nobody's, out of pytest's own, which only its user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, *NOBODY)
        yield Path(folder)


def test_a_daemon_to_try_things_needs_no_root_and_says_what_is_next(home: Path) -> None:
    port, web_port = free_port(), free_port()
    program = shutil.copy(BIN / "imgd", home / "program")  # where the build is, nobody may not look
    command = [program, "--dev", "--listen", f"127.0.0.1:{port}", "--web-listen", f"127.0.0.1:{web_port}"]
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups", "--no-new-privs",
                   "--bounding-set=-all", *command]  # fmt: skip
    with subprocess.Popen(command, env={"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(home)}, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:  # fmt: skip
        try:
            assert daemon.stdout
            told = [daemon.stdout.readline() for _ in range(5)]
            assert str(home / "imgd") in told[0] and f"imgagent --server 127.0.0.1:{port}" in told[1], told
            assert told[4] == f"The dashboard: http://127.0.0.1:{web_port}\n"
            with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/", timeout=10) as page:
                assert b"<html" in page.read()
            kept = home / "imgd/state.db"
            assert kept.stat().st_uid == (NOBODY[0] if os.geteuid() == 0 else os.geteuid()) != 0
            assert Path(f"/proc/{daemon.pid}").stat().st_uid != 0
        finally:
            daemon.terminate()
    assert daemon.returncode == 0
