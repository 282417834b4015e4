"""What two thousand open dashboards cost imgd in memory. What they take of the processor `./run bench web` measures."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster
from listeners import Listeners

pytestmark = pytest.mark.long

LISTENERS = 2000
MOST_MEGABYTES = 100
# They wait: each is an event and a job on the stream.
JOBS = "name: many\ndata: {train: /data/train}\nresources: {nodes: 2}\nsweep: {grid: {seed: [%s]}}\n"


@pytest.fixture
def open_files() -> Iterator[None]:
    """As many as the machine lets one have, for imgd too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < LISTENERS + 200:
        pytest.skip(f"a process may have only {hard} open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def megabytes(cluster: Cluster) -> float:
    assert cluster.daemon
    status = Path(f"/proc/{cluster.daemon.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


@pytest.mark.usefixtures("open_files")
@pytest.mark.parametrize("plain", [False, True], ids=["https", "http"])
def test_two_thousand_listeners_take_little_memory(tmp_path: Path, plain: bool) -> None:
    with Cluster(tmp_path, ["--web-plain-http"] if plain else []) as cluster:
        cluster.start_daemon()
        (tmp_path / "jobs.yaml").write_text(JOBS % ", ".join(map(str, range(40))))

        def happen(listeners: Listeners) -> None:
            """Much at once, some times over."""
            for _ in range(5):
                cluster.submit(tmp_path / "jobs.yaml")
                listeners.read_for(1)

        ca = None if plain else tmp_path / "imgd/ca.crt"
        one = Listeners(cluster.web_port, 1, ca)
        happen(one)
        one.close()
        before = megabytes(cluster)
        listeners = Listeners(cluster.web_port, LISTENERS, ca)
        try:
            listeners.read_for(2)
            listeners.received = 0
            happen(listeners)
            listeners.read_for(2)
            grown = megabytes(cluster) - before
            assert (listeners.ended, len(listeners.heard)) == (0, LISTENERS)
            assert listeners.received > LISTENERS * 100_000, "each of all of it"
        finally:
            listeners.close()
        print(f"{LISTENERS} listeners: {grown:.0f} MB more than one")
        assert grown <= MOST_MEGABYTES
