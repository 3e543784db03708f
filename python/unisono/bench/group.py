"""A library's ranks in a comparison: started once, measured by command, asleep in between."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from unisono.errors import Error

# Ranks that start at once on few cores take their time to load a framework.
_START_SECONDS = 120.0
_POLL_SECONDS = 0.05
_END_SECONDS = 5.0
_LAST_OUTPUT = 2000


class PeerError(Error):
    """A library's ranks could not be started, or failed; the text has their last output."""


@dataclass(frozen=True)
class Command:
    """The request that one rank runs; `bench/peers/worker.h` has the meaning of each."""

    collective: str
    count: int
    in_place: bool
    warm_up: int
    repeats: int
    calls: int

    def line(self) -> bytes:
        """As the workers read it."""
        words = (
            "measure", self.collective, self.count, int(self.in_place), self.warm_up,
            self.repeats, self.calls,
        )  # fmt: skip
        return " ".join(map(str, words)).encode() + b"\n"


@dataclass(frozen=True)
class Times:
    """The slowest rank's time for a call in each repeat, and wrong elements over all ranks."""

    us: list[float]
    wrong: int


@dataclass(frozen=True)
class Process:
    """A process to start: one rank, or a launcher of several."""

    command: Sequence[str]
    environment: Mapping[str, str]


class Group:
    """The ranks of one library with one set of settings.

    Attributes:
        name: For messages.
        description: What the library calls itself.
    """

    def __init__(self, name: str, ranks: int) -> None:
        self.name, self.description = name, ""
        self._ranks = ranks
        self._folder = tempfile.TemporaryDirectory(prefix="unisono-peers-")
        self.path = Path(self._folder.name) / "socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(ranks)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._output = (Path(self._folder.name) / "output").open("w+b")
        self._connections: list[socket.socket] = []
        self._rest: dict[socket.socket, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, processes: Sequence[Process]) -> None:
        """Starts the processes and waits until every rank has said hello."""
        for process in processes:
            self._processes.append(
                subprocess.Popen(
                    process.command,
                    env=process.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        by_rank: dict[int, socket.socket] = {}
        deadline = time.monotonic() + _START_SECONDS
        while len(by_rank) < self._ranks:
            connection = self._accept(deadline)
            self._rest[connection] = b""
            _, rank, *words = self._read(connection, deadline).split()
            by_rank[int(rank)] = connection
            self.description = " ".join(words)
        self._connections = [by_rank[rank] for rank in range(self._ranks)]

    def measure(self, command: Command, timeout: float) -> Times:
        """Runs a command on all ranks; nothing else of this machine should run meanwhile."""
        for connection in self._connections:
            connection.sendall(command.line())
        deadline = time.monotonic() + timeout
        wrong, times = 0, []
        for connection in self._connections:
            verb, *words = self._read(connection, deadline).split()
            if verb != "times":
                raise self._failure(f"failed in {command.collective}: {' '.join(words)}")
            wrong += int(words[0])
            times.append([float(word) / 1000 for word in words[1:]])
        return Times([max(repeat) for repeat in zip(*times, strict=True)], wrong)

    def close(self) -> None:
        """Ends all ranks."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.sendall(b"quit\n")
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()) if self._connections else 0)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for one in [*self._rest, self._listener]:
            one.close()
        self._output.close()
        self._folder.cleanup()

    def _accept(self, deadline: float) -> socket.socket:
        self._listener.settimeout(_POLL_SECONDS)
        while True:
            with contextlib.suppress(TimeoutError):
                return self._listener.accept()[0]
            self._check_alive(deadline)

    def _read(self, connection: socket.socket, deadline: float) -> str:
        """A line of a rank."""
        connection.settimeout(_POLL_SECONDS * 10)
        while b"\n" not in self._rest[connection]:
            try:
                piece = connection.recv(1 << 16)
            except TimeoutError:
                self._check_alive(deadline)
                continue
            except OSError:
                piece = b""
            if not piece:
                raise self._failure("ended unexpectedly")
            self._rest[connection] += piece
        line, _, self._rest[connection] = self._rest[connection].partition(b"\n")
        return line.decode()

    def _check_alive(self, deadline: float) -> None:
        if any(process.poll() is not None for process in self._processes):
            raise self._failure("ended unexpectedly")
        if time.monotonic() > deadline:
            raise self._failure("did not answer in time")

    def _failure(self, what: str) -> PeerError:
        # A rank's last words may come a little after its connection's end.
        time.sleep(_POLL_SECONDS)
        self._output.flush()
        said = Path(self._output.name).read_bytes()[-_LAST_OUTPUT:].decode(errors="replace")
        return PeerError(f"{self.name} {what}" + (f"; its output:\n{said}" if said else ""))
