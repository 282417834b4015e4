"""A clean root, and a small machine in it: packages are installed there, and services run as their units say.

systemd does not run in it: a service is started by its unit's own ExecStart, user, folders and environment, with a
notify socket of the test's, and is ended by SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness import wait_for

Done = subprocess.CompletedProcess[str]

ADDRESS = "192.0.2.1"  # of the machine on its network, which nobody else is on

# What package management itself keeps, and what holds no files of anybody's.
NOT_COMPARED = ("dev", "proc", "sys", "run", "tmp", "var/cache", "var/log", "var/lib/apt", "var/lib/dpkg")
BACKUPS = {"etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/.pwd.lock"}


def what_lacks() -> str:
    """Empty where clean roots can be made, else what there is not."""
    if os.geteuid() != 0:
        return "needs root to make a clean root"
    missing = [name for name in ("mmdebstrap", "dh", "lintian", "nsenter", "unshare") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)} (./run test --full does it)" if missing else ""


def make_root(root: Path) -> None:
    """Debian's essential packages and apt, from where this machine's apt has its own."""
    sources = [str(path) for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*"))
               if path.is_file() and path.stat().st_size > 0 and path.suffix in (".list", ".sources")]  # fmt: skip
    suite = os_release()["VERSION_CODENAME"]
    done = subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", suite, root, *sources],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    for path in Path("/etc/apt/apt.conf.d").glob("*"):
        if "roxy" in path.read_text():
            shutil.copy(path, root / "etc/apt/apt.conf.d")


def os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


@dataclass
class Unit:
    """What of a unit file the test does itself."""

    text: str

    def all(self, key: str) -> list[str]:
        return [line.partition("=")[2] for line in self.text.splitlines() if line.startswith(f"{key}=")]

    def one(self, key: str, default: str = "") -> str:
        return (self.all(key) or [default])[-1]


@dataclass
class Service:
    """A process that was started as its unit says."""

    process: subprocess.Popen[bytes]
    pid: int  # of the program itself, as this machine sees it
    log: Path

    def stop(self) -> None:
        """As systemd with KillMode=process: the program alone is asked to end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self.process.wait(20)


@dataclass
class Machine:
    """Namespaces of its own around the root: of mounts, processes and network, with an address that others could reach.

    What is run by `say` is in the transcript as well, as a person would see it.
    """

    root: Path
    holder: subprocess.Popen[bytes] | None = None
    services: dict[str, Service] = field(default_factory=dict)
    transcript: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Machine:
        setup = ("mount --make-rprivate /"
                 f" && mount --bind {self.root} {self.root} && mount -t proc proc {self.root}/proc"
                 f" && mount --rbind /dev {self.root}/dev && ip link set lo up && ip addr add {ADDRESS}/32 dev lo"
                 " && echo up && exec sleep infinity")  # fmt: skip
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", setup],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
        assert self.holder.stdout and self.holder.stdout.readline() == b"up\n"
        return self

    def __exit__(self, *_: object) -> None:
        """The first process of the namespace takes all others along."""
        assert self.holder
        self.holder.kill()
        self.holder.wait()

    def first_pid(self) -> str:
        assert self.holder
        return Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0]

    def enter(self, *, network: bool) -> list[str]:
        """`network`: with the machine's own, for apt; else inside, where the services are."""
        spaces = ["--mount", "--pid", *([] if network else ["--net"])]
        return ["nsenter", "--target", self.first_pid(), *spaces]

    def run(self, *command: str, network: bool = False, check: bool = True) -> Done:
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8",
               "HOME": "/root", **{k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}}  # fmt: skip
        done = subprocess.run([*self.enter(network=network), "chroot", self.root, *command], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}"
        return done

    def note(self, command: str, printed: str = "") -> None:
        """A line of the transcript, with the time since it began, and what was printed; of package management only what
        it did."""
        lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
        if command.startswith("apt"):
            lines = [line for line in lines if re.match("(Setting up|Removing|Purging) ", line)]
        self.transcript += [f"[{time.monotonic() - self.began:3.0f} s] # {command}", *lines[:12]]

    def say(self, *command: str) -> str:
        printed = self.run(*command).stdout
        self.note(" ".join(command), printed)
        return printed

    def install(self, *debs: Path) -> str:
        """`apt install ./NAME.deb ...`, an upgrade where an older one is there. Returns what apt printed."""
        folder = self.root / "tmp/debs"
        folder.mkdir(exist_ok=True)
        for deb in debs:
            shutil.copy(deb, folder)
        names = [f"/tmp/debs/{deb.name}" for deb in debs]
        printed = self.run("apt-get", "install", "-y", "--no-install-recommends", *names, network=True).stdout
        self.note("apt install " + " ".join(f"./{deb.name}" for deb in debs), printed)
        return printed

    def curl(self, url: str) -> str:
        """The page, whoever its certificate is by."""
        get = ("import ssl, sys, urllib.request as u; any = ssl._create_unverified_context();"
               "print(u.urlopen(sys.argv[1], context=any, timeout=20).read().decode())")  # fmt: skip
        inside = ["nsenter", "--target", self.first_pid(), "--net", "/usr/bin/python3", "-c", get, url]
        return subprocess.run(inside, check=True, capture_output=True, text=True).stdout

    def unit(self, name: str) -> Unit:
        for folder in ("usr/lib/systemd/system", "lib/systemd/system"):
            if (path := self.root / folder / f"{name}.service").exists():
                return Unit(path.read_text())
        raise AssertionError(f"no unit {name}.service is installed")

    def start(self, name: str) -> Service:
        """Starts the service as its unit says, and waits until it says READY=1."""
        unit = self.unit(name)
        assert unit.one("Type") == "notify"
        user, group, state = unit.one("User"), unit.one("Group"), unit.one("StateDirectory")
        mode = unit.one("StateDirectoryMode", "0755")
        self.run("install", "-d", "-o", user, "-g", group, "-m", mode, f"/var/lib/{state}")
        notify = self.root / "run" / f"{name}.notify"
        notify.unlink(missing_ok=True)
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "USER": user,
               "HOME": "/", "STATE_DIRECTORY": f"/var/lib/{state}", "NOTIFY_SOCKET": f"/run/{name}.notify"}  # fmt: skip
        env |= dict(line.replace("%S", "/var/lib").split("=", 1) for line in unit.all("Environment"))
        command = [*self.enter(network=False), "chroot", f"--userspec={user}:{group}", str(self.root),
                   *unit.one("ExecStart").split()]  # fmt: skip
        log = self.root / "var/log" / f"{name}.service.log"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, log.open("ab") as out:
            ready.bind(str(notify))
            notify.chmod(0o777)
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/",
                                       umask=int(unit.one("UMask", "0022"), 8), start_new_session=True)  # fmt: skip
            while b"READY=1" not in self.next_word(ready, process, log):
                pass
        self.services[name] = Service(process, self.program_pid(process), log)
        return self.services[name]

    def next_word(self, ready: socket.socket, process: subprocess.Popen[bytes], log: Path) -> bytes:
        ready.settimeout(0.2)
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(TimeoutError):
                return ready.recv(4096)
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the service did not become ready:\n{log.read_text(errors='replace')[-3000:]}")

    def program_pid(self, process: subprocess.Popen[bytes]) -> int:
        """nsenter forks to enter the namespace of processes: its child is the program."""

        def child() -> int | None:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return int(children[0]) if children else None

        return wait_for("nsenter's child", child, 10)

    def stop(self, name: str) -> None:
        self.services.pop(name).stop()

    def files(self) -> set[str]:
        """Paths of all files and folders, but for what package management keeps of itself."""
        found: set[str] = set()
        for folder, folders, names in os.walk(self.root):
            inside = os.path.relpath(folder, self.root).removeprefix("./")
            inside = "" if inside == "." else inside + "/"
            folders[:] = [name for name in folders if (inside + name) not in NOT_COMPARED]
            found.update(inside + name for name in [*folders, *names])
        return found - BACKUPS

    def accounts(self) -> dict[str, str]:
        return {name: (self.root / "etc" / name).read_text() for name in ("passwd", "group", "shadow", "gshadow")}
