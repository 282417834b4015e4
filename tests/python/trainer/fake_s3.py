"""A small S3 of one bucket, in memory: what the trainer and imgcli ask of one, with signatures looked at."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import re
import threading
import urllib.parse
from typing import Any
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY, REGION, BUCKET = "AKIDEXAMPLE", "secret/key+1", "eu-test-1", "bucket"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FakeS3(http.server.ThreadingHTTPServer):
    """`hold(text)`: a PUT whose key contains it waits until `release()`, or is lost; `held` says that one does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}  # by key, guarded by lock as is all of the next
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.log: list[tuple[str, str]] = []
        self.most_keys = 3  # of a listing: there are always several to read
        self.held, self.released = threading.Event(), threading.Event()
        self.held_text = ""
        self.drop = False
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}", "no_proxy": "127.0.0.1"}  # fmt: skip

    def hold(self, text: str) -> None:
        self.held_text = text
        self.held.clear()
        self.released.clear()

    def release(self, drop: bool = False) -> None:
        self.held_text, self.drop = "", drop
        self.released.set()

    def names(self) -> list[str]:
        with self.lock:
            return sorted(self.objects)

    def close(self) -> None:
        self.release()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients are killed here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeS3

    def do_GET(self) -> None:
        self.handle_request()

    do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def answer(self, status: int, body: bytes | str = b"", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>")

    def signature_is_right(self, body: bytes) -> bool:
        """As https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html has it."""
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, SignedHeaders=(\S+), Signature=(\w+)",
            self.headers.get("authorization", ""),
        )
        if not found or found[1] != ACCESS_KEY or found[3] != REGION:
            return False
        if self.headers.get("x-amz-content-sha256") != _sha256(body):
            return False
        path, _, query = self.path.partition("?")
        parts = sorted(part if "=" in part else part + "=" for part in query.split("&") if part)
        headers = "".join(f"{name}:{self.headers[name].strip()}\n" for name in found[4].split(";"))
        canonical = "\n".join([self.command, path, "&".join(parts), headers, found[4], _sha256(body)])
        scope = f"{found[2]}/{found[3]}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{scope}\n{_sha256(canonical.encode())}"
        key = ("AWS4" + SECRET_KEY).encode()
        for part in (found[2], found[3], "s3", "aws4_request"):
            key = _hmac(key, part)
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() == found[5]

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(url.path)[1:].partition("/")
        if not self.signature_is_right(body):
            return self.refuse(403, "SignatureDoesNotMatch")
        checksum = self.headers.get("x-amz-checksum-sha256")
        if checksum and base64.b64decode(checksum) != hashlib.sha256(body).digest():
            return self.refuse(400, "BadDigest")
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        if self.command == "PUT" and self.server.held_text and self.server.held_text in key:
            self.server.held.set()
            self.server.released.wait()
            if self.server.drop:
                self.close_connection = True
                return None
        with self.server.lock:
            self.server.log.append((self.command, key))
            return self.list(query) if not key else self.object(key, query, body)

    def object(self, key: str, query: dict[str, str], body: bytes) -> None:
        objects = self.server.objects
        if "uploads" in query or "uploadId" in query:
            return self.parts(key, query, body)
        if self.command == "PUT":
            if self.headers.get("if-none-match") == "*" and key in objects:
                return self.refuse(412, "PreconditionFailed")
            objects[key] = body
            return self.answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
        if self.command == "DELETE":
            objects.pop(key, None)
            return self.answer(204)
        if key not in objects:
            return self.refuse(404, "NoSuchKey")
        return self.answer(200, objects[key], ETag=f'"{hashlib.md5(objects[key]).hexdigest()}"')

    def parts(self, key: str, query: dict[str, str], body: bytes) -> None:
        uploads, number = self.server.uploads, query.get("uploadId", "")
        if "uploads" in query:
            uploads[f"upload {len(self.server.log)}"] = (key, {})
            return self.answer(200, f"<R><UploadId>upload {len(self.server.log)}</UploadId></R>")
        if number not in uploads:
            return self.refuse(404, "NoSuchUpload")
        if self.command == "PUT":
            uploads[number][1][int(query["partNumber"])] = body
            return self.answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
        _, parts = uploads.pop(number)
        if self.command == "DELETE":
            return self.answer(204)
        listed = [int(n) for n in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        if listed != sorted(parts):
            return self.refuse(400, "InvalidPart")
        self.server.objects[key] = b"".join(parts[n] for n in listed)
        return self.answer(200, "<CompleteMultipartUploadResult/>")

    def list(self, query: dict[str, str]) -> None:
        def encoded(text: str) -> str:
            return escape(urllib.parse.quote_plus(text, safe="/"))

        if "uploads" in query:
            found = "".join(f"<Upload><Key>{encoded(key)}</Key><UploadId>{escape(number)}</UploadId></Upload>"
                            for number, (key, _) in self.server.uploads.items())  # fmt: skip
            return self.answer(200, f"<R><IsTruncated>false</IsTruncated>{found}</R>")
        after = query.get("continuation-token", "")
        keys: list[Any] = [k for k in sorted(self.server.objects) if k.startswith(query["prefix"]) and k > after]
        page = keys[: self.server.most_keys]
        items = "".join(f"<Contents><Key>{encoded(k)}</Key><LastModified>2026-01-31T12:00:00.000Z</LastModified>"
                        f"<Size>{len(self.server.objects[k])}</Size></Contents>" for k in page)  # fmt: skip
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(keys) > len(page) else ""
        return self.answer(200, f"<ListBucketResult>{items}{more}</ListBucketResult>")
