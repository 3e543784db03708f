"""The HTTP server of the metrics: idle connections end, and pages of other sites get nothing."""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from unisono.errors import MachineError
from unisono.http_server import BoundedServer

__all__ = ["is_loopback", "server_of"]

# For each request, and between two of a connection.
_PATIENCE_S = 10

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def is_loopback(host: str) -> bool:
    """Whether only processes of this host can mean the name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def server_of(application: Application, host: str, port: int) -> WSGIServer:
    """A server of an application, which is yet to be run.

    On a loopback address, it refuses requests that name another host: a browser sends those for a
    site whose name leads here.

    Raises:
        MachineError: The port is taken, or the address is not of this machine.
    """

    class Server(BoundedServer, WSGIServer):
        def server_bind(self) -> None:
            # WSGIServer also looks up the name of the address, which may take seconds.
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()
            self.server_name, self.server_port = host, self.server_address[1]
            self.setup_environ()

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        Server.address_family = family
        server = Server((host, port), _Handler)
    except OSError as error:
        raise MachineError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    server.set_app(_of_this_host(application) if is_loopback(host) else application)
    return server


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


def _of_this_host(application: Application) -> Application:
    def checked(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        name = environment.get("HTTP_HOST", "").rpartition(":")
        if not is_loopback(name[0] if name[2].isdecimal() else "".join(name)):
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"this is another host"]
        return application(environment, start)

    return checked
