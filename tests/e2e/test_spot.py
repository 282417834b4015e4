"""A machine that the cloud takes back: its agent hears of it, and the job leaves in time. Real processes throughout."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, Json, processes_with, wait_for
from test_operations import first_step, node, states, step_counts


class Metadata(http.server.ThreadingHTTPServer):
    """As much of EC2's instance metadata service as spot notices need; it wants tokens."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.notice: Json | None = None
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take_back(self, seconds: float) -> None:
        at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        self.notice = {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


class Handler(http.server.BaseHTTPRequestHandler):
    server: Metadata

    def answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        lasts = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self.answer(200 if lasts and self.path == "/latest/api/token" else 400, "secret")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != "secret":
            self.answer(401)
        elif self.path == "/latest/meta-data/spot/instance-action" and self.server.notice:
            self.answer(200, json.dumps(self.server.notice))
        else:
            self.server.asked += 1
            self.answer(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def spot_cluster(tmp_path: Path, metadata: Metadata) -> Iterator[Cluster]:
    """A daemon that gives nodes up soon, node a on a spot instance, and node b."""
    (tmp_path / "checkpoints").mkdir()
    config = tmp_path / "imgd.yaml"
    config.write_text("heartbeat: 500ms\nlost_after: 5s\n")
    with Cluster(tmp_path, server_args=["--config", str(config)]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a", "--spot-notices", metadata.url)
        yield cluster


def take_away(cluster: Cluster, name: str) -> None:
    """All that is on it at once, as when its power is cut."""
    cluster.agents[name].kill()
    for pid in processes_with(f"{cluster.root}/{name}/runs/"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.agents[name].wait()


def reasons(cluster: Cluster, name: str) -> list[str]:
    told = [json.loads(line) for line in cluster.cli("events", "--node", name, "-o", "json").stdout.splitlines()]
    of_nodes = [e["reason"].removeprefix("REASON_CODE_") for e in told if not int(e.get("job_id", 0))]
    return [reason for reason in of_nodes if reason != "NODE_SILENT"]


@pytest.mark.long
def test_a_job_leaves_a_spot_instance_in_time_and_goes_on_elsewhere(
    spot_cluster: Cluster, metadata: Metadata, make_job: MakeJob
) -> None:
    cluster = spot_cluster
    wait_for("the agent to look", lambda: metadata.asked, 20)
    job = cluster.submit(make_job(nodes=1, epochs=6), "checkpoint.every_steps=0")
    cluster.wait_step(job, 12)
    assert [p["node"] for p in cluster.job(job)["placements"]] == ["a"]
    cluster.start_agent("b")

    metadata.take_back(seconds=110)
    wait_for("the node to be leaving", lambda: node(cluster, "a").get("notice"), 20)
    assert node(cluster, "a")["notice"]["action"] == "terminate"
    assert "leaving" in cluster.cli("nodes").stdout
    assert "node a" not in node(cluster, "a")["reason_text"]
    assert node(cluster, "a")["reason_text"].startswith("is being taken back by the cloud, at ")
    assert "taken back" in cluster.cli("node", "show", "a").stdout

    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [p["node"] for p in done["placements"]] == ["b"]
    assert int(done["generation"]) == 2 and int(done["restarts"]) == 0
    assert step_counts(cluster, job) == Counter(range(1, 61)), "a step was done twice or never"
    assert first_step(cluster, job, 2) > 12
    assert states(cluster, job) == ["QUEUED", "STARTING", "RUNNING", "PREEMPTING", "QUEUED", "STARTING", "RUNNING",
                                    "COMPLETED"]  # fmt: skip
    changes = cluster.history(job)
    times = [(c["state_change"]["to"], int(c["time_us"])) for c in changes]
    asked = next(at for state, at in times if state == "JOB_STATE_PREEMPTING")
    left = next(at for state, at in times if state == "JOB_STATE_QUEUED" and at >= asked)
    assert left - asked <= 10e6, "to save, and to end"
    back = [c["state_change"] for c in changes if c["state_change"]["to"] == "JOB_STATE_QUEUED"][-1]
    assert back["reason"] == "REASON_CODE_SPOT_NOTICE"
    assert "node a is being taken back by the cloud, at " in back["text"] and "lost" not in back["text"]

    # It goes as it said, and is not missed; a new machine of its name is used again.
    take_away(cluster, "a")
    wait_for("the node to be gone", lambda: cluster.node_state("a") == "NODE_STATE_LOST", 30)
    assert "taken back" in cluster.cli("nodes").stdout
    metadata.notice = None
    cluster.restart_agent("a")
    again = cluster.submit(make_job(nodes=2, epochs=1), "name=again")
    cluster.wait_state(again, "JOB_STATE_COMPLETED")
    assert reasons(cluster, "a") == ["NODE_JOINED", "SPOT_NOTICE", "SPOT_NOTICE", "NODE_HEARD", "NODE_WELL"]


def test_a_notice_can_be_a_file_and_be_withdrawn(spot_cluster: Cluster, make_job: MakeJob, tmp_path: Path) -> None:
    cluster = spot_cluster
    notice = tmp_path / "notice"
    notice.write_text("")
    cluster.start_agent("c", "--spot-notices", str(notice))
    cluster.cli("node", "cordon", "a")
    job = cluster.submit(make_job(nodes=1, epochs=1))
    wait_for("the reason to name the node",
             lambda: "node c is being taken back by the cloud" in cluster.job(job)["reason_text"], 20)  # fmt: skip
    notice.unlink()
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [p["node"] for p in done["placements"]] == ["c"]
