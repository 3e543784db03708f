"""How our HTTP servers accept: a bound on connections, a pause where descriptors are missing."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

__all__ = ["MOST_CONNECTIONS", "BoundedServer"]

# The oldest makes room for one more, so that idle ones keep nobody out.
MOST_CONNECTIONS = 64
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_S = 0.1


class BoundedServer(ThreadingMixIn, TCPServer):
    """A thread for each connection, `MOST_CONNECTIONS` at most."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}  # the oldest first
        super().__init__(*arguments, **named)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection; an error lets `serve_forever` look again."""
        try:
            return super().get_request()
        except OSError as error:
            # It still waits, so that the next look would come at once.
            if error.errno in _NO_DESCRIPTORS:
                time.sleep(_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts the thread of a connection."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection, in its thread."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that goes is no event of ours."""


def _end(connection: socket.socket) -> None:
    """Its thread reads the end."""
    with contextlib.suppress(OSError):  # the client has gone
        connection.shutdown(socket.SHUT_RDWR)
