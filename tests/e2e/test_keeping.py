"""Backup, restore and reload of a daemon in use. Real processes throughout."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from harness import BIN, Cluster, Json, alive, wait_for


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon with a configuration file that allows commands, and an agent of three slots."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\n")
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a", slots=3)
        yield cluster


def submit(cluster: Cluster, name: str, run: str = "echo begins; sleep 997") -> int:
    path = cluster.root / "command.yaml"
    path.write_text(f"name: {name}\nmax_restarts: 0\ncommand: {{run: '{run}'}}\n")
    return int(cluster.json("submit", str(path))["id"])


def stop_daemon(cluster: Cluster) -> None:
    assert cluster.daemon
    cluster.daemon.send_signal(signal.SIGTERM)
    assert cluster.daemon.wait(20) == 0


def restore(cluster: Cluster, file: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / "imgd", "--restore", file, "--state-dir", cluster.root / "imgd", *args],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def test_a_restored_daemon_finds_its_runs_and_ends_those_it_does_not_know(kept: Cluster) -> None:
    stays = submit(kept, "stays")
    goes = submit(kept, "goes")
    for job in (stays, goes):
        kept.wait_state(job, "JOB_STATE_RUNNING")
    backup = kept.root / "backup.tar"
    said = kept.cli("admin", "backup", str(backup))
    assert backup.stat().st_mode & 0o777 == 0o600, said
    pipe = kept.root / "pipe"
    os.mkfifo(pipe)
    refused = kept.cli("admin", "backup", str(pipe), check=False)
    assert refused.returncode == 2 and "no regular file" in refused.stderr and pipe.is_fifo(), refused.stderr
    # What happens afterwards is lost: one job ends, and another is begun under a number that comes again otherwise.
    kept.cli("cancel", str(goes))
    kept.wait_state(goes, "JOB_STATE_CANCELLED")
    late = submit(kept, "late")
    kept.wait_state(late, "JOB_STATE_RUNNING")
    stayed, unknown = kept.processes_of(stays), kept.processes_of(late)

    assert "another imgd uses" in restore(kept, backup, "--replace").stderr
    stop_daemon(kept)
    refused = restore(kept, backup)
    assert refused.returncode != 0 and "holds a state already (with --replace" in refused.stderr
    done = restore(kept, backup, "--replace")
    assert done.returncode == 0, done.stderr
    assert "what the folder held before is in" in done.stdout
    kept.start_daemon()
    wait_for("the node to be back", lambda: kept.node_state("a") == "NODE_STATE_READY", 30)

    assert kept.job(stays)["state"] == "JOB_STATE_RUNNING"
    assert int(kept.job(stays)["generation"]) == 1
    assert all(alive(pid) for pid in stayed), "it went on"
    wait_for("the run that nobody knows to be ended", lambda: not any(alive(pid) for pid in unknown), 30)
    again = wait_for("the other job to be started again", lambda: kept.job(goes) if
                     kept.job(goes)["state"] == "JOB_STATE_RUNNING" else None, 30)  # fmt: skip
    assert int(again["generation"]) > 10_000
    reasons = [h["state_change"]["text"] for h in kept.history(goes)]
    assert any("imgd was restored from a backup, and node a does not have the ranks" in text for text in reasons)
    assert submit(kept, "next") > late + 10_000
    events = kept.cli("events").stdout
    assert "takes a backup of imgd" in events and "imgd was restored from its backup of" in events
    # The log goes on in one piece.
    assert kept.cli("logs", str(stays)).stdout.count("begins") == 1


def test_a_restore_that_is_killed_leaves_one_state_or_the_other(kept: Cluster) -> None:
    done = submit(kept, "early", "true")
    kept.wait_state(done, "JOB_STATE_COMPLETED")
    backup = kept.root / "backup.tar"
    kept.cli("admin", "backup", str(backup))
    late = submit(kept, "late", "true")
    kept.wait_state(late, "JOB_STATE_COMPLETED")
    stop_daemon(kept)
    state, before = kept.root / "imgd", kept.root / "before"
    shutil.copytree(state, before)
    outcomes = []
    for tries in range(8):
        shutil.rmtree(state)
        shutil.copytree(before, state)
        command = [str(BIN / "imgd"), "--restore", str(backup), "--state-dir", str(state), "--replace"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as restoring:
            time.sleep(0.004 * tries * tries)  # from before it has begun to after it has ended
            restoring.kill()
        kept.start_daemon()
        names = {job["name"] for job in kept.json("jobs", "--all")}
        assert names in ({"early"}, {"early", "late"}), names
        assert not [path for path in state.iterdir() if path.name.startswith("restore.")]
        assert ("restored" in kept.cli("events").stdout) == (names == {"early"})
        outcomes.append("late" in names)
        stop_daemon(kept)
    assert outcomes[0], "it was killed before it had read the file"
    assert restore(kept, backup, "--replace").returncode == 0, "and it can be done again"


def takes_interrupts_itself(pid: int) -> bool:
    """Whether SIGINT is blocked there, to be read by the program when it likes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(line.startswith("SigBlk:") and int(line.split()[1], 16) & 2 for line in lines)


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_backup_that_is_broken_off_leaves_nothing(kept: Cluster) -> None:
    folder = kept.root / "backups"
    folder.mkdir()
    assert kept.daemon
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        kept.daemon.send_signal(signal.SIGSTOP)
        try:
            waits = kept.cli_process("admin", "backup", str(folder / "backup.tar"))
            wait_for("it to take signals itself", partial(takes_interrupts_itself, waits.pid))
            waits.send_signal(number)
            assert waits.wait(20) == code
            assert left_in(folder) == []
        finally:
            kept.daemon.send_signal(signal.SIGCONT)
    done = wait_for("those to be over", lambda: kept.cli(
        "admin", "backup", str(folder / "backup.tar"), check=False).returncode == 0)  # fmt: skip
    assert done and left_in(folder) == ["backup.tar"]
    assert "backup.tmp" not in left_in(kept.root / "imgd")


def test_a_backup_onto_a_full_disk_says_so(kept: Cluster) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    small = kept.root / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        full = kept.cli("admin", "backup", str(small / "backup.tar"), check=False)
        assert full.returncode == 5
        assert "No space left on device" in full.stderr
        assert left_in(small) == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def write_checkpoint(job: Json, step: int) -> Path:
    """As a trainer leaves it, of 100 bytes."""
    folder = Path(job["checkpoint_dir"]) / "g1" / f"step{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(100))
    manifest = {"files": [{"name": "model.safetensors", "size": 100, "sha256": "0" * 64}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_what_is_too_much_of_logs_and_checkpoints_goes_when_the_file_says_so(kept: Cluster) -> None:
    jobs = []
    for name in ("first", "second"):
        jobs.append(submit(kept, name, "echo " + "x" * 1000))
        kept.wait_state(jobs[-1], "JOB_STATE_COMPLETED")
    live = submit(kept, "live")
    kept.wait_state(live, "JOB_STATE_RUNNING")
    first, second = (write_checkpoint(kept.job(job), 10) for job in jobs)
    running = write_checkpoint(kept.job(live), 10)
    pinned = write_checkpoint(kept.job(jobs[0]), 20)
    kept.cli("checkpoints", "pin", str(pinned))
    wait_for("their logs", lambda: all("xxx" in kept.cli("logs", str(job)).stdout for job in jobs), 20)

    shown = {kind["what"]: kind for kind in kept.json("admin", "retention")["kinds"]}
    assert int(shown["checkpoints"]["bytes"]) == 400 and not shown["checkpoints"].get("folders")
    logs = int(shown["logs"]["bytes"])
    assert logs > 2000
    config = kept.root / "imgd.yaml"
    config.write_text(f"commands: true\nlogs_total_bytes: {logs - 500}\ncheckpoints_total_bytes: 300\n")
    assert kept.cli("admin", "reload").stdout == "changed: logs_total_bytes, checkpoints_total_bytes\n"
    wait_for("the first job's to go", lambda: not first.exists(), 20)
    assert second.exists() and running.exists() and pinned.exists()
    wait_for("its log to go", lambda: "xxx" not in kept.cli("logs", str(jobs[0]), check=False).stdout, 20)
    assert "xxx" in kept.cli("logs", str(jobs[1])).stdout

    def told() -> str:
        events: str = kept.cli("events").stdout
        return events if "were removed, those of the jobs that ended first" in events else ""

    events = wait_for("events that tell of it", told, 20)
    assert "the logs of job 1 were removed, those of the jobs that ended first: logs_total_bytes" in events
    assert f"by checkpoints_kept_for, 1 by checkpoints_total_bytes: {first}" in events
    after = kept.cli("admin", "retention").stdout
    assert re.search(r"^checkpoints +ever +300 B +300 B +0 B +0$", after, re.MULTILINE), after

    config.write_text("commands: true\ncheckpoints_kept_for: 1ms\n")
    assert kept.daemon
    kept.daemon.send_signal(signal.SIGHUP)
    wait_for("the second job's to go by its age", lambda: not second.exists(), 20)
    assert running.exists() and pinned.exists()


def test_the_configuration_is_read_again_by_command_and_by_signal(kept: Cluster) -> None:
    config = kept.root / "imgd.yaml"
    config.write_text("commands: false\nheartbeat: 4s\n")
    done = kept.cli("admin", "reload")
    assert done.stdout == "changed: commands\n"
    assert "only a restart of imgd takes it: heartbeat" in done.stderr
    path = kept.root / "command.yaml"
    path.write_text("name: no\ncommand: {run: 'true'}\n")
    assert "commands" in kept.cli("submit", str(path), check=False).stderr

    config.write_text("commands: perhaps\n")
    refused = kept.cli("admin", "reload", check=False)
    assert refused.returncode == 2
    assert f"{config}:1:11:" in refused.stderr
    config.write_text("# commands: true\n")
    refused = kept.cli("admin", "reload", check=False)
    assert refused.returncode == 2
    assert f"{config}: there is no key in it" in refused.stderr and "only a restart takes" in refused.stderr

    config.write_text("commands: true\n")
    assert kept.daemon
    kept.daemon.send_signal(signal.SIGHUP)
    wait_for("the daemon to read it", lambda: kept.cli("submit", str(path), check=False).returncode == 0, 20)
    assert "SIGHUP had imgd read its configuration again: commands" in kept.cli("events").stdout
    assert json.loads(kept.cli("admin", "reload", "-o", "json").stdout).get("changed", []) == []
