"""What ranks of a project may have on a node: its secrets. Real processes throughout."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, Cluster, wait_for

VALUES = {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENG", "WANDB_API_KEY": "0a1b2c3d4e5f60718293"}
AGENT = """\
secrets_dir: {secrets}
projects:
  "*": {{secrets: [s3-team, wandb]}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon that allows commands, and two agents, a and b, which have two secrets."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\n")
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    for name, variable in {"s3-team": "AWS_SECRET_ACCESS_KEY", "wandb": "WANDB_API_KEY"}.items():
        (secrets / name).touch(mode=0o600)
        (secrets / name).write_text(f"# of the team\n{variable}={VALUES[variable]}\n")
    (tmp_path / "agent.yaml").write_text(AGENT.format(secrets=secrets))
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        for node in ("a", "b"):
            cluster.start_agent(node, "--config", str(tmp_path / "agent.yaml"))
        yield cluster


def submit(cluster: Cluster, text: str) -> int:
    path = cluster.root / "job.yaml"
    path.write_text(text)
    return int(cluster.json("submit", str(path))["id"])


def log_of(cluster: Cluster, job: int, rank: int) -> str:
    return cluster.cli("logs", str(job), "--rank", str(rank)).stdout


def environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def ranks_of(cluster: Cluster, job: int) -> list[int]:
    """The programs of the job, which are shells, on all nodes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "comm").read_text() == "sh\n" and any(
                word.startswith(f"IMGD_RUN_DIR={cluster.root}/") and f"/runs/{job}-" in word
                for word in environment(int(path.name))
            ):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def places_with(value: str, cluster: Cluster, job: int) -> list[str]:
    """All places but the secrets' own files where the value stands."""
    said = {" ".join(words): cluster.cli(*words).stdout
            for words in (["show", str(job)], ["show", str(job), "-o", "json"], ["jobs", "-o", "json"], ["events", "-o", "json"],
                          ["logs", str(job)], ["watch", str(job), "--no-follow", "-o", "json"], ["explain", str(job)])}  # fmt: skip
    found = [name for name, text in said.items() if value in text]
    for path in cluster.root.rglob("*"):
        if path.is_file() and path.parent.name != "secrets" and value.encode() in path.read_bytes():
            found.append(str(path))
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if value.encode() in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue
    return found


def test_secrets_are_in_the_ranks_environment_and_nowhere_else(cluster: Cluster) -> None:
    # One that prints its environment, as badly written ones do.
    job = submit(cluster, "name: keeps\nproject: vision\nsecrets: [s3-team, wandb]\nresources: {nodes: 2}\n"
                 "command: {run: 'env; env >&2; echo key $WANDB_API_KEY >&2; "
                 "while ! test -f go; do sleep 0.05; done; exit 3'}\nmax_restarts: 0\n")  # fmt: skip
    cluster.wait_state(job, "JOB_STATE_RUNNING")
    for rank in (0, 1):
        wait_for("the program to print", lambda rank=rank: log_of(cluster, job, rank).count("WANDB_API_KEY=***") == 2)
    pids = ranks_of(cluster, job)
    assert len(pids) == 2
    for pid in pids:
        assert {f"{name}={value}" for name, value in VALUES.items()} <= set(environment(pid))
    for value in VALUES.values():
        assert places_with(value, cluster, job) == []
    (Path(cluster.job(job)["checkpoint_dir"]) / "go").touch()
    done = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert "exit code 3; last error line: key ***" in done["reason_text"]
    for value in VALUES.values():
        assert places_with(value, cluster, job) == []


def test_a_secret_that_a_node_does_not_give_ends_the_start_in_words(cluster: Cluster) -> None:
    job = submit(cluster, "name: asks\nproject: vision\nsecrets: [prod]\nmax_restarts: 0\ncommand: {run: 'true'}\n")
    failed = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert "a job of project vision may not have the secret 'prod'; it may have s3-team, wandb here" in failed["reason_text"]
    assert "node a could not start the ranks" in failed["reason_text"]


def test_an_agent_does_not_start_with_a_secret_that_others_can_read(cluster: Cluster) -> None:
    (cluster.root / "secrets" / "wandb").chmod(0o644)
    done = subprocess.run([BIN / "imgagent", "--config", cluster.root / "agent.yaml", "--check-config"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 5
    assert "secret 'wandb' of '*'" in done.stderr and "mode 0644: others get at it" in done.stderr
