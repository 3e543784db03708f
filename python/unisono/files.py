"""Files that others may have prepared: read up to a bound, written whole or not at all.

What stands at a path never decides what happens outside of it: reading waits for no FIFO and no
device, and writing goes through no link that another user has planted. This process's own
descriptors, such as /dev/stdin, /dev/stdout and a shell's <(...), are used as they are.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from errno import EDQUOT, EFBIG, EINVAL, EISDIR, ELOOP, ENOSPC, ENOSYS, ENOTDIR, EOPNOTSUPP
from io import BufferedIOBase
from pathlib import Path
from typing import IO

from unisono.errors import MachineError, MisuseError

__all__ = [
    "check_writable", "files_below", "read_bounded", "read_ends", "read_start", "read_stream",
    "read_text", "write_whole", "written_whole",
]  # fmt: skip

_MOST_LINKS = 40  # as many as the kernel follows
_BLOCK_BYTES = 1 << 20
_OPEN = os.O_CLOEXEC | os.O_NOCTTY
_NO_SPACE = (ENOSPC, EDQUOT, EFBIG)
# Some file systems have nothing to wait for, and say so.
_NOTHING_TO_WAIT_FOR = (EINVAL, ENOSYS, EOPNOTSUPP)


def read_bounded(path: str | Path, most_bytes: int) -> bytes:
    """The bytes of a regular file, or of one of this process's own descriptors.

    Raises:
        MisuseError: It cannot be read, is no regular file, or has more than `most_bytes`, of which
            at most one more is read.
    """
    with _opened(path) as source:
        # A file that says so is not read at all.
        if os.fstat(source.fileno()).st_size > most_bytes:
            raise _too_large(str(path), most_bytes)
        return read_stream(source, most_bytes, str(path))


def read_start(path: str | Path, bytes_: int) -> bytes:
    """The first bytes of such a file.

    Raises:
        MisuseError: It cannot be read, or is no regular file.
    """
    with _opened(path) as source:
        return source.read(bytes_)


def read_ends(path: str | Path, first_bytes: int, last_bytes: int) -> bytes:
    """The first and the last bytes of such a file, with a line's end between them.

    The whole of a file that has no more than these.

    Raises:
        MisuseError: It cannot be read, or is no regular file.
    """
    with _opened(path) as source:
        bytes_ = os.fstat(source.fileno()).st_size
        if bytes_ <= first_bytes + last_bytes:
            return read_stream(source, first_bytes + last_bytes, str(path))
        first = _read_most(source, first_bytes)
        source.seek(bytes_ - last_bytes)
        return first + b"\n" + _read_most(source, last_bytes)


def files_below(paths: Iterable[Path]) -> Iterator[Path]:
    """Files, and those of folders and of the folders in them, in the order of their names.

    Links to folders are not followed.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders.sort()
            yield from (one for name in sorted(names) if (one := Path(folder, name)).is_file())


def _read_most(source: IO[bytes] | BufferedIOBase, most_bytes: int) -> bytes:
    """Bytes of a stream: so many, or all that it has left."""
    content = bytearray()
    while len(content) < most_bytes:
        part = source.read(min(_BLOCK_BYTES, most_bytes - len(content)))
        if not part:
            break
        content += part
    return bytes(content)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    try:
        own = _own_descriptor(path)
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OPEN) if own is None else os.dup(own)
        with open(file, "rb", buffering=0) as source:  # noqa: PTH123 - a descriptor
            mode = os.fstat(file).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            if own is None and not stat.S_ISREG(mode):
                raise MisuseError(f"cannot read {path}: it is not a regular file")
            yield source
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None


def read_stream(source: IO[bytes] | BufferedIOBase, most_bytes: int, name: str) -> bytes:
    """What is left of a stream, of which at most one byte more than `most_bytes` is read.

    Raises:
        MisuseError: It has more.
    """
    content = _read_most(source, most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large(name, most_bytes)
    return content


def _too_large(name: str, most_bytes: int) -> MisuseError:
    return MisuseError(f"{name} has more than {most_bytes} bytes, the most that is read")


def read_text(path: str | Path, most_bytes: int) -> str:
    """The text of such a file, which is UTF-8.

    Raises:
        MisuseError: As `read_bounded`, or it is not UTF-8.
    """
    try:
        return read_bounded(path, most_bytes).decode()
    except UnicodeDecodeError:
        raise MisuseError(f"{path} is not text") from None


def write_whole(path: str | Path, content: str | bytes, *, private: bool = False) -> None:
    """Writes a file that is there whole or not at all, as `written_whole`.

    Raises:
        MachineError: It cannot be written; what was there is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    with written_whole(path, private=private) as descriptor:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError as error:
            if error.errno not in _NO_SPACE or not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise
            raise _FullError(error.errno, len(data)) from None


@contextlib.contextmanager
def written_whole(path: str | Path, *, private: bool = False) -> Iterator[int]:
    """A descriptor to write to; at the end, what was written takes the place of the path.

    Until then it has a random name in the same folder, or none, and an exception removes it. A file
    that is replaced hands on its permissions. A link is followed to the file that it names, unless
    another user than its folder's owner planted it. A character device, a FIFO of this user or of
    root, and this process's own descriptors are written to as they are.

    Args:
        path: Where.
        private: Mode 0600, and a link is replaced, not followed: for records of a job.

    Raises:
        MachineError: It cannot be written; what was there is unchanged.
    """
    try:
        own = None if private else _own_descriptor(path)
        if own is not None:
            with _closed(os.dup(own)) as descriptor:
                yield descriptor
            return
        target = os.fspath(path) if private else _followed(os.fspath(path))
        if not private and _is_stream(target):
            with _closed(os.open(target, os.O_WRONLY | os.O_NOFOLLOW | _OPEN)) as descriptor:
                yield descriptor
            return
        folder, name = os.path.split(target)
        if not name or Path(target).is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with _closed(os.open(_followed(folder or "."), flags)) as place:
            yield from _replacing(place, name, 0o600 if private else 0o666, keeps=not private)
    except OSError as error:
        if isinstance(error, MachineError):
            raise
        raise _refused(path, error) from None


def check_writable(path: Path) -> None:
    """Looks whether `written_whole` can write there, before the work.

    Folders that are missing may be made.

    Raises:
        MachineError: It cannot.
    """
    try:
        if _own_descriptor(path) is not None:
            return
        target = Path(_followed(str(path)))
        if target.is_dir():
            raise MachineError(f"cannot write {path}: it is a folder")
        if not _is_stream(str(target)):
            folder = target.absolute().parent
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir():
                raise MachineError(f"cannot write {path}: {folder} is no folder")
            if not os.access(folder, os.W_OK):
                raise MachineError(f"cannot write {path}: {folder} is not writable")
        if target.exists() and not os.access(target, os.W_OK):
            raise MachineError(f"cannot write {path}: {target} is not writable")
    except OSError as error:
        if isinstance(error, MachineError):
            raise
        raise _refused(path, error) from None


class _FullError(OSError):
    """A disk that took only a part of so many bytes."""

    def __init__(self, number: int, wanted: int) -> None:
        super().__init__(number, os.strerror(number))
        self.wanted = wanted
        self.missing = 0


def _refused(path: str | Path, error: OSError) -> MachineError:
    more = f"; {error.missing:,} bytes more are needed" if isinstance(error, _FullError) else ""
    return MachineError(f"cannot write {path}: {error.strerror or error}{more}")


def _replacing(place: int, name: str, mode: int, *, keeps: bool) -> Iterator[int]:
    """A new file of a folder, which takes that name at the end."""
    partial = f".unisono-{secrets.token_hex(8)}.part"
    kept_mode = _own_mode(place, name) if keeps else None
    descriptor, is_named = _new_file(place, partial, mode)
    with _closed(descriptor):
        try:
            if kept_mode is not None:
                os.fchmod(descriptor, kept_mode)
            yield descriptor
            _wait_for_disk(descriptor)
            if not is_named:
                os.link(f"/proc/self/fd/{descriptor}", partial, dst_dir_fd=place)
                is_named = True
            os.rename(partial, name, src_dir_fd=place, dst_dir_fd=place)
            is_named = False
        except _FullError as error:
            found = os.fstat(descriptor)
            error.missing = error.wanted - min(found.st_size, found.st_blocks * 512)
            raise
        finally:
            if is_named:
                os.unlink(partial, dir_fd=place)


def _own_mode(place: int, name: str) -> int | None:
    """The permissions of this user's file of that name."""
    try:
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_own = stat.S_ISREG(old.st_mode) and old.st_uid == os.geteuid()
    return old.st_mode & 0o777 if is_own else None


def _new_file(place: int, partial: str, mode: int) -> tuple[int, bool]:
    """A new file, and whether it has its name already.

    Without one, nothing is left of it wherever the process is killed. Not all file systems can do
    so, and it gets its name by way of /proc.
    """
    if Path("/proc/self/fd").is_dir():
        with contextlib.suppress(OSError):
            return os.open(".", os.O_WRONLY | os.O_TMPFILE | _OPEN, mode, dir_fd=place), False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | _OPEN
    return os.open(partial, flags, mode, dir_fd=place), True


def _wait_for_disk(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise _FullError(error.errno, os.fstat(descriptor).st_size) from None
        if error.errno not in _NOTHING_TO_WAIT_FOR:
            raise


def _own_descriptor(path: str | Path) -> int | None:
    """The number of a descriptor of this process that the path is another name of."""
    at = os.fspath(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(at)
        folder = os.path.realpath(folder or ".")
        if folder == f"/proc/{os.getpid()}/fd" and name.isdecimal():
            return int(name)
        try:
            at = os.path.join(folder, os.readlink(at))  # noqa: PTH115, PTH118
        except OSError:
            return None
    return None


def _followed(path: str) -> str:
    """The path without a link at its end; one that another user planted is refused."""
    for _ in range(_MOST_LINKS):
        path = path.rstrip("/") or path[:1]
        folder = os.path.dirname(path) or "."  # noqa: PTH120
        try:
            target = os.readlink(path)  # noqa: PTH115
        except OSError:
            return path
        owner = os.lstat(path).st_uid
        if owner not in (0, os.geteuid(), Path(folder).stat().st_uid):
            raise OSError(ELOOP, f"{path} is a link that user {owner} has made; it is not followed")
        path = os.path.join(folder, target)  # noqa: PTH118
    raise OSError(ELOOP, os.strerror(ELOOP))


def _is_stream(path: str) -> bool:
    """Whether a path is written to as it is, since a file cannot take its place."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISBLK(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise OSError(ENOTDIR, "it is a block device or a socket")
    if stat.S_ISFIFO(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise OSError(ENOTDIR, f"it is a FIFO of user {found.st_uid}")
    return stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)


@contextlib.contextmanager
def _closed(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
