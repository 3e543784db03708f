"""Ends what is left of a job whose launcher is gone: `python guardian.py FOLDER URI`.

`launch` runs it, and ends what the ranks of a job leave by the same functions.
Its standard input reports ranks: "+PID" that one was started, as the leader of a session, and
"-PID" that it has ended, with all that it started. The input ends when the launcher does, in any
way. Then all processes in the sessions of ranks that are left are killed, with all whose
rendezvous is in the job's folder, as their environment says; and the folder is removed. URI is the
folder as a rendezvous names it. Uses the standard library only, and little of it, so that it
starts in no time.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection

# A process that is about to start another one is killed, but that one runs: look again.
_LOOK_SECONDS = 0.02
# The kernel cannot end a process that waits for a dead disk: it is waited for no longer than this.
_KILL_SECONDS = 5.0


def mark_of(uri: str) -> bytes:
    """What the environment of a job's processes holds, if its folder is `uri`."""
    return f"UNISONO_RENDEZVOUS={uri}/".encode()


def left_by(
    sessions: set[int], mark: bytes, ancestor: int = 0, spared: Collection[int] = ()
) -> list[int]:
    """Processes in sessions, with a text in their environment, or descended from one.

    Without this process, the ancestor, and those spared. A job's processes whose session and
    environment are their own are the ancestor's if it adopts orphans.
    """
    children: dict[int, list[int]] = {}
    found = set()
    gone = {os.getpid(), ancestor, *spared}
    for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib takes long to import)
        if not name.isdigit():
            continue
        pid = int(name)
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
            state, parent, _, session = stat.read().rpartition(b")")[2].split()[:4]
            children.setdefault(int(parent), []).append(pid)
            if state in (b"Z", b"X"):
                gone.add(pid)
            elif pid not in gone and (int(session) in sessions or mark in _environment(name)):
                found.add(pid)
    reached = [ancestor] if ancestor else []
    while reached:
        below = [pid for pid in children.pop(reached.pop(), ()) if pid not in spared]
        reached += below
        found.update(below)
    return sorted(found - gone)


def end(find: Callable[[], Collection[int]], leave: float = 0.0, ask: float = 0.0) -> int:
    """Ends the processes that `find` lists, until it lists none.

    Args:
        find: Lists what still runs.
        leave: Seconds in which they may end by themselves.
        ask: Seconds after SIGTERM and before SIGKILL.

    Returns:
        How many had to be ended.
    """
    told: set[int] = set()
    ask_at = time.monotonic() + leave
    kill_at = ask_at + ask
    while left := find():
        now = time.monotonic()
        if now > kill_at + _KILL_SECONDS:
            break
        if now >= ask_at:
            for pid in left:
                if now >= kill_at or pid not in told:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL if now >= kill_at else signal.SIGTERM)
                told.add(pid)
        time.sleep(_LOOK_SECONDS)
    return len(told)


def _environment(pid: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
        return file.read()
    return b""


def main() -> None:
    """Runs until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        (sessions.add if line[0] == "+" else sessions.discard)(pid)
    if not sessions:
        return
    folder, uri = sys.argv[1:]
    mark = mark_of(uri)
    end(lambda: left_by(sessions, mark))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
