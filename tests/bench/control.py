"""`./run bench control`: what the service itself can carry, and how quickly it answers, beside Slurm's.

With names of parts (agents, many-agents, submits, starts, listing) only these are measured; the rest of
build/bench/control.json stays. Submits and starts are measured on clusters of 1,000 simulated nodes on both sides:
agents that only connect and beat (tests/bench/agent_load.cc), and as many slurmd. The daemon, the load and the peer
share the machine, and each other's processors; while one side is measured the other stands still.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peer_slurm
from report import BIN, ROOT, Case, Seen, finish, measure

sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import Cluster  # noqa: E402

LOAD = BIN / "control_bench"
AGENT_SECONDS = 9  # over which the daemon's processor time is taken
SUBMIT_SECONDS = 4
GOAL_SUBMITS = 3_000  # a second
SBATCH_OF_ALL = 640  # over all clients
STARTS = 300
SBATCH_STARTS = 10  # each takes about a second
# Simulated nodes beside the one that runs the jobs; fewer to try this out.
NODES = int(os.environ.get("IMGD_BENCH_NODES", "1000"))
HERE = ("--label", "bench=here")  # what jobs ask for, so that none goes to a simulated agent
JOB = """\
name: bench
data: {{train: /data/imagenet/train, val: /data/imagenet/val}}
model: {{name: resnet50}}
resources: {{nodes: 1, ranks_per_node: {ranks}, labels: {{bench: here}}}}
train: {{epochs: 90, global_batch: 1024}}
checkpoint: {{dir: {folder}}}
max_restarts: 0
"""
Json = dict[str, Any]


def load(*arguments: object, cluster: Cluster | None = None) -> Json:
    """What the load generator measured: on that cluster's daemon, as its admin."""
    environment = cluster.client_env if cluster else None
    done = subprocess.run([LOAD, *map(str, arguments)], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"control_bench {arguments[0]}: {done.stderr}")
    answer: Json = json.loads(done.stdout)
    return answer


@contextmanager
def daemon() -> Iterator[Cluster]:
    """A daemon with an empty database, on the disk that the system's temporary folder is on; spoken to by TLS."""
    with tempfile.TemporaryDirectory(prefix="imgd-bench-") as folder:
        (Path(folder) / "checkpoints").mkdir()
        # The ranks of the starts that are measured only say when they began, and fail.
        config = Path(folder) / "imgd.yaml"
        config.write_text("set_aside_after: 0\n")
        cluster = Cluster(Path(folder), server_args=["--web-listen", "", "--config", str(config)], secure=True)
        try:
            cluster.start_daemon()
            yield cluster
        finally:
            cluster.close()


def job_file(cluster: Cluster, ranks: int) -> Path:
    path = cluster.root / "job.yaml"
    path.write_text(JOB.format(ranks=ranks, folder=cluster.root / "checkpoints"))
    return path


def agents_pass(count: int) -> dict[str, float]:
    with daemon() as cluster:
        assert cluster.daemon is not None
        return load("agents", cluster.address, count, AGENT_SECONDS, cluster.daemon.pid, cluster=cluster)


@contextmanager
def agents_beside(cluster: Cluster, count: int) -> Iterator[None]:
    """So many simulated agents are connected, and beat, as long as this lasts."""
    assert cluster.daemon is not None
    if not count:
        yield
        return
    command = [str(LOAD), "agents", cluster.address, str(count), "0", str(cluster.daemon.pid), "--hold"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=cluster.client_env
    ) as agents:
        assert agents.stdin is not None and agents.stdout is not None
        if "joined" not in agents.stdout.readline():
            raise AssertionError(f"{count} agents did not join")
        yield
        agents.stdin.close()


def agents_cases(count: int) -> list[Case]:
    seen = Seen(functools.partial(agents_pass, count))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = f"this machine allows {most} open files a process, which is too few connections"
    return [
        Case(f"{count:,} agents by TLS: {title}", unit, "lower",
             {"imgd": seen.figure(figure) if most > count + 200 else few})
        for title, figure, unit in (("processor", "cpu_cores", "cores"), ("memory", "rss_mib", "MiB"),
                                    ("all have a certificate after", "enrol_seconds", "s"),
                                    ("all connected after", "join_seconds", "s"))
    ]  # fmt: skip


def with_goals(cases: list[Case], *goals: str) -> list[Case]:
    """The cases, the first of them with these goals."""
    for case, goal in zip(cases, goals, strict=False):
        case.goal = goal
    return cases


def one_node_away(cluster: Cluster) -> None:
    """A node that was there and is out of reach: jobs wait for it."""
    cluster.start_agent("away", *HERE, slots=8)
    cluster.agents["away"].send_signal(signal.SIGKILL)
    cluster.agents["away"].wait()


def check_stored(state_dir: Path, acknowledged: Path) -> None:
    """Every job that was acknowledged is in the database that a killed daemon left."""
    with sqlite3.connect(f"file:{state_dir / 'state.db'}?mode=ro", uri=True) as database:
        stored = dict(database.execute("SELECT key, job FROM idempotency_keys JOIN jobs ON jobs.id = job"))
    lines = [line.split() for line in acknowledged.read_text().splitlines()]
    lost = [key for number, key in lines if stored.get(key) != int(number)]
    if lost or not lines:
        raise AssertionError(f"{len(lost)} of {len(lines)} acknowledged jobs are not stored, such as {lost[:3]}")


def submits_pass(clients: int, *pace: object) -> dict[str, float]:
    with daemon() as cluster:
        assert cluster.daemon is not None
        one_node_away(cluster)
        acknowledged = cluster.root / "acknowledged"
        with agents_beside(cluster, NODES):
            job = job_file(cluster, 8)
            seen = load("submits", cluster.address, clients, SUBMIT_SECONDS, job, acknowledged, *pace, cluster=cluster)
        cluster.daemon.send_signal(signal.SIGKILL)
        cluster.daemon.wait()
        check_stored(cluster.root / "imgd", acknowledged)
        return seen


def by_command(command: str, clients: int, of_all: int, environment: dict[str, str] | None = None) -> float:
    """Commands a second that as many shells run, each one after the other."""
    each = of_all // clients
    loop = f"i=0; while [ $i -lt {each} ]; do {command} >/dev/null 2>&1 || exit 1; i=$((i+1)); done"
    begun = time.perf_counter()
    shells = [subprocess.Popen(["/bin/sh", "-c", loop], env=environment) for _ in range(clients)]
    if any([shell.wait() for shell in shells]):
        raise AssertionError(f"failed: {command}")
    return each * clients / (time.perf_counter() - begun)


def imgcli_pass(clients: int) -> float:
    with daemon() as cluster, agents_beside(cluster, NODES):
        one_node_away(cluster)
        command = f"{BIN}/imgcli --server {cluster.server} submit {job_file(cluster, 8)}"
        return by_command(command, clients, SBATCH_OF_ALL, cluster.client_env)


@functools.cache
def slurm_cluster() -> peer_slurm.Slurm:
    """Of as many nodes as ours: started once, since that takes minutes; ended with this program."""
    # Below /tmp itself: munged wants a path that others can't write to.
    folder = tempfile.TemporaryDirectory(prefix="imgd-slurm-")
    atexit.register(folder.cleanup)
    Path(folder.name).chmod(0o755)
    peer = peer_slurm.Slurm(Path(folder.name) / "slurm", NODES + 1)
    atexit.register(peer.close)
    peer.start()
    return peer


@contextmanager
def slurm() -> Iterator[peer_slurm.Slurm]:
    """It goes on as long as this lasts, and then stands still."""
    peer = slurm_cluster()
    peer.thaw()
    try:
        yield peer
    finally:
        peer.freeze()


def sbatch_pass(clients: int) -> dict[str, float]:
    with slurm() as peer:
        peer.drain()
        script = peer.root / "job"
        script.write_text("#!/bin/true\n")
        rate = by_command(f"sbatch --output=/dev/null {script}", clients, SBATCH_OF_ALL, peer.environment)
        if peer.queued() != SBATCH_OF_ALL:
            raise AssertionError(f"{peer.queued()} jobs are queued; {SBATCH_OF_ALL} were submitted")
        peer.cancel_all()
        peer.resume()
        return {"rate": rate}


def submits_cases() -> list[Case]:
    absent = peer_slurm.missing()
    paced = Seen(functools.partial(submits_pass, 64, "--per-second", GOAL_SUBMITS))
    cases = [
        Case(f"durable submits, 64 clients, {GOAL_SUBMITS:,} a second: p99", "ms", "lower",
             {"imgd": paced.figure("p99_ms")}, "at most 20")
    ]  # fmt: skip
    for clients in (64, 8):
        ours = Seen(functools.partial(submits_pass, clients))
        theirs = Seen(functools.partial(sbatch_pass, clients))
        rate_goal, p99_goal = (f"at least {GOAL_SUBMITS:,}, and 5 x slurm", "at most 20") if clients == 64 else ("", "")
        cases += [
            Case(f"durable submits, {clients} clients", "submits/s", "higher",
                 {"imgd": ours.figure("per_second"), "slurm": absent or theirs.figure("rate")}, rate_goal),
            Case(f"durable submits, {clients} clients: p99", "ms", "lower", {"imgd": ours.figure("p99_ms")}, p99_goal),
            Case(f"submits by command, {clients} shells", "submits/s", "higher",
                 {"imgd": functools.partial(imgcli_pass, clients),
                  "slurm": absent or theirs.figure("rate")}),
        ]  # fmt: skip
    return cases


@contextmanager
def marks(folder: Path) -> Iterator[Callable[[], float]]:
    """Waits for the next process that is `start_mark` in that folder: when it began, by the steady clock, s."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(folder / "mark.sock"))
        listener.settimeout(20)

        def mark() -> float:
            (nanoseconds,) = struct.unpack("q", listener.recv(8))
            return float(nanoseconds) / 1e9

        yield mark
    (folder / "mark.sock").unlink()


def mark_program(folder: Path) -> Path:
    return Path(shutil.copy(BIN / "start_mark", folder / "start_mark"))


def starts_pass() -> dict[str, float]:
    """By gRPC and by imgcli, on an agent that is idle each time."""
    with daemon() as cluster, agents_beside(cluster, NODES):
        cluster.start_agent("a", "--trainer", str(mark_program(cluster.root)), *HERE)
        job = job_file(cluster, 1)
        seen = load("starts", cluster.address, STARTS, job, cluster.root / "mark.sock", cluster=cluster)
        (cluster.root / "mark.sock").unlink()
        by_cli = []
        with marks(cluster.root) as mark:
            for _ in range(10):
                begun = time.monotonic()
                job_id = cluster.submit(job)
                by_cli.append((mark() - begun) * 1000)
                cluster.wait_state(job_id, "JOB_STATE_FAILED")  # its trainer only says when it began
                time.sleep(0.1)
        return seen | {"cli_ms": statistics.median(by_cli)}


def sbatch_start_pass() -> dict[str, float]:
    with slurm() as peer:
        folder = peer.root.parent
        script = peer.root / "job"
        script.write_text(f"#!{mark_program(folder)}\n")
        with marks(folder) as mark:
            peer.start_seconds(script, mark)  # the first is slower
            took = [peer.start_seconds(script, mark) * 1000 for _ in range(SBATCH_STARTS)]
            return {"ms": statistics.median(took), "max_ms": max(took)}


def starts_cases() -> list[Case]:
    absent = peer_slurm.missing()
    ours = Seen(starts_pass)
    theirs = Seen(sbatch_start_pass)
    title = "submit to process started"
    return [
        Case(f"{title}, p50", "ms", "lower", {"imgd": ours.figure("p50_ms"), "slurm": absent or theirs.figure("ms")},
             "at most 30, and 20 x slurm"),
        Case(f"{title}, p99 of {STARTS}", "ms", "lower", {"imgd": ours.figure("p99_ms")}, "at most 100"),
        Case(f"{title}, by command, p50", "ms", "lower",
             {"imgd": ours.figure("cli_ms"), "slurm": absent or theirs.figure("ms")}),
    ]  # fmt: skip


def milliseconds_of(*command: object, environment: dict[str, str] | None = None) -> float:
    begun = time.perf_counter()
    subprocess.run([*map(str, command)], check=True, capture_output=True, env=environment)
    return (time.perf_counter() - begun) * 1000


def listing_rows() -> list[Json]:
    with tempfile.TemporaryDirectory(prefix="imgd-bench-") as folder:
        load("fill", Path(folder) / "imgd", 100_000)
        cluster = Cluster(Path(folder), server_args=["--web-listen", ""], secure=True)
        try:
            cluster.start_daemon()
            command = [BIN / "imgcli", "--server", cluster.server, "jobs"]
            jobs = functools.partial(milliseconds_of, *command, environment=cluster.client_env)
            version = functools.partial(milliseconds_of, BIN / "imgcli", "--version")
            return measure([
                Case("imgcli jobs, 100,000 jobs stored", "ms", "lower", {"imgd": jobs}, "at most 50"),
                Case("imgcli --version", "ms", "lower", {"imgd": version}, "at most 15"),
            ], passes=15)  # fmt: skip
        finally:
            cluster.close()


PARTS: dict[str, Callable[[], list[Json]]] = {
    "agents": lambda: measure(with_goals(agents_cases(2_000), "at most 0.25", "at most 400")),
    "many-agents": lambda: measure(agents_cases(10_000)),
    "submits": lambda: measure(submits_cases()),
    "starts": lambda: measure(starts_cases()),
    "listing": listing_rows,
}
IMGD_NOTE = (f"all by TLS; submits and starts beside {NODES:,} simulated agents that are connected and beat every 3 s; "
             "each client submits when its last job was acknowledged, or at a rate, counted from when each was "
             "due")  # fmt: skip
SLURM_NOTE = (f"Slurm 22.05 of Debian on loopback: slurmctld and {NODES + 1:,} slurmd -N, batch_sched_delay=0, "
              "sched_min_interval=0; submits by `sbatch` in a shell's loop, while ours are gRPC calls unless they say "
              "`by command`; what it acknowledges is in memory, not durable")  # fmt: skip


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        sys.exit(f"run: bench control: found {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    # So that what was started is ended, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Soft limits may be raised to the hard ones; the daemon and the load inherit it.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = [row for part in chosen for row in PARTS[part]()]
    for row in rows:
        row["note"] = SLURM_NOTE if row["subject"] == "slurm" else IMGD_NOTE
    finish("control", rows, keep=len(set(chosen)) < len(PARTS))


if __name__ == "__main__":
    main()
