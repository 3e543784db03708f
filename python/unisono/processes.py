"""The processes of a job's ranks: started, watched and ended.

Ranks end with their launcher, even one that is killed: the kernel ends the processes that it
started (PR_SET_PDEATHSIG), and a guardian, which sees its input end, what those have started.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from unisono import guardian
from unisono.errors import MachineError

__all__ = ["Job", "Outcome", "start_guardian"]

# Looking at 64 processes costs some 50 us.
_POLL_SECONDS = 0.02
# The ranks that did not fail get this long to report what they saw, then to end when asked to.
_LAST_WORDS_SECONDS = 1.0
_TERMINATE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1

_write_lock = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_code: 0 if all ranks' were, else that of the rank that failed first: its own, or 128
            plus the signal that killed it. 128 plus the signal after Ctrl-C or SIGTERM, 124 when
            the time was over. A job that keeps going has 0 if any rank's was.
        failed_rank: The rank that failed first, None if none did by itself.
        message: What happened, one sentence for a person; empty if all went well.
    """

    exit_code: int = 0
    failed_rank: int | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether all ranks ended with exit code 0."""
        return self.exit_code == 0


def start_guardian(folder: Path) -> subprocess.Popen[str]:
    """Starts the process that ends what is left of a job when its launcher is gone."""
    # In a session and with an environment of its own: what ends the ranks must not end it.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, str(folder), folder.as_uri()],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )


def _ended_with_this_process() -> Callable[[], None] | None:
    """What a child runs before its program, so that the kernel ends it with this process.

    None where other threads run: code between fork and exec may wait for a lock of theirs for
    ever. The guardian alone ends the ranks then.
    """
    if threading.active_count() > 1:
        return None
    launcher = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # it died before
            os.kill(os.getpid(), signal.SIGKILL)

    return arm


class Job:
    """The processes of a job's ranks, in the order in which they were started."""

    def __init__(
        self,
        prefix_output: bool,
        stop: threading.Event,
        timeout: float | None,
        keep_going: bool,
        guardian_process: subprocess.Popen[str],
    ) -> None:
        self._prefix_output = prefix_output
        self._keep_going = keep_going
        self._guardian = guardian_process
        self._told: set[int] = set()
        self._stop = stop
        self._timeout = timeout
        self._over_at = time.monotonic() + timeout if timeout is not None else None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._signal = 0

    def start(self, rank: int, command: list[str], environment: Mapping[str, str]) -> None:
        """Starts a rank's process."""
        piped = self._prefix_output
        unbuffered = {"PYTHONUNBUFFERED": "1"} if piped else {}
        try:
            # A session of its own, so that a signal reaches all that a rank started, once.
            process = subprocess.Popen(
                command,
                env={**environment, **unbuffered},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else None,
                stderr=subprocess.STDOUT if piped else None,
                start_new_session=True,
                preexec_fn=_ended_with_this_process(),
            )
        # A ValueError: a word with a null byte.
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise MachineError(f"cannot start {command[0]} for rank {rank}: {why}") from None
        self._processes.append(process)
        self._tell_guardian(f"+{process.pid}")

    def watch(self) -> Outcome:
        """Waits for all ranks; ends them when one fails, the time is over or somebody says stop."""
        self._start_readers()
        outcome: Outcome | None = None
        last_words_end = 0.0
        while self._any_runs():
            if outcome is None:
                outcome = self._trouble()
                last_words_end = time.monotonic() + _LAST_WORDS_SECONDS
            elif time.monotonic() > last_words_end:
                self._end()
            time.sleep(_POLL_SECONDS)
        for reader in self._readers:
            reader.join(timeout=_TERMINATE_SECONDS)
        return outcome or self._trouble() or self._failure() or Outcome()

    def kill(self) -> None:
        """Kills what still runs."""
        for process in self._processes:
            if process.poll() is None:
                _send(process, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._any_runs()
        with contextlib.suppress(BrokenPipeError):
            self._guardian.communicate()

    def _any_runs(self) -> bool:
        ended = {process.pid for process in self._processes if process.poll() is not None}
        for pid in ended - self._told:
            self._tell_guardian(f"-{pid}")
        self._told |= ended
        return len(ended) < len(self._processes)

    def _tell_guardian(self, line: str) -> None:
        assert self._guardian.stdin is not None
        # Somebody may have killed it; the job continues.
        with contextlib.suppress(BrokenPipeError):
            self._guardian.stdin.write(line + "\n")
            self._guardian.stdin.flush()

    def _start_readers(self) -> None:
        for rank, process in enumerate(self._processes):
            if process.stdout is not None:
                arguments = (process.stdout, f"[{rank}] ".encode())
                reader = threading.Thread(target=_copy_lines, args=arguments, daemon=True)
                reader.start()
                self._readers.append(reader)

    @contextlib.contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        """While it lasts, Ctrl-C and SIGTERM of the main thread go to all ranks."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._pass_on) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        for process in self._processes:
            _send(process, signal.Signals(number))

    def _trouble(self) -> Outcome | None:
        """Why the job should end now; None if it should not."""
        if self._signal:
            name = signal.Signals(self._signal).name
            return Outcome(128 + self._signal, None, f"all ranks were ended by {name}")
        if not self._keep_going and (failure := self._failure()):
            return failure
        if self._over_at is not None and time.monotonic() > self._over_at:
            return Outcome(124, None, f"the ranks were ended: {self._timeout:g} s are over")
        if self._stop.is_set():
            return Outcome(128 + signal.SIGTERM, None, "the ranks were told to stop")
        return None

    def _failure(self) -> Outcome | None:
        failed = [rank for rank, process in enumerate(self._processes) if process.poll()]
        if not failed:
            return None
        # A rank that was killed is the cause of the others' errors, not the reverse.
        rank = min(failed, key=lambda rank: self._processes[rank].returncode)
        went_on = self._keep_going and any(one.poll() == 0 for one in self._processes)
        code = self._processes[rank].returncode
        if code < 0:
            name = signal.Signals(-code).name
            return Outcome(0 if went_on else 128 - code, rank, f"rank {rank} was killed by {name}")
        return Outcome(0 if went_on else code, rank, f"rank {rank} exited with code {code}")

    def _end(self) -> None:
        """Tells all that still run to end, and makes them."""
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            _send(process, signal.SIGTERM)
        deadline = time.monotonic() + _TERMINATE_SECONDS
        while time.monotonic() < deadline and any(one.poll() is None for one in running):
            time.sleep(_POLL_SECONDS)
        self.kill()


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _copy_lines(source: IO[bytes], prefix: bytes) -> None:
    for line in source:
        with _write_lock:
            sys.stdout.buffer.write(prefix + line.rstrip(b"\n") + b"\n")
            sys.stdout.flush()
    source.close()
