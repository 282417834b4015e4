"""Runs that somebody starts by hand and that report to imgd over HTTPS. Real processes throughout."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import BIN, Cluster, free_port, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon alone: nothing here needs a node."""
    with Cluster(tmp_path) as cluster:
        cluster.start_daemon()
        yield cluster


class Ranks:
    """Ranks of one run, started as torchrun starts them."""

    def __init__(self, job: Path, url: str, root: Path, token: str, *args: str, world: int = 2) -> None:
        self.log = root / "ranks.log"
        self.processes = []
        port = free_port()
        for rank in range(world):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                   "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                   "IMGD_REPORT_TOKEN": token, "OMP_NUM_THREADS": "1"}  # fmt: skip
            with self.log.open("ab") as log:
                command = [str(BIN / "imgtrain"), str(job), "--report", url, *args]
                self.processes.append(
                    subprocess.Popen(command, env=env, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )

    def wait(self, seconds: float = 180) -> list[int]:
        return [process.wait(seconds) for process in self.processes]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def token_of(cluster: Cluster, name: str = "t") -> str:
    return cluster.cli("token", "create", "--scope", "report", "--name", name).stdout.strip()


def https(cluster: Cluster) -> tuple[str, list[str]]:
    """Where it serves, and the options to trust the certificate that it made."""
    return f"https://127.0.0.1:{cluster.web_port}", ["--report-ca", str(cluster.root / "imgd/ca.crt")]


def only_job(cluster: Cluster) -> int | None:
    jobs = cluster.json("jobs")
    return int(jobs[0]["id"]) if jobs else None


@pytest.mark.long
def test_a_run_by_hand_is_seen_to_its_end_over_a_killed_daemon(cluster: Cluster, make_job: MakeJob) -> None:
    token = token_of(cluster)
    url, trust = https(cluster)
    job_file = make_job(epochs=6)
    with Ranks(job_file, url, cluster.root, token, *trust) as ranks:
        job = wait_for("imgd to hear of the run", lambda: only_job(cluster), 60)
        cluster.wait_step(job, 8)
        host = os.uname().nodename
        running = cluster.job(job)
        assert running["external"]["hosts"] == [host]
        assert running["state"] == "JOB_STATE_RUNNING" and running["ranks_per_node"] == 2
        assert running["reason_text"] == f"started by hand on {host}"
        assert f"started by hand on {host}" in cluster.cli("jobs").stdout
        assert f"started by hand on {host}" in cluster.cli("show", str(job)).stdout
        refused = cluster.cli("cancel", str(job), check=False)
        assert refused.returncode == 5 and "by hand" in refused.stderr and "Ctrl-C" in refused.stderr
        refused = cluster.cli("profile", str(job), check=False)
        assert refused.returncode == 5 and "imgtrain --profile" in refused.stderr

        assert cluster.daemon
        cluster.daemon.send_signal(signal.SIGKILL)
        cluster.daemon.wait()
        time.sleep(1.5)  # some steps are done without it
        cluster.start_daemon()
        assert ranks.wait() == [0, 0], ranks.text()
        done = cluster.wait_state(job, "JOB_STATE_COMPLETED", seconds=30)
        text = ranks.text()
    assert only_job(cluster) == job and len(cluster.json("jobs")) == 1
    steps = [int(s["step"]) for s in cluster.steps(job)]
    assert steps == list(range(1, 61)), "steps are missing or doubled"
    assert done["external"] and int(done["last_epoch"]["val_images"]) == 40
    assert Path(done["last_checkpoint"]["path"]).is_dir()
    assert f"shows this run as job {job}" in text and "told of this run again" in text
    assert token not in text and token not in (cluster.root / "imgd.log").read_text()
    assert f"started by hand on {host}" in cluster.cli("logs", str(job)).stderr
    watched = cluster.cli("watch", str(job), "--from-event", "1").stdout
    assert f"started by hand on {host}" in watched and "COMPLETED" in watched


@pytest.mark.long
def test_a_run_of_torchruns_is_one_job(cluster: Cluster, make_job: MakeJob) -> None:
    url, trust = https(cluster)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python",
               str(BIN / "imgtrain"), str(make_job(epochs=1)), "--report", url, *trust]  # fmt: skip
    env = os.environ | {"IMGD_REPORT_TOKEN": token_of(cluster), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cluster.root, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    job = only_job(cluster)
    assert job, done.stdout + done.stderr
    shown = cluster.wait_state(job, "JOB_STATE_COMPLETED", seconds=30)
    assert len(cluster.json("jobs")) == 1 and shown["ranks_per_node"] == 2
    assert shown["external"]["hosts"] == [os.uname().nodename]
    assert [int(s["step"]) for s in cluster.steps(job)] == list(range(1, 11))


def test_the_fingerprint_is_logged_and_the_key_is_secret(cluster: Cluster) -> None:
    log = cluster.root / "imgd.log"
    logged = wait_for("the fingerprint", lambda: re.search(r"sha256=([0-9A-F:]{95})", log.read_text()), 10)
    command = ["openssl", "x509", "-in", str(cluster.root / "imgd/ca.crt"), "-noout", "-fingerprint", "-sha256"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.strip().endswith(logged[1])
    assert (cluster.root / "imgd/ca.key").stat().st_mode & 0o777 == 0o600


def test_a_wrong_token_is_said_at_once_and_training_goes_on(cluster: Cluster, make_job: MakeJob) -> None:
    url, trust = https(cluster)
    with Ranks(make_job(epochs=1), url, cluster.root, "imgd_wrong", *trust, world=1) as ranks:
        assert ranks.wait() == [0], ranks.text()
    assert "refuses what it is told of this run: a token that imgd knows is needed" in ranks.text()
    assert "could not be sent to imgd" in ranks.text() and "imgd_wrong" not in ranks.text()
    assert cluster.json("jobs") == []


def test_a_daemon_that_is_not_there_or_not_trusted_is_a_warning(cluster: Cluster, make_job: MakeJob) -> None:
    url, _ = https(cluster)
    for where in (url, f"https://127.0.0.1:{free_port()}"):
        with Ranks(make_job(epochs=1), where, cluster.root, "imgd_x", world=1) as ranks:
            assert ranks.wait() == [0], ranks.text()
        assert f"imgd at {where} can't be told of this run" in ranks.text()
    assert "--report-ca FILE names the certificate to trust" in ranks.text()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://gpu-head:7651", "plain http to another machine"),
        ("http://192.0.2.1:7651", "plain http to another machine"),
        ("gpu-head:7651", "--report"),
        ("https://me:word@gpu-head", "IMGD_REPORT_TOKEN"),
    ],
)
def test_a_url_that_the_token_must_not_go_to_is_bad_input(url: str, words: str, make_job: MakeJob) -> None:
    done = subprocess.run([BIN / "imgtrain", make_job(), "--report", url], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "IMGD_REPORT_TOKEN": "imgd_x"}, stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr and "word@" not in done.stderr


def test_a_run_that_is_killed_is_failed_after_its_silence(tmp_path: Path, make_job: MakeJob) -> None:
    with Cluster(tmp_path, server_args=["--report-timeout", "10s"]) as cluster:
        cluster.start_daemon()
        url, trust = https(cluster)
        with Ranks(make_job(epochs=40), url, cluster.root, token_of(cluster), *trust, world=1) as ranks:
            job = wait_for("imgd to hear of the run", lambda: only_job(cluster), 60)
            cluster.wait_step(job, 3)
            ranks.processes[0].kill()
            failed = cluster.wait_state(job, "JOB_STATE_FAILED", seconds=60)
        assert failed["reason"] == "REASON_CODE_SILENT" and "nothing heard from it since" in failed["reason_text"]


def test_a_run_that_is_ended_says_so(cluster: Cluster, make_job: MakeJob) -> None:
    url, trust = https(cluster)
    with Ranks(make_job(epochs=40), url, cluster.root, token_of(cluster), *trust, world=1) as ranks:
        job = wait_for("imgd to hear of the run", lambda: only_job(cluster), 60)
        cluster.wait_step(job, 3)
        ranks.processes[0].send_signal(signal.SIGINT)
        assert ranks.wait() == [130]
        failed = cluster.wait_state(job, "JOB_STATE_FAILED", seconds=30)
    assert failed["reason_text"] == "rank 0 was ended by SIGINT"
    lines = [json.loads(line) for line in cluster.cli("logs", str(job), "-o", "json").stdout.splitlines()]
    assert "rank 0 was ended by SIGINT" in lines[-1]["text"]


def test_tokens_are_made_listed_and_revoked(cluster: Cluster) -> None:
    secret = token_of(cluster, "slurm")
    assert re.fullmatch(r"imgd_[0-9a-f]{64}", secret)
    made = cluster.json("token", "create", "--scope", "report", "--ttl", "30d")
    assert made["secret"].startswith("imgd_") and int(made["expires_us"]) > int(made["created_us"])
    said = cluster.cli("token", "create", "--scope", "view", "--owner", "ada", "--name", "of-ada").stderr
    assert "in the name of ada\n" in said
    said = cluster.cli("token", "create", "--scope", "view", "--name", "mine").stderr
    assert f"in the name of {made['owner']}, as no --owner was named" in said
    said = cluster.cli("token", "create", "--scope", "report", "--name", "team").stderr
    assert "team: a run that reports with it is of the user who runs it there\n" in said
    cluster.cli("token", "revoke", "of-ada")
    made_and_taken = cluster.cli("events").stdout
    assert f"{made['owner']} made the token of-ada for ada (view)" in made_and_taken
    assert f"{made['owner']} took back the token of-ada" in made_and_taken
    assert "UNTIL" in cluster.cli("token", "list", "-o", "wide").stdout
    listed = cluster.cli("token", "list").stdout
    assert "slurm" in listed and "in 29d" in listed and secret not in listed
    assert cluster.cli("token", "create", "--scope", "report", "--name", "slurm", check=False).returncode == 5
    wrong = cluster.cli("token", "create", "--scope", "reprot", check=False)
    assert wrong.returncode == 2 and "allowed: report" in wrong.stderr
    cluster.cli("token", "revoke", "slurm")
    assert cluster.cli("token", "revoke", "slurm", check=False).returncode == 3


def test_http_is_off_plain_or_refused_as_configured(tmp_path: Path) -> None:
    def check(*args: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "imgd"), "--state-dir", str(tmp_path / "x"), "--check-config", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    refused = check("--web-plain-http", "--web-listen", "0.0.0.0:7651")
    assert refused.returncode == 2 and "no loopback address" in refused.stderr
    assert check("--web-plain-http", "--web-listen", "127.0.0.1:0").returncode == 0
    assert check("--web-listen", "").returncode == 0
    assert check("--web-plain-http", "--web-listen=").returncode == 0
    assert check("--web-listen=", "--web-certificate", "/x.crt").returncode == 0, "it is off, whatever comes next"
    assert check("--web-certificate", "/x.crt").returncode == 2
    with Cluster(tmp_path, server_args=["--web-listen", ""]) as cluster:
        cluster.start_daemon()
        assert "web=" not in (tmp_path / "imgd.log").read_text()
