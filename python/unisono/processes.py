"""The processes of a job's ranks: started, watched and ended, with all that they have started.

Ranks end with their launcher, even one that is killed: the kernel ends the processes that it
started (PR_SET_PDEATHSIG), and a guardian, which sees its input end, what those have started.
"""

import contextlib
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from unisono import endings, guardian
from unisono.errors import MachineError
from unisono.relay import Relay

__all__ = ["Job", "Outcome", "start_guardian"]

# Looking at 64 processes costs some 50 us.
_POLL_SECONDS = 0.02
# The ranks that did not fail get this long to report what they saw, then to end when asked to.
_LAST_WORDS_SECONDS = 1.0
_TERMINATE_SECONDS = 3.0
# A rank that still runs, and that all which failed name, gets this long to end by itself.
_CAUSE_SECONDS = 5.0
# Helpers that see their rank end, as multiprocessing's, end by themselves within this.
_LEAVE_SECONDS = 1.0
_OUTPUT_SECONDS = 3.0
_REAP_SECONDS = 1.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_code: 0 if all ranks' were, else that of the rank that failed first: its own, or 128
            plus the signal that killed it. 128 plus the signal after Ctrl-C or SIGTERM, 124 when
            the time was over. A job that keeps going has 0 if any rank's was.
        failed_rank: The rank that failed first, None if none did by itself.
        message: What happened, one sentence for a person; empty if all went well.
        left_running: Processes that the ranks had started, and that the launcher had to end.
    """

    exit_code: int = 0
    failed_rank: int | None = None
    message: str = ""
    left_running: int = 0

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


@contextlib.contextmanager
def orphans_adopted() -> Iterator[bool]:
    """While it lasts, what the ranks leave becomes this process's child; yields whether it does.

    It does not where this process has other threads or children: theirs would be taken for ranks'.
    """
    if threading.active_count() > 1 or _children():
        yield False
        return
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    adopts = prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before)) == 0
    adopts = adopts and prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        yield adopts
    finally:
        if adopts:
            prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _children() -> list[int]:
    """The children of this process, those that have ended too."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


class Job:
    """The processes of a job's ranks, in the order in which they were started."""

    def __init__(
        self,
        folder: Path,
        stop: threading.Event,
        *,
        prefix_output: bool,
        fold_errors: bool,
        timeout: float | None,
        keep_going: bool,
        adopts: bool,
    ) -> None:
        self._folder = folder
        self._stop = stop
        self._prefix_output = prefix_output
        self._fold_errors = fold_errors and not keep_going
        self._timeout = timeout
        self._over_at = time.monotonic() + timeout if timeout is not None else None
        self._keep_going = keep_going
        self._adopts = adopts
        self._guardian = start_guardian(folder)
        self._relay = Relay(prefix_output, self._fold_errors)
        self._processes: list[subprocess.Popen[bytes]] = []
        # A rank that has ended is reaped with the job: until then, no other process or session gets
        # its number.
        self._ended: dict[int, endings.Ending] = {}
        self._made_to_end: set[int] = set()
        self._look = 0
        self._reaped_at = time.monotonic()
        self._signal = 0
        self._is_closed = False

    def start(self, rank: int, command: list[str], environment: Mapping[str, str]) -> None:
        """Starts a rank's process."""
        piped = self._prefix_output
        unbuffered = {"PYTHONUNBUFFERED": "1"} if piped else {}
        errors = subprocess.STDOUT if piped else None
        try:
            # A session of its own, so that a signal reaches all that a rank started, once.
            process = subprocess.Popen(
                command,
                env={**environment, **unbuffered},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else None,
                stderr=subprocess.PIPE if self._fold_errors else errors,
                start_new_session=True,
                preexec_fn=_ended_with_this_process(),
            )
        # A ValueError: a word with a null byte.
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise MachineError(f"cannot start {command[0]} for rank {rank}: {why}") from None
        self._processes.append(process)
        self._relay.add(rank, process.stdout, process.stderr)
        self._tell_guardian(f"+{process.pid}")

    def watch(self) -> Outcome:
        """Waits for all ranks; ends them when one fails, the time is over or somebody says stop."""
        self._relay.start()
        outcome: Outcome | None = None
        seen_at = 0.0
        while self._any_runs():
            if outcome is None and (outcome := self._trouble()):
                seen_at = time.monotonic()
                if outcome.failed_rank is not None:
                    self._relay.fold()
            elif outcome and time.monotonic() > seen_at + self._last_words_seconds(outcome):
                self._end()
            time.sleep(_POLL_SECONDS)
        outcome = outcome or self._trouble()
        if outcome is None or outcome.failed_rank is not None:
            outcome = self._failure() or Outcome()
        if outcome.failed_rank is not None:
            self._relay.fold()
        left = self.close(_LEAVE_SECONDS)
        self._relay.finish(_OUTPUT_SECONDS)
        self._relay.report(self._shown(outcome))
        return dataclasses.replace(outcome, left_running=left)

    def close(self, leave: float = 0.0) -> int:
        """Ends all that still runs of the job, and says how many the ranks had left."""
        if self._is_closed:
            return 0
        self._is_closed = True
        self._any_runs()
        for rank, process in enumerate(self._processes):
            if rank not in self._ended:
                _send(process, signal.SIGKILL)
                process.wait()
        pids = {process.pid for process in self._processes}
        mark = guardian.mark_of(self._folder.as_uri())
        spared = (self._guardian.pid,)
        ancestor = os.getpid() if self._adopts else 0
        left = guardian.end(
            lambda: guardian.left_by(pids, mark, ancestor, spared), leave, _TERMINATE_SECONDS
        )
        self._reap_orphans()
        for process in self._processes:
            process.wait()
            self._tell_guardian(f"-{process.pid}")
        with contextlib.suppress(BrokenPipeError):
            self._guardian.communicate()
        return left

    def _any_runs(self) -> bool:
        self._look += 1
        # Until a pass sees nothing new: a rank that ended behind a pass, but before another one
        # that this pass met, does not count as later.
        while self._see_new_ends():
            pass
        if self._adopts and time.monotonic() > self._reaped_at + _REAP_SECONDS:
            self._reap_orphans()
        return len(self._ended) < len(self._processes)

    def _see_new_ends(self) -> bool:
        seen = len(self._ended)
        for rank, process in enumerate(self._processes):
            if rank not in self._ended and (code := _exit_code(process)) is not None:
                self._ended[rank] = endings.Ending(code, self._look)
        return len(self._ended) > seen

    def _reap_orphans(self) -> None:
        self._reaped_at = time.monotonic()
        if not self._adopts:
            return
        known = {process.pid for process in self._processes} | {self._guardian.pid}
        for pid in _children():
            if pid not in known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _tell_guardian(self, line: str) -> None:
        assert self._guardian.stdin is not None
        # Somebody may have killed it; the job continues.
        with contextlib.suppress(BrokenPipeError):
            self._guardian.stdin.write(line + "\n")
            self._guardian.stdin.flush()

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

    def _failed(self) -> dict[int, endings.Ending]:
        """The ranks that have failed, but those that failed because they were told to end."""
        ended = self._ended.items()
        return {rank: one for rank, one in ended if one.code and rank not in self._made_to_end}

    def _cause(self) -> endings.Cause | None:
        failed = self._failed()
        if not failed:
            return None
        notes = {rank: endings.blamed_by(str(self._folder), rank) for rank in failed}
        unended = {rank for rank in range(len(self._processes)) if rank not in self._ended}
        return endings.find_cause(
            failed,
            {rank: named for rank, named in notes.items() if named is not None},
            unended | self._made_to_end,
        )

    def _last_words_seconds(self, outcome: Outcome) -> float:
        cause = self._cause() if outcome.failed_rank is not None else None
        unsettled = cause is not None and cause.rank != cause.witness
        return max(_LAST_WORDS_SECONDS, _CAUSE_SECONDS if unsettled else 0.0)

    def _failure(self) -> Outcome | None:
        cause = self._cause()
        if cause is None:
            return None
        code = self._ended[cause.witness].code
        went_on = self._keep_going and any(one.code == 0 for one in self._ended.values())
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        message = f"rank {cause.witness} {how}"
        if cause.rank != cause.witness:
            message = f"rank {cause.rank} failed first: it still ran when {message} because of it"
        return Outcome(0 if went_on else 128 - code if code < 0 else code, cause.rank, message)

    def _shown(self, outcome: Outcome) -> set[int]:
        """The ranks whose errors say why the job failed."""
        cause = self._cause() if outcome.failed_rank is not None else None
        return {cause.rank, cause.witness} if cause else set()

    def _end(self) -> None:
        """Tells all that still run to end, and makes them."""
        self._made_to_end.update(set(range(len(self._processes))) - self._ended.keys())
        for rank in self._made_to_end:
            _send(self._processes[rank], signal.SIGTERM)
        deadline = time.monotonic() + _TERMINATE_SECONDS
        while (runs := self._any_runs()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if runs:
            for rank in set(range(len(self._processes))) - self._ended.keys():
                _send(self._processes[rank], signal.SIGKILL)


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """How a process has ended, as Popen says it, without reaping it; None if it runs."""
    try:
        seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # the program that called `launch` ignores SIGCHLD
        return process.wait()
    if seen is None:
        return None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
