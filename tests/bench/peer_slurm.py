"""Slurm from Debian, for `./run bench control`: munged, slurmctld and slurmd on loopback, all below one folder.

They are started here and ended here, by pid. Nothing of it is durable as imgd's submits are: slurmctld answers from
memory and saves its state some time later.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from report import wait_until

CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MaxJobCount=200000
SlurmdTimeout=0
TreeWidth=1000
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_ports} CPUs=1 State=UNKNOWN
PartitionName=bench Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo")


def missing() -> str | None:
    """Why Slurm can't be measured here; None when it can."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        return f"{', '.join(absent)} not found; deps/apt-bench.txt lists the packages"
    return None if os.geteuid() == 0 else "slurmctld and slurmd need root here"


def free_ports(count: int) -> int:
    """The first of so many in a row that nobody listens on, below those that the system hands out itself."""
    first = 11_000  # ours are below
    for port in range(first, 32_000):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                first = port + 1
        if port - first + 1 == count:
            return first
    raise RuntimeError(f"no {count} free ports in a row")


class Slurm:
    """One controller and as many simulated nodes as asked for, of one processor each."""

    def __init__(self, root: Path, nodes: int = 1) -> None:
        self.root, self.nodes = root, nodes
        self.port = free_ports(nodes + 1)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.names = "n1" if nodes == 1 else f"n[1-{nodes}]"
        self.environment = os.environ | {"SLURM_CONF": str(root / "slurm.conf")}

    def start(self) -> None:
        self.root.mkdir(mode=0o755)
        (self.root / "state").mkdir()
        ports = str(self.port + 1) if self.nodes == 1 else f"[{self.port + 1}-{self.port + self.nodes}]"
        (self.root / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], port=self.port, root=self.root, nodes=self.names,
            node_ports=ports))  # fmt: skip
        self._start_munge()
        self._spawn(["slurmctld", "-D", "-c"])
        wait_until("slurmctld to answer", lambda: self.run("scontrol", "ping", check=False).returncode == 0, 20)
        for number in range(1, self.nodes + 1):
            (self.root / f"spool-n{number}").mkdir()
            self._spawn(["slurmd", "-D", "-N", f"n{number}"])
            if number % 50 == 0:  # not all at once
                wait_until(f"{number} nodes to be idle", functools.partial(self._has_idle, number), 120)
        wait_until("the nodes to be idle", functools.partial(self._has_idle, self.nodes), 120)

    def _has_idle(self, count: int) -> bool:
        return self.idle() >= count

    def freeze(self) -> None:
        """All of it stands still, and takes no processor time."""
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGCONT)

    def idle(self) -> int:
        return len(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%n").stdout.split())

    def _start_munge(self) -> None:
        """As its own user: munged refuses what others may write to."""
        folder, user = self.root / "munge", pwd.getpwnam("munge")
        folder.mkdir(mode=0o755)
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o600)
        for path in (folder, folder / "key"):
            os.chown(path, user.pw_uid, user.pw_gid)
        self._spawn(["munged", "--foreground", f"--key-file={folder}/key", f"--socket={folder}/socket",
                     f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"],
                    user="munge", group="munge")  # fmt: skip
        wait_until("munged's socket", lambda: (folder / "socket").exists(), 10)

    def _spawn(self, command: list[str], user: str | None = None, group: str | None = None) -> None:
        with (self.root / "output.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(
                command, env=self.environment, user=user, group=group, extra_groups=[] if user else None,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))  # fmt: skip

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment, check=check, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)  # fmt: skip

    def drain(self) -> None:
        """From now on jobs only wait."""
        self.run("scontrol", "update", f"NodeName={self.names}", "State=DRAIN", "Reason=bench")

    def resume(self) -> None:
        self.run("scontrol", "update", f"NodeName={self.names}", "State=RESUME")
        self.wait_idle()

    def cancel_all(self) -> None:
        self.run("scancel", "--user=root")
        wait_until("an empty queue", lambda: self.queued() == 0, 120)

    def queued(self) -> int:
        return len(self.run("squeue", "-h", "-o", "%i").stdout.split())

    def wait_idle(self) -> None:
        wait_until("an idle cluster", lambda: self.queued() == 0 and self.idle() == self.nodes, 60)

    def start_seconds(self, script: Path, mark: Callable[[], float]) -> float:
        """From before `sbatch` to the script's first instruction, which `mark` waits for."""
        self.wait_idle()
        begun = time.monotonic()
        self.run("sbatch", "--output=/dev/null", str(script))
        return mark() - begun

    def close(self) -> None:
        self.thaw()
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # slurmstepd, of which each has a process group of its own, and what it runs.
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, 9)

    def _left(self) -> list[int]:
        """Processes that have this Slurm's configuration in their environment, besides us."""
        found, wanted = [], f"SLURM_CONF={self.root}/slurm.conf".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found
