"""Answers of ranks become the parts that the doctor reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unisono.doctor.job import Job
from unisono.live.sockets import Answer
from unisono.records.parts import MAX_RANKS, Columns, DumpError, Hint, Part, integer, text
from unisono.records.unisono_record import FORMAT as RECORD
from unisono.records.unisono_record import VERSION as RECORD_VERSION
from unisono.records.unisono_record import read_record

__all__ = ["Heard", "check_answer", "hear"]

FORMAT, VERSION = "unisono-live", 1


@dataclass
class Heard:
    """What the ranks of one job said.

    Attributes:
        job: As the doctor reads it.
        size: Ranks of the job; 0 if no rank said it.
        here: Ranks on this host, as far as they are known.
        silent: By rank, why it gave no answer that could be used.
        processes: By rank, the process that listens.
        records: The records, as their ranks gave them.
    """

    identifier: str
    job: Job
    size: int
    here: list[int]
    silent: dict[int, str]
    processes: dict[int, int]
    records: list[dict[str, Any]] = field(default_factory=list)


def check_answer(contents: bytes, job: str, rank: int) -> tuple[dict[str, Any], list[Part]]:
    """An answer of that rank of that job, and its parts.

    Raises:
        DumpError: What is wrong with it.
    """
    try:
        document = json.loads(contents)
    except (ValueError, RecursionError) as error:
        raise DumpError("it is no JSON, or not all of it is there") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DumpError(f"it is no {FORMAT}")
    where = "the answer"
    version = integer(document, "version", where)
    if version != VERSION:
        raise DumpError(f"it is version {version}; this release reads version {VERSION}")
    claimed = text(document, "job", where), integer(document, "world_rank", where)
    if claimed != (job, rank):
        raise DumpError(f"it is of rank {claimed[1]} of job {claimed[0]}")
    size = integer(document, "world_size", where, 1, MAX_RANKS)
    for one in [{"rank": one} for one in _list(document, "ranks_on_host")]:
        integer(one, "rank", "ranks_on_host", 0, size - 1)
    parts = []
    for record in _list(document, "records"):
        if not isinstance(record, dict):
            raise DumpError("one of its records is no object")
        try:
            found = read_record(record, f"rank {rank}")
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise DumpError(f"a value in a record has another shape: {error}") from error
        parts += found
    return document, parts


def hear(answers: Sequence[Answer]) -> list[Heard]:
    """The jobs of these answers; those of which every process has ended are over."""
    by_job: dict[str, list[Answer]] = {}
    for one in answers:
        by_job.setdefault(one.job, []).append(one)
    return [_hear_job(job, mine) for job, mine in by_job.items()
            if not all(one.silence and one.kind == "dead" for one in mine)]  # fmt: skip


def _hear_job(identifier: str, answers: Sequence[Answer]) -> Heard:
    parts: list[Part] = []
    silent: dict[int, str] = {}
    records: list[dict[str, Any]] = []
    size, here = 0, {one.rank for one in answers}
    for one in answers:
        if one.silence:
            silent[one.rank] = one.silence
            parts.append(_silent(one.rank, one.silence, one.kind))
            continue
        try:
            document, found = check_answer(one.contents, identifier, one.rank)
        except DumpError as error:
            silent[one.rank] = f"gave an answer that cannot be used: {error}"
            parts.append(_silent(one.rank, silent[one.rank], "unresponsive"))
            continue
        parts += found
        records += document["records"]
        size = document["world_size"]
        here |= set(document["ranks_on_host"])
    for rank in sorted(here - {one.rank for one in answers}):
        silent[rank] = "has no socket here: it has left the job, or is in a container of its own"
        parts.append(_silent(rank, silent[rank], "absent"))
    return Heard(
        identifier, Job(parts, is_one_run=True), size, sorted(here), silent,
        {one.rank: one.process for one in answers if one.process}, records,
    )  # fmt: skip


def _silent(rank: int, why: str, kind: str) -> Part:
    return Part(
        f"rank {rank}", RECORD, str(RECORD_VERSION), ("world", rank), [], Columns().arrays(), [],
        [], [Hint(kind, why)],
    )  # fmt: skip


def _list(document: dict[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    if not isinstance(found, list):
        raise DumpError(f"it has no list '{name}'")
    return found
