"""Starts the ranks of a job on this machine and watches them.

Ranks end with their launcher, even one that is killed: the kernel ends the processes that it
started (PR_SET_PDEATHSIG), and a guardian, which sees its input end, what those have started.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from unisono import _unisono, guardian
from unisono._unisono import Placement, make_secret
from unisono.arguments import guard
from unisono.errors import MachineError, MisuseError
from unisono.job_folder import job_folder

__all__ = ["Outcome", "Places", "launch", "nccl_library", "nccl_profiler", "rank_environments"]

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
            the time was over. Of a job that keeps going, 0 if any rank's was.
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


class Places(Protocol):
    """Where the ranks of each node run, when not simply on this machine, as `unisono.netbed`."""

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command that runs another one on a node."""

    def variables(self, node: int) -> dict[str, str]:
        """What ranks on a node need in their environment besides."""


def launch(
    command: Sequence[str],
    ranks: int,
    *,
    nodes: int = 1,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    prefix_output: bool = True,
    timeout: float | None = None,
    places: Places | None = None,
    preload_nccl: bool = False,
    keep_going: bool = False,
) -> Outcome:
    """Runs a command as `ranks` processes that can call `unisono.init()`, and waits for them.

    When one fails, the others are ended too. In the main thread, Ctrl-C and SIGTERM are passed on
    to all ranks. If this process is killed, so are they, and what they have started. Their
    standard input is empty.

    Args:
        command: The command and its arguments. A first word that ends in .py, or is -m or -c, is
            for this Python.
        ranks: The number of processes.
        nodes: Virtual nodes; ranks of one node share memory, others talk through sockets. Nodes get
            consecutive ranks, as evenly as possible.
        environment: Variables to add to this process's. Where neither has them, ranks listen on
            127.0.0.1, OMP_NUM_THREADS divides the cores among the ranks, and UNISONO_SECRET_FILE
            names a file with a fresh secret.
        stop: Ends all ranks when another thread sets it.
        prefix_output: Write every line of the ranks' output to standard output with the rank
            before it: "[3] ...". Otherwise they write to this process's outputs themselves.
        timeout: Seconds after which all ranks are ended.
        places: Where the nodes are; None for this machine.
        preload_nccl: Have the ranks load libunisono_nccl.so before everything else, so that it is
            their NCCL, and set what torchrun sets for a job on one machine: RANK, WORLD_SIZE,
            MASTER_ADDR and MASTER_PORT. Large calls launch small grids, so that
            computation overlaps, unless UNISONO_GPU_LEAVES_ROOM says otherwise.
        keep_going: When a rank fails, leave the others alone: they go on without it, as by
            `Communicator.shrink`.

    Raises:
        MisuseError: `ranks` or `nodes` cannot be, or the library's path cannot be preloaded.
        MachineError: `preload_nccl`, and the library is not installed.
        MachineError: The command cannot be started.
    """
    if not command:
        raise MisuseError("there is no command to run on the ranks")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(job_folder())
        environments = rank_environments(ranks, nodes, folder / "rendezvous")
        common = {**_defaults(ranks), **os.environ, **(environment or {})}
        if preload_nccl:
            common.update(_preload(common))
            for rank, variables in enumerate(environments):
                variables.update(RANK=str(rank), WORLD_SIZE=str(ranks))
        job = _Job(
            prefix_output, stop or threading.Event(), timeout, keep_going, _start_guardian(folder)
        )
        stack.callback(job.kill)
        stack.enter_context(job.signals_passed_on())
        placement = Placement(ranks, nodes)
        if "UNISONO_SECRET_FILE" in common:
            for variables in environments:
                del variables["UNISONO_SECRET_FILE"]
        for rank, variables in enumerate(environments):
            started = _full(command)
            if places:
                node = placement.node_of(rank)
                started = places.command(node, started)
                variables = {**variables, **places.variables(node)}
            job.start(rank, started, {**common, **variables})
        return job.watch()


def rank_environments(ranks: int, nodes: int, rendezvous: Path) -> list[dict[str, str]]:
    """The variables that each rank of a job on this machine needs.

    A fresh secret is in a file next to the rendezvous, which only this user can read. It is in
    no rank's environment, and what the ranks start can join a job, too.
    """
    placement = Placement(ranks, nodes)
    secret = rendezvous.absolute().with_name("secret")
    secret.touch(mode=0o600)
    secret.write_text(make_secret())
    local_ranks = [0] * nodes
    out = []
    for rank in range(ranks):
        node = placement.node_of(rank)
        variables = {
            "UNISONO_RANK": str(rank),
            "UNISONO_WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(local_ranks[node]),
            "UNISONO_RENDEZVOUS": rendezvous.absolute().as_uri(),
            "UNISONO_SECRET_FILE": str(secret),
        }
        local_ranks[node] += 1
        if nodes > 1:
            variables["UNISONO_NODE"] = f"node{node}"
        out.append(variables)
    return out


def nccl_library() -> Path:
    """Where libunisono_nccl.so is: Unisono behind NCCL's binary interface.

    Raises:
        MachineError: It is not in the extension's folder.
    """
    return _installed("libunisono_nccl.so")


def nccl_profiler() -> Path:
    """Where libnccl-profiler-unisono.so is: the profiler plugin that records NCCL's own calls.

    Raises:
        MachineError: It is not in the extension's folder.
    """
    return _installed("libnccl-profiler-unisono.so")


def _installed(name: str) -> Path:
    library = Path(_unisono.__file__).resolve().parent / name
    if not library.exists():
        raise MachineError(f"{library} is not there; install the package again")
    return library


def _preload(environment: Mapping[str, str]) -> dict[str, str]:
    library = str(nccl_library())
    if " " in library or ":" in library:
        raise MisuseError(
            f"the dynamic linker cannot preload {library}: its path has a space or a colon; "
            "install the package elsewhere"
        )
    before = environment.get("LD_PRELOAD", "")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "LD_PRELOAD": f"{library}:{before}" if before else library,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "UNISONO_GPU_LEAVES_ROOM": environment.get("UNISONO_GPU_LEAVES_ROOM", "1"),
    }


def _defaults(ranks: int) -> dict[str, str]:
    # Ranks that each take all cores for their own arithmetic slow each other down.
    threads = max(1, (os.cpu_count() or 1) // ranks)
    return {"UNISONO_INTERFACE": "127.0.0.1", "OMP_NUM_THREADS": str(threads)}


def _full(command: Sequence[str]) -> list[str]:
    if command[0].endswith(".py") or command[0] in ("-m", "-c"):
        return [sys.executable, *command]
    return list(command)


def _start_guardian(folder: Path) -> subprocess.Popen[str]:
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


class _Job:
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


guard(globals())
