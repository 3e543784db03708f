"""What NCCL's RAS prints: as JSON (NCCL 2.28 and later) and as text.

RAS counts what each rank has launched, by kind of collective, and knows ranks that do not answer.
It does not see whether a call runs, so that one report cannot tell a stuck job from a moving one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from unisono.records.parts import (
    COLUMNS,
    MAX_RANKS,
    Claim,
    DumpError,
    Hint,
    Part,
    integer,
    text,
)

__all__ = ["is_ras_json", "is_ras_text", "read_ras_json", "read_ras_text", "repaired"]

FORMAT = "nccl-ras"
# NCCL 2.28 forgets a comma before the status of a missing rank.
_NO_COMMA = re.compile(rb'("nvml_dev"\s*:\s*-?\d+)(\s*"status")')
_SECTION = re.compile(r"#(\d+)-(\d+) \(([0-9a-f]{1,16})\) (\w+)")
_PLACE = re.compile(r"(?:GPU (\S+).*? )?managed by process (\d+) on node (\S+)")
_RANK = re.compile(r"Rank (\d{1,7})( has launched up to operation (\d{1,19})| has not launched any "
                   r"operations| has status (\w+)| reported ([^-]+))? -- (.*)")  # fmt: skip
_MANY = re.compile(r"(\d{1,7}) ranks have (?:launched up to operation (\d{1,19})|not launched any)")
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+) operation counts")
_GROUP = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+)\s+(\d+)\s+\S+\s+\S+\s*$")
_TITLE = b"#  in group  per comm  per node"
_DEAD = re.compile(r"Process (\d+) on node (\S+) managing")


def repaired(contents: bytes) -> bytes:
    """RAS's JSON with the comma that NCCL 2.28 leaves out."""
    return _NO_COMMA.sub(rb"\1,\2", contents)


def is_ras_json(document: Any) -> bool:
    """Whether a JSON document is RAS's."""
    return isinstance(document, dict) and "nccl_version" in document and (
        "communicators" in document)  # fmt: skip


def is_ras_text(contents: bytes) -> bool:
    """Whether a text is RAS's; its head may not have been copied."""
    head = contents[:4096]
    if b"NCCL version" in head and b"Job summary" in head:
        return True
    lines = head.decode("utf-8", "replace").splitlines()
    return any(_SECTION.match(line.strip()) for line in lines) or (
        any(_GROUP.match(line) for line in lines) and _TITLE in head)  # fmt: skip


def _part(file: str, version: str, index: int, claim: Claim, taken: str) -> Part:
    empty = {name: np.zeros(0, dtype) for name, dtype in COLUMNS.items()}
    return Part(
        file, FORMAT, version, (f"{FORMAT} report", index), [claim], empty, [], [], taken=taken,
        world_size=claim.size,
    )  # fmt: skip


def read_ras_json(document: dict[str, Any], file: str) -> list[Part]:
    """A part for each communicator.

    Raises:
        DumpError: The report is wrong.
    """
    found = []
    communicators = document["communicators"]
    if not isinstance(communicators, list):
        raise DumpError("'communicators' is no list")
    version, taken = text(document, "nccl_version", "the report", ""), ""
    taken = text(document, "timestamp", "the report", "")
    odd: list[str] = []
    for index, one in enumerate(communicators):
        where = f"communicator {index}"
        if not isinstance(one, dict):
            odd.append(f"{where} is a {type(one).__name__}; an object is needed")
            continue
        name = text(one, "hash", where)
        ident = f"{FORMAT} {name} {text(one, 'secondary_hash', where, '')}"
        size = integer(one, "size", where, 1, MAX_RANKS)
        part = _part(file, version, index, Claim(name, ident, size), taken)
        for rank, process in _ranks(part, one.get("ranks", []), size, f"{where}, ranks"):
            _read_rank(part, rank, process, f"{where}, rank {rank}")
        missing = _ranks(part, one.get("missing_ranks", []), size, f"{where}, missing ranks")
        for rank, process in missing:
            status = process.get("status")
            dead = isinstance(status, dict) and status.get("considered_dead") is True
            part.missing[0, rank] = "dead" if dead else "unresponsive"
        found.append(part)
    if odd and not found:
        raise DumpError(odd[0])
    if found:
        found[0].odd += odd
    return found


def _ranks(part: Part, entries: Any, size: int, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The ranks of a list; one that cannot be used costs itself alone."""
    if entries is None:
        return
    if not isinstance(entries, list):
        raise DumpError(f"{where}: a {type(entries).__name__} where a list is needed")
    seen: set[int] = set()
    for entry in entries:
        try:
            if not isinstance(entry, dict):
                raise DumpError(f"{where}: a {type(entry).__name__} where an object is needed")
            rank = integer(entry, "rank", where, 0, size - 1)
            if rank < 0 or rank in seen:
                raise DumpError(
                    f"{where}: rank {rank} is " + ("missing" if rank < 0 else "there twice")
                )
            part.names[0, rank] = _process(entry, where)
        except DumpError as error:
            part.odd.append(str(error))
            continue
        seen.add(rank)
        yield rank, entry


def _process(entry: dict[str, Any], where: str) -> str:
    return (
        f"process {integer(entry, 'pid', where)} on {text(entry, 'host', where, '?')}, "
        f"GPU {integer(entry, 'cuda_dev', where)}"
    )


def _read_rank(part: Part, rank: int, process: dict[str, Any], where: str) -> None:
    """What the report says of a rank; nothing where a value cannot be used."""
    counts, status = process.get("collective_counts") or {}, process.get("status") or {}
    try:
        if not isinstance(counts, dict) or not isinstance(status, dict):
            raise DumpError(f"{where}: its counts or its status are no object")
        made = {str(kind)[:40]: integer(counts, kind, where, 0) for kind in counts}
        # 7 is ncclInProgress.
        errors = {name: integer(status, name, where, default=0)
                  for name in ("init_state", "async_error")}  # fmt: skip
    except DumpError as error:
        part.odd.append(str(error))
        return
    part.counts |= {(0, rank, kind): count for kind, count in made.items() if count >= 0}
    part.hints += [Hint("error", f"NCCL's {name} is {error}", 0, rank)
                   for name, error in errors.items() if error not in (0, 7)]  # fmt: skip
    if status.get("abort_flag") is True:
        part.hints.append(Hint("error", "its communicator was aborted", 0, rank))


def read_ras_text(contents: bytes, file: str) -> list[Part]:
    """A part for each communicator that the report says something about.

    A report may lack its head, or end early: what it has is read.

    Raises:
        DumpError: It has neither a list of communicators nor anything about one.
    """
    lines = contents.decode("utf-8", "replace").splitlines()
    version = next((one.split()[2] for one in lines if one.startswith("NCCL version ")
                    and len(one.split()) > 2), "")  # fmt: skip
    sizes = {}
    for line in lines:
        if (row := _GROUP.match(line)) and len(row[5]) < 8:
            sizes[row[1]] = int(row[5])
    has_sections = any(_SECTION.match(line.strip()) for line in lines)
    if not has_sections and (not sizes or "Errors" not in map(str.strip, lines)):
        raise DumpError("RAS's report ends before its list of communicators and errors")
    parts: dict[str, Part] = {}
    dead: list[str] = []
    section, kind, counted = "", "", -1
    bulk: dict[tuple[str, str], dict[int, int]] = {}
    for line in map(str.strip, lines):
        if head := _SECTION.match(line):
            section, kind, counted = head[3], head[4], -1
            size = sizes.get(head[1], 0)
            if section not in parts:
                claim = Claim(f"0x{section}", f"{FORMAT} 0x{section} ", size)
                parts[section] = _part(file, version, len(parts), claim, "")
        elif line in ("DEAD", "INCOMPLETE", "TIMEOUT", "Warnings", "Errors"):
            section, kind, counted = "", line, -1
        elif (one := _DEAD.match(line)) and kind == "DEAD":
            dead.append(f"process {one[1]} on {one[2]}")
        elif different := _DIFFERENT.match(line):
            kind, counted = different[1], -1
        elif section and (many := _MANY.match(line)):
            counted = int(many[2] or 0)
            bulk.setdefault((section, kind), {})[counted] = int(many[1])
        elif section and (rank := _RANK.match(line)):
            _read_line(parts[section], rank, kind, counted)
    for section, part in parts.items():
        if not part.claims[0].size:
            part.claims[0] = replace(part.claims[0], size=_size_of(part, section, bulk))
            part.world_size = part.claims[0].size
    for (section, kind), groups in bulk.items():
        _fill(parts[section], kind, groups)
    if not parts and sizes:
        parts[""] = _part(file, version, 0, Claim("all", f"{FORMAT} all", max(sizes.values())), "")
    for part in parts.values():
        part.hints.extend(Hint("dead", process) for process in dead)
        for at, process in part.names.items():
            if any(process.startswith(one + ",") for one in dead):
                part.missing[at] = "dead"
    return list(parts.values())


def _size_of(part: Part, section: str, bulk: dict[tuple[str, str], dict[int, int]]) -> int:
    """The number of ranks of a communicator that no table lists: those that are counted."""
    found = 1 + max((rank for _, rank, _ in part.counts), default=-1)
    for (group_section, kind), groups in bulk.items():
        if group_section == section:
            alone = sum(what == kind and count not in groups
                        for (_, _, what), count in part.counts.items())  # fmt: skip
            found = max(found, sum(groups.values()) + alone + len(part.missing))
    return min(found, MAX_RANKS)


def _read_line(part: Part, line: re.Match[str], kind: str, counted: int) -> None:
    size, rank = part.claims[0].size, int(line[1])
    if size and rank >= size:
        raise DumpError(f"it names rank {rank} of a communicator of {size}")
    if place := _PLACE.search(line[6]):
        part.names[0, rank] = f"process {place[2]} on {place[3]}, GPU {place[1]}"
    if kind == "INCOMPLETE":
        part.missing[0, rank] = "unresponsive"
    elif kind == "ERROR" or line[5]:
        part.hints.append(Hint("error", (line[5] or "NCCL reports an error").strip(), 0, rank))
    elif line[2] and "status" in line[2]:
        # Another status than that of most ranks: it may be the others that have not come so far.
        if line[4] == "ABORT":
            part.hints.append(Hint("error", "its communicator was aborted", 0, rank))
    elif line[2]:
        part.counts[0, rank, kind] = int(line[3] or 0)
    elif counted >= 0:
        part.counts[0, rank, kind] = counted


def _fill(part: Part, kind: str, groups: dict[int, int]) -> None:
    """Ranks that no line names have the count of which ranks are left over, if none is unknown."""
    size = part.claims[0].size
    named = {rank: count for (_, rank, what), count in part.counts.items() if what == kind}
    alone = sum(count not in groups for count in named.values())
    if sum(groups.values()) + alone + len(part.missing) != size:
        return  # a report that ends early
    silent = [count for count, ranks in groups.items()
              if sum(one == count for one in named.values()) < ranks]  # fmt: skip
    if len(silent) != 1:
        return
    for rank in range(size):
        if rank not in named and (0, rank) not in part.missing:
            part.counts[0, rank, kind] = silent[0]


def load_json(contents: bytes) -> Any:
    """A JSON document, RAS's repaired.

    Raises:
        DumpError: It is none.
    """
    try:
        return json.loads(contents)
    except (ValueError, RecursionError) as error:
        if b'"missing_ranks"' in contents:
            try:
                return json.loads(repaired(contents))
            except (ValueError, RecursionError):
                pass
        raise DumpError(f"it is no whole JSON document ({str(error)[:120]})") from None
