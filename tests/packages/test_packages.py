"""Install, first page, first node, first job, upgrade while it runs, remove, purge: in a clean root.

The order of the tests is that of an installation's life; each goes on from the one before. With IMGD_TRANSCRIPT=FILE
what was typed and printed is written there, as docs/install.md shows it.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BIN, ROOT, Json, wait_for
from machine import ADDRESS, Machine, make_root, what_lacks

pytestmark = pytest.mark.long
PROGRAMS = ["imgd", "imgagent", "imgcli", "imgtrain"]
PACKAGES = [*PROGRAMS, "imgd-grafana"]
DEPS = Path(os.environ.get("IMGD_DEPS", ROOT / ".deps"))
RUNTIME = "imgtrain-runtime-cu13"
LIBRARIES = "usr/lib/imgd/cu13"  # where that package has them


def pack(out: Path, version: str) -> dict[str, Path]:
    env = {**os.environ, "IMGD_BIN": str(BIN)}
    only = [word for name in PACKAGES for word in ("--only", name)]
    done = subprocess.run([ROOT / "scripts/package.sh", "--no-lint", "--out", out, "--version", version, *only],
                          capture_output=True, text=True, env=env)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("_")[0]: path for path in out.glob(f"*_{version}_*.deb")}


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if missing := what_lacks():
        pytest.skip(missing)
    return pack(tmp_path_factory.mktemp("debs"), "0.1.0~test1")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return pack(tmp_path_factory.mktemp("newer"), "0.1.0~test2")


@pytest.fixture(scope="module")
def machine(
    debs: dict[str, Path], newer: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """With what the packages depend on, and none of them. All is packed before: what follows is timed."""
    assert newer
    root = tmp_path_factory.mktemp("machine") / "root"
    try:
        make_root(root)
        (libraries,) = (DEPS / "torch/lib").glob("python3*/site-packages")
        with Machine(root, shared=libraries) as machine:
            machine.run("apt-get", "update", network=True)
            needs = [re.sub(rf"{RUNTIME} \([^)]*\),? ?", "", field(deb, "Depends")) for deb in debs.values()]
            machine.run(
                "apt-get", "satisfy", "-y", "--no-install-recommends", ", ".join(filter(None, needs)), network=True
            )
            yield machine
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def before(machine: Machine) -> tuple[set[str], dict[str, str]]:
    """Files and accounts of the machine as it was."""
    return machine.files(), machine.accounts()


def field(deb: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", deb, name], check=True, capture_output=True, text=True).stdout.strip()


def pack_runtime(out: Path, trainer: Path) -> Path:
    """In the place of gigabytes: a package of that name and version, with folders to mount LibTorch's on."""
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
    for folder in ("torch", "nvidia"):
        machine.run("mount", "--bind", f"/mnt/{folder}", f"/{LIBRARIES}/{folder}")


def unmount_libraries(machine: Machine) -> None:
    for folder in ("torch", "nvidia"):
        machine.run("umount", f"/{LIBRARIES}/{folder}")


@pytest.fixture(scope="module")
def began() -> dict[str, float]:
    """When things began, by their names; seconds of the monotonic clock."""
    return {}


def test_lintian_finds_no_error(debs: dict[str, Path]) -> None:
    done = subprocess.run(["lintian", "--no-cfg", "--allow-root", "--fail-on", "error", *debs.values()],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_depends_on_what_it_links_and_has_its_manual(debs: dict[str, Path]) -> None:
    for name in PROGRAMS:
        deb = debs[name]
        assert "libc6" in field(deb, "Depends") and "libtorch" not in field(deb, "Depends")
        listing = subprocess.run(["dpkg-deb", "-c", deb], check=True, capture_output=True, text=True).stdout
        assert re.search(rf"/usr/share/man/man[18]/{name}\.[18]\.gz", listing)
        assert not re.search(r"^\S+ (?!root/root)", listing, re.MULTILINE), "not all files are root's"
    listing = subprocess.run(["dpkg-deb", "-c", debs["imgcli"]], check=True, capture_output=True, text=True).stdout
    for completion in ("bash-completion/completions/imgcli", "zsh/vendor-completions/_imgcli",
                       "fish/vendor_completions.d/imgcli.fish"):  # fmt: skip
        assert f"./usr/share/{completion}\n" in listing


def test_an_upgrade_ships_megabytes(debs: dict[str, Path]) -> None:
    """All of them but the runtime, which has LibTorch and CUDA."""
    assert RUNTIME not in debs and sum(deb.stat().st_size for deb in debs.values()) < 20_000_000


def test_the_same_commit_gives_the_same_bytes(debs: dict[str, Path], tmp_path: Path) -> None:
    again = pack(tmp_path, "0.1.0~test1")
    assert {name: deb.read_bytes() for name, deb in again.items()} == {
        name: deb.read_bytes() for name, deb in debs.items()
    }


def test_installed_the_daemon_runs_as_its_unit_says_and_the_page_answers(
    machine: Machine, before: tuple[set[str], dict[str, str]], debs: dict[str, Path], began: dict[str, float]
) -> None:
    began["install"] = machine.began = time.monotonic()
    machine.install(debs["imgd"], debs["imgcli"])
    assert re.search(r"^imgd:.*nologin$", (machine.root / "etc/passwd").read_text(), re.MULTILINE)
    state = (machine.root / "var/lib/imgd").stat()
    assert state.st_mode & 0o777 == 0o750 and state.st_uid != 0
    assert machine.systemctl("is-active", "imgd") == "active" and machine.systemctl("is-enabled", "imgd") == "enabled"
    assert machine.run("stat", "--format=%U", f"/proc/{main_pid(machine, 'imgd')}").stdout == "imgd\n"
    assert "<html" in machine.curl("https://127.0.0.1:7651/").lower()
    machine.say("systemctl", "status", "--no-pager", "--lines=3", "imgd")
    assert shown(machine, "nodes") == []


def test_on_the_network_it_speaks_tls_and_asks_who_one_is(machine: Machine) -> None:
    config = machine.root / "etc/imgd/imgd.yaml"
    text = config.read_text()
    for line, new in (("\nlisten: 127.0.0.1:7650\n", "\nlisten: 0.0.0.0:7650\n"),
                      ("\n  listen: 127.0.0.1:7651\n", "\n  listen: 0.0.0.0:7651\n"),
                      ("\n  names: []\n", f"\n  names: [{ADDRESS}]\n")):  # fmt: skip
        assert text.count(line) == 1, line
        text = text.replace(line, new)
    config.write_text(text)
    machine.note(
        "editor /etc/imgd/imgd.yaml",
        f"listen: 0.0.0.0:7650, web: {{listen: 0.0.0.0:7651}}, tls: {{names: [{ADDRESS}]}}",
    )
    machine.say("systemctl", "restart", "imgd")
    refused = machine.run("imgcli", "--server", f"{ADDRESS}:7650", "nodes", check=False)
    assert refused.returncode == 5 and "imgcli login" in refused.stdout
    machine.say("imgcli", "login", f"{ADDRESS}:7650", "--ca", "/var/lib/imgd/ca.crt", "--token-file",
                "/var/lib/imgd/admin.token")  # fmt: skip
    assert shown(machine, "nodes") == []
    assert "<html" in machine.curl(f"https://{ADDRESS}:7651/").lower()


def test_an_agent_that_is_installed_joins_by_a_token(machine: Machine, debs: dict[str, Path], tmp_path: Path) -> None:
    machine.install(debs["imgagent"], debs["imgtrain"], pack_runtime(tmp_path, debs["imgtrain"]))
    mount_libraries(machine)
    machine.say("sh", "-c", "imgcli node join-token > /etc/imgd/join-token")
    machine.say("chown", "imgd", "/etc/imgd/join-token")
    machine.say("chmod", "600", "/etc/imgd/join-token")
    # No GPU here; and imgd, on the same machine, has the port that the example has for metrics.
    keys = {
        "server": f"{ADDRESS}:7650",
        "token_file": "/etc/imgd/join-token",
        "cpu_slots": "1",
        "metrics_listen": "'off'",
    }
    set_keys(machine.root / "etc/imgd/agent.yaml", **keys)
    machine.note("editor /etc/imgd/agent.yaml", ", ".join(f"{key}: {value}" for key, value in keys.items()))
    machine.say("systemctl", "restart", "imgagent")
    node = ready_nodes(machine)[0]
    assert node["agent_version"] and len(node["devices"]) == 1
    machine.say("imgcli", "nodes")
    (used,) = shown(machine, "node", "join-tokens")
    assert [use["node"] for use in used["joined"]] == [node["name"]] and int(used.get("uses_left", 0)) == 0
    assert (machine.root / "var/lib/imgagent/node.key").stat().st_mode & 0o777 == 0o600
    looked = machine.run("runuser", "-u", "imgd", "--", "imgagent", "doctor", "--config", "/etc/imgd/agent.yaml",
                         "-o", "json", check=False).stdout  # fmt: skip
    checks = {line["check"]: line for line in json.loads(looked)["checks"]}
    assert [checks[name]["grade"] for name in ("certificate", "port", "trainer", "nccl")] == ["good"] * 4, looked
    assert "imgd's clock" in checks["clock"]["what"]


JOB = """\
name: first
model: {name: resnet18}
data: {train: /srv/shapes/train, val: /srv/shapes/val, image_size: 32, workers: 1}
train: {epochs: 2000, global_batch: 8, precision: fp32, threads: 1, log_every_steps: 1}
optimizer: {lr: 0.01}
checkpoint: {dir: /srv/checkpoints, every_epochs: 0}
"""


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


def test_a_job_learns_and_an_upgrade_does_not_disturb_it(
    machine: Machine, debs: dict[str, Path], newer: dict[str, Path], began: dict[str, float],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    machine.say("imgcli", "dataset", "synth", "--classes", "2", "--per-class", "32", "--size", "64x48", "/srv/shapes")
    machine.run("install", "-d", "-o", "imgd", "/srv/checkpoints")
    (machine.root / "srv/job.yaml").write_text(JOB)
    machine.say("imgcli", "submit", "/srv/job.yaml")
    wait_for("the first points of a curve", lambda: len(curve(machine)) >= 2, 60)
    took = time.monotonic() - began["install"]
    sizes = ", ".join(f"{name} {deb.stat().st_size / 1e6:.1f} MB" for name, deb in sorted(debs.items()))
    with capsys.disabled():
        print(f" [{took:.0f} s from apt install of imgd to the first curve; packages: {sizes}]", end="")
    machine.say("imgcli", "metrics", "1", "--names", "loss", "--points", "4", "-o", "csv")
    ranks = run_of(machine)
    started = [main_pid(machine, name) for name in ("imgd", "imgagent")]
    printed = machine.install(*newer.values())
    assert "conffile" not in printed.lower(), "an upgrade asks about files that only their owner changed"
    now = [main_pid(machine, name) for name in ("imgd", "imgagent")]
    assert 0 not in now and not set(started) & set(now), "both are restarted"
    assert len(ranks) == 2 and run_of(machine) == ranks, "the run's shim and its rank are the same"
    at_restart = max(curve(machine))
    wait_for("the job to go on", lambda: max(curve(machine)) > at_restart + 5, 30)
    machine.say("imgcli", "jobs")
    machine.run("imgcli", "cancel", "--wait", "1")
    losses = curve(machine)
    assert sorted(losses) == list(range(1, len(losses) + 1)), "a step is missing"
    assert len(set(losses.values())) > len(losses) / 2, "it is no curve"
    job = shown(machine, "show", "1")["job"]
    assert int(job["generation"]) == 1 and int(job["restarts"]) == 0
    assert "cpu_slots: 1" in (machine.root / "etc/imgd/agent.yaml").read_text()


def settings_of_a_unit(machine: Machine, unit: str, *lines: str) -> None:
    """A drop-in of the unit's, until the machine ends."""
    folder = f"/run/systemd/system/{unit}.service.d"
    machine.run("install", "-d", folder)
    machine.run(
        "sh", "-c", 'folder=$1; shift; printf "%s\\n" "[Service]" "$@" >$folder/test.conf', "sh", folder, *lines
    )
    machine.systemctl("daemon-reload")


def test_an_agent_that_ends_leaves_its_runs_as_they_are(machine: Machine) -> None:
    machine.run("imgcli", "submit", "/srv/job.yaml")
    wait_for("a curve", lambda: len(curve(machine, "2")) >= 2, 60)
    run = run_of(machine)
    (rank,) = (pid for pid, name in machine.processes("imgagent").items() if name == "imgtrain")
    machine.systemctl("stop", "imgagent")
    assert set(machine.processes("imgagent")) == run
    machine.systemctl("start", "imgagent")
    killed = main_pid(machine, "imgagent")
    machine.systemctl("kill", "--kill-whom=main", "--signal=KILL", "imgagent")
    wait_for("systemd to start it anew", lambda: main_pid(machine, "imgagent") not in (0, killed), 20)
    ready_nodes(machine)
    at_restart = max(curve(machine, "2"))
    wait_for("the job to go on", lambda: max(curve(machine, "2")) > at_restart + 5, 30)
    assert run_of(machine) == run
    machine.run("touch", f"/proc/{rank}/root/tmp/what-a-rank-needs-now")
    machine.run("imgcli", "cancel", "--wait", "2")
    assert run_of(machine) == set() and int(shown(machine, "show", "2")["job"]["generation"]) == 1


def test_a_daemon_that_hangs_is_started_anew(machine: Machine) -> None:
    settings_of_a_unit(machine, "imgd", "WatchdogSec=2s", "TimeoutAbortSec=1s")
    machine.systemctl("restart", "imgd")
    hung = main_pid(machine, "imgd")
    time.sleep(3)
    assert main_pid(machine, "imgd") == hung, "one that works is left alone"
    machine.systemctl("kill", "--kill-whom=main", "--signal=STOP", "imgd")
    wait_for("systemd to start it anew", lambda: main_pid(machine, "imgd") not in (0, hung), 20)
    wait_for("its answer", lambda: machine.run("imgcli", "nodes", check=False).returncode == 0, 20)
    assert "Watchdog timeout" in machine.journal("imgd")


def test_a_daemon_with_a_wrong_configuration_says_so_once(machine: Machine) -> None:
    config = machine.root / "etc/imgd/imgd.yaml"
    right = config.read_text()
    config.write_text(right.replace("\nlisten: 0.0.0.0:7650\n", "\nlisten: everywhere\n"))
    assert machine.run("systemctl", "reload", "imgd").returncode == 0
    wait_for("words", lambda: "everywhere" in machine.journal("imgd"), 10)
    assert machine.run("imgcli", "nodes").returncode == 0, "what runs goes on with what it had"
    assert machine.run("systemctl", "restart", "imgd", check=False).returncode != 0
    assert machine.systemctl("is-failed", "imgd") == "failed"
    assert machine.systemctl("show", "--property=ExecMainStatus,NRestarts", "--value", "imgd").split() == ["0", "2"]
    config.write_text(right)
    machine.systemctl("restart", "imgd")
    ready_nodes(machine)


def test_grafanas_dashboards_and_prometheus_rules_are_where_its_page_says(machine: Machine) -> None:
    folder = machine.root / "usr/share/imgd/grafana"
    files = {path.name for path in folder.rglob("*")}
    assert {"cluster.json", "job.json", "node.json", "control.json", "alerts.yml", "prometheus.yml"} <= files


def test_an_agent_that_is_removed_says_that_jobs_run_and_finds_them_when_it_is_installed_again(
    machine: Machine, newer: dict[str, Path]
) -> None:
    machine.run("imgcli", "submit", "/srv/job.yaml")
    wait_for("a curve", lambda: len(curve(machine, "3")) >= 2, 60)
    run = run_of(machine)
    removed = machine.run("apt-get", "remove", "-y", "imgagent").stdout
    assert (
        "jobs still run on this node" in removed and f"imgcli node drain {ready_nodes(machine)[0]['name']}" in removed
    )
    assert set(machine.processes("imgagent")) == run
    machine.install(newer["imgagent"])
    at_restart = max(curve(machine, "3"))
    wait_for("the job to go on", lambda: max(curve(machine, "3")) > at_restart + 5, 30)
    assert run_of(machine) == run
    machine.run("imgcli", "cancel", "--wait", "3")


def test_removed_it_keeps_what_is_its_owners(machine: Machine) -> None:
    unmount_libraries(machine)
    machine.note("apt remove " + " ".join([*PACKAGES, RUNTIME]),
                 machine.run("apt-get", "remove", "-y", *PACKAGES, RUNTIME).stdout)  # fmt: skip
    assert not (machine.root / "usr/bin/imgd").exists()
    assert (machine.root / "etc/imgd/imgd.yaml").exists() and (machine.root / "var/lib/imgd/state.db").exists()


def test_purged_it_leaves_nothing(machine: Machine, before: tuple[set[str], dict[str, str]]) -> None:
    machine.note("apt purge " + " ".join(PACKAGES), machine.run("apt-get", "purge", "-y", *PACKAGES).stdout)
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


def test_the_tarball_runs_without_root_and_brings_its_libraries(machine: Machine, tmp_path: Path) -> None:
    env = {**os.environ, "IMGD_BIN": str(BIN)}
    subprocess.run(
        [ROOT / "scripts/package.sh", "--tarball", "--version", "0.1.0", "--out", tmp_path], check=True, env=env
    )
    tree = f"/opt/imgd-0.1.0-linux-{os.uname().machine}"
    subprocess.run(["tar", "-C", machine.root / "opt", "-xf", *tmp_path.glob("*.tar.zst")], check=True)
    nobody = ["runuser", "-u", "nobody", "--"]
    for name in PROGRAMS[:3]:
        loaded = machine.run(*nobody, "env", "LD_TRACE_LOADED_OBJECTS=1", f"{tree}/bin/{name}").stdout
        system = {Path(line.split()[2]).name for line in loaded.splitlines() if "=> /" in line and tree not in line}
        assert system <= {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libresolv.so.2"}, name
        assert "not found" not in loaded, name
    state = machine.root / "tmp/state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    daemon = subprocess.Popen([*machine.enter(network=False), *nobody, f"{tree}/bin/imgd",
                               "--state-dir", "/tmp/state"], stdin=subprocess.DEVNULL)  # fmt: skip
    asked = [*nobody, f"{tree}/bin/imgcli", "nodes"]
    wait_for("imgd to answer", lambda: machine.run(*asked, check=False).returncode == 0, 20)
    assert daemon.poll() is None
