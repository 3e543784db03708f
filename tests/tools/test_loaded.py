"""tools/test_loaded goes on where it stopped, and tells what failed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import loaded
from loaded import Program, Progress

PASSES = Program("passes", (sys.executable, "-c", "pass"))
FAILS = Program("fails", (sys.executable, "-c", "raise SystemExit(7)"))
ASKS = Program(
    "asks",
    (
        sys.executable,
        "-c",
        "import os; assert os.environ['A'] == 'b'; print(os.sched_getaffinity(0))",
    ),
    (("A", "b"),),
)


def test_results_are_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "loaded.jsonl"
    loaded.run([0], iter([PASSES, FAILS, ASKS]), Progress(path), time.monotonic() + 600)
    progress = Progress.read(path)
    assert dict(progress.passed) == {"passes": 1, "asks": 1}
    assert progress.failed == ["fails"]
    assert (tmp_path / "asks.log").read_text() == "{0}\n"


def test_nothing_starts_when_the_time_is_over(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "loaded.jsonl")
    loaded.run([0], iter([PASSES]), progress, time.monotonic())
    assert not progress.passed


def test_every_file_of_python_tests_is_found() -> None:
    names = {program.name for program in loaded.python_files(["tests/tools"])}
    assert "tests/tools/test_loaded.py" in names
