"""Asks the ranks on this host over their sockets; `docs/how-to/live.md` has the protocol.

A rank that is stopped, or whose host has no processor to spare, answers late or never; so all are
asked at once, with one deadline.
"""

import contextlib
import os
import re
import selectors
import socket
import stat
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from unisono.errors import MachineError

__all__ = ["Answer", "ask", "ask_one", "live_folder"]

NEWEST = 64
PATIENCE_S = 1.0
# The records of a process with 1,000 communicators.
_MOST_BYTES = 256 << 20
_NAME = re.compile(r"(\d{1,20})-(\d{1,7})")
_CREDENTIALS = struct.Struct("iII")  # process, user, group
_ROOT = 0
# A socket that is so young may be about to be listened on.
_LONGEST_START_S = 10
_STOPPED = {"T": "stopped", "t": "stopped by a debugger"}


SilenceKind = Literal["dead", "stopped", "unresponsive"]
SILENCE_KINDS: tuple[SilenceKind, ...] = ("dead", "stopped", "unresponsive")


@dataclass
class Answer:
    """What a rank said.

    Attributes:
        job: The job's identifier.
        rank: The rank in the job.
        contents: The answer, not yet checked; empty where there is none.
        silence: Why there is no answer, as a phrase about the rank; empty where there is one.
        kind: Of the silence: "dead", "stopped", or "unresponsive" where the reason is not known.
        process: Its number here; 0 where it is not known.
    """

    job: str
    rank: int
    contents: bytes = b""
    silence: str = ""
    kind: SilenceKind = "unresponsive"
    process: int = 0


def live_folder() -> Path:
    """The folder of this user's sockets, which need not be there (src/sys/user_secret.cc)."""
    user = os.geteuid()
    usual, runtime = Path(f"/tmp/unisono-{user}"), Path(f"/run/user/{user}")
    is_taken = _owner(usual) not in (None, user)
    return (runtime / "unisono" if is_taken and _owner(runtime) == user else usual) / "live"


def _owner(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid
    return None


def ask(
    job: str | None = None, *, newest: int = NEWEST, patience_s: float = PATIENCE_S,
    folder: Path | None = None,
) -> list[Answer]:  # fmt: skip
    """The answers of this user's ranks on this host, by job and rank.

    Args:
        job: Of one job only.
        newest: Besides the calls under way, each communicator tells so many of its newest ones.
        patience_s: How long all of them together may take.
        folder: Where the sockets are.

    Raises:
        MachineError: The folder could be somebody else's.
    """
    folder = live_folder() if folder is None else folder
    asked = []
    for path in _sockets(folder):
        found = _NAME.fullmatch(path.name)
        if found and job in (None, found[1]):
            asked.append(_Asked(path, Answer(found[1], int(found[2]))))
    _exchange(asked, f"records {newest}\n".encode(), time.monotonic() + patience_s, patience_s)
    return sorted((one.answer for one in asked), key=lambda one: (one.job, one.rank))


def ask_one(answer: Answer, request: str, patience_s: float, folder: Path | None = None) -> bytes:
    """What the rank that gave `answer` says to another request; empty where it says nothing."""
    folder = live_folder() if folder is None else folder
    one = _Asked(folder / f"{answer.job}-{answer.rank}", Answer(answer.job, answer.rank))
    _exchange([one], f"{request}\n".encode(), time.monotonic() + patience_s, patience_s)
    return one.answer.contents


def _sockets(folder: Path) -> list[Path]:
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return []
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise MachineError(
            f"{folder} must be a folder that this user owns and nobody else can access (chmod 700)"
        )
    return sorted(folder.iterdir())


@dataclass
class _Asked:
    """A connection to a rank."""

    path: Path
    answer: Answer
    connection: socket.socket | None = None
    received: bytearray = field(default_factory=bytearray)

    def begin(self, request: bytes) -> bool:
        """Sends the request; whether an answer is to be expected."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(str(self.path))
            credentials = connection.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
            self.answer.process, user, _ = _CREDENTIALS.unpack(credentials)
            if user not in (os.geteuid(), _ROOT):
                raise OSError(f"it belongs to user {user}")
            if _is_stopped(self.answer):
                connection.close()
                return False
            connection.sendall(request)
        except ConnectionRefusedError:
            self._has_ended()
        except BlockingIOError:
            self.answer.silence = "does not accept connections: too many wait already"
        except FileNotFoundError:
            self.answer.silence, self.answer.kind = "has just left", "dead"
        except OSError as error:
            self.answer.silence = f"cannot be asked: {error.strerror or error}"
        else:
            self.connection = connection
            return True
        connection.close()
        return False

    def _has_ended(self) -> None:
        self.answer.silence, self.answer.kind = "has ended: nobody listens on its socket", "dead"
        with contextlib.suppress(OSError):
            if time.time() - self.path.stat().st_mtime > _LONGEST_START_S:
                self.path.unlink()

    def hear(self) -> bool:
        """Takes what has come; whether there is more to come."""
        if self.connection is None:
            return False
        try:
            part = self.connection.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError as error:
            self.answer.silence = f"broke off its answer: {error.strerror}"
            return False
        self.received += part
        if len(self.received) > _MOST_BYTES:
            self.answer.silence = f"sends more than {_MOST_BYTES} bytes"
            return False
        if part:
            return True
        self.answer.contents = bytes(self.received)
        if not self.received:
            self.answer.silence = "ended the connection without an answer"
        return False


def _exchange(asked: list[_Asked], request: bytes, until: float, patience_s: float) -> None:
    with selectors.DefaultSelector() as selector:
        for one in asked:
            if one.begin(request) and one.connection is not None:
                selector.register(one.connection, selectors.EVENT_READ, one)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if not key.data.hear():
                    selector.unregister(key.fileobj)
        for key in selector.get_map().values():
            _explain(key.data.answer, patience_s)
    for one in asked:
        if one.connection is not None:
            one.connection.close()


def _state(process: int) -> str:
    """The letter of its state; "?" where it is not known."""
    with contextlib.suppress(OSError, IndexError):
        stat_text = Path(f"/proc/{process}/stat").read_text()
        return stat_text.rpartition(")")[2].split()[0]
    return "?"


def _is_stopped(answer: Answer) -> bool:
    """Whether the process cannot answer, and then says so."""
    state = _state(answer.process)
    if state in _STOPPED:
        answer.silence = f"does not answer: its process {answer.process} is {_STOPPED[state]}"
        answer.kind = "stopped"
    return state in _STOPPED


def _explain(answer: Answer, patience_s: float) -> None:
    """Why a rank has not answered in time, as far as the state of its process tells."""
    if _is_stopped(answer):
        return
    known = f" (process {answer.process})" if answer.process else ""
    waits = " and waits for a device or a file system" if _state(answer.process) == "D" else ""
    answer.silence = f"has not answered within {patience_s:g} s{waits}{known}"
