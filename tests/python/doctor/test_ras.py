"""RAS's reports: two texts, texts that were cut, and values that are odd."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from python.doctor.dumps import write
from python.doctor.jobs import simulate
from unisono.doctor import Diagnosis, Job, diagnose, read_files
from unisono.doctor.files import parse
from unisono.records.parts import DumpError

HEAD = """NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

"""
TABLE = """Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

"""


def mismatch(most: int, late: dict[int, int], kind: str = "AllReduce") -> str:
    """What a report says of 8 ranks of which some have launched fewer operations."""
    lines = [f"#0-0 (c0ffee) MISMATCH\n  Communicator ranks have different {kind} operation counts",
             f"  {8 - len(late)} ranks have launched up to operation {most}"]  # fmt: skip
    by_count: dict[int, list[int]] = {}
    for rank, count in late.items():
        by_count.setdefault(count, []).append(rank)
    for count, ranks in by_count.items():
        places = [f"GPU {rank} managed by process {100 + rank} on node 10.0.0.1" for rank in ranks]
        if len(ranks) == 1:
            lines.append(f"  Rank {ranks[0]} has launched up to operation {count} -- {places[0]}")
            continue
        lines.append(f"  {len(ranks)} ranks have launched up to operation {count}")
        lines += [f"  Rank {rank} -- {place}" for rank, place in zip(ranks, places, strict=True)]
    return "\n".join(lines) + "\n\n"


def examine(folder: Path, *texts: str) -> Diagnosis:
    paths = [folder / f"ras{number}.txt" for number in range(len(texts))]
    for number, (path, text) in enumerate(zip(paths, texts, strict=True)):
        path.write_text(text)
        os.utime(path, (1_780_000_000 + number, 1_780_000_000 + number))
    return diagnose(read_files(paths))


STUCK = HEAD + TABLE + mismatch(64, {3: 60})


def test_two_texts_tell_a_rank_that_never_joined(tmp_path: Path) -> None:
    assert examine(tmp_path, STUCK).verdict == "undecided"
    found = examine(tmp_path, STUCK, STUCK)
    assert (found.verdict, found.ranks) == ("never joined", ["rank 3"]), found.paragraph


def test_a_copy_of_a_text_is_no_second_report(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(STUCK)
        os.utime(tmp_path / name, (1_780_000_000, 1_780_000_000))
    assert diagnose(read_files([tmp_path])).verdict == "undecided"


@pytest.mark.parametrize("kind", ["AllReduce", "collective"])
def test_the_ranks_that_are_behind_decide_whether_the_job_moves(tmp_path: Path, kind: str) -> None:
    """The others may launch calls without waiting."""
    first = HEAD + TABLE + mismatch(64, {3: 60, 5: 60}, kind)
    stuck = examine(tmp_path, first, HEAD + TABLE + mismatch(70, {3: 60, 5: 60}, kind))
    assert (stuck.verdict, stuck.ranks) == ("never joined", ["rank 3", "rank 5"])
    moving = examine(tmp_path, first, HEAD + TABLE + mismatch(70, {3: 66, 5: 66}, kind))
    assert (moving.verdict, moving.ranks) == ("slow, not stuck", [])
    equal = examine(tmp_path, first, HEAD + TABLE.replace("MISMATCH", "OK"))
    assert (equal.verdict, equal.ranks) == ("slow, not stuck", [])
    assert "Ranks 3 and 5 were behind" in equal.paragraph


@pytest.mark.parametrize("text", [TABLE + mismatch(64, {3: 60}), mismatch(64, {3: 60})])
def test_a_text_without_its_head_is_read(tmp_path: Path, text: str) -> None:
    found = examine(tmp_path, text, text)
    assert (found.verdict, found.ranks) == ("never joined", ["rank 3"])


def test_a_report_that_ends_early_says_no_more_than_it_has(tmp_path: Path) -> None:
    text = HEAD + TABLE + mismatch(64, {3: 60, 5: 60})
    for end in (text.index("  2 ranks"), text.index("  Rank 3"), text.index("  Rank 5")):
        found = examine(tmp_path, text[:end], text[:end])
        assert set(found.ranks) <= {"rank 3", "rank 5"}, found.paragraph
        assert not found.verdict.blames or found.ranks
    with pytest.raises(DumpError, match="ends before"):
        parse(HEAD.encode(), "ras.txt")


@pytest.mark.parametrize("status", ["RUNNING", "INIT", "FINALIZE", "NOCOMM"])
def test_a_status_that_differs_is_no_error(tmp_path: Path, status: str) -> None:
    text = HEAD + TABLE + (
        "#0-0 (c0ffee) MISMATCH\n  Communicator ranks have different status\n"
        f"  7 ranks have status ABORT\n  Rank 3 has status {status} -- GPU 1 managed by process 7 "
        "on node 10.0.0.1\n"
    )  # fmt: skip
    assert examine(tmp_path, text).ranks == []
    found = examine(tmp_path, text.replace(f"status {status}", "status ABORT"))
    assert (found.verdict, found.ranks) == ("GPU error", ["rank 3"])


def report_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads(write(simulate(1, "outside", flat=True), folder, "ras_json")[0]
                           .read_text()))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": None}, ""),
        ({"status": {"init_state": "odd"}}, "'init_state' is 'odd'"),
        ({"collective_counts": {"AllReduce": -4}}, "'AllReduce' is -4"),
        ({"pid": []}, "'pid' is list"),
    ],
)
def test_an_odd_value_costs_its_rank_alone(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    report = report_of(tmp_path)
    victim = simulate(1, "outside", flat=True).victim
    [world] = report["communicators"]
    other = (victim + 1) % world["size"]
    world["ranks"][other] |= change
    parts = parse(json.dumps(report).encode(), "ras.json")
    counted = {rank for _, rank, _ in parts[0].counts}
    assert counted == set(range(world["size"])) - ({other} if said else set())
    assert [said in one for one in parts[0].odd] == ([True] if said else [])
    job = Job(parts)
    assert all("the rest of it was read" in one for one in job.problems)
    assert f"rank {victim} has launched" in diagnose(job).evidence[0].lower()
