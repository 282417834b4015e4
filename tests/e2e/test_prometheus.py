"""What a real Prometheus has of a live cluster: devices, jobs, every query of every dashboard, alerts by their causes.

Node `well` has two GPUs, which a command holds, one of them idle; `ill` has eight, one throttled, one with an Xid, one
whose power can't be read, one whose memory fails after a while; they are NVML's by a script. On two of `a`, `b` and
`c`, CPU slots, ranks train.
"""

from __future__ import annotations

import json
import math
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from conftest import MakeJob
from gpus import ILL, WELL, gpu_agent
from harness import ROOT, Cluster, wait_for
from prometheus import PROGRAM, PROMTOOL, Prometheus, complaints_of, dashboards, rules_without_patience

pytestmark = [pytest.mark.long, pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed")]

SHELL = "name: holds-gpus\nresources: {gpu: {count: 2}}\n" \
        "command: {run: 'test $RANK = 1 || test -e again || { touch again; exit 1; }; sleep 600'}\n"  # fmt: skip
# What the cluster below shows, once `for` is left out.
CAUSED = {"GpuAllocatedButIdle", "GpuThrottled", "GpuReadingFails", "GpuXidErrors", "GpuMemoryErrors", "NodeSick",
          "DevicesIdleWhileJobsWait"}  # fmt: skip
NOT_CAUSED = {"ImgdDown", "ImgdCannotStore", "AgentMetricsDown", "NodeLost"}

NOUGHT = [{"metric": {}, "value": [ANY, "0"]}]  # of a query that says 0 where there is nothing
# What this cluster can't have, and what has the same labels: its query is held to the other one's answer.
STAND_INS = {"imgd_job_h2d_seconds_total": "imgd_job_input_wait_seconds_total"}  # ranks on CPU slots copy to no GPU


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\ncurrency: USD\nlost_after: 30s\n")
    with Cluster(tmp_path, ["--config", str(tmp_path / "imgd.yaml"), "--web-plain-http"]) as cluster:
        cluster.start_daemon()
        yield cluster


@pytest.fixture
def prometheus(cluster: Cluster) -> Iterator[Prometheus]:
    server = Prometheus(cluster, rules_without_patience())
    yield server
    server.close()


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Title and expression of each, with variables as if all were chosen, but for the cluster."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], re.sub(r"\$(?!cluster)\w+", ".+", target["expr"])


def wrong_queries(prometheus: Prometheus) -> list[str]:
    """Those that have no answer of the cluster, or nothing but NaN."""
    wrong = []
    (cluster_id,) = prometheus.label_values("imgd_build_info", "cluster")
    for path in dashboards():
        dashboard = json.loads(path.read_text())
        for title, expression in queries(dashboard):
            assert prometheus.query(expression.replace("$cluster", "another")) in ([], NOUGHT), expression
            expression = expression.replace("$cluster", cluster_id)
            for absent, stand_in in STAND_INS.items():
                if absent in expression:
                    assert prometheus.query(absent) == [], f"{absent} is there: it needs no stand-in"
                    assert prometheus.query(expression) == []
                    expression = expression.replace(absent, stand_in)
            values = [float(series["value"][1]) for series in prometheus.query(expression)]
            if not any(math.isfinite(value) for value in values):
                wrong.append(f"{path.name}: {title}: {expression}: {values}")
        for variable in dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert match, variable
            if not prometheus.label_values(match[1].replace("$cluster", cluster_id), match[2]):
                wrong.append(f"{path.name}: variable {variable['name']}")
    return wrong


def test_a_live_cluster_is_seen_whole(cluster: Cluster, prometheus: Prometheus, make_job: MakeJob) -> None:
    begun = time.monotonic()
    gpu_agent(cluster, "well", WELL)
    joined = time.monotonic()
    wait_for("the new agent to be scraped", lambda: prometheus.value('up{job="imgagent", node="well"}') == 1, 15)
    print(f"scraped {time.monotonic() - joined:.1f} s after it had joined, started {joined - begun:.1f} s before")

    # What has happened before imgd is first scraped is no increase of anything.
    wait_for("imgd to be scraped", lambda: prometheus.value('up{job="imgd"}') == 1, 15)

    (cluster.root / "shell.yaml").write_text(SHELL)
    holds = cluster.submit(cluster.root / "shell.yaml")
    gpu_agent(cluster, "ill", ILL)
    for name in ("a", "b", "c"):
        cluster.start_agent(name, "--metrics-listen", "127.0.0.1:0", "--label", f"zone=z-{name}")
    wait_for("the command to run again", lambda: cluster.job(holds)["generation"] == "2", 60)
    cluster.wait_state(holds, "JOB_STATE_RUNNING")
    training = cluster.submit(make_job(nodes=2, epochs=2000))
    cluster.wait_step(training, 25, 120)
    waits = cluster.submit(make_job(nodes=16))

    # What is held is what the jobs hold, and the uses add up to all devices that there are.
    wait_for("the devices", lambda: prometheus.value("sum(imgd_devices)") == 13, 30)
    wait_for("what is held", lambda: prometheus.value('sum(imgd_devices{use="allocated"})') == 4, 30)
    assert prometheus.label_values("imgd_devices", "use") == {"allocated", "idle", "set_aside", "unavailable"}
    wait_for("the agent's word for it", lambda: prometheus.value('sum(imgd_gpu_allocated{node="well"})') == 2, 30)
    wait_for(f"job {waits} in the queue", lambda: prometheus.value('imgd_jobs{state="queued"}') == 1, 30)
    on_a = 'imgd_node_memory_bytes{node="a"}'
    wait_for("a's labels", lambda: prometheus.label_values(on_a, "label_zone") == {"z-a"}, 30)

    # Once, however many nodes it is on.
    its = f'{{job_id="{training}"}}'
    wait_for("the loss", lambda: prometheus.value(f"count(imgd_job_loss{its})") == 1, 30)
    assert prometheus.value(f"count(imgd_job_rank_own_seconds{its})") == 3
    wait_for("both nodes' ranks", lambda: prometheus.value(f"sum(imgd_job_ranks{its})") == 2, 30)
    nodes = [f'imgd_node_ranks{{node="{name}"}}' for name in "abc"]
    wait_for("each node's ranks", lambda: sum(prometheus.value(one) or 0 for one in nodes) == 2, 30)
    series = prometheus.value(f'count({{__name__=~"imgd_job_.+", job_id="{training}"}})')
    assert series and 25 < series <= 38, "as docs/metrics.md says, on any number of nodes"

    # A stream that ends and a call that fails, as the control plane's panels show them.
    assert cluster.events(holds)
    assert cluster.cli("show", "999", check=False).returncode == 3
    deadline = time.monotonic() + 60
    while (wrong := wrong_queries(prometheus)) and time.monotonic() < deadline:
        time.sleep(1)
    assert not wrong, "\n".join(wrong)
    if PROMTOOL:
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster.web_port}/metrics", timeout=10) as answer:
            assert complaints_of(answer.read().decode()) == ""

    # The same images a second as the trainer's own reports have, which change while one looks.
    def same_speed() -> bool:
        shown = prometheus.value(f'sum(imgd_job_images_per_second{{job_id="{training}"}})') or 0
        told = [float(step["images_per_second"]) for step in cluster.steps(training)[-40:]]
        return min(told) * 0.95 <= shown <= max(told) * 1.05

    wait_for("the trainer's own speed", same_speed, 30)

    def all_fire() -> bool:
        return prometheus.firing() >= CAUSED

    wait_for(f"{CAUSED} to fire", all_fire, 60)
    assert not prometheus.firing() & NOT_CAUSED
    held = prometheus.query('ALERTS{alertname="GpuAllocatedButIdle"}')
    assert [(s["metric"]["node"], s["metric"]["gpu"]) for s in held] == [("well", "0")]
    assert prometheus.value('imgd_gpu_throttled{node="ill", gpu="0", reason="hardware_thermal"}') == 1
    assert prometheus.value('imgd_gpu_xid_errors_total{node="ill", gpu="2", of="hardware"}') == 1
    assert prometheus.query('imgd_gpu_power_watts{node="ill", gpu="3"}') == [], "what can't be read has no series"
    assert prometheus.value('count(imgd_gpu_power_watts{node="ill"})') == 7

    # A job that ends takes its series along; an agent or a daemon that ends is told of, and the others are scraped on.
    cluster.cli("cancel", str(training), "--wait")
    wait_for("the job's series to go", lambda: prometheus.query(f'imgd_job_ranks{{job_id="{training}"}}') == [], 30)
    cluster.agents["c"].kill()
    wait_for("AgentMetricsDown", lambda: "AgentMetricsDown" in prometheus.firing(), 40)
    wait_for("NodeLost", lambda: "NodeLost" in prometheus.firing(), 60)
    assert cluster.daemon
    cluster.daemon.terminate()
    cluster.daemon.wait(20)
    wait_for("ImgdDown", lambda: "ImgdDown" in prometheus.firing(), 60)
    assert prometheus.value('sum(up{job="imgagent"})') == 4


def is_scraped(prometheus: Prometheus, node: str) -> bool:
    return prometheus.value(f'up{{job="imgagent", node="{node}"}}') == 1


def test_an_agent_that_nobody_dials_is_scraped_by_imgd(
    cluster: Cluster, prometheus: Prometheus, make_job: MakeJob
) -> None:
    """`metrics_listen: relay`: no port is opened on the node, and Prometheus has the same of it."""
    cluster.start_agent("far", "--metrics-listen", "relay", "--label", "zone=z-far")
    cluster.start_agent("near", "--metrics-listen", "127.0.0.1:0")
    for node in ("far", "near"):
        wait_for(f"{node} to be scraped", partial(is_scraped, prometheus, node), 15)
    scraped = prometheus.query('imgd_node_memory_bytes{node="far"}')
    assert [(s["metric"]["instance"], s["metric"]["label_zone"]) for s in scraped] == [("far", "z-far")]
    training = cluster.submit(make_job(nodes=2, epochs=2000))
    cluster.wait_step(training, 5, 120)
    ranks = f'sum by (job_id) (imgd_job_ranks{{job_id="{training}"}})'
    wait_for("the ranks of both nodes", lambda: prometheus.value(ranks) == 2, 20)

    # What it answers itself, and for whom it has nothing.
    url = f"http://127.0.0.1:{cluster.web_port}/metrics/nodes/"
    with urllib.request.urlopen(url + "far", timeout=10) as answer:
        assert b"imgd_node_memory_bytes" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url + "near", timeout=10)
    assert refused.value.code == 412
    assert "metrics_listen: relay" in json.load(refused.value)["hint"]

    # An agent that is stuck is told of in words, before Prometheus gives up.
    cluster.agents["far"].send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(urllib.error.HTTPError) as late:
            urllib.request.urlopen(url + "far", timeout=10)
        assert late.value.code == 504
        assert "did not answer in time" in json.load(late.value)["message"]
    finally:
        cluster.agents["far"].send_signal(signal.SIGCONT)
    wait_for("far to be scraped again", lambda: prometheus.value('up{job="imgagent", node="far"}') == 1, 30)


@pytest.mark.parametrize("secure", [False, True], ids=["loopback", "network"])
def test_prometheus_as_handed_out_scrapes_an_imgd_as_handed_out(tmp_path: Path, secure: bool) -> None:
    """HTTPS by imgd's own CA, and a token, for imgd, an agent that is dialled and one that is not; with gRPC in plain
    text, as on loopback, and by TLS, as on a network."""
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, ["--config", str(ROOT / "deploy/imgd.yaml")], secure=secure) as cluster:
        cluster.start_daemon()
        prometheus = Prometheus(cluster, rules_without_patience())
        try:
            cluster.start_agent("far", "--metrics-listen", "relay")
            cluster.start_agent("near", "--metrics-listen", "127.0.0.1:0")
            for node in ("far", "near"):
                wait_for(f"{node} to be scraped", partial(is_scraped, prometheus, node), 15)
                assert prometheus.value(f'imgd_node_memory_bytes{{node="{node}"}}')
            wait_for("imgd to be scraped", lambda: prometheus.value('imgd_agents{state="ready"}') == 2, 15)
            # The token is what lets it in: without it the agent that it dials itself is left.
            cluster.cli("token", "revoke", "prometheus")
            wait_for("imgd to refuse it", lambda: prometheus.value('up{job="imgd"}') == 0, 15)
            wait_for("and far", lambda: prometheus.value('up{job="imgagent", node="far"}') == 0, 15)
            assert is_scraped(prometheus, "near")
        finally:
            prometheus.close()
