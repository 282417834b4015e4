"""What is installed (test_packages.py) works under its units: restarts, users, shells, drop-ins of the pages."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from harness import BIN, ROOT, wait_for
from machine import ADDRESS, Machine
from steps import (
    DOCTOR,
    assert_kept_from_what_is_imgds,
    assert_unbroken,
    curve,
    main_pid,
    ready_nodes,
    restart_agent,
    run_of,
    set_keys,
    settings_of_a_unit,
    shown,
    submit,
)

pytestmark = pytest.mark.long
pytest_plugins = ["installation"]


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
    assert_kept_from_what_is_imgds(machine, rank, "imgagent")
    machine.run("imgcli", "cancel", "--wait", "2")
    assert run_of(machine) == set() and int(shown(machine, "show", "2")["job"]["generation"]) == 1
    assert_unbroken(machine, "2")


def test_an_agent_that_hangs_is_started_anew_under_its_runs(machine: Machine) -> None:
    settings_of_a_unit(machine, "imgagent", "WatchdogSec=2s", "TimeoutAbortSec=1s")
    restart_agent(machine)
    job, hung = submit(machine), main_pid(machine, "imgagent")
    wait_for("a curve", lambda: len(curve(machine, job)) >= 2, 60)
    run = run_of(machine)
    time.sleep(3)
    assert main_pid(machine, "imgagent") == hung, "one that works is left alone"
    machine.systemctl("kill", "--kill-whom=main", "--signal=STOP", "imgagent")
    wait_for("systemd to start it anew", lambda: main_pid(machine, "imgagent") not in (0, hung), 20)
    assert "Watchdog timeout" in machine.journal("imgagent")
    ready_nodes(machine)
    at_restart = max(curve(machine, job))
    wait_for("the job to go on", lambda: max(curve(machine, job)) > at_restart + 5, 30)
    assert run_of(machine) == run
    machine.run("imgcli", "cancel", "--wait", job)
    assert int(shown(machine, "show", job)["job"]["generation"]) == 1
    assert_unbroken(machine, job)
    machine.run("rm", "-r", "/run/systemd/system/imgagent.service.d")
    restart_agent(machine)


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
    machine.run("rm", "-r", "/run/systemd/system/imgd.service.d")
    machine.systemctl("daemon-reload")


def test_the_core_goes_first(machine: Machine) -> None:
    pid = main_pid(machine, "imgd")
    limits = machine.run("cat", f"/proc/{pid}/limits").stdout
    if not re.search(r"Max nice priority +30 ", limits):
        pytest.skip("this machine lets no limit be raised, so that the unit's LimitNICE= is cut to what it has")
    threads = machine.run("sh", "-c", f"cat /proc/{pid}/task/*/stat").stdout.splitlines()
    nice = sorted(int(line.rpartition(") ")[2].split()[16]) for line in threads)
    assert nice[:2] == [-10, 0], "one thread alone, as the unit lets its user"


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


def test_ranks_are_their_projects_user_under_the_unit_with_its_drop_in(machine: Machine) -> None:
    config, folder = machine.root / "etc/imgd/agent.yaml", "/etc/systemd/system/imgagent.service.d"
    set_keys(config, projects='{"*": {user: games}}')
    assert machine.run("systemctl", "restart", "imgagent", check=False).returncode != 0, "it may not become others"
    assert "it lacks CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID" in machine.journal("imgagent")
    machine.run("install", "-d", folder)
    machine.run("cp", "/usr/share/doc/imgagent/examples/imgagent-users.conf", folder)
    restart_agent(machine)
    machine.run("install", "-d", "-o", "games", "/srv/of-games")
    job = submit(machine, "checkpoint.dir=/srv/of-games")
    wait_for("a curve", lambda: len(curve(machine, job)) >= 2, 60)
    (rank,) = (pid for pid, name in machine.processes("imgagent").items() if name == "imgtrain")
    assert_kept_from_what_is_imgds(machine, rank, "games")
    capabilities = "+chown,+kill,+setgid,+setuid"
    machine.run("setpriv", "--reuid=imgagent", "--regid=imgagent", "--init-groups", f"--inh-caps={capabilities}",
                f"--ambient-caps={capabilities}", *DOCTOR[4:])  # fmt: skip
    machine.run("imgcli", "cancel", "--wait", job)
    assert run_of(machine) == set(), "what another user runs is ended too"
    machine.run("rm", "-r", folder, "/srv/of-games")
    set_keys(config, projects="{}")
    restart_agent(machine)


def test_a_shell_under_the_unit_has_a_terminal_and_ends_with_the_agent(machine: Machine) -> None:
    set_keys(machine.root / "etc/imgd/imgd.yaml", shell="true")
    machine.run("imgcli", "admin", "reload")
    node = restart_agent(machine)
    typed = machine.run("script", "-qec", f"imgcli shell {node} -- sh -c 'tty; id -un'", "/dev/null").stdout
    # The end of its own input script tells by a key, which the terminal shows.
    assert re.search(r"/dev/pts/\d+\s+imgagent\s", re.sub(r"\^[@D]", "", typed)), typed
    with machine.start("script", "-qec", f"imgcli shell {node} -- sleep 998", "/dev/null") as session:
        wait_for("the program", lambda: "sleep" in machine.processes("imgagent").values(), 20)
        machine.systemctl("stop", "imgagent")
        wait_for("nothing to be left", lambda: machine.processes("imgagent") == {}, 20)
        session.communicate(timeout=20)
    assert session.returncode != 0
    machine.systemctl("start", "imgagent")


def test_old_checkpoints_go_with_the_drop_in_of_the_page(machine: Machine) -> None:
    page = (ROOT / "docs/operations.md").read_text()
    drop_in, rights = re.search(r"```ini\n(.*?)```", page, re.DOTALL), re.search(r"^setfacl .*$", page, re.MULTILINE)
    assert drop_in and rights
    restart_agent(machine)
    machine.run(*rights[0].replace("/shared/", "/srv/").split())
    job = submit(machine, "train.epochs=1", "checkpoint.every_epochs=1")
    wait_for("its end", lambda: "COMPLETED" in shown(machine, "show", job)["job"]["state"], 60)
    written = Path(shown(machine, "show", job)["job"]["checkpoint_dir"])

    def checkpoints() -> list[Path]:
        return list((machine.root / written.relative_to("/")).rglob("*.safetensors"))

    assert checkpoints()
    set_keys(machine.root / "etc/imgd/imgd.yaml", checkpoints_total_bytes="1", best_checkpoints_kept="false")
    machine.run("imgcli", "admin", "reload")
    wait_for("words", lambda: "Read-only file system" in machine.run("imgcli", "events").stdout, 20)
    assert checkpoints()
    folder = machine.root / "etc/systemd/system/imgd.service.d"
    folder.mkdir()
    (folder / "override.conf").write_text(drop_in[1].replace("/shared/", "/srv/"))
    machine.systemctl("daemon-reload")
    machine.systemctl("restart", "imgd")
    wait_for("them to go", lambda: not checkpoints(), 20)
    shutil.rmtree(folder)
    machine.systemctl("daemon-reload")


def test_an_address_and_a_token_are_all_that_a_node_needs(machine: Machine) -> None:
    """With GPUs: a library that stands for NVML."""
    shutil.copy(next(BIN.parent.glob("**/libfake_nvml.so")), machine.root / "tmp/nvml.so")
    (machine.root / "tmp/gpus").write_text("count 2\nname * Fake H100\n")
    machine.run("sh", "-c", "imgcli node join-token > /tmp/token")
    # Another machine but for its network: a name and a state folder of its own.
    alone = ["hostname gpu-1", "mount -t tmpfs tmpfs /var/lib/imgagent",
             "export IMGD_NVML=/tmp/nvml.so IMGD_FAKE_NVML_SCRIPT=/tmp/gpus",
             f"exec imgagent --server {ADDRESS}:7650 --token-file /tmp/token"]  # fmt: skip
    with machine.start("unshare", "--mount", "--uts", "sh", "-c", "; ".join(alone)) as agent:
        try:
            node = wait_for(
                "the node", lambda: next((n for n in ready_nodes(machine) if n["name"] == "gpu-1"), None), 20
            )
            assert [device["model"] for device in node["devices"]] == ["Fake H100"] * 2
        finally:
            machine.run("pkill", "-f", f"^imgagent --server {ADDRESS}")
            agent.communicate(timeout=20)


def test_what_the_agent_kept_as_the_daemons_user_is_handed_over(machine: Machine, newer: dict[str, Path]) -> None:
    """By an upgrade of packages from before the agent had a user of its own."""
    machine.systemctl("stop", "imgagent")
    kept = ["/var/lib/imgagent", "/etc/imgd/join-token"]
    machine.run("chown", "-R", "--from=imgagent:imgagent", "imgd:imgd", *kept)
    machine.run("chown", "games:games", "/var/lib/imgagent/agent-id")  # not its own: left alone
    machine.run("apt-get", "install", "-y", "--reinstall", f"/tmp/debs/{newer['imgagent'].name}")
    assert machine.run("find", *kept, "-user", "imgd", "-o", "-group", "imgd").stdout == ""
    assert machine.run("stat", "--format=%U", "/var/lib/imgagent/agent-id").stdout == "games\n"
    machine.run("chown", "imgagent:imgagent", "/var/lib/imgagent/agent-id")
    machine.systemctl("restart", "imgagent")
    wait_for("the node to be back", lambda: not ready_nodes(machine)[0].get("disconnected"), 20)


def test_the_first_admins_token_gives_way_to_one_of_somebodys(machine: Machine) -> None:
    """As docs/install.md says."""
    (first,) = (token["name"] for token in shown(machine, "token", "list") if token["owner"] == "admin")
    machine.run("sh", "-c", "umask 077; imgcli token create --scope admin --owner ada --name ada > /root/own.token")
    machine.run("imgcli", "login", f"{ADDRESS}:7650", "--ca", "/var/lib/imgd/ca.crt", "--token-file", "/root/own.token")
    machine.run("imgcli", "token", "revoke", first)
    machine.run("rm", "/var/lib/imgd/admin.token", "/root/own.token")
    machine.systemctl("restart", "imgd")
    assert [token["owner"] for token in shown(machine, "token", "list")] == ["ada"]
    assert not (machine.root / "var/lib/imgd/admin.token").exists(), "somebody is admin"
