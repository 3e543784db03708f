"""All parts as one job: processes, groups, and one table of calls."""

import ctypes
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unisono.doctor.log_calls import calls_of_logs
from unisono.doctor.log_ranks import LogRanks
from unisono.doctor.runs import sort_runs
from unisono.records.logs.read import FORMAT as LOG
from unisono.records.parts import COLUMNS, Claim, Hint, Key, Part

__all__ = ["Group", "Job", "Process", "number_of", "ranks_text", "sentence"]

Array = np.ndarray[Any, Any]
_WORLD = "world"
# So many of a file's unused values are told.
_SHOWN_ODD = 3


def ranks_text(labels: Sequence[str]) -> str:
    """ "ranks 1, 2 and 5"; many of them are cut."""
    numbers = [one.removeprefix("rank ") for one in labels]
    if any(not one.isdecimal() for one in numbers):
        shown = list(labels[:8])
    else:
        shown = [("ranks " if len(numbers) > 1 else "rank ") + numbers[0], *numbers[1:8]]
    if len(labels) > 8:
        return f"{', '.join(shown)} and {len(labels) - 8} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def number_of(labels: Sequence[object], one: str, many: str) -> str:
    """The form of a word that goes with so many ranks."""
    return one if len(labels) == 1 else many


def sentence(text: str) -> str:
    """The text with one full stop at its end; texts of other libraries may have theirs."""
    return text.rstrip(" .") + "."


@dataclass
class Process:
    """A rank of the job.

    Attributes:
        label: "rank 3", or "rank 1 of communicator ..." where its world rank is not known.
        files: Its dumps; empty if it left none.
        written_ns: When the last of them was written.
        has_file_time: Whether this is only the time of the file, which a copy changes.
        host: Processes of one host have one clock; empty where the dumps do not say it.
    """

    key: Key
    label: str
    files: list[str] = field(default_factory=list)
    written_ns: int = 0
    has_file_time: bool = False
    host: str = ""


@dataclass
class Group:
    """A communicator or process group.

    Attributes:
        members: The process at each place.
        covered: Whether a dump tells of the calls of the rank at a place.
        dumps_when_idle: Whether each living rank of it would have left a dump.
        has_size: Whether a dump says how many ranks it has.
    """

    name: str
    ident: str
    members: list[int]
    covered: list[bool]
    dumps_when_idle: bool = False
    has_size: bool = False

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.members)


class Job:
    """What the dumps say together.

    Attributes:
        problems: Files, or parts of them, that could not be read or are of another job: a sentence
            each.
        notes: What else is odd.
        is_live: Whether ranks that run were asked, one after the other, and go on.
        doubts: Why the dumps may be of several runs: a sentence each.
        logs: Parts that hold what logs say.
        has_dumps: Whether the calls are those of dumps, not those that logs name.
        calls: The columns, with `process`; in the order that each process made them.
        rows: By process, where its calls are in the columns; in their order.
    """

    def __init__(
        self, parts: Iterable[Part], problems: Iterable[str] = (), *, is_one_run: bool = False,
        may_empty: bool = False,
    ) -> None:  # fmt: skip
        """Parts that are known to be of one run of a job need not look so.

        With `may_empty`, the parts lose their calls, which the job's table has.
        """
        self._may_empty = may_empty
        parts = list(parts)
        self.is_live = is_one_run
        self.problems = list(problems)
        self.notes: list[str] = []
        self.processes: list[Process] = []
        self.groups: list[Group] = []
        self.kinds: list[str] = []
        self.types: list[str] = []
        self.hints: list[tuple[int, Hint, int]] = []  # process, hint, group or -1
        self.last_enqueued: dict[tuple[int, int], int] = {}
        self.hidden: set[int] = set()  # processes with calls that their dumps do not hold
        self.silent: set[int] = set()  # processes whose dumps do not tell an end from a failure
        self._process_of: dict[Key, int] = {}
        self._group_of: dict[str, int] = {}
        self.logs = [part for part in parts if part.format == LOG]
        self.log_ranks = LogRanks(event for part in self.logs for event in part.events)
        self.reports = parts_of(parts, True)
        self.problems += [
            f"{part.file}: {said}; the rest of it was read"
            for part in parts for said in part.odd[:_SHOWN_ODD]
        ]  # fmt: skip
        dumps = parts_of(parts, False)
        self.doubts: list[str] = []
        kept = self._without_doubles(dumps if is_one_run else self._of_one_job(dumps))
        self.has_dumps = bool(kept)
        # Dumps have the calls of their ranks, and sizes in bytes; a log names one call of a rank.
        kept = kept or calls_of_logs(self.logs, self.log_ranks)
        self._largest = _largest(kept)
        self.formats = sorted({part.format for part in [*kept, *self.reports]})
        self._note_versions(kept)
        self.rows: dict[int, range] = {}
        self.calls = self._join(kept)
        self._find_unknown(kept)
        self._find_lost()

    def label(self, process: int) -> str:
        """What people call a process."""
        return self.processes[process].label

    def _without_doubles(self, parts: Sequence[Part]) -> list[Part]:
        best: dict[tuple[Any, ...], Part] = {}
        for part in parts:
            key = (part.format, part.key, tuple(one.ident for one in part.claims)
                   if part.format == "unisono-record" else ())  # fmt: skip
            other = best.get(key)
            if other is None:
                best[key] = part
                continue
            if not _may_be_one(part, other):
                self.doubts.append(
                    f"{part.file} and {other.file} are of rank {part.key[1]} in two runs, and "
                    "nothing says which run the other files are of."
                )
            same = part.checksum == other.checksum and part.checksum != 0
            # A copy is later than what it is a copy of.
            later = min(other, part, key=lambda one: one.written_ns) if same else max(
                part, other, key=lambda one: (_last(one), one.written_ns))  # fmt: skip
            earlier = other if later is part else part
            self.problems.append(
                f"{earlier.file}: it is the same dump as {later.file}, which was read"
                if same else
                f"{earlier.file}: {later.file} is of the same rank ({part.key[1]}) and later, and "
                "was read in its place"
            )  # fmt: skip
            best[key] = later
        return list(best.values())

    def _of_one_job(self, parts: list[Part]) -> list[Part]:
        # A group of one rank may be a subgroup that knows of no larger one.
        worlds = Counter(part.world_size for part in parts if part.world_size > 1)
        if len(worlds) > 1:
            size = max(worlds, key=lambda one: (worlds[one], one))
            others = [part for part in parts if part.world_size not in (0, 1, size)]
            for part in others:
                self.problems.append(
                    f"{part.file}: it is of another job: its largest group has {part.world_size} "
                    f"ranks, that of most dumps {size}"
                )
            parts = [part for part in parts if part not in others]
        runs = sort_runs(parts)
        self.problems += runs.problems
        self.doubts += runs.doubts
        return runs.kept

    def _note_versions(self, parts: Sequence[Part]) -> None:
        versions: dict[str, set[str]] = {}
        for part in parts:
            versions.setdefault(part.format, set()).add(part.version)
        for name, found in versions.items():
            if len(found) > 1:
                self.notes.append(f"The {name} dumps have different versions: "
                                  f"{', '.join(sorted(found))}.")  # fmt: skip

    def _join(self, parts: Sequence[Part]) -> dict[str, Array]:
        tables: dict[int, list[dict[str, Array]]] = {}
        kinds: dict[str, int] = {}
        types: dict[str, int] = {}
        for part in parts:
            process = self._process(self._key(part))
            if part.claims:  # else it says why there is no dump
                self.processes[process].files.append(part.file)
                self.processes[process].written_ns = part.written_ns
                self.processes[process].has_file_time = part.has_file_time
                self.processes[process].host = part.host
            if part.has_hidden_call:
                self.hidden.add(process)
            if part.hides_failures:
                self.silent.add(process)
            groups = np.array([self._group(process, one, part) for one in part.claims], np.int32)
            for hint in part.hints:
                self.hints.append(
                    (process, hint, int(groups[hint.group]) if hint.group >= 0 else -1)
                )
            for index, number in part.last_enqueued.items():
                self.last_enqueued[process, int(groups[index])] = number
            if not len(part.calls["group"]):
                continue
            maps: dict[str, Array] = {
                "group": groups,
                "kind": np.array(
                    [kinds.setdefault(one, len(kinds)) for one in part.kinds], np.int16
                ),
                "type": np.array(
                    [types.setdefault(one, len(types)) for one in part.types], np.int16
                ),
            }
            tables.setdefault(process, []).append(
                {name: maps[name][values] if name in maps else values
                 for name, values in part.calls.items()}
            )  # fmt: skip
            if self._may_empty:  # the tables have them now: of 8,192 ranks, a gigabyte
                part.calls = {}
        self.kinds, self.types = list(kinds), list(types)
        calls = self._stack(tables)
        _give_back_memory()
        return calls

    def _stack(self, tables: dict[int, list[dict[str, Array]]]) -> dict[str, Array]:
        """The tables of each process, one below the other.

        Where a process left one file a group, its calls are ordered by when they were made.
        """
        has_several = {i for i, one in enumerate(self.processes) if len(one.files) > 1}
        counts = {process: sum(len(one["group"]) for one in mine)
                  for process, mine in tables.items()}  # fmt: skip
        total, end = sum(counts.values()), 0
        calls = {name: np.empty(total, kind) for name, kind in COLUMNS.items()}
        calls["process"] = np.empty(total, np.int32)
        for process in sorted(tables) if has_several else list(tables):
            begin, end = end, end + counts[process]
            self.rows[process] = range(begin, end)
            calls["process"][begin:end] = process
            mine = tables.pop(process)
            joined = mine[0] if len(mine) == 1 else {
                name: np.concatenate([one[name] for one in mine]) for name in COLUMNS
            }  # fmt: skip
            if process in has_several:
                order = joined["created"].argsort(kind="stable")
                joined = {name: values[order] for name, values in joined.items()}
            for name, values in joined.items():
                calls[name][begin:end] = values
        return calls

    def _find_unknown(self, parts: Sequence[Part]) -> None:
        """Ranks of no known group that lack among the numbers of the dumps' files, if few do."""
        ranks = {part.key[1] for part in parts if part.key[0] == _WORLD}
        lost = set(range(max(ranks, default=0))) - ranks
        if 0 < len(lost) <= max(1, len(ranks) // 4):
            for rank in sorted(lost):
                self._process((_WORLD, rank))

    def _find_lost(self) -> None:
        """Where one rank alone left no dump, it is the one that is missing in each group."""
        lost = [i for i, one in enumerate(self.processes) if one.key[0] == _WORLD and not one.files]
        if len(lost) != 1:
            return
        for group in self.groups:
            missing = [place for place, covered in enumerate(group.covered) if not covered]
            if group.dumps_when_idle and len(missing) == 1 and lost[0] not in group.members:
                group.members[missing[0]] = lost[0]

    def _key(self, part: Part) -> Key:
        if part.key[0] != _WORLD and part.claims[0].ident == self._largest:
            return (_WORLD, part.key[1])
        return part.key

    def _process(self, key: Key) -> int:
        if key not in self._process_of:
            self._process_of[key] = len(self.processes)
            label = f"rank {key[1]}"
            self.processes.append(
                Process(key, label if key[0] == _WORLD else f"{label} of {key[0]}")
            )
        return self._process_of[key]

    def _group(self, process: int, claim: Claim, part: Part) -> int:
        index = self._group_of.setdefault(claim.ident, len(self.groups))
        if index == len(self.groups):
            self.groups.append(Group(claim.name, claim.ident, [], [], part.dumps_when_idle))
        group = self.groups[index]
        group.has_size = group.has_size or claim.size > 0
        for place in range(len(group.members), claim.size):
            if claim.members:
                key: Key = (_WORLD, claim.members[place])
            elif claim.ident == self._largest:
                key = (_WORLD, place)
            else:
                key = (claim.name, place)
            group.members.append(-1 if place == claim.place else self._process(key))
            group.covered.append(False)
        place = claim.place
        if not claim.size:
            place = group.members.index(process) if process in group.members else len(group.members)
            if place == len(group.members):
                group.members.append(process)
                group.covered.append(False)
        group.members[place], group.covered[place] = process, True
        return index


def parts_of(parts: Iterable[Part], reports: bool) -> list[Part]:
    """Reports, which have counts alone, or dumps, which have calls; logs are neither."""
    return [part for part in parts
            if part.format != LOG and part.format.endswith("-ras") is reports]  # fmt: skip


def _give_back_memory() -> None:
    """Returns what many small arrays held to the system: the C library keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _largest(parts: Sequence[Part]) -> str:
    """The group that all ranks are in, if one is larger than all others."""
    sizes = {claim.ident: claim.size for part in parts for claim in part.claims}
    most = max(sizes.values(), default=0)
    largest = [ident for ident, size in sizes.items() if size == most]
    return largest[0] if len(largest) == 1 else ""


def _last(part: Part) -> int:
    return max((int(part.calls[name].max(initial=0)) for name in ("created", "started", "ended")),
               default=0)  # fmt: skip


def _may_be_one(one: Part, other: Part) -> bool:
    """Whether two dumps may be of one process: it makes each call once."""
    made = [
        {(part.claims[group].ident, number): created
         for group, number, created in zip(*(part.calls[name].tolist() for name in (
             "group", "number", "created")), strict=True) if number >= 0}
        for part in (one, other)
    ]  # fmt: skip
    return all(made[1].get(call, created) == created for call, created in made[0].items())
