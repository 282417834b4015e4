"""Fixtures of the whole-system tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import BIN, Cluster
from netns import Network, namespaces_work

JOB = """\
name: small
model: {{name: resnet18}}
resources: {{nodes: {nodes}, ranks_per_node: 1}}
seed: 7
grace: 5s
data:
  train: {data}/train
  val: {data}/val
  image_size: 32
  min_scale: 0.35
  workers: 1
train: {{epochs: {epochs}, global_batch: 16, precision: fp32, threads: 1, log_every_steps: 1}}
optimizer: {{lr: 0.02}}
schedule: {{warmup_epochs: 0.5}}
loss: {{label_smoothing: 0.0}}
checkpoint: {{dir: {checkpoints}, every_epochs: 0, every_steps: 5}}
"""

MakeJob = Callable[..., Path]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 classes, 40 training and 10 validation images each, 48x48."""
    out = tmp_path_factory.mktemp("data") / "shapes"
    subprocess.run([BIN / "imgcli", "dataset", "synth", "--classes", "4", "--per-class", "40", "--val-per-class", "10",
                    "--size", "48x48", "--seed", "3", out], check=True, capture_output=True)  # fmt: skip
    return out


@pytest.fixture
def make_job(dataset: Path, tmp_path: Path) -> MakeJob:
    """Writes a job file over the small data set."""

    def make(nodes: int = 2, epochs: int = 4, checkpoints: Path | None = None) -> Path:
        path = tmp_path / f"job-{nodes}-{epochs}.yaml"
        path.write_text(JOB.format(nodes=nodes, epochs=epochs, data=dataset,
                                   checkpoints=checkpoints or tmp_path / "checkpoints"))  # fmt: skip
        return path

    return make


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon and two agents, a and b, of one CPU slot each."""
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        cluster.start_agent("b")
        yield cluster


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """Nodes a and b, or those that the test names, each in a network namespace of its own, and a hub for the daemon."""
    missing = namespaces_work()
    if missing:
        pytest.skip(missing)
    net = Network(str(os.getpid() % 100000), list(getattr(request, "param", "ab")))
    try:
        yield net
    finally:
        net.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Shows the programs' own logs beside a failure."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.when == "call" and report.failed and isinstance(cluster, Cluster):
        report.sections.append(("logs of the programs", cluster.tails()))
