"""A node whose clock is wrong: what is said of it on the node, by imgd, and by the doctors."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from harness import BIN, Cluster, Json, wait_for
from joining import log_of, wait_refusal


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon by TLS, no agent."""
    with Cluster(tmp_path, secure=True, server_args=["--heartbeat", "500ms"]) as cluster:
        cluster.start_daemon()
        yield cluster


def clock_of(offset: str) -> list[str]:
    """What a command is put behind to see another time of day, such as +2h or -3d; not another course of time."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        pytest.skip("libfaketime is not installed (./run test does it)")
    return ["env", f"LD_PRELOAD={found[0]}", f"FAKETIME={offset}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]


def join_with_clock(cluster: Cluster, name: str, offset: str) -> None:
    """Starts an agent whose clock is that far off, with a join token, and does not wait for anything."""
    token = cluster.root / f"{name}.join"
    token.write_text(cluster.cli("node", "join-token").stdout)
    command = [str(BIN / "imgagent"), "--server", cluster.server, "--node", name, "--state-dir",
               str(cluster.root / name), "--cpu-slots", "1", "--token-file", str(token)]  # fmt: skip
    cluster.agent_commands[name] = command
    cluster.agents[name] = cluster._spawn(name, [*clock_of(offset), *command])


def wait_log(cluster: Cluster, name: str, words: str) -> str:
    path = cluster.root / f"{name}.log"
    wait_for(f"'{words}' in {name}'s log", lambda: words in path.read_text(), 30)
    return path.read_text()


def problems(cluster: Cluster) -> list[str]:
    return [p["text"] for node in cluster.json("nodes") for p in node.get("problems", [])]


def doctor(*command: str, **more: str) -> dict[str, Json]:
    """What it says, by check."""
    done = subprocess.run([*command, "doctor", "-o", "json"], capture_output=True, text=True, timeout=60,
                          env=more or None)  # fmt: skip
    assert done.returncode in (0, 6), done.stderr
    return {line["check"]: line for line in json.loads(done.stdout)["checks"]}


def seconds_in(text: str) -> float:
    found = re.search(r"([0-9.]+) s (ahead of|behind) imgd's", text)
    assert found, text
    return float(found[1]) * (1 if found[2] == "ahead of" else -1)


def test_a_node_whose_clock_is_off_joins_gets_nothing_and_both_sides_say_by_how_much(secure: Cluster) -> None:
    join_with_clock(secure, "a", "+2h")
    said = wait_log(secure, "a", "which places nothing new here")
    assert 7190 < seconds_in(said.split("this node's clock is ")[1]) < 7260
    (problem,) = wait_for("imgd to see it", lambda: problems(secure), 20)
    assert 7190 < seconds_in(problem) < 7260
    assert "node a is sick: it has a clock that is" in secure.cli("events").stdout

    job = secure.root / "waits.yaml"
    job.write_text("name: waits\ndata: {train: /data}\n")
    number = secure.submit(job)
    waits = wait_for("a reason", lambda: secure.job(number)["reason_text"], 20)
    assert secure.job(number)["state"] == "JOB_STATE_QUEUED" and "clock" in waits

    # The doctors, on the node and where people work.
    there = doctor(*clock_of("+2h"), str(BIN / "imgagent"), "--server", secure.server, "--node", "a", "--state-dir",
                   str(secure.root / "a"), "--cpu-slots", "1")  # fmt: skip
    assert there["clock"]["grade"] == "fault" and 7190 < seconds_in(there["clock"]["what"]) < 7260
    here = doctor(str(BIN / "imgcli"), "--server", secure.server, **secure.client_env)
    assert here["nodes-clocks"]["grade"] == "warning" and here["nodes-clocks"]["what"].endswith(": a")
    assert abs(seconds_in(here["clock"]["what"])) < 1
    skewed = doctor(*clock_of("-30m"), str(BIN / "imgcli"), "--server", secure.server, **secure.client_env)
    assert skewed["clock"]["grade"] == "warning" and -1860 < seconds_in(skewed["clock"]["what"]) < -1790

    # Mended, it is used.
    secure.agents["a"].terminate()
    secure.agents["a"].wait(10)
    secure.agents["a"] = secure._spawn("a", secure.agent_commands["a"])
    wait_for("the node to be well", lambda: not problems(secure), 20)


def end_daemon(cluster: Cluster) -> None:
    assert cluster.daemon
    cluster.daemon.terminate()
    cluster.daemon.wait(20)
    time.sleep(2)  # in which agents try in vain to connect


def test_an_agent_whose_clock_is_off_connects_again_and_ends_when_it_is_told_to(secure: Cluster) -> None:
    """The kernel's time is two hours behind the agent's, as after a clock was set back."""
    join_with_clock(secure, "a", "+2h")
    wait_log(secure, "a", "which places nothing new here")
    end_daemon(secure)
    secure.start_daemon()
    wait_for("the node to be back", lambda: log_of(secure, "a").count("joined imgd") == 2, 30)
    end_daemon(secure)
    secure.agents["a"].terminate()
    secure.agents["a"].wait(10)


@pytest.mark.parametrize(("offset", "of_imgd"), [("-3d", "by its clock it is not good yet"),
                                                 ("+30d", "by its clock it has expired")])  # fmt: skip
def test_a_node_whose_clock_is_days_off_takes_no_certificate_and_both_sides_say_so(
    secure: Cluster, offset: str, of_imgd: str
) -> None:
    join_with_clock(secure, "a", offset)
    said = wait_log(secure, "a", "and by this machine's clock it is")
    assert re.search(r"is good from \S+ \S+ UTC to \S+ \S+ UTC, and by this machine's clock it is", said)
    assert "one of the two clocks is wrong" in said
    heard = wait_log(secure, "imgd", of_imgd)
    assert heard.count("does not take imgd's certificate") == 1, "once, however often it tries"
    assert secure.json("nodes") == []
    there = doctor(*clock_of(offset), str(BIN / "imgagent"), "--server", secure.server, "--node", "a", "--state-dir",
                   str(secure.root / "a"), "--cpu-slots", "1")  # fmt: skip
    assert there["clock"]["grade"] == "fault" and "and by this machine's clock it is" in there["clock"]["what"]

    # Nothing was used up: mended, it joins by its token.
    secure.agents["a"].terminate()
    secure.agents["a"].wait(10)
    secure.restart_agent("a")


def test_a_node_whose_clock_is_some_days_ahead_is_refused_with_both_times_and_its_token_stays_good(
    secure: Cluster,
) -> None:
    """imgd's certificate is good by its clock, and one that imgd would make for it is not."""
    join_with_clock(secure, "a", "+2d")
    words = "does not let this node join: the node's clock says "
    wait_log(secure, "a", words)
    times = re.search(r"the node's clock says (\S+ \S+) UTC and imgd's (\S+ \S+) UTC", log_of(secure, "a"))
    assert times
    there, here = (datetime.fromisoformat(text) for text in times.groups())
    assert timedelta(0) <= there - here - timedelta(days=2) < timedelta(minutes=1)
    wait_for("it to try again", lambda: log_of(secure, "a").count(words) > 2, 60)
    wait_refusal(secure, "was not let in: the node's clock says ")
    assert secure.json("nodes") == []
    (token,) = secure.json("node", "join-tokens")
    assert int(token["uses_left"]) == 1 and not token.get("joined")

    secure.agents["a"].terminate()
    secure.agents["a"].wait(10)
    secure.restart_agent("a")
