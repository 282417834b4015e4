"""A running job on its node's /metrics, as Prometheus sees it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from exposition import Family, parse
from harness import Cluster, wait_for
from prometheus import PROMTOOL, complaints_of

STAGES = {"read", "decode", "augment", "idle"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon and one agent, whose metrics are on a port that it picks."""
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a", "--metrics-listen", "127.0.0.1:0")
        yield cluster


def ports(cluster: Cluster) -> list[str]:
    """Where each process of the agent serves, by its log."""
    return re.findall(r'port=(\d+) msg="serves /metrics"', (cluster.root / "a.log").read_text())


def text_of(cluster: Cluster) -> str:
    """What the agent that was started last serves."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ports(cluster)[-1]}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def scrape(cluster: Cluster) -> dict[str, Family]:
    return parse(text_of(cluster))


def jobs_of(families: dict[str, Family]) -> dict[str, Family]:
    """Those of jobs; the others are the node's."""
    return {name: family for name, family in families.items() if name.startswith("imgd_job_")}


def seconds(families: dict[str, Family], stage: str) -> float:
    return families["imgd_job_loader_seconds_total"].total(stage=stage)


def test_a_running_job_s_loader_is_seen_and_goes_with_it(cluster: Cluster, make_job: MakeJob) -> None:
    assert jobs_of(scrape(cluster)) == {}
    job_id = cluster.submit(make_job(nodes=1, epochs=200))

    def training() -> dict[str, Family] | None:
        families = scrape(cluster)
        return families if "imgd_job_step" in families else None

    first = wait_for("the first report on /metrics", training)
    assert {dict(labels)["stage"] for labels in first["imgd_job_loader_seconds_total"].samples} == STAGES
    for family in jobs_of(first).values():
        assert all(("job_id", str(job_id)) in labels and ("generation", "1") in labels for labels in family.samples)
    assert first["imgd_job_ranks"].total() == 1
    assert first["imgd_job_input_wait_seconds_total"].total() >= 0

    def grown() -> dict[str, Family] | None:
        families = scrape(cluster)
        growing = all(seconds(families, stage) > seconds(first, stage) for stage in ("read", "decode"))
        return families if growing else None

    later = wait_for("the seconds of reading and decoding to grow", grown)
    for families in (first, later):
        step, images = families["imgd_job_step"].total(), families["imgd_job_images_total"].total()
        assert images == step * 16, "one snapshot: the images of just these steps"
        assert images <= families["imgd_job_loader_images_total"].total()
        assert families["imgd_job_loader_bytes_total"].total() > 0
        assert families["imgd_job_images_per_second"].total() > 0
        assert families["imgd_job_loss"].total() > 0

    # The next agent goes on where this one was: for Prometheus no new images come from it.
    agent = cluster.agents["a"]
    agent.kill()
    agent.wait()
    cluster.restart_agent("a")
    wait_for("the new agent to serve", lambda: len(ports(cluster)) == 2)
    again = wait_for("the run on the new agent's /metrics", training)
    for name, family in later.items():
        # The node's network is counted from when the agent began.
        if family.kind == "counter" and not name.startswith("imgd_node_network_"):
            assert all(again[name].samples[labels] >= value for labels, value in family.samples.items()), name

    assert again["imgd_node_cpu_seconds_total"].total() > 0
    page = text_of(cluster)
    cluster.cli("cancel", str(job_id), "--wait")
    wait_for("the job's series to go", lambda: jobs_of(scrape(cluster)) == {}, 10)
    if PROMTOOL is None:
        pytest.skip("all but promtool's word for it: that is not installed")
    assert complaints_of(page) == ""
