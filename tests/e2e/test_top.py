"""imgcli top in a real terminal: what it shows, another size, a restart of the daemon, and the terminal after it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, Cluster

OTHER_SCREEN = "\x1b[?1049h"
BACK = "\x1b[?25h\x1b[?1049l"


class TerminalSession:
    """A program with a terminal of its own, and what it wrote there."""

    def __init__(self, command: list[str], columns: int, lines: int) -> None:
        begin, may_begin = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(begin, 1)
            env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
            os.execve(command[0], command, env)
        self.resize(columns, lines)
        self.before = self.settings()
        os.write(may_begin, b"x")
        os.close(begin)
        os.close(may_begin)
        self.text = ""
        self.exit_code: int | None = None

    def read(self, seconds: float) -> bool:
        """False at the end of what there is to read."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, pattern: str, seconds: float = 30) -> None:
        """Until it wrote that; what came before is forgotten."""
        deadline = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.text)
            if match:
                self.text = self.text[match.end() :]
                return
            assert time.monotonic() < deadline, f"waited in vain for {pattern!r}; screen: {self.text!r}"
            assert self.read(0.1) or re.search(pattern, self.text), f"ended without {pattern!r}: {self.text!r}"

    def keys(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.fd)

    def wait_end(self) -> int:
        """The exit code, negative for a signal; `text` has the rest."""
        while self.read(20):
            pass
        self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.exit_code

    def close(self) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@contextlib.contextmanager
def top(cluster: Cluster, columns: int = 100, lines: int = 30) -> Iterator[TerminalSession]:
    session = TerminalSession([str(BIN / "imgcli"), "--server", cluster.address, "top"], columns, lines)
    try:
        yield session
    finally:
        session.close()


@pytest.fixture
def waiting_job(cluster: Cluster, tmp_path: Path) -> int:
    """A job that waits for more nodes than there are: it needs no trainer."""
    job = tmp_path / "waits.yaml"
    job.write_text(
        "name: waits-long\nmodel: {name: resnet18}\nresources: {nodes: 5, ranks_per_node: 1}\n"
        f"data: {{train: {tmp_path}, val: {tmp_path}, image_size: 32}}\n"
        "train: {epochs: 1, global_batch: 20}\noptimizer: {lr: 0.1}\n"
        f"checkpoint: {{dir: {tmp_path}/checkpoints}}\n"
    )
    return cluster.submit(job)


def test_shows_nodes_and_why_a_job_waits(cluster: Cluster, waiting_job: int) -> None:
    with top(cluster) as screen:
        screen.wait_for(re.escape(OTHER_SCREEN))
        screen.wait_for("0 running, 1 queued")
        screen.wait_for("2 of 2 nodes.* ready")
        screen.wait_for("waits-long +.*QUEUED.*needs 5 nodes")
        screen.keys("\r")
        screen.wait_for(f"job {waiting_job} \\(waits-long\\)")
        screen.wait_for("what happened")
        screen.keys("qq")
        assert screen.wait_end() == 0


def test_another_size_is_drawn_anew(cluster: Cluster, waiting_job: int) -> None:
    with top(cluster) as screen:
        screen.wait_for("waits-long")
        screen.resize(60, 20)
        screen.wait_for("imgcli top needs 80x24;")
        screen.wait_for("this terminal has 60x20")
        screen.resize(120, 40)
        screen.wait_for("OWNER")
        screen.wait_for("waits-long")
        screen.keys("q")
        assert screen.wait_end() == 0


def test_cancels_after_a_question(cluster: Cluster, waiting_job: int) -> None:
    with top(cluster) as screen:
        screen.wait_for("waits-long")
        screen.keys("c")
        screen.wait_for(f"cancel job {waiting_job} \\(waits-long\\)\\?")
        screen.keys("y")
        screen.wait_for("CANCELLED")
        screen.keys("q")
        screen.wait_end()
    assert cluster.job(waiting_job)["state"] == "JOB_STATE_CANCELLED"


def test_survives_a_restart_and_says_so(cluster: Cluster, waiting_job: int) -> None:
    with top(cluster) as screen:
        screen.wait_for("waits-long")
        assert cluster.daemon
        cluster.daemon.send_signal(signal.SIGKILL)
        cluster.daemon.wait()
        screen.wait_for("imgd has not answered since")
        screen.keys("j")
        cluster.start_daemon()
        screen.wait_for("imgd is back")
        screen.keys("q")
        assert screen.wait_end() == 0


@pytest.mark.parametrize(
    ("leave", "code"),
    [("q", 0), ("\x03", 130), ("\x03\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_leaves_the_terminal_as_it_was(cluster: Cluster, leave: str | signal.Signals, code: int) -> None:
    with top(cluster) as screen:
        screen.wait_for("no jobs yet")
        assert screen.settings() != screen.before, "keys come as they are pressed"
        if isinstance(leave, str):
            screen.keys(leave)
        else:
            os.kill(screen.pid, leave)
        screen.wait_for(re.escape(BACK))
        assert screen.wait_end() == code
        assert screen.settings() == screen.before
        assert screen.text == ""


def test_gives_the_terminal_back_while_it_is_suspended(cluster: Cluster) -> None:
    with top(cluster) as screen:
        screen.wait_for("no jobs yet")
        screen.keys("\x1a")
        screen.wait_for(re.escape(BACK))
        os.waitpid(screen.pid, os.WUNTRACED)
        assert screen.settings() == screen.before
        os.kill(screen.pid, signal.SIGCONT)
        screen.wait_for(re.escape(OTHER_SCREEN))
        screen.wait_for("no jobs yet")
        screen.keys("q")
        assert screen.wait_end() == 0


def test_without_a_terminal_it_prints_once(cluster: Cluster, waiting_job: int) -> None:
    out = cluster.cli("top").stdout
    assert "waits-long" in out and "needs 5 nodes" in out
    assert "\x1b" not in out
    document = cluster.json("top")
    assert document["totals"]["devices_free"] == 2
    assert document["jobs"][0]["id"] == str(waiting_job)
