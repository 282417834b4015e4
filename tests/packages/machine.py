"""A clean root, and a small machine in it, in namespaces of its own, whose first process is systemd."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import wait_for

Done = subprocess.CompletedProcess[str]

ADDRESS = "192.0.2.1"  # of the machine on its network, which nobody else is on

# What a machine that starts has of its own, around the root $1, with the files $2 of this machine to read at /mnt; then
# systemd. Whoever is in a root by chroot may make no user namespaces, which units ask for: this one is left for good.
BOOT = f"""
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$1/mnt"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/shm dev/pts run/host
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ip link set lo up
ip addr add {ADDRESS}/32 dev lo
pivot_root . run/host
umount -l run/host
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=journal
"""

# What package management itself keeps, and what holds no files of anybody's.
NOT_COMPARED = ("dev", "proc", "sys", "run", "tmp", "var/cache", "var/log", "var/tmp", "var/lib/apt", "var/lib/dpkg",
                "var/lib/systemd")  # fmt: skip
BACKUPS = {"etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/.pwd.lock"}


def what_lacks() -> str:
    """Empty where clean roots can be made, else what there is not."""
    if os.geteuid() != 0:
        return "needs root to make a clean root"
    missing = [name for name in ("mmdebstrap", "dh", "lintian", "nsenter", "unshare") if not shutil.which(name)]
    if missing:
        return f"not installed: {', '.join(missing)} (./run test --full does it)"
    hierarchy = cgroups()
    return "" if hierarchy and os.access(hierarchy, os.W_OK) else "systemd needs a cgroup v2 hierarchy to write in"


def cgroups() -> Path | None:
    """Where cgroup v2 is mounted."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)


def make_root(root: Path) -> None:
    """Debian's essential packages, apt and systemd, from where this machine's apt has its own."""
    sources = [str(path) for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*"))
               if path.is_file() and path.stat().st_size > 0 and path.suffix in (".list", ".sources")]  # fmt: skip
    suite = os_release()["VERSION_CODENAME"]
    done = subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=apt",
                           "--include=systemd,iproute2,acl", suite, root, *sources],
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
class Machine:
    """Namespaces of its own around the root: of mounts, processes, network and control groups, and in them systemd and
    an address that others could reach. `shared` is to be read at /mnt.

    What is run by `say` is in the transcript as well, as a person would see it.
    """

    root: Path
    shared: Path
    holder: subprocess.Popen[bytes] | None = None
    transcript: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Machine:
        self.cgroup.mkdir()
        spaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup"]
        self.holder = subprocess.Popen(
            ["sh", "-c", 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"', "sh", self.cgroup,
             "unshare", *spaces, "--fork", "--kill-child", "sh", "-c", BOOT, "sh", self.root, self.shared],
            stdin=subprocess.DEVNULL)  # fmt: skip
        first = Path(f"/proc/{self.first_pid()}/comm")
        wait_for("systemd to start", lambda: first.read_text() == "systemd\n", 10)
        ready = ("running", "degraded")
        wait_for("the machine", lambda: self.systemctl("is-system-running", check=False) in ready, 60)
        assert "0 loaded units" in self.systemctl("--failed"), self.systemctl("--failed")
        return self

    def __exit__(self, *_: object) -> None:
        """The first process of the namespace takes all others along."""
        assert self.holder
        self.holder.kill()
        self.holder.wait()
        events = self.cgroup / "cgroup.events"
        wait_for("all of it to end", lambda: "populated 0" in events.read_text(), 20)
        for folder in sorted(filter(Path.is_dir, self.cgroup.rglob("*")), reverse=True):
            folder.rmdir()
        self.cgroup.rmdir()

    @property
    def cgroup(self) -> Path:
        hierarchy = cgroups()
        assert hierarchy
        return hierarchy / f"imgd-test-{os.getpid()}"

    def first_pid(self) -> str:
        assert self.holder
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        return wait_for("the first process", lambda: children.read_text().split(), 10)[0]

    def enter(self, *, network: bool) -> list[str]:
        """`network`: with the test's own, for apt; else inside, where the services are."""
        spaces = ["--mount", "--pid", "--uts", "--ipc", *([] if network else ["--net"])]
        return ["nsenter", "--target", self.first_pid(), *spaces]

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8",
                "HOME": "/root", **{k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}}  # fmt: skip

    @contextmanager
    def start(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """What goes on meanwhile, and is waited for, but by a test that failed; its output is one stream, its input
        stays open."""
        with subprocess.Popen([*self.enter(network=False), *command], env=self.env, text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:  # fmt: skip
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def run(self, *command: str, network: bool = False, check: bool = True) -> Done:
        done = subprocess.run([*self.enter(network=network), *command], env=self.env, text=True,
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
        self.note(shlex.join(command), printed)
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

    def systemctl(self, *words: str, check: bool = True) -> str:
        return self.run("systemctl", *words, check=check).stdout.strip()

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout

    def processes(self, unit: str) -> dict[int, str]:
        """Names of the unit's processes by their pids inside, those in groups below its own too."""
        show = ("cd /sys/fs/cgroup/system.slice/$1.service 2>/dev/null || exit 0;"
                "for pid in $(find . -name cgroup.procs -exec cat {} + 2>/dev/null);"
                "do echo $pid $(cat /proc/$pid/comm 2>/dev/null); done")  # fmt: skip  # either may be gone by then
        lines = self.run("sh", "-c", show, "sh", unit).stdout.splitlines()
        return {int(pid): name for pid, _, name in (line.partition(" ") for line in lines)}

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
