"""Unisono's own record (`UNISONO_DUMP_DIRECTORY`, `Communicator.dump_record`), version 2.

A file holds one rank of one communicator. `docs/reference/record.md` says what its members mean.
"""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unisono.errors import MisuseError
from unisono.files import files_below, read_bounded
from unisono.records.compressed import decompressed
from unisono.records.entries import DIRECTIONS, calls_of
from unisono.records.packed import packed_entries, unpack
from unisono.records.parts import (
    MAX_FILE_BYTES,
    MAX_RANKS,
    Claim,
    Columns,
    DumpError,
    Hint,
    Part,
    integer,
    members_of,
    text,
)
from unisono.records.words import Words

__all__ = ["is_record", "load_record", "read_record", "read_records"]

FORMAT = "unisono-record"
VERSION = 2
# What is counted of a connection.
FIGURES = (
    "posts", "bytes", "busy_ns", "idle_ns", "most_in_flight_bytes", "mean_in_flight_bytes",
)  # fmt: skip
_RANKS = re.compile(rb'"world_ranks"\s*:\s*(?=\[)')
# Of a record's bytes, in which the list of its group's ranks begins.
_HEAD_BYTES = 4096


def load_record(contents: bytes) -> dict[str, Any] | None:
    """The record that some JSON is, with its `world_ranks` checked; None where it may be none.

    8,192 files of one group have the same 8,192 ranks, which are read once.

    Raises:
        DumpError: The ranks are wrong.
    """
    place = contents.find(b'"world_ranks"', 0, _HEAD_BYTES)
    found = _RANKS.match(contents, place) if place >= 0 else None
    if found is None or contents.count(b'"world_ranks"') > 1:
        return None
    begin, end = found.end(), contents.find(b"]", found.end()) + 1
    try:
        members = _members(contents[begin:end])
        document = json.loads(b"".join((contents[:begin], b"null", contents[end:])))
    except DumpError:
        raise
    except (ValueError, RecursionError):
        return None
    if not is_record(document) or document.get("world_ranks", 0) is not None:
        return None
    document["world_ranks"] = members
    return dict(document)


@lru_cache(maxsize=8)
def _members(ranks: bytes) -> tuple[int, ...]:
    return members_of(json.loads(ranks), "the record")


def is_record(document: Any) -> bool:
    """Whether a JSON document is such a record."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def read_record(document: dict[str, Any], file: str) -> list[Part]:
    """The part of one rank.

    Raises:
        DumpError: The record is wrong, or of a version that is not known.
    """
    where = "the record"
    version = integer(document, "version", where)
    if version != VERSION:
        raise DumpError(
            f"it is version {version} of Unisono's record; this release reads version {VERSION}"
        )
    # 0 ranks and no world ranks: NCCL told its profiler plugin neither.
    ranks = integer(document, "ranks", where, 0, MAX_RANKS)
    rank = integer(document, "rank", where, 0, (ranks or MAX_RANKS) - 1)
    if min(ranks, rank) < 0:
        raise DumpError("the record has no 'rank' and 'ranks'")
    communicator = text(document, "communicator", where)
    name = text(document, "group", where)
    epoch = integer(document, "epoch", where, 0, default=0)
    members = document.get("world_ranks")
    if not isinstance(members, tuple):  # else `load_record` has checked them
        members = members_of(_list(document, "world_ranks"), where)
    world_rank = integer(document, "world_rank", where, 0, MAX_RANKS - 1)
    if members and len(members) != ranks:
        raise DumpError(f"the record has {len(members)} 'world_ranks' of {ranks} ranks")
    ahead, written_ns = _clock(document)
    packed = packed_entries(document)
    words = [Words(document, name, ranks) for name in ("collectives", "messages")]
    numbers = [one.columns["sequence"] for one in packed if not one.is_messages]
    _check_rise(np.concatenate([*numbers, words[0].sequences]))
    columns = Columns()
    calls = calls_of([*packed, *words], columns, ahead, ranks)
    waiting = sorted([*words[0].hints, *words[1].hints], key=lambda one: one[0])
    hints = [hint for _, hint in waiting]
    _check_connections(document, ranks)
    failure = document.get("failure")
    if isinstance(failure, dict):
        kind, at_fault = text(failure, "kind", "failure", ""), integer(failure, "rank", "failure")
        message = text(failure, "message", "failure", "")
        if kind == "environment" and at_fault in (-1, rank):
            hints.append(Hint("error", message, 0))
        elif 0 <= at_fault < ranks:
            reason = text(failure, "reason", "failure", "")
            hints.append(Hint("accused", message, 0, at_fault, kind, reason))
            finder = integer(failure, "finder", "failure")
            if reason == "link" and 0 <= finder < ranks:
                hints += [Hint("broken", kind, 0, end) for end in (finder, at_fault)]
    claim = Claim(name, f"{FORMAT} {communicator} {epoch}", ranks, rank, members)
    world_rank = members[rank] if members else world_rank
    key = ("world", world_rank) if world_rank >= 0 else (name, rank)
    return [
        Part(
            file, FORMAT, str(version), key, [claim], calls,
            list(columns.kinds), list(columns.types), hints, ranks if name == "world" else 0,
            document.get("watched") is True, written_ns,
            ids=(claim.ident, _process_id(document) or f"rank {key}"),
            host=text(document, "node", where, ""),
        )
    ]  # fmt: skip


def read_records(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The documents of Unisono's records among files and folders, checked; others are left out.

    A record whose `world_ranks` are not known is left out, too.

    Raises:
        MisuseError: None is a record.
    """
    found = []
    for file in files_below(paths):
        try:
            document = json.loads(decompressed(read_bounded(file, MAX_FILE_BYTES)))
            if is_record(document):
                read_record(document, str(file))
                # Without the ranks of the job, entries of several groups belong to no one process.
                unpack(document)
                if document["world_ranks"]:
                    found.append(document)
        except (OSError, ValueError, RecursionError):
            continue
    if not found:
        raise MisuseError("none of the files is a record of Unisono that can be read")
    return found


def _check_rise(numbers: np.ndarray[Any, Any]) -> None:
    if (numbers[1:] <= numbers[:-1]).any():
        raise DumpError("the sequence numbers of its collectives do not rise")


def _check_connections(document: dict[str, Any], ranks: int) -> None:
    """What connections carried is for the profile; records before it had been counted lack it."""
    if "connections" not in document:
        return
    for i, one in enumerate(_list(document, "connections")):
        where = f"connection {i}"
        if not isinstance(one, dict):
            raise DumpError(f"{where} is no object")
        for name in ("direction", "transport", "protocol"):
            text(one, name, where)
        if one["direction"] not in DIRECTIONS:
            raise DumpError(f"{where}: 'direction' is neither send nor receive")
        for name, most in (("peer", (ranks or MAX_RANKS) - 1), ("channel", 1 << 31)):
            if integer(one, name, where, 0, most) < 0:
                raise DumpError(f"{where} has no '{name}'")
        for name in FIGURES:
            integer(one, name, where, 0)


def _process_id(document: dict[str, Any]) -> str:
    """The process, where the record says it."""
    node, process = document.get("node"), document.get("process")
    if not isinstance(node, str) or not isinstance(process, int) or process <= 0:
        return ""
    return f"process {process} on {node[:200]}"


def _list(document: dict[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    if not isinstance(found, list):
        raise DumpError(f"the record has no list '{name}'")
    return found


def _clock(document: dict[str, Any]) -> tuple[int, int]:
    """What makes a time of the monotonic clock one of the wall clock, and when it was written."""
    clock = document.get("clock")
    if not isinstance(clock, dict):
        raise DumpError("the record has no 'clock'")
    wall, monotonic = (integer(clock, one, "clock", 0) for one in ("wall_ns", "monotonic_ns"))
    if min(wall, monotonic) < 0:
        raise DumpError("the record's 'clock' has no 'wall_ns' and 'monotonic_ns'")
    return max(wall - monotonic, 0), wall
