"""Two nodes that share nothing but the declared checkpoint folder: network and mount namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, processes_with, wait_for


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def namespaces_work() -> str:
    """Empty when this machine has what the test needs, else what it lacks."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    probe = subprocess.run(["ip", "netns", "add", "imgd-probe"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"no network namespaces here: {probe.stderr.strip()}"
    ip("netns", "del", "imgd-probe")
    return ""


class Network:
    """A bridge in a namespace of its own, for the daemon, and one namespace for each node."""

    def __init__(self, tag: str, nodes: list[str]) -> None:
        self.hub = f"imgd-{tag}-hub"
        self.names = {node: f"imgd-{tag}-{node}" for node in nodes}
        self.address = {"hub": "10.77.0.1", **{n: f"10.77.0.{10 + i}" for i, n in enumerate(nodes)}}
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "set", "lo", "up")
        ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        ip("-n", self.hub, "addr", "add", "10.77.0.1/24", "dev", "br0")
        ip("-n", self.hub, "link", "set", "br0", "up")
        for node, name in self.names.items():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", self.hub, "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", self.hub, "link", "set", f"to-{node}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{self.address[node]}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def close(self) -> None:
        for name in [*self.names.values(), self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    missing = namespaces_work()
    if missing:
        pytest.skip(missing)
    net = Network(str(os.getpid() % 100000), ["a", "b"])
    try:
        yield net
    finally:
        net.close()


def test_a_killed_rank_resumes_though_the_first_agents_folder_is_gone(
    network: Network, tmp_path: Path, make_job: MakeJob
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    cluster = Cluster(tmp_path, host=network.address["hub"], port=7650, prefix=["ip", "netns", "exec", network.hub])
    for node in ("a", "b"):
        (tmp_path / f"private-{node}").mkdir()

    def prefix(node: str) -> list[str]:
        # In the node's mount namespace its state folder is the private one's, and the other's is hidden.
        other = "b" if node == "a" else "a"
        setup = (f"mount -t tmpfs tmpfs {tmp_path}/private-{other} && mkdir -p {tmp_path}/{node} && "
                 f"mount --bind {tmp_path}/private-{node} {tmp_path}/{node} && exec \"$@\"")  # fmt: skip
        return ["ip", "netns", "exec", network.names[node], "unshare", "--mount", "--propagation", "private",
                "sh", "-c", setup, "sh"]  # fmt: skip

    try:
        cluster.start_daemon()
        for node in ("a", "b"):
            cluster.start_agent(node, "--shared-folder", str(shared), prefix=prefix(node))
        job = cluster.submit(make_job(epochs=6, checkpoints=shared))
        cluster.wait_step(job, 13)
        addresses = {n["name"]: n["address"] for n in cluster.json("nodes")}
        assert addresses == {n: network.address[n] for n in ("a", "b")}
        first = cluster.job(job)["placements"][0]["node"]
        cluster.agents[first].kill()
        cluster.agents[first].wait()
        os.kill(cluster.rank_pids(job)[0], signal.SIGKILL)
        wait_for("the shim of the first node to end", lambda: not processes_with(f"{tmp_path}/{first}/runs"), 20)
        shutil.rmtree(tmp_path / f"private-{first}")
        (tmp_path / f"private-{first}").mkdir()
        cluster.restart_agent(first)
        done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
        assert int(done["generation"]) >= 2
        last = [
            e["step"] for e in cluster.events(job) if "step" in e and int(e["generation"]) == int(done["generation"])
        ]
        assert int(last[0]["step"]) > 5, "it began anew instead of from the shared checkpoint"
    finally:
        cluster.close()
