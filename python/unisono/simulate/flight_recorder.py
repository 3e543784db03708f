"""PyTorch Flight Recorder dumps as workloads.

A dump is a pickle, which can make an unpickler call anything. Ours refuses every name: a dump holds
only numbers, texts, lists and dictionaries, and these need none. The JSON form is read as it is.

What NCCL runs as one (batched messages, coalesced collectives) stands there as entries without
times, and after them one for all, with theirs.

Gloo's dumps (PyTorch 2.13) have neither the groups' ranks nor durations: a group is then the ranks
that call on it, and a call, for which its host waits, counts as part of the compute after it.
"""

import io
import json
import pickle
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unisono.apart import run_apart
from unisono.errors import MisuseError
from unisono.files import read_bounded
from unisono.records.flight_recorder import ELEMENT_BYTES
from unisono.simulate.replay import Recorded, replay
from unisono.simulate.trace_ranks import by_rank, rank_of_name
from unisono.simulate.workload import Call, Task, Workload

_MAX_BYTES = 1 << 30
# A pickle grows as text: it writes the names in stacks once and refers to them often.
_MAX_GROWTH = 64
_MESSAGE = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")

_BATCH = "coalesced"
_TIMES = (
    "time_created_ns", "duration_ms", "state", "time_discovered_started_ns",
    "time_discovered_completed_ns",
)  # fmt: skip
_COLLECTIVES = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce", "all_gather": "all_gather",
    "_all_gather_base": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "broadcast": "broadcast",
    "_broadcast_oop": "broadcast", "reduce": "reduce", "_reduce_oop": "reduce", "gather": "gather",
    "scatter": "scatter", "all_to_all": "all_to_all", "alltoall": "all_to_all",
    "all_to_allv": "all_to_all", "alltoall_base": "all_to_all", "barrier": "all_reduce",
    "all_reduce_barrier": "all_reduce",
}  # fmt: skip
# Those that Unisono has; others are so many bytes.
_TYPES = {
    "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Double": "float64",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "uint8", "Float8_e4m3fn": "float8_e4m3", "Float8_e5m2": "float8_e5m2",
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}; a dump holds plain data only")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


def read_dump(path: Path) -> dict[str, Any]:
    """One rank's dump, from JSON or from a pickle of plain data.

    Raises:
        MisuseError: It is neither, or too large.
    """
    contents = read_bounded(path, _MAX_BYTES)
    try:
        if contents[:1] == b"{":
            dump = json.loads(contents)
        else:
            dump = run_apart(lambda: _unpickled(contents), len(contents))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MisuseError(f"{path}: {error}") from None
    except MisuseError as error:
        raise MisuseError(f"{path}: {error}") from None
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise MisuseError(f"{path}: no Flight Recorder dump: it has no list of entries")
    return dump


def _unpickled(contents: bytes) -> Any:
    """The plain data of a pickle, none of which takes much more room as text."""
    stream = io.BytesIO(contents)
    try:
        found = _Unpickler(stream).load()
        # A value that is referred to many times counts as often.
        size = sum(map(len, json.JSONEncoder().iterencode(found)))
    except MemoryError:
        raise
    except Exception as error:
        raise MisuseError(f"byte {stream.tell()}: no plain pickle: {error}") from None
    if size > _MAX_GROWTH * len(contents):
        raise MisuseError(f"it holds more than {_MAX_GROWTH} times its bytes")
    return found


def load_flight_recorder(paths: Iterable[Path], name: str = "flight_recorder") -> Workload:
    """The workload that the dumps of all ranks recorded, one file a rank.

    A dump may have its rank as `rank`; PyTorch's own have it in the file's name. Groups are joined
    by name and ranks: the same number means different groups on different ranks. Compute is the
    time between calls.

    Raises:
        MisuseError: A dump is missing or wrong, holds no durations, or ends early.
    """
    return _Reader(by_rank("dumps", _with_ranks(paths)), name).workload()


def _with_ranks(paths: Iterable[Path]) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    for path in paths:
        dump = read_dump(path)
        rank = dump.get("rank")
        if rank is None:
            rank = rank_of_name(path, "nccl_trace_rank_0")
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            raise MisuseError(f"{path}: its rank is {rank!r}; it is a number from 0 on")
        yield path, rank, dump


def _in_their_batch(entries: list[Any]) -> list[tuple[int, Any]]:
    """Entries with their numbers; those of a batch have its times, and it is none of them."""
    found: list[tuple[int, Any]] = []
    waiting: dict[str, list[int]] = {}  # by group, places in `found` of what a batch may end
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            found.append((number, entry))
            continue
        group = str(entry.get("process_group"))
        if str(entry.get("profiling_name")).partition(":")[2] == _BATCH:
            times = {name: entry.get(name) for name in _TIMES} | {_BATCH: number}
            for place in waiting.pop(group, []):
                found[place] = (found[place][0], found[place][1] | times)
            continue
        if entry.get("duration_ms") is None:
            waiting.setdefault(group, []).append(len(found))
        found.append((number, entry))
    return found


class _Clock:
    """When the calls of a rank began, one after another in each group."""

    def __init__(self) -> None:
        self._free: dict[str, float] = {}
        self._batch: dict[str, tuple[int, float]] = {}

    def start_of(self, group: str, entry: dict[str, Any]) -> float:
        """The watchdog looks now and then. What it saw begin and end at once it saw too late.

        All that is known then is that the call had been made, and those before it had ended.
        """
        batch, start = self._batch.get(group, (-1, 0.0))
        if entry["batch"] is not None and batch == entry["batch"]:
            return start
        seen, ended, duration = entry["seen_begun"], entry["seen_ended"], 1e6 * entry["duration_ms"]
        if seen is not None and (ended is None or ended - seen >= duration):
            start = float(seen)
        else:
            start = max(entry["created"], self._free.get(group, 0.0))
        self._free[group] = start + duration
        if entry["batch"] is not None:
            self._batch[group] = (entry["batch"], start)
        return start


class _Reader:
    def __init__(self, dumps: dict[int, dict[str, Any]], name: str) -> None:
        self.dumps = dumps
        self.made = Workload(name, max(dumps) + 1)
        self.made.is_recorded_of_nccl = not any(
            str(entry.get("profiling_name")).startswith("gloo:")
            for dump in dumps.values()
            for entry in dump.get("entries", ())
            if isinstance(entry, dict)
        )
        self.first: dict[str, int] = {}  # the first call that all ranks of a group still have

    def workload(self) -> Workload:
        for rank, dump in self.dumps.items():
            self.add_groups(rank, dump)
        entries = {
            rank: [self.checked(rank, i, entry) for i, entry in _in_their_batch(dump["entries"])]
            for rank, dump in self.dumps.items()
        }
        if not self.made.communicators:
            self.infer_groups(entries)
        for each in entries.values():
            first: dict[str, int] = {}
            for group, entry in each:
                if group not in self.made.communicators:
                    raise MisuseError(f"{entry['where']}: its group '{group}' is not in pg_config")
                if not entry["is_p2p"]:
                    first.setdefault(group, entry["collective_seq_id"])
            for group, number in first.items():
                self.first[group] = max(self.first.get(group, 0), number)
        for rank, each in entries.items():
            calls = []
            clock = _Clock()
            for group, entry in each:
                start = clock.start_of(group, entry)
                if entry["is_p2p"] or entry["collective_seq_id"] >= self.first[group]:
                    calls.append(self.recorded(rank, group, entry, start))
            self.made.lists.append(replay(rank, calls))
        return self.made

    def add_groups(self, rank: int, dump: dict[str, Any]) -> None:
        for key, config in dict(dump.get("pg_config", {})).items():
            group = str(config.get("name", key))
            ranks = config.get("ranks", "")
            members = [int(part) for part in re.findall(r"\d+", str(ranks))]
            if rank not in members:
                continue
            groups = self.made.communicators.setdefault(group, [])
            if members not in groups:
                groups.append(members)

    def infer_groups(self, entries: dict[int, list[tuple[str, dict[str, Any]]]]) -> None:
        """By who calls on a name, where no dump says which ranks a group has."""
        for rank in sorted(entries):
            for name in sorted({group for group, _ in entries[rank]}):
                self.made.communicators.setdefault(name, [[]])[0].append(rank)

    def checked(self, rank: int, number: int, entry: Any) -> tuple[str, dict[str, Any]]:
        where = f"rank {rank}, entry {number}"
        try:
            group = str(entry["process_group"][0])
            needed = ("profiling_name", "time_created_ns", "input_sizes", "output_sizes")
            values = {name: entry[name] for name in needed} | {
                "is_p2p": bool(entry.get("is_p2p", False)),
                "collective_seq_id": int(entry.get("collective_seq_id", 0)),
                "input_dtypes": entry.get("input_dtypes") or ["Float"],
                "created": float(entry["time_created_ns"]),
                # JSON has 0 where a pickle has none.
                "seen_begun": entry.get("time_discovered_started_ns") or None,
                "seen_ended": entry.get("time_discovered_completed_ns") or None,
                "batch": entry.get(_BATCH),
                "state": entry.get("state", "unknown"),
                "duration_ms": entry.get("duration_ms"),
                "where": where,
            }
            if str(values["profiling_name"]).startswith("gloo:") and entry.get("retired"):
                values["duration_ms"] = values["duration_ms"] or 0.0
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise MisuseError(f"{where}: it has no {error}, or it is no number") from None
        if not isinstance(values["duration_ms"], int | float):
            raise MisuseError(
                f"{where} ({values['profiling_name']}, {values['state']}): it has no duration: the "
                "dump ends early, or was recorded without TORCH_NCCL_ENABLE_TIMING=1"
            )
        return group, values

    def recorded(self, rank: int, group: str, entry: dict[str, Any], start: float) -> Recorded:
        task = self.message(rank, group, entry) if entry["is_p2p"] else self.call(group, entry)
        return Recorded(start, start + 1e6 * entry["duration_ms"], task)

    def size(self, entry: dict[str, Any]) -> tuple[int, str]:
        element = str(entry["input_dtypes"][0])
        name, element_bytes = _TYPES.get(element, "uint8"), ELEMENT_BYTES.get(element, 1)
        largest = 0
        for sizes in (entry["input_sizes"], entry["output_sizes"]):
            elements = 0
            for shape in sizes:
                count = 1
                for length in shape:
                    count *= int(length)
                elements += count
            largest = max(largest, elements * element_bytes)
        return largest, name

    def call(self, group: str, entry: dict[str, Any]) -> Task:
        short = str(entry["profiling_name"]).partition(":")[2]
        if short not in _COLLECTIVES:
            raise MisuseError(f"{entry['where']}: '{entry['profiling_name']}' is no collective")
        size, element = self.size(entry)
        call = Call(_COLLECTIVES[short], size, type=element)
        return Task("collective", short, group, call=call, communicator=group)

    def message(self, rank: int, group: str, entry: dict[str, Any]) -> Task:
        found = _MESSAGE.search(str(entry["profiling_name"]))
        if found is None:
            raise MisuseError(f"{entry['where']}: '{entry['profiling_name']}' is no message")
        members = next(one for one in self.made.communicators[group] if rank in one)
        # "send 0->1" and "recv 1<-0" name places in the group, this rank's first.
        place = int(found[3])
        if place >= len(members):
            raise MisuseError(f"{entry['where']}: group '{group}' has no rank {place}")
        return Task(
            "send" if found[1] == "send" else "recv", found[0], f"{group} {found[0]}",
            peer=members[place], size_bytes=self.size(entry)[0],
        )  # fmt: skip
