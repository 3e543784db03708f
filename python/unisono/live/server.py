"""The HTTP server of `unisono watch`: for browsers of this machine that have its token."""

import json
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from unisono.errors import MachineError
from unisono.http_server import BoundedServer
from unisono.live.hosts import ask_everywhere
from unisono.live.overview import Overview

__all__ = ["WatchServer"]

_HOST = "127.0.0.1"
_TOKEN_BYTES = 24
_PATIENCE_S = 10
# However many pages look, ranks are asked so often at most.
_LEAST_INTERVAL_S = 0.5
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
)


class _Server(BoundedServer, HTTPServer):
    pass


class WatchServer:
    """Serves a page and what it shows, until `close`.

    Attributes:
        url: With the token, for the browser.
    """

    def __init__(self, page: str, port: int, job: str | None = None) -> None:
        """Port 0 takes a free one.

        Raises:
            MachineError: The port is taken.
        """
        self._page, self._job = page, job
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._lock = threading.Lock()
        self._state, self._asked_s = b"", -_LEAST_INTERVAL_S
        try:
            self._server = _Server((_HOST, port), self._handler())
        except OSError as error:
            raise MachineError(f"cannot listen on {_HOST}:{port}: {error.strerror}") from None
        self.port: int = self._server.server_port
        self.url = f"http://{_HOST}:{self.port}/?token={self._token}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="unisono watch")
        self._thread.start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def state(self) -> bytes:
        """The overview as JSON, which may be some tenths of a second old."""
        with self._lock:
            if time.monotonic() - self._asked_s >= _LEAST_INTERVAL_S:
                self._state = json.dumps(Overview(ask_everywhere(self._job)).document()).encode()
                self._asked_s = time.monotonic()
            return self._state

    def _answer(self, path: str, host: str) -> tuple[HTTPStatus, str, bytes]:
        # A page of another site whose name leads here sends its own name.
        if host not in (f"{_HOST}:{self.port}", f"localhost:{self.port}"):
            return HTTPStatus.FORBIDDEN, "text/plain", b"this is another host"
        asked = urlsplit(path)
        [token] = parse_qs(asked.query).get("token", [""])[:1]
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return HTTPStatus.FORBIDDEN, "text/plain", b"the address lacks this server's token"
        if asked.path == "/":
            return HTTPStatus.OK, "text/html; charset=utf-8", self._page.encode()
        if asked.path == "/state":
            return HTTPStatus.OK, "application/json", self.state()
        return HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                status, kind, body = server._answer(self.path, self.headers.get("Host", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", _POLICY)
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Says nothing: the address has the token."""

        return Handler
