"""Who is told what becomes of jobs: webhooks, chat and e-mail against receivers that fail, hang and come back."""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeJob
from harness import BIN, Cluster, wait_for

SECRET = "a secret of some length"
CONFIG = """\
commands: true
notifications:
  dashboard: https://gpu.example:7651
  sendmail: {root}/sendmail
  from: imgd@example.org
  timeout: 2s
  targets:
    ops: {{kind: webhook, url: 'http://127.0.0.1:{port}/ops', secret_file: {root}/ops.secret}}
    chat: {{kind: slack, url_file: {root}/chat.url}}
    mail: {{kind: email, to: ['{{user}}@example.org']}}
  all: {{to: mail, when: [failed]}}
  projects: {{vision: chat, lab: {{to: ops, when: [stalled]}}}}
"""
SENDMAIL = """\
#!/bin/sh
echo "$@" >> {root}/mail.calls
[ $(wc -l < {root}/mail.calls) -gt 1 ] || {{ echo 'queue is busy' >&2; exit 75; }}
cat > {root}/mail.part && mv {root}/mail.part {root}/mail.txt
"""


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    status: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Answers each request with what `status` says, after `answers` is set; keeps all that came."""

    status: Callable[[int], int] = lambda _: 204
    answers: threading.Event = field(default_factory=threading.Event)
    received: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.status(len(receiver.received))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, body, status))
                receiver.answers.wait(60)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def wait(self, count: int) -> list[Received]:
        """What it has taken, once it is so many."""

        def taken() -> list[Received] | None:
            done = [one for one in self.received if one.status < 300]
            return done if len(done) >= count else None

        return wait_for(f"{count} notifications", taken, 60)

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def cluster(tmp_path: Path, receiver: Receiver) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    port = receiver.server.server_address[1]
    (tmp_path / "imgd.yaml").write_text(CONFIG.format(root=tmp_path, port=port))
    (tmp_path / "ops.secret").write_text(SECRET + "\n")
    (tmp_path / "chat.url").write_text(f"http://127.0.0.1:{port}/T00/hidden\n")
    (tmp_path / "sendmail").write_text(SENDMAIL.format(root=tmp_path))
    (tmp_path / "sendmail").chmod(0o755)
    with Cluster(tmp_path, ["--config", str(tmp_path / "imgd.yaml"), "--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        yield cluster


def command(folder: Path, run: str, more: str = "") -> Path:
    path = folder / "command.yaml"
    path.write_text(f"name: cmd\nmax_restarts: 0\ncommand: {{run: '{run}'}}\n{more}")
    return path


def metric(cluster: Cluster, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.web_port}/metrics", timeout=10) as answer:
        lines = re.sub(r'cluster="[^"]*",', "", answer.read().decode()).splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " "))


def is_genuine(one: Received) -> bool:
    signed = f"{one.headers['webhook-id']}.{one.headers['webhook-timestamp']}.".encode() + one.body
    right = "v1," + base64.b64encode(hmac.digest(SECRET.encode(), signed, "sha256")).decode()
    return one.headers["webhook-signature"] == right and abs(time.time() - int(one.headers["webhook-timestamp"])) < 300


def test_a_webhook_that_fails_twice_gets_it_signed_and_under_one_id(
    cluster: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.status = lambda so_far: 503 if so_far < 2 else 204
    job = cluster.submit(command(tmp_path, "exit 3", "notify: {to: ops, when: [failed]}\n"))
    cluster.wait_state(job, "JOB_STATE_FAILED")
    taken = receiver.wait(1)[0]
    assert len(receiver.received) == 3 and all(is_genuine(one) for one in receiver.received)
    assert len({one.headers["webhook-id"] for one in receiver.received}) == 1
    assert taken.json["id"] == taken.headers["webhook-id"] and taken.json["type"] == "job.failed"
    told = taken.json["job"]
    shown = cluster.job(job)
    assert (told["id"], told["owner"], told["state"]) == (job, shown["owner"], "JOB_STATE_FAILED")
    assert told["reason_text"] == shown["reason_text"] and told["url"] == f"https://gpu.example:7651/jobs/{job}"
    wait_for("the counters", lambda: metric(cluster, 'imgd_notifications_sent_total{target="ops"}') == 1, 10)
    assert metric(cluster, 'imgd_notification_failures_total{target="ops"}') == 2
    assert metric(cluster, 'imgd_notifications_pending{target="ops"}') == 0
    # One that finishes is none that this job's file asks for; and it goes to nobody else.
    assert {one.path for one in receiver.received} == {"/ops"}
    log = (tmp_path / "imgd.log").read_text()
    assert "HTTP status 503" in log and SECRET not in log and "hidden" not in log


def test_a_crash_loses_none_and_doubles_none_that_was_taken(
    cluster: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    done = cluster.submit(command(tmp_path, "exit 0", "notify: ops\n"))
    assert receiver.wait(1)[0].json["job"]["id"] == done
    wait_for("it to be noted", lambda: metric(cluster, 'imgd_notifications_pending{target="ops"}') == 0, 10)
    receiver.status = lambda _: 500
    jobs = [cluster.submit(command(tmp_path, "exit 0", "notify: ops\n")) for _ in range(3)]
    for job in jobs:
        cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert cluster.daemon
    cluster.daemon.send_signal(signal.SIGKILL)
    cluster.daemon.wait()
    receiver.status = lambda _: 200
    cluster.start_daemon()
    taken = receiver.wait(4)
    assert sorted(one.json["job"]["id"] for one in taken) == [done, *jobs]
    # An end in order settles what was delivered: nothing comes again.
    cluster.daemon.send_signal(signal.SIGTERM)
    cluster.daemon.wait()
    cluster.start_daemon()
    assert metric(cluster, 'imgd_notifications_pending{target="ops"}') == 0
    assert len(receiver.wait(4)) == 4


def test_a_receiver_that_hangs_holds_up_nobody(cluster: Cluster, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers.clear()
    first = cluster.submit(command(tmp_path, "exit 0", "notify: ops\n"))
    cluster.wait_state(first, "JOB_STATE_COMPLETED")
    wait_for("the receiver to hang", lambda: len(receiver.received) >= 1, 30)
    second = cluster.submit(command(tmp_path, "exit 1", "notify: mail\n"))
    cluster.wait_state(second, "JOB_STATE_FAILED")
    wait_for("the e-mail", lambda: (tmp_path / "mail.txt").exists(), 30)
    assert not any(one.json["job"]["id"] == second for one in receiver.received)
    # Within its timeout it has not answered: that is a failure, and it is tried again.
    wait_for("another try", lambda: len(receiver.received) >= 2, 30)
    receiver.answers.set()
    wait_for("it to be noted", lambda: metric(cluster, 'imgd_notifications_pending{target="ops"}') == 0, 60)
    assert len({one.headers["webhook-id"] for one in receiver.received}) == 1


def test_jobs_that_say_nothing_are_told_of_by_the_operators_rules(
    cluster: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    of_vision = cluster.submit(command(tmp_path, "exit 0", "project: vision\n"))
    text = receiver.wait(1)[0].json["text"]
    assert text.startswith(f"*<https://gpu.example:7651/jobs/{of_vision}|job {of_vision} (cmd) finished>*")
    assert receiver.received[0].path == "/T00/hidden"
    quiet = cluster.submit(command(tmp_path, "exit 1", "notify: []\n"))
    cluster.wait_state(quiet, "JOB_STATE_FAILED")
    failed = cluster.submit(command(tmp_path, "echo broken >&2; exit 1"))
    cluster.wait_state(failed, "JOB_STATE_FAILED")
    wait_for("the e-mail", lambda: (tmp_path / "mail.txt").exists(), 30)
    mail = (tmp_path / "mail.txt").read_text()
    owner = cluster.job(failed)["owner"]
    calls = (tmp_path / "mail.calls").read_text().splitlines()
    assert calls == [f"-i -f imgd@example.org -- {owner}@example.org"] * 2, "one try failed"
    head, body = mail.split("\n\n", 1)
    assert f"Subject: [imgd] job {failed} (cmd) failed" in head.splitlines()
    assert f"To: {owner}@example.org" in head.splitlines() and "From: imgd@example.org" in head.splitlines()
    assert cluster.job(failed)["reason_text"] in body and f"/jobs/{failed}" in body
    assert len(receiver.received) == 1


def test_a_job_that_makes_room_was_preempted(cluster: Cluster, receiver: Receiver, tmp_path: Path) -> None:
    low = cluster.submit(command(tmp_path, "exec sleep 600", "notify: {to: ops, when: [preempted]}\ngrace: 2s\n"))
    cluster.wait_state(low, "JOB_STATE_RUNNING")
    high = cluster.submit(command(tmp_path, "exit 0", "priority: 10\nnotify: []\n"))
    cluster.wait_state(high, "JOB_STATE_COMPLETED")
    told = receiver.wait(1)[0].json
    assert (told["type"], told["job"]["id"]) == ("job.preempted", low)
    cluster.cli("cancel", str(low))


def test_a_job_that_stands_still_was_stalled(cluster: Cluster, receiver: Receiver, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=1, epochs=500), "project=lab", "limits={silence: 2s}")
    cluster.wait_step(job, 3)
    os.kill(cluster.rank_pids(job)[0], signal.SIGSTOP)
    told = receiver.wait(1)[0].json
    assert (told["type"], told["job"]["id"]) == ("job.stalled", job)
    assert told["job"]["reason"] == "REASON_CODE_RANK_STUCK"
    cluster.cli("cancel", str(job))


def test_a_target_that_there_is_none_of_is_refused_with_its_place(cluster: Cluster, tmp_path: Path) -> None:
    path = command(tmp_path, "exit 0", "notify: [ops, {to: opps}]\n")
    refused = cluster.cli("submit", str(path), check=False)
    assert refused.returncode == 2
    assert "command.yaml:4:" in refused.stderr and "notify[1].to: there is no target 'opps'" in refused.stderr
    assert "chat, mail, ops" in refused.stderr


def test_a_secret_that_cannot_be_read_is_said_at_the_start(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "ops.secret").unlink()
    done = subprocess.run([BIN / "imgd", "--config", tmp_path / "imgd.yaml", "--state-dir", tmp_path / "other",
                           "--listen", "127.0.0.1:0", "--web-listen", ""], capture_output=True, text=True,
                          timeout=30, check=False)  # fmt: skip
    assert done.returncode != 0 and "notifications.targets.ops" in done.stderr and "ops.secret" in done.stderr
