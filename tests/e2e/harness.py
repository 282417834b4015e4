"""A small cluster of real processes on loopback, for whole-system tests.

Every process is started here and ended here, by pid; a test that leaves one behind fails.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("IMGD_BIN", ROOT / "build/release/bin"))
# With which the dashboard is looked at.
NODE = Path(os.environ.get("IMGD_DEPS", ROOT / ".deps")) / "node/bin/node"
CHROMIUM = os.environ.get("IMGD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FINAL = {"JOB_STATE_COMPLETED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}

T = TypeVar("T")
Json = dict[str, Any]


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 60) -> T:
    """The first truthy result of `probe`; fails with `what` when none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        result = probe()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}; last: {result!r}")
        time.sleep(0.05)


def ports_of_this_worker() -> Iterator[int]:
    """One after the other: none is given twice while its taker has not yet begun to listen."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 20
    first = random.randrange(1000)
    while True:
        for i in range(1000):
            yield 10_000 + worker * 1000 + (first + i) % 1000


PORTS = ports_of_this_worker()


def free_port() -> int:
    """Below those that the system gives to connections, and to each of the tests' workers others: it stays free."""
    while True:
        port = next(PORTS)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, and since
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def processes_with(text: str, of: str = "cmdline", alone: bool = False) -> list[int]:
    """Pids of live processes whose command line (or `of` them: environ) has `text`, or is nothing else where it stands
    `alone`; this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / of).read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if (words == text if alone else text in words) and alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def is_listening(host: str, port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, port)):
        return True
    return False


@dataclass
class Cluster:
    """A daemon and its agents below one folder; `with` ends them, and prints their logs where something failed."""

    root: Path
    server_args: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    web_port: int = field(default_factory=free_port)
    prefix: list[str] = field(default_factory=list)  # put before the daemon's command: a namespace
    daemon: subprocess.Popen[bytes] | None = None
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    agent_commands: dict[str, list[str]] = field(default_factory=dict)

    secure: bool = False  # by TLS, also on loopback

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def server(self) -> str:
        """As clients and agents name it."""
        if self.secure:
            return f"https://{self.address}"
        return self.address if self.host == "127.0.0.1" else f"http://{self.address}"

    @property
    def client_env(self) -> dict[str, str]:
        """What imgcli shows, and how it knows the daemon."""
        if not self.secure:
            return dict(os.environ)
        state = self.root / "imgd"
        return {**os.environ, "IMGD_CA": str(state / "ca.crt"), "IMGD_TOKEN_FILE": str(state / "admin.token"),
                "HOME": str(self.root), "XDG_CONFIG_HOME": str(self.root / "config")}  # fmt: skip

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def start_daemon(self) -> None:
        web = [] if "--web-listen" in self.server_args else ["--web-listen", f"{self.host}:{self.web_port}"]
        security = ["--tls-on-loopback"] if self.secure else (
            [] if self.host == "127.0.0.1" else ["--plain-text-and-anyone-may-do-anything"])  # fmt: skip
        command = [*self.prefix, str(BIN / "imgd"), "--listen", self.address, *web, *security,
                   "--state-dir", str(self.root / "imgd"), "--checkpoint-dir", str(self.root / "checkpoints"),
                   *self.server_args]  # fmt: skip
        self.daemon = self._spawn("imgd", command)
        wait_for("the daemon to answer", lambda: self.cli("nodes", check=False).returncode == 0, 20)
        # It answers browsers a moment later.
        if web and not self.prefix:
            wait_for("its pages", lambda: is_listening(self.host, self.web_port), 20)

    def start_agent(self, name: str, *args: str, slots: int = 1, prefix: list[str] | None = None) -> None:
        if self.secure:
            token = self.root / f"{name}.join"
            token.write_text(self.cli("node", "join-token").stdout)
            args = ("--token-file", str(token), *args)
        command = [*(prefix or []), str(BIN / "imgagent"), "--server", self.server, "--node", name,
                   "--state-dir", str(self.root / name), "--cpu-slots", str(slots), *args]  # fmt: skip
        self.agent_commands[name] = command
        self.restart_agent(name)

    def restart_agent(self, name: str) -> None:
        self.agents[name] = self._spawn(name, self.agent_commands[name])
        wait_for(f"node {name} to be ready", lambda: self.node_state(name) == "NODE_STATE_READY", 20)

    def cli(self, *args: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, str(BIN / "imgcli"), "--server", self.server, *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              env=self.client_env)  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"imgcli {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def cli_process(self, *args: str) -> subprocess.Popen[str]:
        command = [*self.prefix, str(BIN / "imgcli"), "--server", self.server, *args]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env=self.client_env)  # fmt: skip

    def json(self, *args: str) -> Any:
        return json.loads(self.cli(*args, "-o", "json").stdout)

    def node_state(self, name: str) -> str:
        done = self.cli("nodes", "-o", "json", check=False)
        if done.returncode != 0:
            return ""
        states: dict[str, str] = {n["name"]: n["state"] for n in json.loads(done.stdout)}
        return states.get(name, "")

    def submit(self, job: Path, *sets: str) -> int:
        flags = [word for s in sets for word in ("--set", s)]
        return int(self.json("submit", str(job), *flags)["id"])

    def job(self, job_id: int) -> Json:
        shown: Json = self.json("show", str(job_id))
        job: Json = shown["job"]
        return job

    def history(self, job_id: int) -> list[Json]:
        shown: Json = self.json("show", str(job_id))
        return [event for event in shown["history"] if "state_change" in event]

    def events(self, job_id: int) -> list[Json]:
        """All stored events of the job."""
        out = self.cli("watch", str(job_id), "--no-follow", "-o", "json", check=False).stdout
        return [json.loads(line) for line in out.splitlines() if line.strip()]

    def steps(self, job_id: int) -> list[Json]:
        return [event["step"] for event in self.events(job_id) if "step" in event]

    def wait_state(self, job_id: int, *states: str, seconds: float = 120) -> Json:
        def probe() -> Json | None:
            job = self.job(job_id)
            if job["state"] in states:
                return job
            if job["state"] in FINAL:
                raise AssertionError(f"job {job_id} ended as {job['state']}: {job['reason_text']}\n{self.tails()}")
            return None

        return wait_for(f"job {job_id} to be {' or '.join(states)}", probe, seconds)

    def wait_step(self, job_id: int, step: int, seconds: float = 60) -> Json:
        def probe() -> Json | None:
            job = self.job(job_id)
            if job["state"] in FINAL:
                raise AssertionError(f"job {job_id} ended as {job['state']}: {job['reason_text']}\n{self.tails()}")
            return job if int(job.get("last_step", {}).get("step", 0)) >= step else None

        return wait_for(f"job {job_id} to reach step {step}", probe, seconds)

    def rank_pids(self, job_id: int) -> dict[int, int]:
        """Pid of each rank of the latest start, as the trainers said it."""
        generation = self.job(job_id)["generation"]
        return {int(e["rank_started"]["rank"]): int(e["rank_started"]["started"]["pid"])
                for e in self.events(job_id)
                if "rank_started" in e and int(e["generation"]) == int(generation)}  # fmt: skip

    def processes_of(self, job_id: int) -> list[int]:
        """Pids of what is left of the job, shims and ranks, on any of this cluster's nodes."""
        return [pid for node in self.agents for pid in processes_with(f"{self.root}/{node}/runs/{job_id}-")]

    def tails(self) -> str:
        parts = []
        for path in sorted(self.root.glob("*.log")):
            parts.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:]))
        return "\n".join(parts)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            print(self.tails())
        self.close()

    def close(self) -> None:
        """Ends everything; fails if a process of this cluster survives."""
        for process in [*self.agents.values(), *([self.daemon] if self.daemon else [])]:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in [*self.agents.values(), *([self.daemon] if self.daemon else [])]:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.end_leftovers()

    def end_leftovers(self) -> None:
        """Runs outlive their agent by design; those of an unfinished job are ended here, with what commands began."""

        def left() -> list[int]:
            return processes_with(str(self.root)) + processes_with(f"IMGD_RUN_DIR={self.root}/", "environ")

        for pid in left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("all processes of the cluster to be gone", lambda: not left(), 10)
        # Whoever removes a run's folder removes its cgroup and what its ranks have in memory; pytest, which does it
        # here, does not.
        for status in self.root.glob("*/runs/*/status.json"):
            if group := json.loads(status.read_text())["cgroup"]:
                wait_for(f"{group} to be empty", functools.partial(remove_group, Path(group)), 10)
        for pulse in [*self.root.glob("*/runs/*/pulse.*"), *self.root.glob("*/runs/*/ranks/pulse.*")]:
            if pulse.is_symlink():
                pulse.readlink().unlink(missing_ok=True)


def remove_group(path: Path) -> bool:
    """False while a process in it is still being taken apart."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


class Slowed:
    """Lets a process run only a part of the time, by default a fifth of each tenth of a second, until it is left."""

    def __init__(self, pid: int, stopped: float = 0.08, running: float = 0.02) -> None:
        self.pid = pid
        self.stopped = stopped
        self.running = running
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.ended.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            self.ended.wait(self.stopped)
            os.kill(self.pid, signal.SIGCONT)
            self.ended.wait(self.running)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


def assert_each_step_once(cluster: Cluster, job: int, total: int) -> None:
    """Of the last generation that did it, every step was reported, and none twice in one generation."""
    seen: dict[tuple[int, int], int] = {}
    for event in cluster.events(job):
        if "step" in event:
            key = (int(event["generation"]), int(event["step"]["step"]))
            seen[key] = seen.get(key, 0) + 1
    assert max(seen.values()) == 1, "a step was reported twice in one generation"
    assert {step for _, step in seen} == set(range(1, total + 1)), "steps are missing"
