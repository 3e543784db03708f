"""Work on what a stranger may have written, in a process of its own with bounded memory and time.

A pickle of a few bytes can ask for all memory, or keep a processor busy for ever; a bound on its
size prevents neither.
"""

import faulthandler
import gc
import os
import pickle
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from unisono.errors import MisuseError

__all__ = ["TOO_MUCH", "bound_process", "run_apart", "start_apart", "why_ended"]

Result = TypeVar("Result")
# Plain data takes this much more memory than the bytes that it is read from, at most.
_GROWTH = 64
_SPARE_BYTES = 512 << 20
_SECONDS = 2
# Real dumps take less than a tenth of this.
_BYTES_A_SECOND = 1 << 20
TOO_MUCH = "it claims more memory than a file of its size can need"
_TOO_LONG = "it takes more processor time than a file of its size can need"
_CRASHED = "it crashed the process that read it: it is damaged, or made to do so"


def bound_process(file_bytes: int) -> None:
    """Bounds what this process may take from now on to read so many bytes.

    Beyond it, an allocation fails as a MemoryError, and SIGXCPU ends the process.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + _GROWTH * file_bytes + _SPARE_BYTES
    _bound(resource.RLIMIT_AS, most)
    seconds = int(time.process_time()) + 1 + _SECONDS + file_bytes // _BYTES_A_SECOND
    _bound(resource.RLIMIT_CPU, seconds)


def _bound(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(what, (most, hard))


def start_apart(run: Callable[[int], None]) -> tuple[int, int]:
    """Starts a process that runs `run` on a pipe's descriptor; its number, and the pipe to read."""
    pipe, sends = os.pipe()
    pid = os.fork()
    if pid:
        os.close(sends)
        return pid, pipe
    status = 1
    try:
        os.close(pipe)
        gc.disable()  # plain data has no cycles but a hostile file's, and the process ends soon
        faulthandler.disable()  # a crash is reported in a sentence
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        run(sends)
        status = 0
    finally:
        # Nothing of the parent is run or flushed a second time.
        os._exit(status)


def why_ended(status: int) -> str:
    """Why such a process has ended before its work was done, by what `waitpid` says."""
    out_of_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    return _TOO_LONG if out_of_time else _CRASHED


def run_apart(work: Callable[[], Result], file_bytes: int) -> Result:
    """What `work` returns or raises in a process that may take what so many bytes can need.

    Raises:
        MisuseError: It needs more, or ends its process.
    """

    def run(sends: int) -> None:
        bound_process(file_bytes)
        outcome: tuple[bool, object]
        try:
            outcome = True, work()
        except MisuseError as error:
            outcome = False, str(error)
        except MemoryError:
            outcome = False, TOO_MUCH
        with os.fdopen(sends, "wb") as out:
            pickle.dump(outcome, out, pickle.HIGHEST_PROTOCOL)

    pid, pipe = start_apart(run)
    status = None
    try:
        with os.fdopen(pipe, "rb") as received:
            sent = received.read()
        _, status = os.waitpid(pid, 0)
    finally:
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if status != 0:
        raise MisuseError(why_ended(status))
    is_done, found = pickle.loads(sent)
    if not is_done:
        raise MisuseError(found)
    return found  # type: ignore[no-any-return]
