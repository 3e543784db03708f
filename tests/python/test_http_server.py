"""HTTP servers under clients that hold connections, and where descriptors are missing."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from types import SimpleNamespace

import pytest
from unisono import http_server
from unisono.http_server import MOST_CONNECTIONS, BoundedServer


class Handler(BaseHTTPRequestHandler):
    timeout = 60

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[BoundedServer]:
    made = BoundedServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def connect(server: BoundedServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=60)


def get(server: BoundedServer) -> bytes:
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        said = b""
        while piece := client.recv(4096):
            said += piece
    return said


def test_those_who_hold_connections_keep_nobody_out(server: BoundedServer) -> None:
    idle = [connect(server)
            for _ in range(MOST_CONNECTIONS)]  # fmt: skip
    for _ in range(3):
        assert get(server).endswith(b"page")
    # The first of them has made room.
    assert idle[0].recv(1) == b""
    for client in idle:
        client.close()


def test_a_server_without_descriptors_pauses(
    server: BoundedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(http_server, "time", SimpleNamespace(sleep=pauses.append))
    taken = TCPServer.get_request
    failures = [errno.EMFILE, errno.ECONNABORTED, errno.ENFILE]

    def fails(self: BoundedServer) -> object:
        if failures:
            raise OSError(failures.pop(0), "no descriptor")
        return taken(self)

    monkeypatch.setattr(TCPServer, "get_request", fails)
    assert get(server).endswith(b"page")
    assert len(pauses) == 2
