"""Nodes that join as the EC2 instances that they are: a metadata service and a signer of the test stand in for EC2."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import BIN, ROOT, Cluster, Json, wait_for

REGION, ACCOUNT, IMAGE = "us-east-1", "012345678901", "ami-5fb8c835"


def openssl(*args: str | Path, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *map(str, args)], input=given, capture_output=True, check=True, timeout=30).stdout


class Signer:
    """A key whose signatures are EC2's for the daemon that has its certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self.key, self.certificate = folder / f"{name}.key", folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/O=EC2 of a test",
                "-keyout", self.key, "-out", self.certificate)  # fmt: skip

    def sign(self, document: str) -> str:
        signed = openssl("smime", "-sign", "-nodetach", "-binary", "-nocerts", "-md", "sha256", "-outform", "DER",
                         "-signer", self.certificate, "-inkey", self.key, given=document.encode())  # fmt: skip
        return base64.encodebytes(signed).decode()


def document(instance: str, **fields: str) -> str:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"instanceId": instance, "accountId": ACCOUNT, "region": REGION, "imageId": IMAGE,
                       "availabilityZone": "us-east-1b", "instanceType": "p4d.24xlarge", "pendingTime": now,
                       "kernelId": None, **fields}, indent=2)  # fmt: skip


class Metadata(http.server.ThreadingHTTPServer):
    """As much of an instance's metadata service as joining needs; it wants tokens (IMDSv2)."""

    def __init__(self, text: str, signature: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        folder = "/latest/dynamic/instance-identity"
        self.content = {f"{folder}/document": text, f"{folder}/rsa2048": signature}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Metadata

    def answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        lasts = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self.answer(200 if lasts and self.path == "/latest/api/token" else 400, "secret")

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.headers.get("X-aws-ec2-metadata-token") != "secret":
            self.answer(401)
        elif self.path in self.server.content:
            self.answer(200, self.server.content[self.path])
        else:
            self.answer(404)

    def log_message(self, *_: object) -> None:
        pass


MakeInstance = Callable[[str, str], Metadata]


@pytest.fixture
def instance() -> Iterator[MakeInstance]:
    """Makes instances, each by its document and the signature."""
    with contextlib.ExitStack() as stack:

        def make(text: str, signature: str) -> Metadata:
            server = stack.enter_context(Metadata(text, signature))
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield make


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path, "ec2")


@pytest.fixture
def cluster(tmp_path: Path, signer: Signer) -> Iterator[Cluster]:
    config = tmp_path / "imgd.yaml"
    config.write_text(
        f"ec2_join: {{accounts: ['{ACCOUNT}'], regions: {{{REGION}: {signer.certificate}}}, images: [{IMAGE}]}}\n"
    )
    with Cluster(tmp_path, secure=True, server_args=["--config", str(config)]) as cluster:
        cluster.start_daemon()
        yield cluster


def spawn(cluster: Cluster, folder: str, metadata: Metadata, *args: str, ca_hash: str = "") -> None:
    """An agent on that instance, without a name of its own and without a secret."""
    shown = openssl("x509", "-in", cluster.root / "imgd/ca.crt", "-noout", "-fingerprint", "-sha256").decode()
    ca_hash = ca_hash or "sha256:" + shown.split("=")[1].strip()
    command = ["env", f"AWS_EC2_METADATA_SERVICE_ENDPOINT={metadata.url}", str(BIN / "imgagent"),
               "--server", cluster.server, "--join", "ec2", "--ca-hash", ca_hash, "--trainer", "/bin/true",
               "--state-dir", str(cluster.root / folder), "--cpu-slots", "1", *args]  # fmt: skip
    cluster.agent_commands[folder] = command
    cluster.agents[folder] = cluster._spawn(folder, command)


def wait_ready(cluster: Cluster, name: str) -> Json:
    def probe() -> Json | None:
        nodes: list[Json] = cluster.json("nodes")
        return next((n for n in nodes if n["name"] == name and n["state"] == "NODE_STATE_READY"
                     and not n.get("disconnected")), None)  # fmt: skip

    return wait_for(f"node {name} to be ready", probe, 20)


def log_of(cluster: Cluster, name: str) -> str:
    return (cluster.root / f"{name}.log").read_text()


def wait_log(cluster: Cluster, name: str, words: str) -> None:
    wait_for(f"'{words}' in {name}'s log", lambda: words in log_of(cluster, name), 20)


def refusals(cluster: Cluster) -> list[str]:
    lines = cluster.cli("events", "-o", "json").stdout.splitlines()
    events = [json.loads(line) for line in lines if line.strip()]
    return [e["text"] for e in events if e.get("reason") == "REASON_CODE_JOIN_REFUSED"]


def stop(cluster: Cluster, folder: str) -> None:
    cluster.agents[folder].terminate()
    cluster.agents[folder].wait(10)


def test_an_instance_joins_once_and_its_agent_needs_nothing_to_come_back(
    cluster: Cluster, signer: Signer, instance: MakeInstance
) -> None:
    name = "i-0123456789abcdef0"
    text = document(name)
    metadata = instance(text, signer.sign(text))
    spawn(cluster, "a", metadata)
    node = wait_ready(cluster, name)
    labels = {"instance_type": "p4d.24xlarge", "zone": "us-east-1b", "region": REGION}
    assert {key: node["labels"][key] for key in labels} == labels
    assert any(f"the EC2 instance {name} of account {ACCOUNT} in {REGION} has joined as node {name}" in line
               for line in cluster.cli("events").stdout.splitlines())  # fmt: skip

    # Whoever reads the document on the instance later is too late, also when imgd was started anew.
    spawn(cluster, "thief", metadata, "--node", "thief")
    wait_log(cluster, "thief", f"the EC2 instance {name} has joined already, as node {name}")
    wait_for("the refusal among the events", lambda: refusals(cluster), 10)
    assert f"asked to join as node thief was not let in: the EC2 instance {name} has joined" in refusals(cluster)[0]
    assert f"imgcli node revoke {name} --rejoin" in log_of(cluster, "thief")
    stop(cluster, "thief")
    assert cluster.daemon
    cluster.daemon.terminate()
    cluster.daemon.wait(20)
    cluster.start_daemon()
    spawn(cluster, "thief2", metadata, "--node", "thief")
    wait_log(cluster, "thief2", "has joined already")
    stop(cluster, "thief2")
    assert cluster.node_state("thief") == ""

    # The agent comes back by its key, and knows its name also when EC2 does not answer.
    stop(cluster, "a")
    metadata.content.clear()
    asked = len(metadata.asked)
    cluster.agents["a"] = cluster._spawn("a", cluster.agent_commands["a"])
    wait_ready(cluster, name)
    assert log_of(cluster, "a").count("joined as the EC2 instance") == 1
    assert [path for path in metadata.asked[asked:] if "rsa2048" in path] == []


def test_a_revoked_instance_is_out_and_one_that_may_joins_once_more(
    cluster: Cluster, signer: Signer, instance: MakeInstance
) -> None:
    name = "i-0123456789abcdef1"
    text = document(name)
    spawn(cluster, "a", instance(text, signer.sign(text)))
    wait_ready(cluster, name)
    cluster.cli("node", "revoke", name, "--rejoin")
    wait_for("a second join", lambda: log_of(cluster, "a").count("joined as the EC2 instance") == 2, 20)
    wait_ready(cluster, name)
    cluster.cli("node", "revoke", name)
    wait_log(cluster, "a", f"the EC2 instance {name} was revoked, as node {name}")
    # A join token lets it in, as any other machine.
    stop(cluster, "a")
    token = cluster.root / "token"
    token.write_text(cluster.cli("node", "join-token").stdout)
    cluster.agents["a"] = cluster._spawn("a", [*cluster.agent_commands["a"], "--token-file", str(token)])
    wait_ready(cluster, name)
    nobody = cluster.cli("node", "revoke", "nobody", "--rejoin", check=False)
    assert nobody.returncode == 3 and "has joined by a token or as an EC2 instance" in nobody.stderr


def test_others_are_refused_in_words_on_both_sides(
    cluster: Cluster, signer: Signer, instance: MakeInstance, tmp_path: Path
) -> None:
    theirs = document("i-0a", accountId="999999999999")
    elsewhere = document("i-0b", region="eu-west-1")
    other_image = document("i-0f", imageId="ami-0")
    old = document("i-0c", pendingTime="2026-01-31T12:00:00Z")
    forged = document("i-0d")
    good = document("i-0e")
    cases = {
        "theirs": (theirs, signer.sign(theirs), "i-0a is of the account 999999999999, whose instances are not let in"),
        "elsewhere": (elsewhere, signer.sign(elsewhere), "instances of the region eu-west-1 are not let in"),
        "other-image": (other_image, signer.sign(other_image), "i-0f was made of the image ami-0, which is not among"),
        "old": (old, signer.sign(old), "i-0c was started at 2026-01-31 12:00:00 UTC"),
        "forged": (forged, Signer(tmp_path, "other").sign(forged), "was not signed by EC2 for the region us-east-1"),
        "changed": (good.replace("p4d", "p5"), signer.sign(good), "is another one than was signed"),
        "broken": (good, "no signature", "as the signature of its identity document is none"),
    }
    for name, (text, signature, _) in cases.items():
        spawn(cluster, name, instance(text, signature), "--node", name)
    for name, (_, _, words) in cases.items():
        wait_log(cluster, name, words)
        wait_for(f"the event of {name}", lambda: any(f"node {name}" in e and words in e for e in refusals(cluster)), 10)  # noqa: B023
    wrong = "sha256:" + "0" * 64
    spawn(cluster, "wrong-ca", instance(good, signer.sign(good)), "--node", "wrong-ca", ca_hash=wrong)
    wait_log(cluster, "wrong-ca", "is another imgd than expected")
    assert "nothing was sent to it" in log_of(cluster, "wrong-ca")
    assert not any("wrong-ca" in text for text in refusals(cluster))
    assert cluster.json("nodes") == []


def test_the_user_data_holds_no_secret_and_writes_a_file_that_the_agent_takes(tmp_path: Path) -> None:
    """Run as it is, in a folder of the test's, with stand-ins for what only an instance has."""
    text = (ROOT / "deploy/ec2/user-data.sh").read_text()
    for word in ("join-token", "token_file", "--token", "AWS_SECRET", "AWS_ACCESS_KEY", "PRIVATE KEY", "imgd_"):
        assert word not in text, f"user data has {word}: everybody who may describe the instance can read it"
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("apt-get", "aws", "systemctl"):
        (bin_folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/called\n')
        (bin_folder / name).chmod(0o755)
    (tmp_path / "etc").mkdir()
    assert text.count("/etc/imgd/") == 1
    subprocess.run(["bash", "-c", text.replace("/etc/imgd/", f"{tmp_path}/etc/")], check=True, timeout=30,
                   env={"PATH": f"{bin_folder}:/usr/bin:/bin"})  # fmt: skip
    assert (tmp_path / "called").read_text().splitlines()[-1] == "systemctl restart imgagent"
    written = tmp_path / "etc/agent.yaml"
    lines = dict(line.split(": ", 1) for line in written.read_text().splitlines() if not line.startswith("#"))
    assert (
        lines["join"] == "ec2"
        and lines["ca_hash"].startswith("sha256:")
        and set(lines) == {"server", "join", "ca_hash"}
    )
    checked = subprocess.run([BIN / "imgagent", "--config", written, "--check-config"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_what_is_allowed_changes_while_imgd_runs(cluster: Cluster, signer: Signer, instance: MakeInstance) -> None:
    config = cluster.root / "imgd.yaml"
    before = config.read_text()
    config.write_text("heartbeat: 3s\n")
    cluster.cli("admin", "reload")
    text = document("i-0123456789abcdef2")
    metadata = instance(text, signer.sign(text))
    spawn(cluster, "a", metadata)
    wait_log(cluster, "a", "lets no EC2 instances join")
    config.write_text(before.replace(str(signer.certificate), "/nowhere.pem"))
    refused = cluster.cli("admin", "reload", check=False)
    assert refused.returncode != 0 and "ec2_join.regions.us-east-1" in refused.stderr
    config.write_text(before.replace(f", images: [{IMAGE}]", ""))
    refused = cluster.cli("admin", "reload", check=False)
    assert refused.returncode != 0 and "neither images nor instances" in refused.stderr
    config.write_text(before)
    cluster.cli("admin", "reload")
    stop(cluster, "a")  # it would ask again after half a minute
    cluster.agents["a"] = cluster._spawn("a", cluster.agent_commands["a"])
    wait_ready(cluster, "i-0123456789abcdef2")
