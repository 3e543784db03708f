"""Ends the ranks of a launcher that was killed: `python guardian.py FOLDER URI`, run by `launch`.

Its standard input reports ranks: "+PID" that one was started, as the leader of a session, and
"-PID" that it has ended. The input ends when the launcher does, in any way. Then all processes in
the sessions of ranks that still run are killed, with all whose rendezvous is in the job's folder,
as their environment says; and the folder is removed. URI is the folder as a rendezvous names it.
Uses the standard library only, and little of it, so that it starts in no time.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

# A process that is about to start another one is killed, but that one runs: look again.
_LOOKS = 20
_LOOK_SECONDS = 0.02


def left_by(sessions: set[int], mark: bytes) -> list[int]:
    """Processes in sessions, or with a text in their environment; without this one."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib takes long to import)
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
            state, _, _, session = stat.read().rpartition(b")")[2].split()[:4]
            if state != b"Z" and (int(session) in sessions or mark in _environment(name)):
                found.append(int(name))
    return found


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
    mark = f"UNISONO_RENDEZVOUS={uri}/".encode()
    for _ in range(_LOOKS):
        for pid in (left := left_by(sessions, mark)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(_LOOK_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
