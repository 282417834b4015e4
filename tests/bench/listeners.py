"""Many listeners to imgd's stream of events, in one thread."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from pathlib import Path


class Listeners:
    """Connections to the stream that read what comes and count it; by TLS where the CA's certificate is given."""

    def __init__(self, port: int, count: int, ca: Path | None = None) -> None:
        self.selector = selectors.DefaultSelector()
        self.received = 0
        self.ended = 0
        self.heard: set[int] = set()  # those that got anything
        self.sockets: list[socket.socket] = []
        tls = ssl.create_default_context(cafile=str(ca)) if ca else None
        for number in range(count):
            s = socket.create_connection(("127.0.0.1", port), 30)
            if tls:
                s = tls.wrap_socket(s, server_hostname="127.0.0.1")
            s.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            s.setblocking(False)
            self.selector.register(s, selectors.EVENT_READ, number)
            self.sockets.append(s)

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                s = key.fileobj
                assert isinstance(s, socket.socket)
                if got := self.read(s):
                    self.heard.add(key.data)
                    self.received += got

    def read(self, s: socket.socket) -> int:
        """All that is there, bytes."""
        got = 0
        # What TLS has taken from the socket already wakes nobody: until there is no more.
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            while data := s.recv(1 << 16):
                got += len(data)
            self.ended += 1
            self.selector.unregister(s)
        return got

    def close(self) -> None:
        for s in self.sockets:
            s.close()
        self.selector.close()
