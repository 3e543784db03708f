"""The corpus of hangs is made, and judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[3] / "studies" / "hangs"


def run(program: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, str(CORPUS / program), *arguments],
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["size", "killed"])
def test_a_case_hangs_as_its_label_says(tmp_path: Path, kind: str) -> None:
    # The first case but one of these kinds needs neither PyTorch nor a program that is built apart.
    run("make.py", str(tmp_path), "--kind", kind, "--each", "1", "--first", "1", "--jobs", "1")
    [path] = tmp_path.glob("*/label.json")
    label = json.loads(path.read_text())
    assert label["case"]["library"] == "unisono"
    assert label["outcome"] == "hung"
    shown = run("judge.py", str(tmp_path), "--wrong")
    assert "recall: verdicts 1.000, ranks 1.000" in shown, shown
    assert "left out" not in shown
