"""Remove and purge, which end what test_packages.py began; and the tarball, which needs neither package nor root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import BIN, ROOT, wait_for
from machine import Machine
from steps import (
    JOB,
    OLD,
    PACKAGES,
    PROGRAMS,
    RUNTIME,
    curve,
    deployed_by_the_documents,
    ready_nodes,
    restart_agent,
    run_of,
    submit,
    unmount_libraries,
)

pytestmark = pytest.mark.long
pytest_plugins = ["installation"]


def test_an_agent_that_is_removed_says_that_jobs_run_and_finds_them_when_it_is_installed_again(
    machine: Machine, newer: dict[str, Path]
) -> None:
    node = ready_nodes(machine)[0]["name"]
    job = submit(machine)
    wait_for("a curve", lambda: len(curve(machine, job)) >= 2, 60)
    run = run_of(machine)
    removed = machine.run("apt-get", "remove", "-y", "imgagent").stdout
    assert "jobs still run on this node" in removed and f"imgcli node drain {node} --wait" in removed
    assert set(machine.processes("imgagent")) == run
    machine.install(newer["imgagent"])
    at_restart = max(curve(machine, job))
    wait_for("the job to go on", lambda: max(curve(machine, job)) > at_restart + 5, 30)
    assert run_of(machine) == run
    machine.run("imgcli", "cancel", "--wait", job)


def test_a_shell_is_no_job_for_whoever_removes_the_agent(machine: Machine, newer: dict[str, Path]) -> None:
    node = restart_agent(machine)
    with machine.start("script", "-qec", f"imgcli shell {node} -- sleep 998", "/dev/null") as session:
        wait_for("the program", lambda: "sleep" in machine.processes("imgagent").values(), 20)
        removed = machine.run("apt-get", "remove", "-y", "imgagent").stdout
        assert "jobs still run" not in removed
        session.communicate(timeout=20)
    machine.install(newer["imgagent"])


def test_purged_under_a_job_the_agent_ends_it_and_leaves_nothing_of_its_own(
    machine: Machine, newer: dict[str, Path]
) -> None:
    restart_agent(machine)
    job = submit(machine)
    wait_for("a curve", lambda: len(curve(machine, job)) >= 2, 60)
    # The name that the node has counts, which may be another than the machine's.
    with (machine.root / "etc/imgd/agent.yaml").open("a") as config:
        config.write('node: "gpu-7"\n')
    purged = machine.run("apt-get", "purge", "-y", "imgagent").stdout
    assert "imgcli node drain gpu-7 --wait" in purged and "ends the jobs that still run here" in purged
    assert machine.processes("imgagent") == {}
    assert not (machine.root / "var/lib/imgagent").exists()
    assert "imgagent" not in machine.accounts()["passwd"] + machine.accounts()["group"]
    machine.run("imgcli", "cancel", job)
    machine.install(newer["imgagent"])


def test_removed_it_keeps_what_is_its_owners(machine: Machine) -> None:
    unmount_libraries(machine)
    machine.note("apt remove " + " ".join([*PACKAGES, RUNTIME]),
                 machine.run("apt-get", "remove", "-y", *PACKAGES, RUNTIME).stdout)  # fmt: skip
    assert not (machine.root / "usr/bin/imgd").exists()
    assert (machine.root / "etc/imgd/imgd.yaml").exists() and (machine.root / "var/lib/imgd/state.db").exists()


def test_purged_it_leaves_nothing(machine: Machine, before: tuple[set[str], dict[str, str]]) -> None:
    machine.note("apt purge " + " ".join(PACKAGES), machine.run("apt-get", "purge", "-y", *PACKAGES).stdout)
    left = ["find", "/etc", "/usr", "/var", "/run/systemd", "-name", "*imgd*", "-o", "-name", "*imgagent*"]
    assert machine.say(*left) == ""
    if path := os.environ.get("IMGD_TRANSCRIPT"):
        Path(path).write_text("\n".join(machine.transcript) + "\n")
    # What is a user's own is none of theirs.
    shutil.rmtree(machine.root / "root/.config")
    for name in ("shapes", "checkpoints"):
        shutil.rmtree(machine.root / "srv" / name)
    (machine.root / "srv/job.yaml").unlink()
    files, accounts = before
    assert machine.files() - files == set()
    assert files - machine.files() == set()
    assert machine.accounts() == accounts


@pytest.fixture(scope="module")
def tree(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where on the machine the tarball is unpacked."""
    env, out = {**os.environ, "IMGD_BIN": str(BIN)}, tmp_path_factory.mktemp("tarball")
    subprocess.run([ROOT / "scripts/package.sh", "--tarball", "--version", OLD, "--out", out], check=True, env=env)
    subprocess.run(["tar", "-C", machine.root / "opt", "-xf", *out.glob("*.tar.zst")], check=True)
    return f"/opt/imgd-{OLD}-linux-{os.uname().machine}"


def test_the_tarball_has_licences_of_all_in_it_and_what_the_documents_name(machine: Machine, tree: str) -> None:
    root = machine.root / tree.lstrip("/")
    assert (root / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    licences = {path.name.removesuffix(".txt") for path in (root / "share/licences").iterdir()}
    assert {"preact", "uplot", "libcli11-dev", "libboost-dev", "common-licenses"} <= licences
    libraries = [path.name for path in (root / "lib/imgd/shared").iterdir()]
    assert len(libraries) > 20
    for library in libraries:
        asked = subprocess.run(["dpkg-query", "-S", f"*/{library}"], check=True, capture_output=True, text=True).stdout
        assert licences & {line.split(":")[0] for line in asked.splitlines()}, library
    assert {path for path in deployed_by_the_documents() if not (root / path).exists()} == set()
    for name in ("imgcli-prune.service", "imgcli-prune.timer", "imgagent-users.conf", "imgd.service"):
        assert (root / "deploy/systemd" / name).exists()


def test_the_tarball_runs_without_root_and_brings_its_libraries(machine: Machine, tree: str) -> None:
    nobody = ["runuser", "-u", "nobody", "--"]
    for name in PROGRAMS[:3]:
        loaded = machine.run(*nobody, "env", "LD_TRACE_LOADED_OBJECTS=1", f"{tree}/bin/{name}").stdout
        system = {Path(line.split()[2]).name for line in loaded.splitlines() if "=> /" in line and tree not in line}
        assert system <= {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libresolv.so.2"}, name
        assert "not found" not in loaded, name
    # As docs/install.md has it, by the lines that imgd --dev prints.
    for folder in ("torch", "nvidia"):
        machine.run("install", "-d", f"{tree}/lib/imgd/cu13/{folder}")
        machine.run("mount", "--bind", f"/mnt/{folder}", f"{tree}/lib/imgd/cu13/{folder}")
    as_nobody = [*nobody, "env", f"PATH={tree}/bin:/usr/bin:/bin", "HOME=/tmp/home"]
    (machine.root / "tmp/job.yaml").write_text(JOB.replace("/srv/", "/tmp/home/"))
    machine.run(*nobody, "mkdir", "/tmp/home")
    with machine.start(*as_nobody, "imgd", "--dev") as daemon:
        assert daemon.stdout
        lines = iter(daemon.stdout.readline, "")
        start_agent = next(line for line in lines if line.startswith("  imgagent ")).split("#")[0].split()
        assert next(lines).split() == ["imgcli", "--server", "127.0.0.1:7650", "nodes"]
        with machine.start(*as_nobody, *start_agent) as agent:
            machine.run(*as_nobody, "imgcli", "dataset", "synth", "--classes", "2", "--per-class", "32", "--size",
                        "64x48", "/tmp/home/shapes")  # fmt: skip
            machine.run(*as_nobody, "imgcli", "submit", "/tmp/job.yaml")
            step = ["imgcli", "metrics", "1", "--names", "loss", "-o", "csv"]
            wait_for("its second step", lambda: "\nloss,2," in machine.run(*as_nobody, *step).stdout, 60)
            machine.run(*as_nobody, "imgcli", "cancel", "--wait", "1")
            assert (machine.root / "tmp/home/.local/state/imgd/state.db").exists()
            assert agent.poll() is None and daemon.poll() is None
            machine.run("pkill", "-u", "nobody", "-f", f"{tree}|imgd --dev|imgagent ")
            agent.communicate(timeout=20)
        daemon.communicate(timeout=20)
