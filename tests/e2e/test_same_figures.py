"""One run, looked at in five ways over the same stretch: they show the same images a second."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import CHROMIUM, NODE, ROOT, Cluster, wait_for
from prometheus import PROGRAM, Prometheus, rules_without_patience

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed"),
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium: apt-get install chromium, or IMGD_CHROMIUM"),
    pytest.mark.skipif(not NODE.exists(), reason="there is no Node.js: ./run setup"),
]

LEAST_REPORTS = 60
SPEED = "train/images_per_second"
# A line of the log's table: step, epoch, speed.
LOGGED = re.compile(r" *(\d+) +[\d.]+ +([\d.]+) +\S+ +\S+ +\S+")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, ["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        for name in ("a", "b"):
            cluster.start_agent(name, "--metrics-listen", "127.0.0.1:0")
        yield cluster


@pytest.fixture
def prometheus(cluster: Cluster) -> Iterator[Prometheus]:
    server = Prometheus(cluster, rules_without_patience(), every="1s")
    yield server
    server.close()


def test_five_ways_to_look_at_a_run_show_the_same(cluster: Cluster, prometheus: Prometheus, make_job: MakeJob) -> None:
    # A report about every second, and nothing between that would count in one way and not in another.
    sets = ("report={json_lines: true}", "train.log_every_steps=10", "train.eval_every_epochs=100000",
            "checkpoint.every_steps=0")  # fmt: skip
    job = cluster.submit(make_job(nodes=2, epochs=100_000), *sets)
    wait_for("enough reports", lambda: len(cluster.steps(job)) >= LEAST_REPORTS, 300)
    told = cluster.events(job)
    steps = [e for e in told if "step" in e][10:]
    first, last = steps[0], steps[-1]
    low, high = int(first["step"]["step"]), int(last["step"]["step"])
    seconds = (int(last["time_us"]) - int(first["time_us"])) / 1e6
    over = f"[{seconds:.0f}s] @ {int(last['time_us']) / 1e6:.3f}"
    shown = prometheus.value(f'sum(avg_over_time(imgd_job_images_per_second{{job_id="{job}"}}{over}))')
    page = subprocess.run([NODE, ROOT / "web/test/speed.ts", f"http://{cluster.host}:{cluster.web_port}", str(job)],
                          capture_output=True, text=True, timeout=90,
                          env={**os.environ, "IMGD_CHROMIUM": str(CHROMIUM)})  # fmt: skip
    assert page.returncode == 0, page.stderr
    table = cluster.cli("metrics", str(job), "--names", "images_per_second", "--points", "10000", "-o", "csv").stdout
    log = cluster.cli("logs", str(job), "--rank", "0").stdout
    lines = [json.loads(line) for path in (tmp_logs(cluster)) for line in path.read_text().splitlines()]

    # The log has a line in ten steps, which is what was reported of that step.
    logged = {int(m[1]): float(m[2]) for line in log.splitlines() if (m := LOGGED.fullmatch(line))}
    reported = {x["step"]: x[SPEED] for x in lines if SPEED in x}
    told_by_log = {step: speed for step, speed in logged.items() if low <= step <= high}
    assert len(told_by_log) >= 5
    assert told_by_log == pytest.approx({step: reported[step] for step in told_by_log}, abs=0.06)

    def mean(pairs: list[tuple[float, float]]) -> float:
        within = [value for step, value in pairs if low <= step <= high]
        assert len(within) >= len(steps) // 2
        return statistics.fmean(within)

    figures = {
        "trainer": mean(list(reported.items())),
        "cli": mean([(float(r["step"]), float(r["last"])) for r in csv.DictReader(io.StringIO(table))]),
        "dashboard": mean([(float(step), float(value)) for step, value in json.loads(page.stdout)]),
        "prometheus": shown or 0.0,
    }
    assert max(figures.values()) <= min(figures.values()) * 1.05, figures


def tmp_logs(cluster: Cluster) -> list[Path]:
    found = sorted(cluster.root.glob("checkpoints/**/metrics.g*.jsonl"))
    assert found
    return found
