"""The folder of a job on this machine: it is removed with the job's launcher, however that ends.

A launcher holds a lock on its folder, which the kernel lets go of when the launcher dies. A folder
that nobody holds is a dead launcher's, and the next one removes it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from unisono.endings import FOLDER_PREFIX

__all__ = ["job_folder", "sweep"]


@contextlib.contextmanager
def job_folder() -> Iterator[Path]:
    """A folder of mode 0700 for a job's files, removed at the end; sweeps those of the dead."""
    sweep()
    path, lock = _make()
    try:
        yield path
    finally:
        # Before the lock is released: a sweep takes what nobody holds.
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep() -> list[Path]:
    """Removes this user's folders whose launchers have died.

    Returns:
        What was removed.
    """
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        lock = _open_own(path)
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
        finally:
            os.close(lock)
    return removed


def _make() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        # Another launcher's sweep may come between the folder and its lock.
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink > 0:
            return path, lock
        os.close(lock)


def _open_own(path: Path) -> int | None:
    """A folder of this user's, and no link to one: the place for such folders is anybody's."""
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if os.fstat(opened).st_uid == os.geteuid():
            return opened
        os.close(opened)
    return None
