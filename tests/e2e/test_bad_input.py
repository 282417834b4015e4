"""What people get wrong: each gets one clear sentence, a documented exit code, and nothing is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from conftest import MakeJob
from harness import BIN, Cluster, free_port


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_a_misspelt_key_is_named_with_its_place(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: a\ndata: {train: /x}\ntrain:\n  epohcs: 3\n")
    for program in (["imgcli", "submit"], ["imgtrain"]):
        done = run(BIN / program[0], *program[1:], job)
        assert done.returncode == 2
        assert f"{job}:4:3: train.epohcs: unknown key (did you mean 'epochs'?)" in done.stderr


def test_an_unreachable_daemon_is_one_sentence(make_job: MakeJob) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = run(BIN / "imgcli", "--server", address, "jobs")
    assert done.returncode == 4
    assert address in done.stderr and len(done.stderr.strip().splitlines()) <= 2


def test_a_port_in_use_is_said_by_the_daemon(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        address = f"127.0.0.1:{s.getsockname()[1]}"
        done = run(BIN / "imgd", "--listen", address, "--state-dir", tmp_path / "d")
    assert done.returncode == 5
    assert address in done.stderr and "in use" in done.stderr


def test_no_images_fails_the_job_with_its_folder_named(cluster: Cluster, make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    job = cluster.submit(make_job(), f"data.train={tmp_path / 'empty'}")
    done = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert done["reason"] == "REASON_CODE_BAD_INPUT"
    assert str(tmp_path / "empty") in done["reason_text"]
    assert int(done["restarts"]) == 0


def test_broken_images_are_counted_named_and_skipped(
    cluster: Cluster, make_job: MakeJob, dataset: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "dirty"
    subprocess.run(["cp", "-r", dataset, copy], check=True)
    victims = sorted((copy / "train").glob("*/*"))[:3]
    for victim in victims:
        victim.write_bytes(victim.read_bytes()[:100])
    job = cluster.submit(make_job(epochs=1), f"data.train={copy / 'train'}")
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    named = {e["bad_image"]["path"] for e in cluster.events(job) if "bad_image" in e}
    assert named == {str(v.relative_to(copy / "train")) for v in victims}
    job = cluster.submit(make_job(epochs=1), f"data.train={copy / 'train'}", "data.max_bad_images=0", "max_restarts=0")
    done = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert "could not be decoded" in done["reason_text"] or "bad image" in done["reason_text"]


def test_a_full_disk_loses_no_acknowledged_job(tmp_path: Path, make_job: MakeJob) -> None:
    if os.geteuid() != 0:
        import pytest

        pytest.skip("needs root to mount a small file system")
    small = tmp_path / "imgd"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=True)
    cluster = Cluster(tmp_path)
    try:
        cluster.start_daemon()
        accepted: list[int] = []
        job = make_job()
        filler = small / "filler"
        for i in range(400):
            done = cluster.cli("submit", str(job), "-o", "json", check=False)
            if done.returncode != 0:
                break
            accepted.append(i)
            with filler.open("ab") as f:
                try:
                    f.write(b"x" * 65536)
                    f.flush()
                except OSError:
                    pass
        assert done.returncode == 5, done.stderr
        assert "No space left" in done.stderr or "disk" in done.stderr
        filler.unlink(missing_ok=True)
        assert cluster.daemon
        if cluster.daemon.poll() is None:
            cluster.daemon.send_signal(signal.SIGKILL)
        cluster.daemon.wait()
        cluster.start_daemon()
        assert len(cluster.json("jobs", "--limit", "1000")) >= len(accepted) > 0
        assert cluster.submit(job) > 0
    finally:
        cluster.close()
        subprocess.run(["umount", "-l", small], check=True)


def test_a_checkpoint_folder_that_other_nodes_cannot_see_is_refused(tmp_path: Path, make_job: MakeJob) -> None:
    """Two agents in mount namespaces of their own, which share nothing that they declare."""
    cluster = Cluster(tmp_path)
    unshare = ["unshare", "--mount", "--propagation", "private"]
    try:
        cluster.start_daemon()
        cluster.start_agent("a", prefix=unshare)
        cluster.start_agent("b", prefix=unshare)
        done = cluster.cli("submit", str(make_job()), check=False)
        assert done.returncode == 2
        assert "checkpoint" in done.stderr and "shared" in done.stderr
        one = cluster.cli("submit", str(make_job(nodes=1)))
        assert "checkpoint" in one.stderr
    finally:
        cluster.close()
