"""What is done with an installation, and what is asked of it, by more than one of the tests of this folder."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import BIN, ROOT, Json, wait_for
from machine import Machine

PROGRAMS = ["imgd", "imgagent", "imgcli", "imgtrain"]
PACKAGES = [*PROGRAMS, "imgd-grafana"]
# Of the programs as they are, and as those of an upgrade.
OLD = re.findall(r"^project\(imgd VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[0]
NEW = OLD[:-1] + "9"
RUNTIME = "imgtrain-runtime-cu13"
LIBRARIES = "usr/lib/imgd/cu13"  # where that package has them
REAL_RUNTIME = os.environ.get("IMGD_RUNTIME_DEB")  # that package itself, of ./run package --runtime
DOCTOR = ["runuser", "-u", "imgagent", "--", "imgagent", "doctor", "--config", "/etc/imgd/agent.yaml"]
JOB = """\
name: first
model: {name: resnet18}
data: {train: /srv/shapes/train, val: /srv/shapes/val, image_size: 32, workers: 1}
train: {epochs: 2000, global_batch: 8, precision: fp32, threads: 1, log_every_steps: 1}
optimizer: {lr: 0.01}
checkpoint: {dir: /srv/checkpoints, every_epochs: 0}
"""


def newer_programs(folder: Path) -> Path:
    """Those of an upgrade: the same but for the version that they say."""
    for name in (*PROGRAMS, "imgagent-shim", "libimgtrain_cuda.so"):
        if (BIN / name).exists():
            shutil.copy2(BIN / name, folder / name)
            text = (folder / name).read_bytes()
            (folder / name).write_bytes(text.replace(f"{OLD}\0".encode(), f"{NEW}\0".encode()))
    return folder


def pack(out: Path, version: str, programs: Path = BIN) -> dict[str, Path]:
    env = {**os.environ, "IMGD_BIN": str(programs)}
    only = [word for name in PACKAGES for word in ("--only", name)]
    done = subprocess.run([ROOT / "scripts/package.sh", "--no-lint", "--out", out, "--version", version, *only],
                          capture_output=True, text=True, env=env)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("_")[0]: path for path in out.glob(f"*_{version}_*.deb")}


def field(deb: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", deb, name], check=True, capture_output=True, text=True).stdout.strip()


def deployed_by_the_documents() -> set[str]:
    """Paths below deploy/ that the documents name."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return {path for page in pages for path in re.findall(r"\bdeploy/[\w./-]*\w", page.read_text())}


def pack_runtime(out: Path, trainer: Path) -> Path:
    """In the place of gigabytes: a package of that name and version, with folders to mount LibTorch's on."""
    if REAL_RUNTIME:
        return Path(REAL_RUNTIME)
    needed = re.search(rf"{RUNTIME} \(>= ([^)]*)\)", field(trainer, "Depends"))
    assert needed
    tree = out / "runtime"
    for folder in ("torch", "nvidia"):
        (tree / LIBRARIES / folder).mkdir(parents=True)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(f"Package: {RUNTIME}\nVersion: {needed[1]}\nArchitecture: {architecture()}\n"
                                         "Maintainer: a test <test@localhost>\nDescription: a stand-in\n")  # fmt: skip
    deb = out / f"{RUNTIME}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True, capture_output=True)
    return deb


def architecture() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()


def shown(machine: Machine, *command: str) -> Any:
    return json.loads(machine.run("imgcli", *command, "-o", "json").stdout)


def ready_nodes(machine: Machine) -> list[Json]:
    return wait_for("a node", lambda: [n for n in shown(machine, "nodes") if n["state"] == "NODE_STATE_READY"], 20)


def set_keys(path: Path, **keys: str) -> None:
    """Changes a configuration file as its owner would."""
    text = path.read_text()
    for key, value in keys.items():
        text, count = re.subn(rf"^{key}:.*$", f"{key}: {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    path.write_text(text)


def mount_libraries(machine: Machine) -> None:
    for folder in () if REAL_RUNTIME else ("torch", "nvidia"):
        machine.run("mount", "--bind", f"/mnt/{folder}", f"/{LIBRARIES}/{folder}")


def unmount_libraries(machine: Machine) -> None:
    for folder in () if REAL_RUNTIME else ("torch", "nvidia"):
        machine.run("umount", f"/{LIBRARIES}/{folder}")


def main_pid(machine: Machine, unit: str) -> int:
    return int(machine.systemctl("show", "--property=MainPID", "--value", unit))


def run_of(machine: Machine) -> set[int]:
    """What of the agent's processes is not the agent itself: the shim of each run and its ranks."""
    return set(machine.processes("imgagent")) - {main_pid(machine, "imgagent")}


def curve(machine: Machine, job: str = "1") -> dict[int, float]:
    """The loss of each step that was reported."""
    asked = machine.run("imgcli", "metrics", job, "--names", "loss", "--points", "10000", "-o", "csv").stdout
    rows = [row for row in csv.DictReader(asked.splitlines()) if row.get("name") == "loss"]
    assert len({row["step"] for row in rows}) == len(rows), "a step is there twice"
    return {round(float(row["step"])): float(row["last"]) for row in rows}


def assert_unbroken(machine: Machine, job: str = "1") -> None:
    """Of a job that has ended: each step once, none left out, with one loss, in its curve and in its log."""
    losses = curve(machine, job)
    assert sorted(losses) == list(range(1, len(losses) + 1)), "a step is missing"
    log = machine.run("imgcli", "logs", job, "--rank", "0").stdout.splitlines()
    rows = [line.split() for line in log if re.fullmatch(r" +\d+( +\S+){5}", line)]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)), (
        "a line of the log is missing, or there twice"
    )
    assert len(losses) == len(rows)
    assert [float(row[3]) for row in rows] == pytest.approx(list(losses.values()), abs=1e-4)


def assert_kept_from_what_is_imgds(machine: Machine, rank: int, user: str) -> None:
    """On a machine with both: a rank would be an admin with the token, and any node with the CA's key."""
    assert machine.run("stat", "--format=%U", f"/proc/{rank}").stdout == f"{user}\n"
    for secret in ("admin.token", "ca.key"):
        path = f"var/lib/imgd/{secret}"
        assert (machine.root / path).stat().st_size > 0
        by_the_unit = machine.run("cat", f"/proc/{rank}/root/{path}", check=False)
        assert by_the_unit.returncode == 1 and "No such file" in by_the_unit.stdout, by_the_unit.stdout
        by_the_user = machine.run("runuser", "-u", user, "--", "cat", f"/{path}", check=False)
        assert by_the_user.returncode == 1 and "Permission denied" in by_the_user.stdout, by_the_user.stdout


def submit(machine: Machine, *sets: str) -> str:
    """The job's number."""
    flags = [word for text in sets for word in ("--set", text)]
    return str(shown(machine, "submit", "/srv/job.yaml", *flags)["id"])


def restart_agent(machine: Machine) -> str:
    """With its unit and configuration as they are now. Returns its node's name."""
    machine.systemctl("daemon-reload")
    machine.systemctl("restart", "imgagent")
    node = wait_for("the node", lambda: next((n for n in ready_nodes(machine) if not n.get("disconnected")), None), 20)
    return str(node["name"])


def settings_of_a_unit(machine: Machine, unit: str, *lines: str) -> None:
    """A drop-in of the unit's, until the machine ends."""
    folder = f"/run/systemd/system/{unit}.service.d"
    machine.run("install", "-d", folder)
    machine.run(
        "sh", "-c", 'folder=$1; shift; printf "%s\\n" "[Service]" "$@" >$folder/test.conf', "sh", folder, *lines
    )
    machine.systemctl("daemon-reload")
