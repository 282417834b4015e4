"""Two nodes that share nothing but the declared checkpoint folder: network and mount namespaces of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

from conftest import MakeJob
from harness import Cluster, processes_with, wait_for
from netns import Network


def log_of_the_first_start(cluster: Cluster, job: int) -> list[str]:
    out = cluster.cli("logs", str(job), "--generation", "1", "-o", "json").stdout
    return sorted(str(json.loads(line)["text"]) for line in out.splitlines())


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
        # What the nodes said until then is imgd's now, whatever becomes of them.
        said = log_of_the_first_start(cluster, job)
        assert said, "imgd has no line of the first start"
        shutil.rmtree(tmp_path / f"private-{first}")
        (tmp_path / f"private-{first}").mkdir()
        assert set(said) <= set(log_of_the_first_start(cluster, job))
        cluster.restart_agent(first)
        done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
        assert int(done["generation"]) >= 2
        last = [
            e["step"] for e in cluster.events(job) if "step" in e and int(e["generation"]) == int(done["generation"])
        ]
        assert int(last[0]["step"]) > 5, "it began anew instead of from the shared checkpoint"
    finally:
        cluster.close()
