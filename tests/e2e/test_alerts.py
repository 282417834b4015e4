"""Alerts by their causes, with a real Prometheus: what test_prometheus.py does not bring about."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import BIN, Cluster, Slowed, free_port, wait_for
from prometheus import PROGRAM, Prometheus, rules_without_patience

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed")]

PATIENT = "limits={silence: 10m, step: 10m, input: 10m, autotune: 10m}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\n")
    with Cluster(tmp_path, ["--config", str(tmp_path / "imgd.yaml"), "--web-plain-http"]) as cluster:
        cluster.start_daemon()
        yield cluster


@pytest.fixture
def prometheus(cluster: Cluster) -> Iterator[Prometheus]:
    """Alerts over some minutes look at 20 s."""
    server = Prometheus(cluster, rules_without_patience("20s"))
    yield server
    server.close()


def fires(prometheus: Prometheus, name: str, seconds: float = 90) -> None:
    wait_for(f"{name} to fire", lambda: name in prometheus.firing(), seconds)


def test_a_rank_that_is_slow_and_a_job_that_stands_still(
    cluster: Cluster, prometheus: Prometheus, make_job: MakeJob
) -> None:
    for name in ("a", "b"):
        cluster.start_agent(name, "--metrics-listen", "127.0.0.1:0")
    job = cluster.submit(make_job(epochs=5000), PATIENT)
    cluster.wait_step(job, 25, 120)
    pids = cluster.rank_pids(job)
    assert not prometheus.firing() & {"JobMakesNoProgress", "JobRankSlow"}
    with Slowed(pids[1]):
        fires(prometheus, "JobRankSlow", 120)
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    fires(prometheus, "JobMakesNoProgress", 120)
    for pid in pids.values():
        os.kill(pid, signal.SIGCONT)
    wait_for("it to go on", lambda: "JobMakesNoProgress" not in prometheus.firing(), 120)


def test_jobs_that_crash_again_and_again(
    cluster: Cluster, prometheus: Prometheus, make_job: MakeJob, tmp_path: Path
) -> None:
    """On node a every trainer fails; the third job that it fails sets the node aside."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'wrong answer from the GPU' >&2\nexit 1\n")
    broken.chmod(0o755)
    cluster.start_agent("a", "--trainer", str(broken))
    cluster.start_agent("b")
    # Counters tell of what came after Prometheus had seen them once.
    wait_for("imgd's figures", lambda: prometheus.value('imgd_nodes_set_aside{by="imgd"}') == 0, 30)
    for name in ("one", "two", "three"):
        assert "NodeSetAsideByImgd" not in prometheus.firing()
        cluster.wait_state(cluster.submit(make_job(nodes=1, epochs=1), f"name={name}"), "JOB_STATE_COMPLETED")
    fires(prometheus, "NodeSetAsideByImgd")
    crash = tmp_path / "crash.yaml"
    crash.write_text("name: crash\nmax_restarts: 50\ncommand: {run: 'sleep 1; exit 3'}\n")
    for _ in range(3):
        cluster.submit(crash)
    fires(prometheus, "JobsRestartOften", 120)


def refused(cluster: Cluster, job: Path) -> bool:
    """Whether a submission fails because of imgd; imgcli itself would wait for it to get well."""
    body = json.dumps({"job_yaml": job.read_text(), "owner": "ada"}).encode()
    url = f"http://{cluster.host}:{cluster.web_port}/api/v1/jobs"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10):
            return False
    except urllib.error.HTTPError as error:
        return error.code >= 429


def test_a_disk_that_fills(tmp_path: Path, make_job: MakeJob) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    (tmp_path / "checkpoints").mkdir()
    small = tmp_path / "imgd"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], check=True)
    cluster = Cluster(tmp_path, ["--web-plain-http"])
    server: Prometheus | None = None
    try:
        cluster.start_daemon()
        server = Prometheus(cluster, rules_without_patience("20s"))
        wait_for("imgd's figures", lambda: server.value("imgd_state_free_bytes"), 30)
        assert not server.firing()
        filler = small / "filler"
        with filler.open("wb") as file:
            free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
            file.write(b"x" * (free - 500_000))
        fires(server, "ImgdDiskFilling")
        with filler.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"x" * 4096)
        job = make_job()
        deadline = time.monotonic() + 60
        while cluster.cli("submit", str(job), check=False).returncode == 0 and time.monotonic() < deadline:
            pass
        fires(server, "ImgdCannotStore")
        # Nobody can submit any more, and it is no caller's fault.
        wait_for("ImgdCallsFail", lambda: refused(cluster, job) and "ImgdCallsFail" in server.firing(), 60)
        filler.unlink()
        wait_for("it to store again", lambda: not server.firing() & {"ImgdCannotStore", "ImgdCallsFail"}, 90)
    finally:
        if server:
            server.close()
        cluster.close()
        subprocess.run(["umount", "-l", small], check=True)


class Taker(BaseHTTPRequestHandler):
    """Says that it has taken whatever comes."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_notifications_that_nobody_takes(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    port = free_port()
    ops = f"{{kind: webhook, url: 'http://127.0.0.1:{port}/ops'}}"
    (tmp_path / "imgd.yaml").write_text(f"commands: true\nnotifications: {{targets: {{ops: {ops}}}}}\n")
    job = tmp_path / "job.yaml"
    job.write_text("name: one\nnotify: ops\ncommand: {run: 'true'}\n")
    with Cluster(tmp_path, ["--config", str(tmp_path / "imgd.yaml"), "--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        server = Prometheus(cluster, rules_without_patience("20s"))
        try:
            # Counters tell of what came after Prometheus had seen them once.
            wait_for("imgd's figures", lambda: server.value("imgd_notification_failures_total") == 0, 30)
            assert "ImgdNotificationsFail" not in server.firing()
            cluster.wait_state(cluster.submit(job), "JOB_STATE_COMPLETED")
            fires(server, "ImgdNotificationsFail")
            taker = ThreadingHTTPServer(("127.0.0.1", port), Taker)
            threading.Thread(target=taker.serve_forever).start()
            try:
                wait_for("it to be taken", lambda: server.value("imgd_notifications_sent_total") == 1, 120)
                wait_for("an end of that", lambda: "ImgdNotificationsFail" not in server.firing(), 30)
            finally:
                taker.shutdown()
                taker.server_close()
        finally:
            server.close()


SLOW_SYNC = """
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
  const char* while_there = getenv("SLOW_WHILE_THERE");
  if (while_there != NULL && access(while_there, F_OK) == 0) usleep(700000);
}
int fdatasync(int fd) {
  wait_for_the_disk();
  return (int)syscall(SYS_fdatasync, fd);
}
int fsync(int fd) {
  wait_for_the_disk();
  return (int)syscall(SYS_fsync, fd);
}
"""


def test_a_disk_that_is_slow_to_say_that_it_has_it(tmp_path: Path) -> None:
    """Each flush takes 0.7 s, as on a disk that others keep busy."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\n")
    (tmp_path / "slow.c").write_text(SLOW_SYNC)
    library = tmp_path / "slow.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "slow.c"], check=True)
    cause = tmp_path / "slow"
    job = tmp_path / "job.yaml"
    job.write_text("name: one\ncommand: {run: 'true'}\n")
    arguments = ["--config", str(tmp_path / "imgd.yaml"), "--web-plain-http"]
    prefix = ["env", f"LD_PRELOAD={library}", f"SLOW_WHILE_THERE={cause}"]
    with Cluster(tmp_path, arguments, prefix=prefix) as cluster:
        cluster.start_daemon()
        server = Prometheus(cluster, rules_without_patience("20s"))

        def commits() -> bool:
            cluster.submit(job)
            return "ImgdCommitsSlow" in server.firing()

        try:
            wait_for("imgd's figures", lambda: server.value("imgd_commit_seconds_count") is not None, 30)
            for _ in range(10):
                assert not commits()
            cause.touch()
            wait_for("ImgdCommitsSlow to fire", commits, 90)
            cause.unlink()
            wait_for("the disk to be quick again", lambda: not commits(), 90)
        finally:
            cause.unlink(missing_ok=True)
            server.close()


def test_a_processor_that_is_too_slow_for_so_long_a_queue(
    cluster: Cluster, prometheus: Prometheus, tmp_path: Path
) -> None:
    """Ten thousand jobs of many sizes wait, and imgd gets 2 ms of each 0.7 s: a plan needs more."""
    cluster.start_agent("a")
    many = tmp_path / "many.yaml"
    many.write_text("name: many\ncommand: {run: sleep}\nresources: {nodes: 2}\nsweep: {random: {n: 10000, params: "
                    "{resources.nodes: {int_uniform: [2, 64]}, priority: {int_uniform: [0, 100]}}}}\n")  # fmt: skip
    cluster.submit(many)
    wait_for("imgd's figures", lambda: prometheus.value('imgd_jobs{state="queued"}') == 10_000, 60)
    assert "ImgdSchedulingSlow" not in prometheus.firing()
    one = tmp_path / "one.yaml"
    one.write_text("name: one\ncommand: {run: 'true'}\n")
    assert cluster.daemon

    def plans() -> bool:
        # Each that comes is a reason to plan.
        cluster.cli("submit", str(one), check=False)
        return "ImgdSchedulingSlow" in prometheus.firing()

    with Slowed(cluster.daemon.pid, 0.7, 0.002):
        wait_for("ImgdSchedulingSlow to fire", plans, 120)
    wait_for("the plans to be quick again", lambda: not plans(), 90)


class SlowLine:
    """Passes connections on to a port of this machine, with so many bytes a second in all on the way back."""

    def __init__(self, to: int, bytes_per_second: int) -> None:
        self.to = to
        self.pace = bytes_per_second
        self.lock = threading.Lock()
        self.free_at = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                threading.Thread(target=self.copy, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self.copy, args=(far, near, True), daemon=True).start()

    def copy(self, source: socket.socket, sink: socket.socket, slowly: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if slowly:
                    with self.lock:
                        self.free_at = max(self.free_at, time.monotonic()) + len(data) / self.pace
                        wait = self.free_at - time.monotonic()
                    time.sleep(max(wait, 0))
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()


def test_data_that_come_over_a_slow_line(
    cluster: Cluster,
    prometheus: Prometheus,
    make_job: MakeJob,
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = tmp_path / "shards"
    subprocess.run([BIN / "imgcli", "dataset", "convert", dataset, shards], check=True, capture_output=True)
    monkeypatch.setenv("IMGD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("IMGD_CACHE_BYTES", "0")  # each epoch comes from the server
    cluster.start_agent("a", "--metrics-listen", "127.0.0.1:0")
    port = free_port()
    serve = subprocess.Popen([BIN / "imgcli", "dataset", "serve", shards, "--port", str(port)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    line = SlowLine(port, 25_000)
    try:
        wait_for("the data server", lambda: subprocess.run(
            [BIN / "imgcli", "dataset", "info", f"http://127.0.0.1:{port}/train/"], capture_output=True
        ).returncode == 0, 20)  # fmt: skip
        near = cluster.submit(make_job(nodes=1, epochs=5000), PATIENT, f"data.train=http://127.0.0.1:{port}/train/")
        cluster.wait_step(near, 50, 120)
        wait_for("its figures", lambda: prometheus.query("rate(imgd_job_input_wait_seconds_total[20s])"), 30)
        assert "JobWaitsForInput" not in prometheus.firing()
        cluster.cli("cancel", str(near), "--wait")
        far = f"data.train=http://127.0.0.1:{line.port}/train/"
        cluster.submit(make_job(nodes=1, epochs=5000), PATIENT, far)
        fires(prometheus, "JobWaitsForInput", 120)
        line.pace = 1_000_000_000
        wait_for("the line to be quick again", lambda: "JobWaitsForInput" not in prometheus.firing(), 90)
    finally:
        line.close()
        serve.terminate()
        serve.wait(10)
