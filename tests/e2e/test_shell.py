"""Shells, output and forwarded ports: `imgcli shell`, `attach` and `forward`. Real processes throughout."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import pty
import random
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BIN, Cluster, alive, processes_with, wait_for

CONFIG = "commands: true\nshell: true\nshell_idle_limit: {idle}\nshell_sessions_per_node: 2\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon that allows sessions, and an agent."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text(CONFIG.format(idle="1h"))
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        yield cluster


def run_job(cluster: Cluster, script: str = "echo begun; sleep 600") -> int:
    path = cluster.root / "job.yaml"
    path.write_text(f"name: sleeper\ncommand: {{run: '{script}', env: {{LR: 0.1}}}}\n")
    job = int(cluster.json("submit", str(path))["id"])
    cluster.wait_state(job, "JOB_STATE_RUNNING")
    return job


def shell(cluster: Cluster, *words: str) -> list[str]:
    return [str(BIN / "imgcli"), "--server", cluster.server, "shell", *words]


def wait_program_ended(pid: int) -> None:
    wait_for("its program to end", lambda: not alive(pid))


def running(words: str) -> list[int]:
    """Processes of exactly this command line: the client's has the words, too."""
    return processes_with(words, alone=True)


def session_events(cluster: Cluster) -> list[str]:
    return [event["text"] for event in map(json.loads, cluster.cli("events", "-o", "json").stdout.splitlines())
            if event["reason"].startswith("REASON_CODE_SESSION")]  # fmt: skip


def test_a_command_on_a_node_passes_its_words_streams_and_exit_code_on(cluster: Cluster) -> None:
    done = cluster.cli("shell", "a", "--", "sh", "-c", 'printf "%s|" "$@"; echo oh >&2; exit 37',
                       "x", "{}", "[1,2]", "", "a b", "--", "-l", "--rank", check=False)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (37, "{}|[1,2]||a b|--|-l|--rank|", "oh\n")
    assert cluster.cli("shell", "a", "--", "sh", "-c", "kill -9 $$", check=False).returncode == 128 + 9
    none = cluster.cli("shell", "a", "--", "no-such-program", check=False)
    assert (none.returncode, "No such file" in none.stderr) == (127, True)
    nobody = cluster.cli("shell", "b", "--", "true", check=False)
    assert (nobody.returncode, "neither a node nor a job is named 'b'" in nobody.stderr) == (3, True)
    # A shell where no command is given, and no terminal.
    typed = subprocess.run(shell(cluster, "a"), input="echo $((6*7)); exit 3\n", capture_output=True, text=True,
                           timeout=30)  # fmt: skip
    assert (typed.returncode, typed.stdout) == (3, "42\n")
    events = "\n".join(session_events(cluster))
    assert "begins `sh -c printf" in events and "exit code 37" in events and "signal 9" in events
    assert "a shell on node a, of " in events


def test_much_goes_through_both_ways_unchanged(cluster: Cluster) -> None:
    data = random.Random(7).randbytes(10 << 20)
    done = subprocess.run(shell(cluster, "a", "--", "cat"), input=data, capture_output=True, timeout=60)
    assert done.returncode == 0
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    # A program that reads nothing, and a reader that wants no more.
    assert subprocess.run(shell(cluster, "a", "--", "true"), input=data, timeout=60).returncode == 0
    head = subprocess.run(["sh", "-c", f"{' '.join(shell(cluster, 'a', '--', 'yes'))} | head -c 4"],
                          capture_output=True, timeout=60, stdin=subprocess.DEVNULL)  # fmt: skip
    assert head.stdout == b"y\ny\n"
    wait_for("nothing to be left", lambda: not processes_with("--session"))


def test_a_shell_beside_a_rank_has_its_environment_and_folder_and_ends_with_it(cluster: Cluster) -> None:
    job = run_job(cluster)
    script = 'echo "$RANK $WORLD_SIZE $LR $IMGD_JOB_ID [$IMGD_RUN_DIR]"; pwd'
    done = cluster.cli("shell", str(job), "--", "sh", "-c", script)
    first, folder = done.stdout.splitlines()
    assert first == f"0 1 0.1 {job} []"
    assert str(cluster.root / "checkpoints") in folder
    wrong = cluster.cli("shell", str(job), "--rank", "3", "--", "true", check=False)
    assert (wrong.returncode, "has ranks 0 to 0; found 3" in wrong.stderr) == (3, True)

    with subprocess.Popen(shell(cluster, "sleeper", "--", "sleep", "571"), stdin=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as beside:  # fmt: skip
        wait_for("the command to run", lambda: running("sleep 571"))
        cluster.cli("cancel", str(job), "--wait")
        _, said = beside.communicate(timeout=30)
    assert "rank 0 of job 1 has ended" in said and beside.returncode != 0
    wait_for("the command to end", lambda: not running("sleep 571"))
    over = cluster.cli("shell", str(job), "--", "true", check=False)
    assert (over.returncode, "does not run now" in over.stderr or "has ended" in over.stderr) == (5, True)


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        found.append(pid)
    return found


def test_a_shell_beside_a_rank_is_on_the_node_of_that_rank(cluster: Cluster) -> None:
    cluster.start_agent("b")
    path = cluster.root / "job.yaml"
    path.write_text("name: two\nresources: {nodes: 2}\ncommand: {run: 'sleep 600'}\n")
    job = int(cluster.json("submit", str(path))["id"])
    cluster.wait_state(job, "JOB_STATE_RUNNING")

    def places() -> dict[int, str]:
        found: dict[int, str] = {}
        for pid in processes_with(f"IMGD_RUN_DIR={cluster.root}/", of="environ"):
            env = dict(one.split("=", 1) for one in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in one)
            found[int(env["RANK"])] = Path(env["IMGD_RUN_DIR"]).relative_to(cluster.root).parts[0]
        return found

    node_of = wait_for("both ranks", lambda: found if len(found := places()) == 2 else None, 20)
    assert sorted(node_of) == [0, 1] and sorted(node_of.values()) == ["a", "b"], node_of
    for rank, node in node_of.items():
        with subprocess.Popen(shell(cluster, str(job), "--rank", str(rank), "--", "sh", "-c", "echo $RANK $$; cat"),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as beside:  # fmt: skip
            assert beside.stdout
            said, pid = map(int, beside.stdout.readline().split())
            assert said == rank
            assert cluster.agents[node].pid in ancestors(pid)
            beside.communicate(timeout=30)
        assert any(f"beside rank {rank} of job {job} on node {node}" in text for text in session_events(cluster))


def read_until(fd: int, words: str, seconds: float = 20) -> str:
    text = ""
    deadline = time.monotonic() + seconds
    while words not in text:
        left = deadline - time.monotonic()
        assert left > 0, f"no {words!r} in {text!r}"
        if select.select([fd], [], [], left)[0]:
            text += os.read(fd, 65536).decode(errors="replace")
    return text


def set_size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.contextmanager
def on_a_terminal(cluster: Cluster, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int, int, list[Any]]]:
    """The process, both ends of its terminal, and how that was set before it began."""
    master, slave = pty.openpty()
    set_size(slave, 31, 97)
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(shell(cluster, *words), stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                               env={**os.environ, "TERM": "vt100", "PS1": "ready> "},
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # fmt: skip
    try:
        yield process, master, slave, before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_a_terminal_has_the_size_of_ours_also_when_that_changes_and_ours_is_put_back(cluster: Cluster) -> None:
    with on_a_terminal(cluster, "a", "--", "sh") as (process, master, slave, before):
        read_until(master, "$" if os.geteuid() else "#")
        assert not termios.tcgetattr(slave)[3] & termios.ICANON
        os.write(master, b"stty size; tty; echo $TERM; echo do''ne\r")
        shown = read_until(master, "done\r\n")
        assert "31 97" in shown and "/dev/pts/" in shown and "vt100" in shown
        set_size(slave, 50, 120)
        os.kill(process.pid, signal.SIGWINCH)

        def size_is_new() -> bool:
            os.write(master, b"stty size; echo do''ne\r")
            return "50 120" in read_until(master, "done\r\n")

        wait_for("the new size", size_is_new, 20)
        # Keys are the program's: Ctrl-C ends what runs there, not us.
        os.write(master, b"sleep 572\r")
        wait_for("the sleep", lambda: running("sleep 572"))
        os.write(master, b"\x03")
        wait_for("the sleep to be interrupted", lambda: not running("sleep 572"))
        os.write(master, b"exit 9\r")
        assert process.wait(20) == 9
        assert termios.tcgetattr(slave) == before


@pytest.mark.parametrize("how", ["tilde", "term"])
def test_who_leaves_a_terminal_in_the_middle_gets_it_back(cluster: Cluster, how: str) -> None:
    with on_a_terminal(cluster, "a", "--", "sleep", "573") as (process, master, slave, before):
        wait_for("the sleep", lambda: running("sleep 573"))
        wait_for("raw mode", lambda: not termios.tcgetattr(slave)[3] & termios.ICANON)
        if how == "tilde":
            os.write(master, b"~.")
            assert process.wait(20) == 1
        else:
            process.terminate()
            assert process.wait(20) == 128 + signal.SIGTERM
        assert termios.tcgetattr(slave) == before
    wait_for("the sleep to end", lambda: not running("sleep 573"))


def test_nothing_is_left_when_the_client_or_the_agent_is_killed(cluster: Cluster) -> None:
    # What ignores SIGHUP and leaves its session goes, too.
    stubborn = "trap '' HUP; setsid sleep 574 & sleep 575"
    with subprocess.Popen(shell(cluster, "a", "--", "sh", "-c", stubborn), stdin=subprocess.PIPE) as client:
        wait_for("it to run", lambda: running("sleep 574") and running("sleep 575"))
        client.kill()
    wait_for(
        "nothing to be left",
        lambda: not running("sleep 574") and not running("sleep 575") and not processes_with("--session"),
    )
    wait_for("the end to be recorded", lambda: any("its person has gone" in text for text in session_events(cluster)))

    with subprocess.Popen(shell(cluster, "a", "--", "sleep", "576"), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as waiting:  # fmt: skip
        wait_for("it to run", lambda: running("sleep 576"))
        cluster.agents["a"].kill()
        _, said = waiting.communicate(timeout=30)
    assert (waiting.returncode, "the agent of node a has gone" in said) == (4, True)
    wait_for("nothing to be left", lambda: not running("sleep 576") and not processes_with("--session"))
    cluster.agents["a"].wait()
    away = cluster.cli("shell", "a", "--", "true", check=False)
    assert (away.returncode, "out of reach" in away.stderr) == (4, True)
    # Else the state of before may be taken for that of the new agent.
    wait_for("all to see it", lambda: cluster.node_state("a") != "NODE_STATE_READY")
    cluster.restart_agent("a")
    assert cluster.cli("shell", "a", "--", "true").returncode == 0


@pytest.mark.parametrize("how", ["client", "idle"])
@pytest.mark.parametrize("size", [300 << 10, 4 << 20])
def test_a_program_that_reads_nothing_of_its_input_ends_with_its_session(cluster: Cluster, how: str, size: int) -> None:
    data = cluster.root / "data"
    data.write_bytes(bytes(size))
    with data.open("rb") as file, subprocess.Popen(shell(cluster, "a", "--", "sleep", "581"), stdin=file) as client:
        wait_for("it to run", lambda: running("sleep 581"))
        time.sleep(1)  # the input is on its way, and goes nowhere
        if how == "client":
            client.kill()
        else:
            (cluster.root / "imgd.yaml").write_text(CONFIG.format(idle="2s"))
            cluster.cli("admin", "reload")
        client.wait(30)
    wait_for("the program to end", lambda: not running("sleep 581"))
    wait_for("the end to be recorded", lambda: any("is over after" in text for text in session_events(cluster)))


def test_who_stops_reading_for_long_keeps_the_session(cluster: Cluster) -> None:
    """Longer than the 10 s after which a connection that answers no ping is given up."""
    with subprocess.Popen(shell(cluster, "a", "--", "sh", "-c", "head -c 20000000 /dev/zero; echo end"),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          bufsize=0) as client:  # fmt: skip
        assert client.stdout
        assert client.stdout.read(1) == b"\0"
        time.sleep(14)
        out, said = client.communicate(timeout=30)
    assert (client.returncode, said) == (0, b"")
    assert len(out) == 20000003 and out.endswith(b"end\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("how", ["shell", "attach", "forward"])
def test_a_signal_ends_what_nobody_reads_or_answers(cluster: Cluster, number: int, how: str) -> None:
    assert cluster.daemon
    if how == "shell":  # blocked in a write to a full pipe
        words = ["shell", "a", "--", "sh", "-c", "yes imgd-582; exit"]
    elif how == "attach":
        words = ["attach", str(run_job(cluster, "yes imgd-582 | head -n 200000; sleep 600")), "--tail", "100000"]
    else:
        words = ["forward", "a", "9"]
        cluster.daemon.send_signal(signal.SIGSTOP)
    client = subprocess.Popen([str(BIN / "imgcli"), "--server", cluster.server, *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # fmt: skip
    try:
        if how != "forward":
            assert client.stdout and client.stdout.read(1) == b"i"
        time.sleep(1)
        client.send_signal(number)
        assert client.wait(6) == 128 + number
    finally:
        cluster.daemon.send_signal(signal.SIGCONT)
        client.kill()
    wait_for("the program to end", lambda: how != "shell" or not running("yes imgd-582"))


def test_imgd_that_stops_ends_sessions_with_words(cluster: Cluster) -> None:
    assert cluster.daemon
    with subprocess.Popen(shell(cluster, "a", "--", "sleep", "577"), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as client:  # fmt: skip
        wait_for("it to run", lambda: running("sleep 577"))
        cluster.daemon.terminate()
        _, said = client.communicate(timeout=30)
    assert (client.returncode, "imgd stops" in said) == (4, True)
    wait_for("nothing to be left", lambda: not running("sleep 577"))


def test_sessions_of_an_imgd_that_was_killed_are_over_once_it_is_back(cluster: Cluster) -> None:
    assert cluster.daemon
    with subprocess.Popen(
        shell(cluster, "a", "--", "sleep", "583"), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        wait_for("it to run", lambda: running("sleep 583"))
        cluster.daemon.kill()
        assert client.wait(30) == 4
    wait_for("nothing to be left", lambda: not running("sleep 583"))
    for _ in range(2):  # and once only
        cluster.daemon.wait()
        cluster.start_daemon()
        ends = [text for text in session_events(cluster) if "`sleep 583` on node a" in text and "is over" in text]
        assert len(ends) == 1 and ends[0].endswith("is over: imgd was ended while it went on")
        cluster.daemon.terminate()


def test_sessions_are_bounded_in_number_and_idleness_and_off_unless_allowed(cluster: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(subprocess.Popen(shell(cluster, "a", "--", "cat"), stdin=subprocess.PIPE))
            stack.callback(client.kill)
        wait_for("two sessions", lambda: len([t for t in session_events(cluster) if "begins" in t]) == 2)
        full = cluster.cli("shell", "a", "--", "true", check=False)
        assert "node a has 2 sessions already" in full.stderr and full.returncode != 0
    wait_for("room again", lambda: cluster.cli("shell", "a", "--", "true", check=False).returncode == 0)

    config = cluster.root / "imgd.yaml"
    config.write_text(CONFIG.format(idle="1s"))
    cluster.cli("admin", "reload")
    idle = cluster.cli("shell", "a", "--", "sleep", "578", check=False)
    assert (idle.returncode, "nothing was typed or printed for 1 s" in idle.stderr) == (5, True)
    wait_for("the program to end", lambda: not running("sleep 578"))

    config.write_text("commands: true\n")
    cluster.cli("admin", "reload")
    refused = cluster.cli("shell", "a", "--", "true", check=False)
    assert (refused.returncode, "shell: true in imgd.yaml" in refused.stderr) == (5, True)


def test_an_agent_may_refuse(cluster: Cluster) -> None:
    (cluster.root / "agent.yaml").write_text("sessions: false\n")
    cluster.start_agent("b", "--config", str(cluster.root / "agent.yaml"))
    refused = cluster.cli("shell", "b", "--", "true", check=False)
    assert (refused.returncode, "node b takes no sessions" in refused.stderr) == (5, True)


def test_a_scope_of_operate_is_needed_and_a_token_that_is_over_ends_what_it_began(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text(CONFIG.format(idle="1h"))
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")], secure=True) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        tokens = {}
        for name, scope, ttl in (("submit", "submit", "1h"), ("operate", "operate", "1h"), ("brief", "operate", "15s")):
            tokens[name] = tmp_path / name
            made = cluster.cli("token", "create", "--name", name, "--scope", scope, "--owner", "ada", "--ttl", ttl)
            tokens[name].write_text(made.stdout)
        env = {scope: {**cluster.client_env, "IMGD_TOKEN_FILE": str(path)} for scope, path in tokens.items()}
        command = shell(cluster, "a", "--", "sh", "-c", "echo $$; exec sleep 579")
        refused = subprocess.run(command, env=env["submit"], capture_output=True, text=True, timeout=30)
        assert (refused.returncode, "the scope 'operate' is needed" in refused.stderr) == (5, True)
        for name in ("brief", "operate"):
            with subprocess.Popen(command, env=env[name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as client:  # fmt: skip
                assert client.stdout and client.stderr
                pid = int(client.stdout.readline())
                if name == "operate":
                    cluster.cli("token", "revoke", name)
                assert client.wait(30) == 5
                said = client.stderr.read()
                assert "lets this token in no more" in said and "restart" not in said
            wait_program_ended(pid)
        assert any(text.startswith("ada begins `sh -c") for text in session_events(cluster))


def test_attach_shows_the_last_lines_and_what_follows_to_the_jobs_end(cluster: Cluster) -> None:
    gate = cluster.root / "gate"
    job = run_job(cluster, f"seq 1 50; until [ -e {gate} ]; do sleep 0.1; done; echo last; exit 4")
    wait_for("its lines", lambda: "50" in cluster.cli("logs", str(job)).stdout.split())
    attached = subprocess.Popen([str(BIN / "imgcli"), "--server", cluster.server, "attach", "sleeper", "--tail", "3"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert attached.stdout
    assert [attached.stdout.readline() for _ in range(3)] == ["48\n", "49\n", "50\n"]
    detached = cluster.cli_process("attach", str(job))
    assert detached.stdout
    assert "leaves it alone" in detached.stdout.readline()

    def attaches() -> list[str]:
        events = map(json.loads, cluster.cli("events", "-o", "json").stdout.splitlines())
        return [e["text"] for e in events if e["reason"] == "REASON_CODE_ATTACHED"]

    wait_for("both to be recorded", lambda: len(attaches()) == 2, 10)
    detached.send_signal(signal.SIGINT)
    assert detached.wait(20) == 130
    cluster.cli("logs", str(job))
    assert len(attaches()) == 2 and all(text.endswith(f"attaches to job {job}") for text in attaches()), attaches()
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"
    gate.touch()
    rest, said = attached.communicate(timeout=120)
    assert rest.splitlines()[0] == "last"
    assert attached.returncode == 6, said


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.path.encode() * 100_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body: bytes = answer.read()
    return body


def test_a_port_of_the_node_is_reached_from_here(cluster: Cluster) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        forward = cluster.cli_process("forward", "a", str(port), "--port", "0")
        assert forward.stdout
        url = forward.stdout.readline().split()[0]
        assert url != f"http://127.0.0.1:{port}/"
        results: list[bytes] = []
        threads = [threading.Thread(target=lambda i=i: results.append(get(f"{url}{i}"))) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(results) == [f"/{i}".encode() * 100_000 for i in range(8)]
        server.shutdown()
    with pytest.raises(OSError):
        get(url)
    assert "Connection refused" in forward.stdout.readline()
    forward.send_signal(signal.SIGINT)
    assert forward.wait(20) == 130
    assert len([text for text in session_events(cluster) if "begins" in text]) == 1


def test_each_side_of_a_forwarded_connection_may_end_its_half_first(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        forward = cluster.cli_process("forward", "a", str(server.getsockname()[1]), "--port", "0")
        assert forward.stdout
        port = int(forward.stdout.readline().split()[0].rstrip("/").rsplit(":", 1)[1])
        for first in ("here", "there"):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as here:
                there, _ = server.accept()
                there.settimeout(20)
                one, other = (here, there) if first == "here" else (there, here)
                one.sendall(b"a question")
                one.shutdown(socket.SHUT_WR)
                assert read_all(other) == b"a question"
                other.sendall(b"an answer" * 100_000)
                other.close()
                assert read_all(one) == b"an answer" * 100_000
                there.close()
        forward.send_signal(signal.SIGINT)
        assert forward.wait(20) == 130


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    return data
