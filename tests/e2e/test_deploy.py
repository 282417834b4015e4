"""What is deployed is what is documented: unit files, example configurations, what the client links."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from harness import BIN, ROOT, free_port


@pytest.mark.parametrize("unit", ["imgd.service", "imgagent.service"])
def test_unit_files_verify(unit: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    text = (ROOT / "deploy/systemd" / unit).read_text()
    program = unit.removesuffix(".service")
    copy = tmp_path / unit
    copy.write_text(text.replace(f"/usr/bin/{program}", str(BIN / program)))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert done.returncode == 0 and unit not in done.stderr, done.stderr
    assert "Type=notify" in text


@pytest.mark.parametrize(
    ("unit", "most"), [("imgd.service", 1.4), ("imgagent.service", 2.0), ("imgagent-users.conf", 3.1)]
)
def test_unit_files_expose_little(unit: str, most: float, tmp_path: Path) -> None:
    """systemd's own measure, from 0 to 10; the agent's is that of whatever its users run, with the GPUs."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    text = (ROOT / "deploy/systemd" / unit).read_text()
    if unit.endswith(".conf"):  # goes beside the unit
        text = (ROOT / "deploy/systemd/imgagent.service").read_text() + text
    (tmp_path / "a.service").write_text(text)
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                           f"--threshold={round(most * 10)}", tmp_path / "a.service"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout.splitlines()[-1:] + done.stderr.splitlines()


def test_the_timer_that_prunes_checkpoints_verifies_and_has_options_that_exist(tmp_path: Path) -> None:
    units = {
        name: (ROOT / "deploy/systemd" / name).read_text() for name in ("imgcli-prune.service", "imgcli-prune.timer")
    }
    command = re.search(r"^ExecStart=/usr/bin/imgcli (.*)$", units["imgcli-prune.service"], re.MULTILINE)
    assert command
    words = command[1].split()
    help_text = subprocess.run(
        [BIN / "imgcli", *words[:2], "--help"], check=True, capture_output=True, text=True
    ).stdout
    assert words[:2] == ["checkpoints", "prune"] and all(w in help_text for w in words if w.startswith("--"))
    settings = [line for line in units["imgcli-prune.service"].splitlines() if not line.startswith("#")]
    assert not any(word in line for line in settings for word in ("/etc/imgd", "=imgagent", "=imgd")), (
        "of other packages"
    )
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace("/usr/bin/imgcli", str(BIN / "imgcli")))
    done = subprocess.run(["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True)
    assert done.returncode == 0 and "imgcli-prune" not in done.stderr, done.stderr


@pytest.mark.parametrize("program", ["imgd", "imgagent"])
def test_the_example_configuration_is_valid_and_commented(program: str) -> None:
    example = ROOT / "deploy" / {"imgd": "imgd.yaml", "imgagent": "agent.yaml"}[program]
    done = subprocess.run([BIN / program, "--config", example, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    previous = ""
    for line in example.read_text().splitlines():
        if line and not line.startswith(("#", " ", "-")):
            assert previous.startswith("#"), f"{example.name}: '{line}' has no comment above it"
        previous = line


@pytest.mark.parametrize("program", ["imgd", "imgagent"])
def test_systemd_hears_of_the_start_and_then_that_the_program_lives(program: str, tmp_path: Path) -> None:
    commands: dict[str, list[str | Path]] = {
        "imgd": ["--listen", f"127.0.0.1:{free_port()}", "--web-listen", "", "--checkpoint-dir", tmp_path / "ckpt"],
        # One without an imgd lives too.
        "imgagent": ["--server", f"127.0.0.1:{free_port()}", "--node", "a", "--cpu-slots", "1"],
    }
    (tmp_path / "ckpt").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        env = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([BIN / program, *commands[program], "--state-dir", tmp_path / "state"],
                                       env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
        try:
            heard: list[str] = []
            while "READY=1" not in heard or heard[heard.index("READY=1") :].count("WATCHDOG=1") < 3:
                heard += systemd.recv(4096).decode().splitlines()
            process.terminate()
            while "STOPPING=1" not in heard:
                heard += systemd.recv(4096).decode().splitlines()
            assert process.wait(20) == 0, (tmp_path / "log").read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_the_client_starts_without_libtorch_and_libcurl() -> None:
    linked = subprocess.run(["ldd", BIN / "imgcli"], check=True, capture_output=True, text=True).stdout
    assert "libc.so" in linked and not re.search(r"lib(torch|c10|curl)", linked)


@pytest.mark.parametrize("program", ["imgd", "imgagent", "imgtrain", "imgcli"])
def test_every_program_says_its_version(program: str) -> None:
    done = subprocess.run([BIN / program, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and "0.1.0" in done.stdout


def packages() -> set[str]:
    control = (ROOT / "deploy/packages/debian/control").read_text()
    return set(re.findall(r"^Package: (.*)$", control, re.MULTILINE))


@pytest.mark.parametrize("program", ["imgd", "imgagent", "imgcli"])
def test_images_name_packages_and_options_that_exist(program: str) -> None:
    text = (ROOT / f"deploy/docker/{program}.Dockerfile").read_text()
    named = set(re.findall(r"/debs/([a-z0-9-]+)_\*\.deb", text))
    assert program in named and named <= packages()
    help_text = subprocess.run([BIN / program, "--help"], check=True, capture_output=True, text=True).stdout
    entry = next(line for line in text.splitlines() if line.startswith("ENTRYPOINT"))
    assert f'"{program}"' in entry
    for option in re.findall(r'"(--[a-z-]+)"', entry):
        assert option in help_text, f"{program} has no {option}"


def test_help_of_the_agent_says_all_that_metrics_listen_takes() -> None:
    help_text = subprocess.run([BIN / "imgagent", "--help"], check=True, capture_output=True, text=True).stdout
    about = help_text[help_text.index("--metrics-listen") : help_text.index("--spot-notices")]
    assert all(word in about for word in ("HOST:PORT", "relay", "off"))


def test_kubernetes_agents_get_options_that_exist() -> None:
    text = (ROOT / "deploy/kubernetes/imgagent.yaml").read_text()
    help_text = subprocess.run([BIN / "imgagent", "--help"], check=True, capture_output=True, text=True).stdout
    options = re.findall(r"^ *- (--[a-z-]+)=", text, re.MULTILINE)
    assert len(options) >= 3 and all(option in help_text for option in options)
