"""Who may talk to imgd by TLS: people with tokens, agents with certificates, and what they read when they may not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import BIN, Cluster, free_port, wait_for
from joining import (
    is_away,
    join_token,
    log_of,
    long_job,
    refusals,
    spawn_agent,
    stop_agent,
    stop_daemon,
    wait_log,
    wait_refusal,
)

SCOPES = ["view", "submit", "operate", "admin"]
# What the table says, in other words than the server's: a call that is new has to be put in here as well.
NEEDS = {
    "JobService": dict.fromkeys(["GetJob", "ListJobs", "WatchJob", "ReadLogs", "ListLogs", "GetMetrics", "GetSweep",
                                 "ListCheckpoints", "GetClasses", "GetSamples"], "view")
    | dict.fromkeys(["SubmitJob", "CancelJob", "ChangeJob", "ProfileJob", "CancelSweep", "DeleteJob"], "submit"),
    "NodeService": {"ListNodes": "view", "GetNode": "view", "SetAsideNode": "operate", "ReturnNode": "operate",
                    "ForgetNode": "operate"},
    "EventService": {"ListEvents": "view", "WatchEvents": "view"},
    "DatasetService": {"ListDatasets": "view", "GetDataset": "view", "RegisterDataset": "submit",
                       "ReportDataset": "submit", "RemoveDataset": "submit"},
    "UsageService": {"ListUsage": "view", "ListUsageOverTime": "view"},
    "AdminService": {"Backup": "admin", "Reload": "admin", "ShowRetention": "admin"},
    "TokenService": {"CreateToken": "admin", "ListTokens": "admin", "RevokeToken": "admin"},
    "EnrolService": {"Enrol": "", "Renew": ""}
    | dict.fromkeys(["CreateJoinToken", "ListJoinTokens", "RevokeJoinToken", "RevokeNode"], "admin"),
    "AgentService": {"Connect": "agent"},
    "SessionService": {"OpenSession": "operate", "ServeSession": "agent"},
}  # fmt: skip


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon by TLS, no agent."""
    with Cluster(tmp_path, secure=True) as cluster:
        cluster.start_daemon()
        yield cluster


def outcome(channel: grpc.Channel, method: MethodDescriptor, token: str = "") -> grpc.StatusCode:
    """How an empty request ends."""
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    name = f"/{method.containing_service.full_name}/{method.name}"
    metadata = [("authorization", f"Bearer {token}")] if token else []
    pair = {"request_serializer": request.SerializeToString, "response_deserializer": response.FromString}
    try:
        if method.client_streaming:
            list(channel.stream_stream(name, **pair)(iter([request()]), metadata=metadata, timeout=5))
        elif method.server_streaming:
            # Who is let in may have nothing to hear; a refusal comes at once.
            call = channel.unary_stream(name, **pair)(request(), metadata=metadata, timeout=1)
            next(iter(call), None)
            call.cancel()
        else:
            channel.unary_unary(name, **pair)(request(), metadata=metadata, timeout=5)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_every_call_that_reflection_tells_of_is_let_in_by_its_scope_and_by_no_lower_one(secure: Cluster) -> None:
    tokens = {scope: secure.cli("token", "create", "--scope", scope).stdout.strip() for scope in [*SCOPES, "report"]}
    ca = (secure.root / "imgd/ca.crt").read_bytes()
    refusals = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
    looker = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(ca),
                                                grpc.access_token_call_credentials(tokens["view"]))  # fmt: skip
    with (
        grpc.secure_channel(secure.address, looker) as seeing,
        grpc.secure_channel(secure.address, grpc.ssl_channel_credentials(ca)) as channel,
    ):
        database = ProtoReflectionDescriptorDatabase(seeing)
        pool = DescriptorPool(database)
        services = [s for s in database.get_services() if s.startswith("imgd.")]
        walked = 0
        for service in services:
            for method in pool.FindServiceByName(service).methods:
                needed = NEEDS[service.split(".")[-1]][method.name]
                walked += 1
                without = outcome(channel, method)
                if needed == "":  # by a join token or a key, which an empty request has not
                    assert without == grpc.StatusCode.INVALID_ARGUMENT, method.full_name
                    continue
                assert without == grpc.StatusCode.UNAUTHENTICATED, method.full_name
                assert outcome(channel, method, "imgd_wrong") == grpc.StatusCode.UNAUTHENTICATED, method.full_name
                if needed == "agent":
                    assert outcome(channel, method, tokens["admin"]) == grpc.StatusCode.UNAUTHENTICATED
                    continue
                for scope in [*SCOPES, "report"]:
                    may = scope != "report" and SCOPES.index(scope) >= SCOPES.index(needed)
                    got = outcome(channel, method, tokens[scope])
                    assert (got not in refusals) == may, f"{method.full_name} with {scope}: {got}"
        assert walked == sum(map(len, NEEDS.values()))
        with pytest.raises(grpc.RpcError) as refused:
            ProtoReflectionDescriptorDatabase(channel).get_services()
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_node_joins_by_a_token_once_and_no_second_agent_takes_its_name(secure: Cluster) -> None:
    secure.start_agent("a")
    assert secure.node_state("a") == "NODE_STATE_READY"
    for name in ("node.key", "node.crt", "ca.crt"):
        assert (secure.root / "a" / name).stat().st_mode & 0o777 == 0o600
    shown = secure.json("node", "join-tokens")[0]
    assert [use["node"] for use in shown["joined"]] == ["a"] and int(shown.get("uses_left", 0)) == 0
    assert "a (ipv4:127.0.0.1:" in secure.cli("node", "join-tokens", "-o", "wide").stdout
    secret = (secure.root / "a.join").read_text().strip()
    assert secret.split("-")[2] not in (secure.root / "imgd.log").read_text()

    # A used-up token, and a second agent of the same name.
    spawn_agent(secure, "b", secret)
    wait_log(secure, "b", "is used up: it was good for 1 and a joined by it")
    spawn_agent(secure, "a", join_token(secure), folder="a2")
    wait_log(secure, "a2", "two agents can't have one name")
    wait_refusal(secure, "asked to join as node b was not let in: the join token")
    wait_refusal(secure, "asked to join as node a was not let in: node a has joined with another key already")
    assert secret.split("-")[2] not in log_of(secure, "imgd")
    assert secure.node_state("b") == "" and secure.node_state("a") == "NODE_STATE_READY"

    # The agent comes back by what is in its folder, without the token.
    (secure.root / "a.join").unlink()
    secure.agents["a"].terminate()
    secure.agents["a"].wait(10)
    secure.restart_agent("a")


def test_a_join_token_is_for_as_many_nodes_and_as_long_as_its_options_say(secure: Cluster) -> None:
    def made(*args: str) -> tuple[str, int, float]:
        token = json.loads(join_token(secure, *args, "-o", "json"))
        return token["secret"], int(token["uses"]), (int(token["expires_us"]) - int(token["created_us"])) / 1e6

    assert made()[1:] == (1, 3600.0)
    secret, uses, seconds = made("--uses", "2", "--ttl", "90m")
    assert (uses, seconds) == (2, 5400.0)
    for name in ("a", "b"):
        spawn_agent(secure, name, secret)
        wait_for(f"node {name}", lambda: secure.node_state(name) == "NODE_STATE_READY", 20)  # noqa: B023
    spawn_agent(secure, "c", secret)
    wait_log(secure, "c", "is used up: it was good for 2 and a, b joined by it")
    assert secure.node_state("c") == ""

    short, _, seconds = made("--ttl", "1s")
    assert seconds == 1
    time.sleep(1.1)
    spawn_agent(secure, "d", short)
    wait_log(secure, "d", "has expired")
    wait_refusal(secure, "asked to join as node d was not let in: the join token")
    for args, words in ((("--uses", "100001"), "100000"), (("--ttl", "31d"), "30 days")):
        refused = secure.cli("node", "join-token", *args, check=False)
        assert refused.returncode != 0 and words in refused.stderr


def test_of_an_api_token_only_its_hash_is_kept(secure: Cluster) -> None:
    secret = secure.cli("token", "create", "--scope", "operate", "--owner", "ada", "--name", "ada").stdout.strip()
    assert secret.startswith("imgd_") and len(secret) > 20
    listed = subprocess.run([BIN / "imgcli", "--server", secure.server, "nodes"], capture_output=True, timeout=30,
                            env={**secure.client_env, "IMGD_TOKEN": secret})  # fmt: skip
    assert listed.returncode == 0
    hashed = hashlib.sha256(secret.encode()).hexdigest()
    files = {path: path.read_bytes() for path in (secure.root / "imgd").rglob("*") if path.is_file()}
    files[secure.root / "imgd.log"] = log_of(secure, "imgd").encode()
    assert {path.name for path in files} >= {"state.db", "state.db-wal", "metrics.db"}
    assert any(hashed.encode() in content for path, content in files.items() if path.name.startswith("state.db"))
    for path, content in files.items():
        assert secret.removeprefix("imgd_").encode() not in content, path
    assert secret not in secure.cli("token", "list", "-o", "json").stdout


def test_a_token_of_another_ca_sends_nothing(secure: Cluster) -> None:
    token = join_token(secure).strip()
    wrong = token[:-64] + "0" * 64
    spawn_agent(secure, "a", wrong)
    wait_log(secure, "a", "is another imgd than expected")
    assert "nothing was sent to it" in log_of(secure, "a")
    assert secure.json("node", "join-tokens")[0]["uses_left"] == 1
    assert "agent refused" not in log_of(secure, "imgd") and refusals(secure) == []


def test_a_revoked_node_is_out_at_once_until_it_joins_with_a_new_token(secure: Cluster) -> None:
    secure.start_agent("a")
    secure.cli("node", "revoke", "a")
    wait_log(secure, "a", "node a was revoked")
    wait_for("the node to be away", lambda: secure.json("nodes")[0].get("disconnected"), 20)
    wait_log(secure, "imgd", "agent refused: node a was revoked")
    (secure.root / "a.join").write_text(join_token(secure))
    wait_for("node a to be back", lambda: not secure.json("nodes")[0].get("disconnected"), 20)
    assert secure.cli("node", "revoke", "nobody", check=False).returncode == 3


def test_from_plain_text_to_tls_jobs_and_nodes_stay(tmp_path: Path) -> None:
    config = tmp_path / "imgd.yaml"
    config.write_text("commands: true\n")
    waits = tmp_path / "waits.yaml"
    waits.write_text("name: waits\ncommand: {run: 'true'}\n")
    with Cluster(tmp_path, server_args=["--config", str(config)]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        running = cluster.submit(long_job(tmp_path))
        cluster.wait_state(running, "JOB_STATE_RUNNING")
        runs = sorted(cluster.processes_of(running))
        queued = cluster.submit(waits)
        plain = cluster.server
        stop_daemon(cluster)
        cluster.secure = True
        cluster.start_daemon()
        told = subprocess.run([BIN / "imgcli", "--server", f"http://{plain}", "nodes"], env=cluster.client_env,
                              capture_output=True, text=True, timeout=30)  # fmt: skip
        assert told.returncode == 5 and "wants TLS" in told.stderr
        assert {int(job["id"]) for job in cluster.json("jobs")} == {running, queued}
        stop_agent(cluster, "a")
        assert is_away(cluster)
        cluster.start_agent("a")  # as before, but with a join token, and by https
        wait_for("node a to be back", lambda: not is_away(cluster), 20)
        assert len(cluster.json("nodes")) == 1
        shown = cluster.job(running)
        assert (shown["state"], shown["generation"]) == ("JOB_STATE_RUNNING", "1")
        assert runs and sorted(cluster.processes_of(running)) == runs
        assert cluster.job(queued)["state"] == "JOB_STATE_QUEUED"
        cluster.cli("cancel", str(running), "--wait")
        cluster.wait_state(queued, "JOB_STATE_COMPLETED")


def test_a_lost_ca_is_said_on_all_sides_and_a_new_one_takes_new_tokens(secure: Cluster) -> None:
    secure.start_agent("a")
    old_ca = secure.root / "old-ca.crt"
    shutil.copy(secure.root / "imgd/ca.crt", old_ca)
    assert secure.daemon
    secure.daemon.terminate()
    secure.daemon.wait(20)
    (secure.root / "imgd/ca.key").unlink()
    refused = subprocess.run([BIN / "imgd", "--listen", secure.address, "--state-dir", secure.root / "imgd",
                              "--tls-on-loopback", "--web-listen", ""],
                             capture_output=True, text=True, timeout=20)  # fmt: skip
    assert refused.returncode == 5 and "put the key back from a backup" in refused.stderr
    (secure.root / "imgd/ca.crt").unlink()
    secure.start_daemon()
    wait_log(secure, "a", "was not signed by the CA that is trusted here")
    wait_log(secure, "imgd", "a machine does not take imgd's certificate: it trusts another CA")
    env = {**secure.client_env, "IMGD_CA": str(old_ca)}
    told = subprocess.run([BIN / "imgcli", "--server", secure.server, "nodes"], env=env, capture_output=True, text=True)
    assert told.returncode == 5 and "was not signed by the CA that is trusted here" in told.stderr
    (secure.root / "a.join").write_text(join_token(secure))
    secure.cli("node", "revoke", "a")
    wait_for("node a to be back", lambda: not secure.json("nodes")[0].get("disconnected"), 20)


def test_imgcli_logs_in_and_says_what_is_missing(secure: Cluster, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    target, state = secure.address, secure.root / "imgd"

    def imgcli(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BIN / "imgcli", *args], env={**env, **more}, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=30)  # fmt: skip

    plain = imgcli("--server", f"http://{target}", "nodes")
    assert plain.returncode == 5 and "wants TLS" in plain.stderr and f"imgcli login {target}" in plain.stderr
    unknown = imgcli("--server", f"https://{target}", "nodes")
    assert unknown.returncode == 5 and "imgcli login" in unknown.stderr
    nobody = imgcli("--server", f"https://{target}", "nodes", IMGD_CA=str(state / "ca.crt"))
    assert nobody.returncode == 5 and "asks who you are" in nobody.stderr
    unsure = imgcli("login", target, "--token-file", str(state / "admin.token"))
    assert unsure.returncode == 5
    print_of_ca = re.search(r"SHA-256 ([0-9A-F:]{95})", unsure.stderr)
    assert print_of_ca and f"sha256={print_of_ca[1]}" in log_of(secure, "imgd")
    wrong = imgcli("login", target, "--token-file", str(state / "admin.token"), "--ca-sha256", "00" * 32)
    assert wrong.returncode == 5 and "another imgd than expected" in wrong.stderr

    page = imgcli("login", f"{secure.host}:{secure.web_port}", "--token-file", str(state / "admin.token"),
                  "--ca-sha256", print_of_ca[1])  # fmt: skip
    assert page.returncode == 5 and "not gRPC" in page.stderr and "usually 7650" in page.stderr, page.stderr
    done = imgcli("login", target, "--token-file", str(state / "admin.token"), "--ca-sha256", print_of_ca[1])
    assert done.returncode == 0, done.stderr
    kept = list((tmp_path / "home/.config/imgd/logins").rglob("token"))
    assert len(kept) == 1 and kept[0].stat().st_mode & 0o777 == 0o600
    assert imgcli("nodes").returncode == 0, "the last login is where commands go"
    made = imgcli("token", "create", "--scope", "view", "--owner", "ada", "--name", "ada")
    looking = imgcli("node", "drain", "x", IMGD_TOKEN=made.stdout.strip())
    assert looking.returncode == 5 and "the scope 'operate' is needed" in looking.stderr


def test_plain_text_on_the_network_needs_the_flag_that_says_what_it_does(tmp_path: Path) -> None:
    port = free_port()
    for args, words in ((["--plain-text-and-anyone-may-do-anything", "--tls-on-loopback"], "excludes"), ([], "tls")):
        command = [str(BIN / "imgd"), "--listen", f"0.0.0.0:{port}", "--web-listen", "",
                   "--state-dir", str(tmp_path / "d"), *args]  # fmt: skip
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(words, lambda: words in (tmp_path / "log").read_text(), 20)  # noqa: B023
            if not args:
                wait_for("security=tls", lambda: "security=tls" in (tmp_path / "log").read_text(), 20)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def test_a_browsers_session_is_a_cookie_that_other_pages_cannot_use(secure: Cluster) -> None:
    ca = ["curl", "-s", "--cacert", str(secure.root / "imgd/ca.crt"), "-o", "/dev/null", "-D", "-",
          "-w", "%{http_code}"]  # fmt: skip
    base = f"https://{secure.host}:{secure.web_port}/api/v1"
    token = secure.cli("token", "create", "--scope", "submit", "--name", "page").stdout.strip()

    def ask(*args: str) -> str:
        return subprocess.run([*ca, *args], capture_output=True, text=True, timeout=20, check=True).stdout

    assert ask(f"{base}/jobs").endswith("401")
    begun = ask("-X", "POST", "-H", f"Authorization: Bearer {token}", f"{base}/session")
    cookie = re.search(r"Set-Cookie: (__Host-imgd=\S+); Path=/; Secure; HttpOnly; SameSite=Strict", begun)
    assert begun.endswith("200") and cookie
    assert token not in begun and token[5:] not in begun
    session = ["-H", f"Cookie: {cookie[1]}"]
    assert ask("-H", f"Cookie: __Host-imgd={token}", f"{base}/jobs").endswith("401"), "a token is no session"
    assert ask("-X", "POST", *session, "-H", "X-Imgd-Csrf: 1", f"{base}/session").endswith("400"), "none begets another"
    assert ask(*session, f"{base}/jobs").endswith("200")
    change = [*session, "-X", "POST", "-H", "Content-Type: application/json", "-d", "{}", f"{base}/jobs/9/cancel"]
    assert ask(*change).endswith("403")
    assert ask("-H", "X-Imgd-Csrf: 1", *change).endswith("404"), "there is no job 9"
    assert ask("-H", "X-Imgd-Csrf: 1", "-H", "Origin: https://evil.example", *change).endswith("403")

    # The stream goes by it, and ends with it: at log-out, and when the token is taken back.
    def streams(session: list[str]) -> subprocess.Popen[bytes]:
        stream = subprocess.Popen([*ca[:4], *session, "-N", f"{base}/stream"], stdout=subprocess.DEVNULL)
        time.sleep(1)
        assert stream.poll() is None
        return stream

    again = re.search(r"Cookie: (\S+);", ask("-X", "POST", "-H", f"Authorization: Bearer {token}", f"{base}/session"))
    assert again
    other = ["-H", f"Cookie: {again[1]}"]
    leaving, staying = streams(session), streams(other)
    try:
        log_out = ["-X", "DELETE", *session, f"{base}/session"]
        assert ask(*log_out).endswith("403")
        left = ask("-H", "X-Imgd-Csrf: 1", *log_out)
        assert left.endswith("200") and "Max-Age=0" in left
        assert 'Clear-Site-Data: "cache"' in left, "pictures of data sets don't stay in the browser"
        wait_for("the stream to end", lambda: leaving.poll() is not None, 10)
        assert ask(*session, f"{base}/jobs").endswith("401"), "though somebody kept a copy"
        assert staying.poll() is None
        secure.cli("token", "revoke", "page")
        wait_for("the stream to end", lambda: staying.poll() is not None, 10)
    finally:
        for stream in (leaving, staying):
            stream.kill()
            stream.wait()
    assert ask(*other, f"{base}/jobs").endswith("401")


def test_a_browsers_session_goes_on_when_imgd_was_started_anew(secure: Cluster) -> None:
    curl = ["curl", "-s", "--cacert", str(secure.root / "imgd/ca.crt"), "-o", "/dev/null", "-D", "-"]
    base = f"https://{secure.host}:{secure.web_port}/api/v1"
    token = (secure.root / "imgd/admin.token").read_text().strip()

    def begin() -> str:
        begun = subprocess.run([*curl, "-X", "POST", "-H", f"Authorization: Bearer {token}", f"{base}/session"],
                               capture_output=True, text=True, timeout=20, check=True).stdout  # fmt: skip
        cookie = re.search(r"Set-Cookie: ([^;]+);", begun)
        assert cookie
        return cookie[1]

    def ask(cookie: str, *args: str) -> str:
        asked = [*curl, "-H", f"Cookie: {cookie}", "-H", "X-Imgd-Csrf: 1", *args]
        return subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.split()[1]

    goes_on, ended = begin(), begin()
    assert ask(ended, "-X", "DELETE", f"{base}/session") == "200"
    stop_daemon(secure)
    kept = secure.root / "imgd/web.sessions"
    assert kept.stat().st_mode & 0o777 == 0o600 and token not in kept.read_text()
    secure.start_daemon()
    assert [ask(cookie, f"{base}/jobs") for cookie in (goes_on, ended)] == ["200", "401"]
