"""Jobs of real processes for tests: a program of a few lines on some ranks."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from unisono import processes
from unisono.launcher import Outcome, launch

# A job that hangs is ended after this, which fails its test. A job of this size takes about 1 s.
LIMIT_SECONDS = 120
# A deadline of a call that the launcher's comes before.
NEVER = 1000


def run_job(
    folder: Path, output: Any, lines: str, ranks: int, **options: Any
) -> tuple[Outcome, list[str]]:
    """Runs the lines on some ranks: the outcome, and the lines of their output, sorted."""
    script = folder / "ranks.py"
    head = "import os, signal, sys, time, numpy as np, unisono\n"
    script.write_text(head + textwrap.dedent(lines))
    # The log goes where the output goes; what it says is not tested here.
    environment = {"UNISONO_LOG": "off", **options.pop("environment", {})}
    outcome = launch(
        [str(script)], ranks, timeout=LIMIT_SECONDS, environment=environment, **options
    )
    return outcome, sorted(output.readouterr().out.decode().splitlines())


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives ranks all the time that they need to report the failure of another one."""
    monkeypatch.setattr(processes, "_LAST_WORDS_SECONDS", LIMIT_SECONDS)
