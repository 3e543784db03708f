"""Files become parts: the format follows from the contents, and each file is read apart.

Reading happens in processes of their own with bounded memory and time: a hostile dump that crashes
or exhausts its reader costs that file, and the sentence about it says so.
"""

import io
import os
import pickle
import re
import selectors
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unisono.apart import TOO_MUCH, bound_process, start_apart, why_ended
from unisono.doctor.job import Job
from unisono.errors import MisuseError
from unisono.files import files_below, read_bounded, read_ends, read_start
from unisono.records import flight_recorder, nccl_ras, nccl_x, unisono_record
from unisono.records.compressed import decompressed
from unisono.records.logs.read import MOST_LOG_BYTES, is_text, read_log
from unisono.records.parts import MAX_FILE_BYTES, DumpError, Part, StrayError
from unisono.records.plain_pickle import load
from unisono.records.whose import without_compression

__all__ = ["parse", "read_files"]

_PICKLE = re.compile(rb"\x80[\x00-\x05]")

_LENGTH = struct.Struct("<Q")
# A list of ranks that is sent once.
_LONG = 64
_PIPE_BYTES = 1 << 16
_HEAD_BYTES = 4096
# Ranks say who they are where a log begins, and what failed where it ends.
_LOG_BEGIN_BYTES = MOST_LOG_BYTES // 4
_LOG_END_BYTES = MOST_LOG_BYTES - _LOG_BEGIN_BYTES
# A problem that begins so is that the file is neither a dump nor a log.
_STRAY = "\0"
_SHOWN_STRAYS = 3

_Outcome = tuple[list[Part], str]


def parse(contents: bytes, file: str) -> list[Part]:
    """The parts of a dump of any format, or of a log.

    Raises:
        DumpError: What is wrong with it.
    """
    start = contents[:64].lstrip()
    if not start:
        raise DumpError("it is empty: the rank that wrote it was ended before it could" if
                        not contents else "it holds nothing but white space")  # fmt: skip
    if _PICKLE.match(contents):
        document = load(contents)
        if not flight_recorder.is_flight_recorder(document):
            raise DumpError("it is a pickle, but not a dump of Flight Recorder")
        return _read(flight_recorder.read_flight_recorder, document, file)
    if start[:1] == b"{":
        document = unisono_record.load_record(contents)
        if document is None:
            document = nccl_ras.load_json(contents)
        for is_such, read in (
            (unisono_record.is_record, unisono_record.read_record),
            (nccl_ras.is_ras_json, nccl_ras.read_ras_json),
            (nccl_x.is_comm_dump, nccl_x.read_comm_dump),
            (flight_recorder.is_flight_recorder, flight_recorder.read_flight_recorder),
        ):
            if is_such(document):
                return _read(read, document, file)
        raise StrayError("it is JSON, but no dump that is known")
    if nccl_ras.is_ras_text(contents):
        return nccl_ras.read_ras_text(contents, file)
    if is_text(contents) and (found := read_log(contents, file)):
        return found
    raise StrayError(
        "it is no dump that is known (Unisono's record, a Flight Recorder dump, RAS's status or "
        "NCCLX's commDump), and no log with a line that says something of ranks"
    )


def _read(read: Callable[[Any, str], list[Part]], document: Any, file: str) -> list[Part]:
    """What a reader finds; a value of a shape that it does not expect is a fault of the file."""
    try:
        return read(document, file)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise DumpError(f"a value in it has another shape than such dumps have: {error}") from error


def read_files(paths: Iterable[Path]) -> Job:
    """All dumps and logs as one job; folders stand for the files in them, at any depth.

    Files that cannot be read are the job's `problems`.

    Raises:
        MisuseError: No file is a dump or a log.
    """
    paths = list(paths)
    files = list(files_below(paths))
    named = {path for path in paths if not path.is_dir()}
    parts: list[Part] = []
    problems: list[str] = []
    strays: list[Path] = []
    for path, (found, wrong) in zip(files, _read_all(files), strict=True):
        parts.extend(found)
        if wrong.startswith(_STRAY) and path not in named:
            strays.append(path)
        elif wrong:
            problems.append(f"{path}: {wrong.removeprefix(_STRAY)}")
    problems += _about(strays)
    if not parts:
        raise MisuseError("; ".join(problems[:5]) or "there are no files to read")
    return Job(parts, problems, may_empty=True)


def _about(strays: Sequence[Path]) -> list[str]:
    """One sentence for all files of the folders that are neither dumps nor logs."""
    if not strays:
        return []
    shown = ", ".join(map(str, strays[:_SHOWN_STRAYS]))
    more = f" and {len(strays) - _SHOWN_STRAYS} more" if len(strays) > _SHOWN_STRAYS else ""
    return [f"{shown}{more}: no dump that is known, and no log with a line that says something of "
            "ranks"]  # fmt: skip


def _contents(path: Path) -> bytes:
    """What a file holds, decompressed; a large log's beginning and end."""
    bytes_ = path.stat().st_size
    if bytes_ > MOST_LOG_BYTES and _may_be_log(read_start(path, _HEAD_BYTES)):
        return read_ends(path, _LOG_BEGIN_BYTES, _LOG_END_BYTES)
    contents = read_bounded(path, MAX_FILE_BYTES)
    bound_process(len(contents))
    found = decompressed(contents)
    if len(found) > MOST_LOG_BYTES and _may_be_log(found[:_HEAD_BYTES]):
        return found[:_LOG_BEGIN_BYTES] + b"\n" + found[-_LOG_END_BYTES:]
    return found


def _may_be_log(head: bytes) -> bool:
    return is_text(head) and not _PICKLE.match(head) and head.lstrip()[:1] != b"{"


def _read_one(path: Path) -> _Outcome:
    try:
        contents = _contents(path)
        status = path.stat()
        bound_process(len(contents))
        parts = parse(contents, without_compression(str(path)))
    except StrayError as error:
        return [], f"{_STRAY}{error}"
    except (DumpError, MisuseError) as error:
        return [], str(error).removeprefix(f"cannot read {path}: ")
    except OSError as error:
        return [], f"it cannot be read: {error.strerror}"
    except MemoryError:
        return [], TOO_MUCH
    checksum = zlib.crc32(contents)
    for part in parts:
        part.file = str(path)
        # A copy of a file may have another time: what a dump says of itself is better.
        part.has_file_time = not part.written_ns
        part.written_ns, part.checksum = part.written_ns or status.st_mtime_ns, checksum
    return parts, ""


class _Pickler(pickle.Pickler):
    """Pickles outcomes; a long list of ranks is in the first one alone that has it.

    Each of 8,192 ranks names all of them as members: these lists would take two gigabytes.
    """

    def __init__(self) -> None:
        self._out = io.BytesIO()
        super().__init__(self._out, pickle.HIGHEST_PROTOCOL)
        self._places: dict[tuple[int, ...], int] = {}

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not tuple or len(value) < _LONG:
            return None
        place = self._places.get(value)
        if place is None:
            place = self._places[value] = len(self._places)
            return place, list(value)
        return place

    def dumps(self, outcome: _Outcome) -> memoryview:
        """The bytes of an outcome, until the next one."""
        self._out.seek(0)
        self._out.truncate()
        self.clear_memo()
        self.dump(outcome)
        return self._out.getbuffer()


class _Unpickler(pickle.Unpickler):
    """Unpickles what a `_Pickler` has sent; `ranks` are its long lists so far."""

    def __init__(self, contents: bytes, ranks: list[tuple[int, ...]]) -> None:
        super().__init__(io.BytesIO(contents))
        self._ranks = ranks

    def persistent_load(self, sent: int | tuple[int, list[int]]) -> tuple[int, ...]:
        if isinstance(sent, int):
            return self._ranks[sent]
        self._ranks.append(tuple(sent[1]))
        return self._ranks[-1]


@dataclass
class _Reader:
    """A process that reads some of the files, in order, and what it has sent so far."""

    pid: int
    pipe: int
    left: list[int]
    received: bytearray = field(default_factory=bytearray)
    ranks: list[tuple[int, ...]] = field(default_factory=list)

    def take(self, found: list[_Outcome]) -> None:
        """Takes the outcomes that have arrived whole."""
        while len(self.received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self.received)
            end = _LENGTH.size + length
            if len(self.received) < end:
                return
            with memoryview(self.received) as received:
                outcome = bytes(received[_LENGTH.size : end])
            del self.received[:end]
            found[self.left.pop(0)] = _Unpickler(outcome, self.ranks).load()


def _start(paths: Sequence[Path], mine: list[int]) -> _Reader:
    def read(sends: int) -> None:
        pickler = _Pickler()
        with os.fdopen(sends, "wb") as out:
            for place in mine:
                with pickler.dumps(_read_one(paths[place])) as outcome:
                    out.write(_LENGTH.pack(len(outcome)))
                    out.write(outcome)
                out.flush()

    pid, pipe = start_apart(read)
    return _Reader(pid, pipe, mine)


def _read_all(paths: Sequence[Path]) -> list[_Outcome]:
    found: list[_Outcome] = [([], "")] * len(paths)
    workers = max(1, min(os.cpu_count() or 1, len(paths)))
    with selectors.DefaultSelector() as selector:
        for first in range(min(workers, len(paths))):
            reader = _start(paths, list(range(first, len(paths), workers)))
            selector.register(reader.pipe, selectors.EVENT_READ, reader)
        while selector.get_map():
            for key, _ in selector.select():
                reader = key.data
                received = os.read(reader.pipe, _PIPE_BYTES)
                reader.received += received
                reader.take(found)
                if received:
                    continue
                selector.unregister(reader.pipe)
                os.close(reader.pipe)
                _, status = os.waitpid(reader.pid, 0)
                if reader.left:
                    # The file that it was at has ended it; another reader goes on after that.
                    found[reader.left.pop(0)] = [], why_ended(status)
                if reader.left:
                    reader = _start(paths, reader.left)
                    selector.register(reader.pipe, selectors.EVENT_READ, reader)
    return found
