"""imgd on a cluster that Slurm runs: deploy/slurm/imgagent.sbatch in an allocation of Debian's Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import BIN, ROOT, Cluster, free_port, processes_with, wait_for
from peer_slurm import Slurm, missing

SCRIPT = ROOT / "deploy/slurm/imgagent.sbatch"


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """Two nodes of one processor each, on this machine."""
    why = missing()
    if why:
        pytest.skip(why)
    # Not below pytest's folder, which munged's user may not enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        slurm = Slurm(Path(folder) / "slurm", nodes=2)
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Cluster]:
    """By TLS, with the token of docs/hosts.md in a folder that the nodes see."""
    (tmp_path / "checkpoints").mkdir()
    page = (ROOT / "docs/hosts.md").read_text()
    told = re.search(r"^\(umask 077; imgcli (node join-token [^>]*?) *>token", page, re.MULTILINE)
    assert told, "docs/hosts.md makes no token"
    with Cluster(tmp_path, secure=True) as cluster:
        cluster.start_daemon()
        (tmp_path / "token").write_text(cluster.cli(*told[1].split()).stdout)
        yield cluster


def nodes_in(cluster: Cluster, state: str) -> list[str]:
    return sorted(n["name"] for n in cluster.json("nodes") if n["state"] == state)


def allocate(slurm: Slurm, cluster: Cluster, **settings: str) -> str:
    """Starts the agents on both nodes; the allocation's number."""
    root = cluster.root
    environment = {"IMGD": cluster.server, "IMGD_NOTICE_DIR": str(root), "PATH": f"{BIN}:{os.environ['PATH']}",
                   "TMPDIR": str(root), **settings}  # fmt: skip
    slurm.environment |= environment
    submitted = slurm.run("sbatch", "--parsable", "--nodes=2", "--export=ALL", f"--chdir={root}",
                          f"--output={root}/allocation.log", str(SCRIPT), "--nvml", "none", "--cpu-slots", "1",
                          "--metrics-listen", "off", "--shared-folder", str(root / "checkpoints"),
                          "--token-file", str(root / "token"))  # fmt: skip
    number = submitted.stdout.strip()
    wanted = [f"n1-{number}", f"n2-{number}"]
    wait_for("the allocation's nodes", lambda: nodes_in(cluster, "NODE_STATE_READY") == wanted, 60)
    return number


@pytest.mark.long
def test_a_job_runs_on_slurms_nodes_and_leaves_them_before_the_allocation_ends(
    slurm: Slurm, daemon: Cluster, make_job: MakeJob
) -> None:
    number = allocate(slurm, daemon, IMGD_LEAVE_SECONDS="20")
    first = daemon.submit(make_job(nodes=2, epochs=1))
    daemon.wait_state(first, "JOB_STATE_COMPLETED")

    second = daemon.submit(make_job(nodes=2, epochs=50), "checkpoint.every_steps=0", "name=second")
    daemon.wait_step(second, 10)
    slurm.run("scancel", "--batch", "--signal=TERM", number)
    left = daemon.wait_state(second, "JOB_STATE_QUEUED", seconds=40)
    changes = [row["state_change"] for row in daemon.history(second)]
    back = [c for c in changes if c["from"] != c["to"] and c["to"] == "JOB_STATE_QUEUED"][-1]
    assert back["reason"] == "REASON_CODE_SPOT_NOTICE" and int(left["restarts"]) == 0, changes
    assert int(left["last_checkpoint"]["step"]) >= 10, "it left without a checkpoint"
    wait_for("the allocation to end", lambda: slurm.queued() == 0, 60)
    wait_for("its nodes to be gone", lambda: nodes_in(daemon, "NODE_STATE_READY") == [], 60)
    assert not processes_with(f"imgagent-{number}."), "something of the allocation is left"
    assert not list(daemon.root.glob(f"imgagent-{number}.*")) and not list(daemon.root.glob(".imgd-allocation-*"))

    # The next allocation brings other nodes, on which it goes on. The token has uses enough for both.
    other = allocate(slurm, daemon)
    (token,) = daemon.json("node", "join-tokens")
    assert sorted(use["node"] for use in token["joined"]) == sorted(
        f"n{i}-{n}" for i in (1, 2) for n in (number, other)
    )
    done = daemon.wait_step(second, int(left["last_checkpoint"]["step"]) + 3)
    assert int(done["generation"]) == 2
    daemon.cli("cancel", str(second), "--wait")


@pytest.mark.long
def test_a_run_by_hand_under_srun_is_one_job(slurm: Slurm, daemon: Cluster, make_job: MakeJob) -> None:
    """As docs/report.md says it, whose lines these are."""
    token = daemon.cli("token", "create", "--scope", "report", "--name", "slurm").stdout.strip()
    slurm.environment |= {"IMGD_REPORT_TOKEN": token, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                          "URL": f"https://127.0.0.1:{daemon.web_port}", "CA": str(daemon.root / "imgd/ca.crt"),
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                          "JOB": str(make_job(epochs=1))}  # fmt: skip
    told = re.search(r"srun [^\n]*sh -c '(.*?)'", (ROOT / "docs/report.md").read_text(), re.DOTALL)
    assert told, "docs/report.md has no such lines"
    lines = told[1].replace("job.yaml", '"$JOB"').replace("https://gpu-head:7651", '"$URL"').replace("ca.crt", '"$CA"')
    slurm.run("srun", "--nodes=2", "--ntasks-per-node=1", f"--chdir={daemon.root}", "sh", "-c", lines)
    (shown,) = daemon.json("jobs")
    job = int(shown["id"])
    done = daemon.wait_state(job, "JOB_STATE_COMPLETED", seconds=30)
    assert done["external"] and [int(step["step"]) for step in daemon.steps(job)] == list(range(1, 11))


def test_outside_an_allocation_the_script_says_how_it_is_started() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "start it by sbatch" in done.stderr
    done = subprocess.run([SCRIPT], env=environment | {"SLURM_JOB_ID": "1"}, capture_output=True, text=True)
    assert done.returncode == 2 and "IMGD=HOST:PORT" in done.stderr
