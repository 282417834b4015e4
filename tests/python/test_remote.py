"""Data that is far away, with the real programs: what serves it, fetches it, and reads it over TLS and from nginx."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, ROOT, free_port, wait_for

IMGCLI = BIN / "imgcli"
CA_VARIABLES = ("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
MIB = 1 << 20


def environment(cache: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in CA_VARIABLES}
    return kept | {"IMGD_CACHE_DIR": str(cache), "no_proxy": "127.0.0.1"} | variables


def imgcli(cache: Path, *args: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([IMGCLI, "dataset", *args], capture_output=True, text=True, timeout=120,
                          env=environment(cache, **variables))  # fmt: skip


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ of 12 images in three shards."""
    root = tmp_path_factory.mktemp("sets")
    for args in (["synth", "--classes", "2", "--per-class", "6", "--val-per-class", "1", "--size", "48x48", "shapes"],
                 ["convert", "--shards", "3", "shapes/train", "shards/train"]):  # fmt: skip
        subprocess.run([IMGCLI, "dataset", *args], cwd=root, check=True, capture_output=True)
    return root / "shards"


class Site(http.server.ThreadingHTTPServer):
    """Serves a folder with ranges; after `budget` bytes it falls silent."""

    daemon_threads = True

    def __init__(self, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.budget, self.sent, self.connections = folder, 1 << 40, 0, 0
        self.closing = threading.Event()
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_port}/"

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        self.connections += 1
        found: tuple[socket.socket, tuple[str, int]] = super().get_request()
        return found

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients break off here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        file = self.server.folder / self.path.lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        first, last = 0, len(content) - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if asked:
            first, last = int(asked[1]), min(int(asked[2]), last)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("content-range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("etag", f'"{len(content)}"')
        self.send_header("content-length", str(last - first + 1))
        self.end_headers()
        for at in range(first, last + 1, 256 << 10):
            piece = content[at : min(at + (256 << 10), last + 1)]
            if self.server.sent + len(piece) > self.server.budget:
                self.server.closing.wait()
                return
            self.server.sent += len(piece)
            self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def site(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    server = Site(folder, tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


# imgcli dataset serve


def start_serving(folder: Path, *options: str) -> tuple[subprocess.Popen[str], int]:
    """The server, and the port that it says it listens on."""
    process = subprocess.Popen([IMGCLI, "dataset", "serve", folder, *options], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r" at http://127\.0\.0\.1:(\d+)/ until Ctrl-C", line)
    if not found:
        process.kill()
        raise AssertionError(line + process.communicate()[1])
    assert f"data.train: http://127.0.0.1:{found[1]}/train/" in process.stdout.readline()
    return process, int(found[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_with_0_and_leaves_its_port(number: int, shards: Path) -> None:
    process, port = start_serving(shards, "--port", "0")
    assert port > 0, "a free port, not 0"
    client = http.client.HTTPConnection("127.0.0.1", port)
    client.request("GET", "/train/shards.json", headers={"range": "bytes=0-9"})
    answer = client.getresponse()
    assert (answer.status, len(answer.read())) == (206, 10)

    second = subprocess.run([IMGCLI, "dataset", "serve", shards, "--port", str(port)], capture_output=True, text=True,
                            timeout=20)  # fmt: skip
    assert second.returncode == 5 and f"port {port}: Address already in use" in second.stderr, second

    process.send_signal(number)  # while a connection is open
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "served 1 request, " in err, err
    again, same = start_serving(shards, "--port", str(port))
    again.terminate()
    assert again.wait(20) == 0 and same == port


# imgcli dataset fetch


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 MiB: three of the parts that fetch notes."""
    file = tmp_path_factory.mktemp("archive") / "big.tar"
    file.write_bytes(random.Random(5).randbytes(40 * MIB))
    return file


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_fetch_goes_on_after_a_break(number: int, code: int, archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with site(archive.parent) as server:
        command = ["fetch", "--connections", "1", server.url + archive.name, str(out)]
        server.budget = 20 * MIB
        begun = subprocess.Popen([IMGCLI, "dataset", *command], env=environment(tmp_path), stderr=subprocess.PIPE)
        noted = out / "big.tar.parts"
        wait_for("the first part", lambda: noted.exists() and noted.read_text().endswith("\n0\n"))
        wait_for("the silence", lambda: server.sent + (256 << 10) > server.budget)
        begun.send_signal(number)
        begun.communicate(timeout=20)
        assert begun.returncode == code
        assert not (out / "big.tar").exists()

        server.budget, server.sent = 1 << 40, 0
        done = imgcli(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        assert "16 MiB of it was there already" in done.stdout.replace("16.0", "16"), done.stdout
        assert server.sent <= 24 * MIB + 1
        assert (out / "big.tar").read_bytes() == archive.read_bytes()
        assert [path.name for path in out.iterdir()] == ["big.tar"]


def test_fetch_says_that_the_disk_is_full_before_it_begins(archive: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o size=8m none "$1"'
    inside = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    probe = subprocess.run([*inside, mount, "sh", small], capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"no file system of its own here: {probe.stderr.strip()}")
    with site(archive.parent) as server:
        script = f'{mount} && shift && {{ "$@"; code=$?; ls -A "$0"; exit $code; }}'
        fetch: list[str | Path] = [IMGCLI, "dataset", "fetch", server.url + archive.name, small]
        done = subprocess.run([*inside, script, small, small, *fetch], capture_output=True, text=True, timeout=60,
                              env=environment(tmp_path))  # fmt: skip
        assert done.returncode == 5, done
        assert f"cannot reserve the {40 * MIB} bytes of {small}/big.tar.part: No space left on device" in done.stderr
        assert done.stdout == "", "nothing is left behind"
        assert server.sent <= 1


def test_fetch_says_whom_it_could_not_reach(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/x.tar"
    done = imgcli(tmp_path, "fetch", url, tmp_path / "out")
    assert done.returncode == 4
    assert re.search(f"cannot reach {url}, after [0-9]+ tries in [0-9]+ s: ", done.stderr), done.stderr


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, and key.pem and cert.pem, which that CA has signed for 127.0.0.1."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"req -x509 {key} -keyout ca-key.pem -out ca.pem -subj /CN=imgd-test -days 2",
        f"req {key} -keyout key.pem -out request.pem -subj /CN=127.0.0.1",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out cert.pem -days 2 -extfile names",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def secure(certificates: Path, shards: Path) -> Iterator[Site]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    with site(shards, tls) as server:
        yield server


@pytest.mark.parametrize("variable", CA_VARIABLES)
def test_shards_are_read_over_tls_where_the_ca_is_named(
    variable: str, secure: Site, certificates: Path, tmp_path: Path
) -> None:
    done = imgcli(tmp_path, "verify", "--decode", secure.url + "train/", **{variable: str(certificates / "ca.pem")})
    assert done.returncode == 0, done.stderr
    assert "12 images decoded" in done.stdout


def test_a_certificate_that_is_not_trusted_is_said_at_once(secure: Site, certificates: Path, tmp_path: Path) -> None:
    done = imgcli(tmp_path, "verify", secure.url + "train/")
    assert done.returncode == 5, done.stderr
    assert f"{secure.url}train/shards.json: SSL certificate problem" in done.stderr
    assert "CURL_CA_BUNDLE" in done.stderr
    # The URL twice, and what may be parts of a set below it.
    assert secure.connections <= 5, "another try would find the same"
    done = imgcli(tmp_path, "verify", secure.url + "train/", CURL_CA_BUNDLE=str(tmp_path / "none.pem"))
    assert done.returncode == 5 and "none.pem" in done.stderr, done.stderr


def test_https_to_a_server_without_it_is_given_up_soon(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        client.recv(1)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}/train/"
            done = imgcli(tmp_path, "verify", url)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert done.returncode == 4, done.stderr
    assert f"cannot reach {url}shards.json, after " in done.stderr


# deploy/nginx


NGINX_CONF = """\
daemon off;
{user}
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/imgd-shards.conf;
}}
"""


@pytest.fixture
def nginx(shards: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of an nginx with the configuration of deploy/, its marked lines changed."""
    ours = Path(os.environ.get("IMGD_DEPS", ROOT / ".deps")) / "nginx/usr/sbin"
    program = shutil.which("nginx", path=f"{ours}:{os.environ['PATH']}:/usr/sbin")
    if not program:
        pytest.skip("nginx is not installed")
    port = free_port()
    text = (ROOT / "deploy/nginx/imgd-shards.conf").read_text()
    for old, new in (("listen 8000 ", f"listen 127.0.0.1:{port} "), ("root /data/shards;", f"root {shards};")):
        assert text.count(old) == 1, f"'{old}' is one of the lines to change"
        text = text.replace(old, new)
    (tmp_path / "imgd-shards.conf").write_text(text)
    user = "user root;" if os.geteuid() == 0 else ""  # who may read the test's folder
    (tmp_path / "nginx.conf").write_text(NGINX_CONF.format(folder=tmp_path, user=user))
    command = [program, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    accepted = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert accepted.returncode == 0 and "warn" not in accepted.stderr, accepted.stderr
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        with socket.socket() as probe:
            wait_for("nginx", lambda: process.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0, 20)
        assert process.poll() is None, process.communicate()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_nginx_serves_what_imgcli_reads(nginx: str, shards: Path, tmp_path: Path) -> None:
    done = imgcli(tmp_path, "verify", "--decode", nginx + "train/")
    assert done.returncode == 0, done.stderr
    assert "12 images decoded" in done.stdout
    listed = imgcli(tmp_path, "verify", nginx + "train/train-*.tar")
    assert listed.returncode == 0 and "12 images" in listed.stdout, listed.stderr

    client = http.client.HTTPConnection(nginx.removeprefix("http://").rstrip("/"))

    def ask(method: str, path: str, **headers: str) -> tuple[int, bytes]:
        client.request(method, path, headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read()

    shard = next(iter(sorted(shards.glob("train/*.tar"))))
    assert ask("GET", f"/train/{shard.name}", range="bytes=100-199") == (206, shard.read_bytes()[100:200])
    assert {entry["name"] for entry in json.loads(ask("GET", "/train/")[1])} >= {shard.name, "shards.json"}
    (shards / ".secret").write_text("x")
    assert ask("GET", "/.secret")[0] == 404
    assert ask("POST", f"/train/{shard.name}")[0] in (403, 405)
