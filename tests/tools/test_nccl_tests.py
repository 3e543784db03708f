"""tools/nccl_tests: what it makes of the tables that nccl-tests print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Preloaded, it takes half the time; a file says how many values are wrong, and how it ends.
PROGRAM = """#!/bin/sh
if [ -n "$LD_PRELOAD" ]; then us=5.0 wrong=$(cat {folder}/wrong) code=$(cat {folder}/code)
else us=10.0 wrong=0 code=0; fi
echo "#  size  count  type  redop  root  time algbw busbw #wrong  time algbw busbw #wrong"
echo "   1024    256  float  sum     -1   $us  0.10  0.15  $wrong   $us  0.10  0.15  N/A"
[ ! -e {folder}/no_operation ] ||
  echo " 4194304  524288  float      -1   $us  0.10  0.15  1.13e+06   $us  0.10  0.15  2"
exit $code
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build of stand-ins, and an NCCL that nobody loads."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnccl.so.2").touch()
    (tmp_path / "build").mkdir()
    program = tmp_path / "build" / "all_reduce_perf"
    program.write_text(PROGRAM.format(folder=tmp_path))
    program.chmod(0o755)
    return tmp_path


def run(folder: Path, wrong: str = "0", code: str = "0") -> tuple[int, list[str]]:
    (folder / "wrong").write_text(wrong)
    (folder / "code").write_text(code)
    command = [sys.executable, ROOT / "tools" / "nccl_tests", folder, "--nccl", folder]
    # One that is not there is passed over with a warning.
    options = ["--library", folder / "none.so", "--programs", "all_reduce", "--cases", "check,time"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    return done.returncode, (folder / "summary.txt").read_text().splitlines()


def test_times_are_compared_row_by_row(folder: Path) -> None:
    code, lines = run(folder)
    assert code == 0
    assert lines[1].split() == ["check", "all_reduce", "1", "0", "-", "ok", "/", "not", "run"]
    assert lines[2].split() == ["time", "all_reduce", "1", "0", "2.00", "ok", "/", "ok"]
    assert lines[5].split() == ["time", "all_reduce", "1024", "out", "5.00", "10.00", "2.00"]
    assert lines[-1] == "geometric mean of the timed rows: 2.00"


def test_wrong_values_and_failures_are_told(folder: Path) -> None:
    code, lines = run(folder, wrong="3")
    assert code == 1
    assert lines[1].split()[:4] == ["check", "all_reduce", "1", "3"]
    code, lines = run(folder, code="7")
    assert code == 1
    assert "exit code 7 / not run" in lines[1]


def test_rows_without_an_operation_and_many_wrong_values_are_read(folder: Path) -> None:
    (folder / "no_operation").touch()
    code, lines = run(folder)
    assert code == 1
    assert lines[1].split()[:4] == ["check", "all_reduce", "2", "1130002"]
