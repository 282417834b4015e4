"""imgd's certificates, its own and the operator's, and those of agents: how they are made, renewed, and run out."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, Cluster, wait_for
from joining import is_away, join_token, log_of, long_job, stop_agent, stop_daemon, wait_log, wait_refusal


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """By TLS, with what a test writes into imgd.yaml; nothing of it runs yet."""
    config = tmp_path / "imgd.yaml"
    config.touch()
    with Cluster(tmp_path, secure=True, server_args=["--config", str(config)]) as cluster:
        yield cluster


def served_certificate(cluster: Cluster) -> str:
    """That gRPC shows; empty while it shows none."""
    try:
        return ssl.get_server_certificate((cluster.host, cluster.port), timeout=5)
    except OSError:
        return ""


def stop_with_short_certificate(cluster: Cluster, tmp_path: Path) -> None:
    """Agent a has joined, with a certificate of 6 s and no token for another, and is stopped."""
    (tmp_path / "imgd.yaml").write_text("tls: {node_certificate: 6s}\n")
    cluster.start_daemon()
    cluster.start_agent("a")
    stop_agent(cluster, "a")
    (tmp_path / "a.join").unlink()


def doctors_word(cluster: Cluster) -> str:
    """What the doctor of node a says of its certificate, and what to do."""
    done = subprocess.run([BIN / "imgagent", "--server", cluster.server, "--node", "a", "--state-dir",
                           cluster.root / "a", "--cpu-slots", "1", "doctor", "-o", "json"],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    (line,) = (line for line in json.loads(done.stdout)["checks"] if line["check"] == "certificate")
    return f"{line['what']}: {line['advice']}"


@pytest.mark.long
def test_certificates_are_renewed_while_the_agent_runs_and_after_imgd_was_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "imgd.yaml").write_text("commands: true\ntls: {node_certificate: 6s, server_certificate: 9s}\n")
    cluster.start_daemon()
    served = wait_for("gRPC's certificate", lambda: served_certificate(cluster), 10)
    cluster.start_agent("a")
    agent = cluster.agents["a"].pid
    job = cluster.submit(long_job(tmp_path))
    cluster.wait_state(job, "JOB_STATE_RUNNING")
    runs = sorted(cluster.processes_of(job))
    wait_log(cluster, "a", "the certificate was renewed", 30)
    assert cluster.json("nodes")[0]["state"] == "NODE_STATE_READY"
    assert log_of(cluster, "a").count("joined imgd") == 1
    # gRPC looks at its files every 5 s.
    wait_for("gRPC to show another", lambda: served_certificate(cluster) not in ("", served), 30)
    stop_daemon(cluster)
    time.sleep(8)  # the last certificate has run out
    cluster.start_daemon()
    wait_for("node a to be back", lambda: not is_away(cluster), 30)
    assert cluster.agents["a"].pid == agent and cluster.agents["a"].poll() is None
    # What ran there ran on.
    shown = cluster.job(job)
    assert (shown["state"], shown["generation"]) == ("JOB_STATE_RUNNING", "1")
    assert runs and sorted(cluster.processes_of(job)) == runs


@pytest.mark.long
def test_a_node_that_is_revoked_after_its_certificate_has_run_out_does_not_come_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    stop_with_short_certificate(cluster, tmp_path)
    time.sleep(7)  # its certificate has run out
    assert "start the agent: it renews it by its key" in doctors_word(cluster)
    before = (tmp_path / "a/node.crt").read_bytes()
    cluster.cli("node", "revoke", "a")
    told = doctors_word(cluster)
    assert "node a was revoked" in told and "imgcli node join-token" in told and "renew" not in told
    assert (tmp_path / "a/node.crt").read_bytes() == before, "it only looks"
    cluster.agents["a"] = cluster._spawn("a", cluster.agent_commands["a"])
    wait_log(cluster, "a", "node a was revoked", 30)
    wait_refusal(cluster, "asked to join as node a was not let in: node a was revoked")
    assert is_away(cluster)


def test_an_expired_certificate_of_the_server_names_the_times(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "imgd.yaml"
    cluster.start_daemon()
    cluster.start_agent("a")
    stop_daemon(cluster)
    config.write_text("tls: {server_certificate: 2s}\n")
    for name in ("server.crt", "server.key"):
        (tmp_path / "imgd" / name).unlink()
    cluster.start_daemon()
    stop_daemon(cluster)
    for name in ("server.crt", "server.key"):
        shutil.copy(tmp_path / "imgd" / name, tmp_path / f"own-{name}")
    time.sleep(2.5)  # by now it has run out, and it is the operator's, whom imgd leaves it to
    config.write_text(f"tls: {{certificate: {tmp_path}/own-server.crt, key: {tmp_path}/own-server.key}}\n")
    again = [str(BIN / "imgd"), "--listen", cluster.address, "--web-listen", "",
             "--state-dir", str(tmp_path / "imgd"), "--config", str(config)]  # fmt: skip
    cluster.daemon = cluster._spawn("imgd2", again)
    wait_log(cluster, "imgd2", "serves on")
    # Its own log has it before anybody calls, and again whenever the files are read.
    warning = f"the certificate in {tmp_path}/own-server.crt has run out, and nobody takes it"
    wait_log(cluster, "imgd2", warning)
    cluster.daemon.send_signal(signal.SIGHUP)
    wait_for("the warning again", lambda: log_of(cluster, "imgd2").count(warning) == 2, 20)
    told = cluster.cli("nodes", check=False)
    assert told.returncode == 5 and "and by this machine's clock it is" in told.stderr
    wait_log(cluster, "a", "and by this machine's clock it is", 30)
    wait_log(cluster, "imgd2", "a machine does not take imgd's certificate: by its clock it has expired", 30)
    assert cluster.agents["a"].poll() is None, "it waits for a better one"


@pytest.mark.parametrize(("change", "said"), [
    ("gone", "certificate.crt"),
    ("nonsense", "certificate.crt"),
    ("another key", "other.key"),
    ("run out", "has run out, and nobody takes it"),
])  # fmt: skip
@pytest.mark.parametrize("section", ["tls", "web"])
def test_check_config_finds_in_certificates_what_would_keep_people_out(
    tmp_path: Path, section: str, change: str, said: str
) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=imgd"]
    openssl(tmp_path, "req", "-x509", *key, "-days", "1", "-keyout", "right.key", "-out", "certificate.crt")
    openssl(tmp_path, "req", "-x509", *key, "-days", "1", "-keyout", "other.key", "-out", "other.crt")
    config = tmp_path / "imgd.yaml"
    listen = {"tls": "listen: 0.0.0.0:7650\nweb: {listen: ''}\n", "web": ""}[section]
    both = "certificate: {0}/certificate.crt, key: {0}/{1}.key"

    def check(key: str = "right") -> subprocess.CompletedProcess[str]:
        config.write_text(f"{listen}{section}: {{{both.format(tmp_path, key)}}}\n")
        return subprocess.run([BIN / "imgd", "--config", config, "--state-dir", tmp_path / "state", "--check-config"],
                              capture_output=True, text=True, timeout=60)  # fmt: skip

    good = check()
    assert good.returncode == 0, good.stderr
    assert not (tmp_path / "state").exists(), "it only looks"
    if change == "gone":
        (tmp_path / "certificate.crt").unlink()
    if change == "nonsense":
        (tmp_path / "certificate.crt").write_text("nonsense\n")
    if change == "run out":
        openssl(tmp_path, "req", "-new", "-key", "right.key", "-subj", "/CN=imgd", "-out", "request")
        openssl(tmp_path, "x509", "-req", "-in", "request", "-signkey", "right.key", "-days", "-1", "-out",
                "certificate.crt")  # fmt: skip
    bad = check("other" if change == "another key" else "right")
    assert bad.returncode != 0 and said in bad.stderr and "is good" not in bad.stdout, bad.stderr


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_ca(folder: Path) -> None:
    """root.crt, and team.crt by it, each with its key."""
    folder.mkdir()
    (folder / "ca.ext").write_text("basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-subj", "/CN=root", "-days", "30", "-keyout", "root.key", "-out", "root.crt",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    openssl(folder, "req", *key, "-subj", "/CN=team", "-keyout", "team.key", "-out", "team.csr")
    openssl(folder, "x509", "-req", "-in", "team.csr", "-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial",
            "-days", "30", "-extfile", "ca.ext", "-out", "team.crt")  # fmt: skip


@pytest.mark.parametrize("chain", [["root"], ["team", "root"]], ids=["a root", "an intermediate"])
def test_a_ca_of_the_operators_signs_for_nodes_and_is_what_people_log_in_by(
    cluster: Cluster, tmp_path: Path, chain: list[str]
) -> None:
    made, state = tmp_path / "made", tmp_path / "imgd"
    make_ca(made)
    (made / "chain.crt").write_text("".join((made / f"{name}.crt").read_text() for name in chain))
    (tmp_path / "imgd.yaml").write_text(f"tls: {{ca_certificate: {made}/chain.crt, ca_key: {made}/{chain[0]}.key}}\n")
    state.mkdir()
    shutil.copy(made / "root.crt", state / "ca.crt")  # where the tests' client looks for it
    cluster.start_daemon()
    assert not (state / "ca.key").exists(), "it made none of its own"
    cluster.start_agent("a")  # by a token, with the root's SHA-256 in it
    subprocess.run(["openssl", "verify", "-CAfile", made / "root.crt", "-untrusted", made / "chain.crt",
                    tmp_path / "a/node.crt"], check=True, capture_output=True)  # fmt: skip
    printed = subprocess.run(["openssl", "x509", "-in", made / "root.crt", "-noout", "-fingerprint", "-sha256"],
                             check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
    fingerprint = printed.partition("=")[2]
    assert f"sha256={fingerprint}" in log_of(cluster, "imgd")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    token = tmp_path / "imgd/admin.token"
    done = subprocess.run([BIN / "imgcli", "login", cluster.address, "--ca-sha256", fingerprint,
                           "--token-file", token], env=env, capture_output=True, text=True, timeout=30)  # fmt: skip
    assert done.returncode == 0, done.stderr
    nodes = subprocess.run([BIN / "imgcli", "nodes"], env=env, capture_output=True, text=True, timeout=30)
    assert nodes.returncode == 0 and "ready" in nodes.stdout


@pytest.mark.long
def test_a_certificate_that_ran_out_more_than_7_days_ago_is_not_renewed_and_both_sides_say_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    stop_with_short_certificate(cluster, tmp_path)
    time.sleep(7)  # by its own clock it has run out
    stop_daemon(cluster)
    with contextlib.closing(sqlite3.connect(tmp_path / "imgd/state.db")) as state, state:
        state.execute("UPDATE node_keys SET expires_us = expires_us - ?", (7 * 24 * 3600 * 1_000_000,))
    cluster.start_daemon()
    cluster.agents["a"] = cluster._spawn("a", cluster.agent_commands["a"])
    said = "the certificate of node a ran out more than 7 days ago"
    wait_log(cluster, "a", said, 30)
    wait_refusal(cluster, f"asked to join as node a was not let in: {said}")
    assert is_away(cluster)
    # A new token takes it in again, as the page says.
    (tmp_path / "a.join").write_text(join_token(cluster))
    wait_for("node a to be back", lambda: not is_away(cluster), 30)
