"""Install, first page, first node, first job, upgrade while it runs: in a clean root.

The order of the tests, and of the files of this folder, is that of an installation's life; each goes on from the one
before. With IMGD_TRANSCRIPT=FILE what was typed and printed is written there, as docs/install.md shows it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from harness import BIN, ROOT, wait_for
from machine import ADDRESS, Machine
from steps import (
    DOCTOR,
    JOB,
    NEW,
    OLD,
    PROGRAMS,
    RUNTIME,
    assert_unbroken,
    curve,
    deployed_by_the_documents,
    field,
    main_pid,
    mount_libraries,
    pack,
    pack_runtime,
    ready_nodes,
    run_of,
    set_keys,
    shown,
)

pytestmark = pytest.mark.long
pytest_plugins = ["installation"]


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


def test_what_the_documents_name_is_beside_them(debs: dict[str, Path]) -> None:
    """Slurm's script, Kubernetes' manifests, user data of EC2 and the like."""
    listing = subprocess.run(["dpkg-deb", "-c", debs["imgd"]], check=True, capture_output=True, text=True).stdout
    named = deployed_by_the_documents()
    assert {"deploy/slurm/imgagent.sbatch", "deploy/kubernetes/imgd.yaml", "deploy/ec2/user-data.sh"} <= named
    packed = {line.split()[5].rstrip("/") for line in listing.splitlines()}
    assert {path for path in named if f"./usr/share/doc/imgd/{path}" not in packed} == set()
    assert "./usr/share/doc/imgd/docs/hosts.md" in packed


def test_an_upgrade_ships_megabytes(debs: dict[str, Path]) -> None:
    """All of them but the runtime, which has LibTorch and CUDA."""
    assert RUNTIME not in debs and sum(deb.stat().st_size for deb in debs.values()) < 20_000_000


def test_the_runtimes_package_is_of_the_version_that_the_trainer_asks_for(
    debs: dict[str, Path], tmp_path: Path
) -> None:
    """Of a few of its libraries: all of them take minutes."""
    site = "torch/lib/python3/site-packages"
    (wheels,) = (ROOT / ".deps/torch/lib").glob("python3*/site-packages")
    for name in (
        "torch/lib/libc10.so",
        "nvidia/cu13/lib/libcufile.so.0",
        "nvidia/nvshmem/lib/nvshmem_bootstrap_mpi.so.3",
    ):
        (tmp_path / site / name).parent.mkdir(parents=True)
        shutil.copy(wheels / name, tmp_path / site / name)
    for licences in ("torch-*.dist-info", "nvidia_nccl_*.dist-info"):
        (folder,) = wheels.glob(licences)
        shutil.copytree(folder, tmp_path / site / folder.name)
    env = {**os.environ, "IMGD_BIN": str(BIN), "IMGD_DEPS": str(tmp_path)}
    done = subprocess.run([ROOT / "scripts/package.sh", "--runtime", "--only", RUNTIME, "--out", tmp_path / "out"],
                          capture_output=True, text=True, env=env)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (deb,) = (tmp_path / "out").glob("*.deb")
    needed = re.search(rf"{RUNTIME} \(>= ([^)]*)\)", field(debs["imgtrain"], "Depends"))
    assert needed and field(deb, "Version") == needed[1]
    listing = subprocess.run(["dpkg-deb", "-c", deb], check=True, capture_output=True, text=True).stdout
    assert "./usr/lib/imgd/cu13/torch/lib/libc10.so" in listing and "/doc/imgtrain-runtime-cu13/torch" in listing
    assert "nvshmem" not in listing, "it looks for MPI where whoever built it had it"


def test_the_same_commit_gives_the_same_bytes(debs: dict[str, Path], tmp_path: Path) -> None:
    again = pack(tmp_path, f"{OLD}~test1")
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
    machine.say("systemctl", "status", "--no-pager", "--lines=3", "imgd")
    page = machine.curl("https://127.0.0.1:7651/")
    machine.note("curl --insecure https://127.0.0.1:7651/ | head -n 3", "\n".join(page.splitlines()[:3]))
    assert "<html" in page.lower()
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


def test_the_nightly_pruning_runs_with_no_more_than_imgcli(machine: Machine) -> None:
    """As the example's first lines say, before there is an agent or its user."""
    examples = "/usr/share/doc/imgcli/examples"
    steps = re.findall(
        r"^#   (.*)$", (machine.root / f"{examples}/imgcli-prune.service".lstrip("/")).read_text(), re.MULTILINE
    )
    assert [step.split()[0] for step in steps] == ["install", "install", "(umask", "systemctl"]
    machine.run("sh", "-c", f"cp {examples}/imgcli-prune.* /etc/systemd/system/ && sed -i s/gpu-head:/{ADDRESS}:/ "
                "/etc/systemd/system/imgcli-prune.service")  # fmt: skip
    machine.systemctl("daemon-reload")
    machine.run("sh", "-c", "\n".join(["set -e; cd /var/lib/imgd; umask 077", *steps]))
    machine.systemctl("start", "imgcli-prune")
    assert (
        machine.systemctl("show", "--property=ExecMainStatus,Result", "imgcli-prune")
        == "Result=success\nExecMainStatus=0"
    ), machine.run("journalctl", "-u", "imgcli-prune")
    machine.systemctl("disable", "--now", "imgcli-prune.timer")
    machine.run("imgcli", "token", "revoke", "prune")
    machine.run("sh", "-c", "rm -r /etc/imgcli /etc/systemd/system/imgcli-prune.*")
    machine.systemctl("daemon-reload")


def test_an_agent_that_is_installed_joins_by_a_token(machine: Machine, debs: dict[str, Path], tmp_path: Path) -> None:
    machine.install(debs["imgagent"], debs["imgtrain"], pack_runtime(tmp_path, debs["imgtrain"]))
    mount_libraries(machine)
    assert re.fullmatch(r"LibTorch 2\.\S+\nCUDA 13\.\S+\nNCCL 2\.\S+\n", machine.say("imgtrain", "--libraries"))
    machine.say("sh", "-c", "umask 077; imgcli node join-token > /etc/imgd/join-token")
    machine.say("chown", "imgagent", "/etc/imgd/join-token")
    keys = {"server": f"{ADDRESS}:7650", "token_file": "/etc/imgd/join-token", "cpu_slots": "1"}  # no GPU here
    set_keys(machine.root / "etc/imgd/agent.yaml", **keys)
    machine.note("editor /etc/imgd/agent.yaml", ", ".join(f"{key}: {value}" for key, value in keys.items()))
    machine.say("systemctl", "restart", "imgagent")
    node = ready_nodes(machine)[0]
    assert node["agent_version"] and len(node["devices"]) == 1
    machine.say("imgcli", "nodes")
    (used,) = shown(machine, "node", "join-tokens")
    assert [use["node"] for use in used["joined"]] == [node["name"]] and int(used.get("uses_left", 0)) == 0
    assert (machine.root / "var/lib/imgagent/node.key").stat().st_mode & 0o777 == 0o600
    # Asked as docs/install.md says it, of an agent that runs: what the unit gave it counts, not this shell.
    looked = machine.run("prlimit", "--nofile=512:512", *DOCTOR, "-o", "json").stdout
    checks = {line["check"]: line for line in json.loads(looked)["checks"]}
    well = ("certificate", "port", "trainer", "nccl", "cgroup", "metrics-port")
    assert [checks[name]["grade"] for name in well] == ["good"] * len(well), looked
    assert "imgd's clock" in checks["clock"]["what"]
    assert checks["metrics-port"]["what"] == "the agent that runs here listens on it"
    limits = machine.run("cat", f"/proc/{main_pid(machine, 'imgagent')}/limits").stdout
    of_the_unit = re.search(r"^Max open files +\d+ +(\d+) ", limits, re.MULTILINE)
    assert of_the_unit and re.search(rf"\b{of_the_unit[1]}\b", checks["open-files"]["what"]), checks["open-files"]
    machine.note(" ".join(DOCTOR), machine.run(*DOCTOR).stdout.splitlines()[-1])
    for unit in ("imgd", "imgagent"):
        exposure = machine.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout
        machine.note(f"systemd-analyze security {unit} | tail -n 1", exposure.splitlines()[-1])


def test_a_job_learns_and_an_upgrade_does_not_disturb_it(
    machine: Machine, debs: dict[str, Path], newer: dict[str, Path], began: dict[str, float],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    machine.say("imgcli", "dataset", "synth", "--classes", "2", "--per-class", "32", "--size", "64x48", "/srv/shapes")
    machine.run("install", "-d", "-o", "imgagent", "/srv/checkpoints")
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
    assert [machine.run(name, "--version").stdout for name in PROGRAMS] == [f"{name} {OLD}\n" for name in PROGRAMS]
    printed = machine.install(*newer.values())
    assert "conffile" not in printed.lower(), "an upgrade asks about files that only their owner changed"
    now = [main_pid(machine, name) for name in ("imgd", "imgagent")]
    assert 0 not in now and not set(started) & set(now), "both are restarted"
    assert [machine.run(name, "--version").stdout for name in PROGRAMS] == [f"{name} {NEW}\n" for name in PROGRAMS]
    wait_for("the node with its new agent", lambda: ready_nodes(machine)[0]["agent_version"] == NEW, 20)
    assert len(ranks) == 2 and run_of(machine) == ranks, "the run's shim and its rank are the same"
    at_restart = max(curve(machine))
    wait_for("the job to go on", lambda: max(curve(machine)) > at_restart + 5, 30)
    machine.say("imgcli", "jobs")
    machine.say("imgcli", "metrics", "1", "--names", "loss", "--points", "4", "-o", "csv")
    machine.say("imgcli", "cancel", "--wait", "1")
    assert_unbroken(machine)
    losses = curve(machine)
    assert len(set(losses.values())) > len(losses) / 2, "it is no curve"
    job = shown(machine, "show", "1")["job"]
    assert int(job["generation"]) == 1 and int(job["restarts"]) == 0
    assert "cpu_slots: 1" in (machine.root / "etc/imgd/agent.yaml").read_text()


def test_grafanas_dashboards_and_prometheus_rules_are_where_its_page_says(machine: Machine) -> None:
    folder = machine.root / "usr/share/imgd/grafana"
    files = {path.name for path in folder.rglob("*")}
    assert {"cluster.json", "job.json", "node.json", "control.json", "alerts.yml", "prometheus.yml"} <= files
