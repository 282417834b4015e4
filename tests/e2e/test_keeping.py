"""Backup, restore and reload of a daemon in use. Real processes throughout."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, Cluster, alive, wait_for


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

    config.write_text("commands: true\n")
    assert kept.daemon
    kept.daemon.send_signal(signal.SIGHUP)
    wait_for("the daemon to read it", lambda: kept.cli("submit", str(path), check=False).returncode == 0, 20)
    assert "SIGHUP had imgd read its configuration again: commands" in kept.cli("events").stdout
    assert json.loads(kept.cli("admin", "reload", "-o", "json").stdout).get("changed", []) == []
