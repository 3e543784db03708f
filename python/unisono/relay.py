"""Passes the output of a job's ranks on, and keeps what they say after the first failure."""

import contextlib
import os
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import IO

__all__ = ["Relay", "describe_ranks"]

# A survivor's error may be written before its launcher can see that a rank has failed. It is held
# back for as long as the end of a busy interpreter may take, and is passed on if none fails.
_HOLD_SECONDS = 10.0
_ERROR_BEGINS = (
    b"Traceback (most recent call last):",
    b"terminate called ",
    b"unisono error ",
    b"unisono warn ",
)
# A rank that says more after a failure is remembered by the end of it, where its error is.
_MOST_LINES_KEPT = 5000
_CHUNK_BYTES = 65536

_write_lock = threading.Lock()


@dataclass
class _Stream:
    """One output of a rank: what it is passed on to, and what of it has not been."""

    rank: int
    is_error: bool
    partial: bytes = b""
    begun: bool = False  # the beginning of the current line was passed on
    held: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MOST_LINES_KEPT))
    held_until: float | None = None
    lines: int = 0  # that were kept, also those which no longer are


class Relay:
    """A thread that reads what ranks write.

    Standard output is passed on as it comes. The other output is, too, until the first failure;
    what comes later is kept, and is written at the end if the rank's is the error that matters.
    """

    def __init__(self, prefix: bool, fold: bool) -> None:
        self._prefix = prefix
        self._fold = fold
        self._failed = False
        self._streams: list[_Stream] = []
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, rank: int, output: IO[bytes] | None, errors: IO[bytes] | None) -> None:
        """Reads a rank's pipes; before `start`."""
        for pipe, is_error in ((output, False), (errors, True)):
            if pipe is not None:
                stream = _Stream(rank, is_error)
                self._streams.append(stream)
                self._selector.register(pipe, selectors.EVENT_READ, stream)

    def start(self) -> None:
        """Begins to read."""
        if self._streams:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def fold(self) -> None:
        """A rank has failed: keeps what ranks write to standard error from now on."""
        with self._lock:
            self._failed = self._fold

    def finish(self, seconds: float) -> None:
        """Waits until all outputs have ended, at most so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def report(self, shown: Collection[int]) -> None:
        """Writes what was kept of some ranks, or of all if none failed, and counts the rest."""
        with self._lock:
            folded: dict[int, int] = {}
            for stream in self._streams:
                if not self._failed or stream.rank in shown:
                    self._pass_on(stream, b"".join(stream.held))
                elif stream.lines:
                    folded[stream.rank] = folded.get(stream.rank, 0) + stream.lines
                stream.held.clear()
        if folded:
            count = sum(folded.values())
            lines = "1 line" if count == 1 else f"{count} lines"
            text = f"note: {lines} of {describe_ranks(folded)} are not shown; run with -v for all\n"
            with contextlib.suppress(OSError):
                _write_all(2, text.encode())

    def _run(self) -> None:
        while self._selector.get_map():
            for key, _ in self._selector.select(self._patience()):
                stream: _Stream = key.data
                # A broken pipe of this process's own: the ranks must not wait for it.
                chunk = os.read(key.fd, _CHUNK_BYTES)
                with self._lock, contextlib.suppress(OSError, ValueError):
                    self._take(stream, chunk)
                if not chunk:
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            self._release()

    def _patience(self) -> float | None:
        with self._lock:
            ends = [one.held_until for one in self._streams if one.held_until is not None]
            if not ends or self._failed:
                return None
        return max(0.0, min(ends) - time.monotonic())

    def _release(self) -> None:
        """Passes on what was held back for a failure that has not come."""
        with self._lock:
            if self._failed:
                return
            for stream in self._streams:
                if stream.held_until is not None and time.monotonic() >= stream.held_until:
                    text = b"".join(stream.held)
                    stream.held.clear()
                    stream.held_until, stream.lines = None, 0
                    with contextlib.suppress(OSError, ValueError):
                        self._pass_on(stream, text)

    def _take(self, stream: _Stream, chunk: bytes) -> None:
        *whole, stream.partial = (stream.partial + chunk).split(b"\n")
        whole = [line + b"\n" for line in whole]
        if not chunk and stream.partial:
            whole, stream.partial = [stream.partial], b""
        now = []
        for line in whole:
            if self._keeps(stream, line):
                stream.held.append(line)
                stream.lines += 1
            else:
                now.append(line)
            stream.begun = False
        if now:
            self._pass_on(stream, b"".join(now))
        # A bar of progress ends no line.
        if stream.partial and not self._prefix and not self._keeps(stream, stream.partial, True):
            self._pass_on(stream, stream.partial)
            stream.partial, stream.begun = b"", True

    def _keeps(self, stream: _Stream, line: bytes, partial: bool = False) -> bool:
        if not self._fold or not stream.is_error or stream.begun:
            return False
        if self._failed or stream.held_until is not None:
            return True
        if line.startswith(_ERROR_BEGINS):
            stream.held_until = time.monotonic() + _HOLD_SECONDS
            return True
        return partial and any(begin.startswith(line) for begin in _ERROR_BEGINS)

    def _pass_on(self, stream: _Stream, text: bytes) -> None:
        if not text:
            return
        if self._prefix:
            prefix = f"[{stream.rank}] ".encode()
            text = b"".join(prefix + line + b"\n" for line in text.removesuffix(b"\n").split(b"\n"))
            with _write_lock:
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
            return
        _write_all(2 if stream.is_error else 1, text)


def describe_ranks(ranks: Collection[int]) -> str:
    """For a person: "rank 3", "ranks 0, 2-5"."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(parts)}"


def _write_all(descriptor: int, text: bytes) -> None:
    with _write_lock:
        while text:
            try:
                text = text[os.write(descriptor, text) :]
            except BlockingIOError:  # another process has made the terminal so
                time.sleep(0.01)
