"""`unisono run` says what the doctor finds in the records that the ranks of its job wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from python.tiers import quick

PROGRAM = """
import os, signal, sys, time
import numpy as np
import unisono

way, a = sys.argv[1], np.ones(1000)
# Only a rank that sleeps is found by its time limit.
comm = unisono.init(timeout=10.0 if way == "sleep" else 120.0)
for step in range(12):
    comm.all_reduce(a)
    if step == 9 and comm.rank == 2:
        if way == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if way == "sleep": time.sleep(600)
        if way == "size": a = np.ones(1001)
"""
SAID = {
    "kill": "Died",
    "sleep": "Stuck outside communication",
    "size": "Other call",
}


def run(folder: Path, way: str, **environment: str) -> list[str]:
    """What a job of four ranks writes to standard error, line by line."""
    (folder / "job.py").write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "-m", "unisono", "run", "-n", "4", str(folder / "job.py"), way],
        capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"COLUMNS": "80"} | environment,
    ).stderr.splitlines()  # fmt: skip


def notes(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("note: ") and "unisono doctor" in line]


@pytest.mark.parametrize("way", quick(SAID, kept={"size"}))
def test_the_verdict_of_the_records_comes_before_the_last_line(tmp_path: Path, way: str) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    # Another job's record says nothing of this one.
    (dumps / "unisono-1-0.json").write_text("{}")
    os.utime(dumps / "unisono-1-0.json", (1, 1))
    lines = run(tmp_path, way, UNISONO_DUMP_DIRECTORY=str(dumps))
    [note] = notes(lines)
    assert note.startswith(f"note: {SAID[way]} (confidence 0."), note
    assert "rank 2" in note, note
    assert note.endswith(f"`unisono doctor {dumps}` says more.")
    assert lines[-2:][0] == note
    assert lines[-1].startswith("error: rank ")


@pytest.mark.parametrize("way", quick(["size", "none"], kept={"none"}))
def test_without_records_nothing_is_said_of_files(tmp_path: Path, way: str) -> None:
    (tmp_path / "dumps").mkdir()
    environment = {"UNISONO_DUMP_DIRECTORY": str(tmp_path / "dumps")} if way == "none" else {}
    assert notes(run(tmp_path, way, **environment)) == []
