"""The doctor's page says in words why a rank's row and a group's row stand out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from python.doctor.dumps import write
from python.doctor.jobs import simulate
from unisono.doctor import diagnose, read_files
from unisono.doctor.diagnosis import GroupLine
from unisono.report.hang import _why, render_hang

pytest.importorskip("jinja2")


@pytest.mark.parametrize("fault", ["skip", "outside", "size"])
def test_each_rank_of_the_picture_has_words(tmp_path: Path, fault: str) -> None:
    job = simulate(1, fault, flat=True)
    found = diagnose(read_files(write(job, tmp_path, "unisono")))
    page = render_hang(found)
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert found.call is not None
    waiting = [label for label in labels if label == f"is in call {found.call.number}"]
    others = set(found.call.joined) - set(found.ranks) - set(found.call.ended)
    assert len(waiting) == len(others)
    [blamed] = [label for label in labels if label.startswith(found.verdict.capitalize())]
    does = "has not made" if set(found.ranks) <= set(found.call.absent) else "is in"
    assert blamed == f"{found.verdict.capitalize()}: {does} call {found.call.number}"


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (GroupLine("world", 4, 4, 7, 7, []), ""),
        (GroupLine("world", 4, 4, 6, 7, ["rank 2"]),
         "rank 2 made fewer calls than others; not all ranks have ended call 7"),
        (GroupLine("world", 4, 3, 7, 7, []), "1 of its ranks left no dump"),
    ],
)  # fmt: skip
def test_a_group_that_stands_out_says_why(group: GroupLine, said: str) -> None:
    assert _why(group) == said
