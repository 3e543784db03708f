"""bench/turns.py: two builds in turn, by its command line and by its table of cases."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import turn_cases
import turns

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "turns.py"


def test_the_lines_of_the_benches_are_read() -> None:
    text = "2 ranks\nall_gather 65536 B     4.951 us\nstep         2 ranks     1234.5 us\n"
    assert turn_cases.lines_of(text) == {"all_gather 65536 B": 4.951, "step 2 ranks": 1234.5}


def test_builds_take_turns_with_the_same_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, Sequence[str]]] = []

    def measure(build: str, arguments: Sequence[str]) -> dict[str, float]:
        runs.append((build, arguments))
        return {"call": 2.0 if build == "old" else 3.0}

    monkeypatch.setitem(turn_cases.CASES, "tea", turn_cases.Case("tea", measure))
    (one,) = turns.measure_in_turn("tea", ("old", "new"), 3, ["-n", "2"])
    assert [build for build, _ in runs] == ["old", "new", "new", "old", "old", "new"]
    assert {tuple(arguments) for _, arguments in runs} == {("-n", "2")}
    assert (one.before, one.after, one.ratio, one.is_slower) == (2.0, 3.0, 1.5, True)
    head, row, mean = turns.table_of([one])
    assert (head, row) == (turns.HEAD, f"{one}  slower")
    assert mean.startswith("geometric mean 1.500, least 1.500, 1 cases")


def test_programs_are_compared_by_their_lines(tmp_path: Path) -> None:
    script = tmp_path / "bench.sh"
    script.write_text('echo "$2 8 B  $1 us"\n')
    table = tmp_path / "table.txt"
    command = ["lines", f"sh {script} 4.0", f"sh {script} 2.0", "--pairs", "2", "-o", str(table)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *command, "--", "all_reduce"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == table.read_text()
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("all_reduce 8 B")]
    assert row.split()[3:6] == ["4.00", "2.00", "0.500"]
    assert "slower" not in row
