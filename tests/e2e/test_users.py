"""What ranks of a project may have on a node: its secrets, a user, paths. Real processes throughout."""

from __future__ import annotations

import ctypes
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import BIN, Cluster, wait_for

LANDLOCK_CREATE_RULESET = 444
VALUES = {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENG", "WANDB_API_KEY": "0a1b2c3d4e5f60718293"}
# Users that every Debian has, and that nobody is.
GAMES, NOBODY, DAEMON = 5, 65534, 1
# As systemd starts an agent by imgagent.service and imgagent-users.conf.
CAPABILITIES = "-all,+chown,+kill,+setgid,+setuid"
AS_THE_UNIT = ["sh", "-c", 'umask 0027; exec "$@"', "sh", "setpriv", f"--reuid={DAEMON}", f"--regid={DAEMON}",
               "--clear-groups", "--no-new-privs", f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}",
               f"--bounding-set={CAPABILITIES}"]  # fmt: skip
FOR_ALL = """\
secrets_dir: {root}/secrets
projects:
  "*": {{secrets: [s3-team, wandb]}}
"""
BY_PROJECT = """\
secrets_dir: {root}/secrets
projects:
  vision:
    user: games
    groups: [mail]
    secrets: [s3-team, wandb]
    paths: {{read: [{read}], write: [{root}/vision]}}
  "*": {{user: nobody}}
"""


def libraries() -> list[str]:
    """Folders of the trainer's libraries that lie elsewhere than the system's: with a build, LibTorch's."""
    linked = subprocess.run(["ldd", BIN / "imgtrain"], check=True, capture_output=True, text=True).stdout
    found = (Path(words[2]).resolve().parent for line in linked.splitlines() if len(words := line.split()) > 3)
    return sorted({str(folder) for folder in found if not folder.is_relative_to("/usr")})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon that allows commands; two secrets; folders that all may pass through."""
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\nshell: true\n")
    (tmp_path / "secrets").mkdir(mode=0o700)
    for name, variable in {"s3-team": "AWS_SECRET_ACCESS_KEY", "wandb": "WANDB_API_KEY"}.items():
        (tmp_path / "secrets" / name).touch(mode=0o600)
        (tmp_path / "secrets" / name).write_text(f"# of the team\n{variable}={VALUES[variable]}\n")
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        yield cluster


def start_agents(cluster: Cluster, config: str, prefix: list[str] | None = None, **names: str) -> None:
    (cluster.root / "agent.yaml").write_text(config.format(root=cluster.root, **names))
    for node in ("a", "b"):
        cluster.start_agent(node, "--config", str(cluster.root / "agent.yaml"), prefix=prefix)


def start_agents_by_project(cluster: Cluster, *read: Path, as_root: bool = True) -> Path:
    """Returns the folder that vision's ranks may write in."""
    if os.geteuid() != 0:
        pytest.skip("only root can run ranks as other users")
    try:
        users = (pwd.getpwnam("games").pw_uid, pwd.getpwnam("nobody").pw_uid)
    except KeyError as missing:
        pytest.skip(f"this machine lacks a user: {missing}")
    if users != (GAMES, NOBODY) or ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) < 2:
        pytest.skip("this machine has other users than Debian's, or a kernel without Landlock")
    if not all(folder.stat().st_mode & 0o001 for folder in BIN.parents):
        pytest.skip(f"other users can't reach {BIN}")
    if not as_root:
        for folder in ("a", "b"):
            (cluster.root / folder).mkdir(mode=0o750)
        for path in [*(cluster.root / "secrets").iterdir(), *(cluster.root / name for name in ("a", "b", "secrets"))]:
            os.chown(path, DAEMON, DAEMON)
    own = cluster.root / "vision"
    own.mkdir(mode=0o700)
    os.chown(own, GAMES, GAMES)
    start_agents(cluster, BY_PROJECT, None if as_root else AS_THE_UNIT, read=", ".join([*libraries(), *map(str, read)]))
    return own


@pytest.fixture
def hidden() -> Iterator[Path]:
    """A folder that is open to all users, and not in /dev/shm, which all ranks see."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


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
    commands = ("show {}", "show {} -o json", "jobs -o json", "events -o json", "logs {}", "explain {}",
                "watch {} --no-follow -o json")  # fmt: skip
    found = [command for command in commands if value in cluster.cli(*command.format(job).split()).stdout]
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
    start_agents(cluster, FOR_ALL)
    # One that prints its environment, as badly written ones do.
    job = submit(cluster, "name: keeps\nproject: vision\nsecrets: [s3-team, wandb]\nresources: {nodes: 2}\n"
                 "command: {run: 'env; env >&2; echo key $WANDB_API_KEY >&2; "
                 "while ! test -f go; do sleep 0.05; done; exit 3'}\nmax_restarts: 0\n")  # fmt: skip
    cluster.wait_state(job, "JOB_STATE_RUNNING")
    wait_for(
        "both to print", lambda: all(log_of(cluster, job, rank).count("WANDB_API_KEY=***") == 2 for rank in (0, 1))
    )
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
    start_agents(cluster, FOR_ALL)
    job = submit(cluster, "name: asks\nproject: vision\nsecrets: [prod]\nmax_restarts: 0\ncommand: {run: 'true'}\n")
    failed = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert (
        "a job of project vision may not have the secret 'prod'; it may have s3-team, wandb here"
        in failed["reason_text"]
    )
    assert "node a could not start the ranks" in failed["reason_text"]


def test_an_agent_does_not_start_with_a_secret_that_others_can_read(cluster: Cluster) -> None:
    (cluster.root / "agent.yaml").write_text(FOR_ALL.format(root=cluster.root))
    (cluster.root / "secrets" / "wandb").chmod(0o644)
    done = subprocess.run([BIN / "imgagent", "--config", cluster.root / "agent.yaml", "--check-config"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 5
    assert "projects: '*': " in done.stderr and "/secrets/wandb is of user 0" in done.stderr
    assert "mode 0644: others get at it" in done.stderr


def test_ranks_of_a_project_are_its_user_see_its_paths_and_have_its_secrets(cluster: Cluster, hidden: Path) -> None:
    own = start_agents_by_project(cluster)
    (hidden / "file").write_text("for any user\n")
    job = submit(cluster, f"name: who\nproject: vision\nsecrets: [s3-team]\nresources: {{nodes: 2}}\n"
                 f"checkpoint: {{dir: {own}}}\ncommand:\n  run: |\n"
                 f"    cat {hidden}/file; cat {cluster.root}/secrets/s3-team\n"
                 "    grep NoNewPrivs /proc/self/status; echo $AWS_SECRET_ACCESS_KEY > kept.$RANK; env; id -G\n"
                 f"    while ! test -f {own}/go; do sleep 0.05; done\n")  # fmt: skip
    wait_for("both to print", lambda: all(log_of(cluster, job, rank).rstrip().endswith("60 8") for rank in (0, 1)))
    pids = ranks_of(cluster, job)
    assert len(pids) == 2
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Uid:\t{GAMES}\t{GAMES}\t{GAMES}\t{GAMES}\n" in status and "NoNewPrivs:\t1\n" in status
        assert f"AWS_SECRET_ACCESS_KEY={VALUES['AWS_SECRET_ACCESS_KEY']}" in environment(pid)
        assert "WANDB_API_KEY" not in Path(f"/proc/{pid}/environ").read_text()
    for rank in (0, 1):
        said = log_of(cluster, job, rank)
        assert f"{hidden}/file: Permission denied" in said and "secrets/s3-team: Permission denied" in said
        assert "for any user" not in said and "AWS_SECRET_ACCESS_KEY=***" in said
        kept = Path(cluster.job(job)["checkpoint_dir"]) / f"kept.{rank}"
        assert kept.stat().st_uid == GAMES and kept.read_text().strip() == VALUES["AWS_SECRET_ACCESS_KEY"]
        kept.unlink()
    assert places_with(VALUES["AWS_SECRET_ACCESS_KEY"], cluster, job) == []
    # A shell beside a rank is what the rank is, and no more.
    beside = cluster.cli("shell", str(job), "--", "sh", "-c", f"id -u; cat {hidden}/file", check=False)
    assert beside.stdout == f"{GAMES}\n" and "Permission denied" in beside.stderr
    (own / "go").touch()
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert places_with(VALUES["AWS_SECRET_ACCESS_KEY"], cluster, job) == []


def test_other_projects_have_another_user_and_no_secret(cluster: Cluster) -> None:
    start_agents_by_project(cluster)
    (cluster.root / "checkpoints").chmod(0o777)
    job = submit(cluster, "name: other\ncommand: {run: 'id -u'}\n")
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert log_of(cluster, job, 0).rstrip().endswith(str(NOBODY))
    job = submit(cluster, "name: asks\nproject: other\nsecrets: [wandb]\nmax_restarts: 0\ncommand: {run: env}\n")
    failed = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert "a job of project other may not have the secret 'wandb'; it may have none here" in failed["reason_text"]


@pytest.mark.parametrize("as_root", [True, False], ids=["by root", "by the unit's user"])
def test_a_gang_trains_as_its_projects_user_within_its_paths(cluster: Cluster, dataset: Path, make_job: MakeJob,
                                                             as_root: bool) -> None:  # fmt: skip
    dataset.parent.chmod(0o755)
    own = start_agents_by_project(cluster, dataset, as_root=as_root)
    job = cluster.submit(make_job(checkpoints=own), "project=vision", "secrets=[wandb]")
    cluster.wait_step(job, 2)
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in cluster.rank_pids(job).values()} == {GAMES}
    cluster.cli("pause", str(job), "--wait")  # by the ranks' control sockets
    cluster.cli("resume", str(job))
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert int(done["generation"]) == 2 and int(done["last_step"]["step"]) == 40
    assert {path.stat().st_uid for path in own.rglob("*")} == {GAMES}
    wait_for("the runs' folders to go", lambda: not list(cluster.root.glob("[ab]/runs/*")))
    assert not [path for path in Path("/dev/shm").glob("imgd-pulse.*") if path.stat().st_uid == GAMES]
    elsewhere = cluster.submit(make_job(checkpoints=cluster.root / "checkpoints"), "project=vision", "max_restarts=0")
    failed = cluster.wait_state(elsewhere, "JOB_STATE_FAILED")
    assert f"jobs of its project may write in {own} here" in failed["reason_text"]
