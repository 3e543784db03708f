"""Errors of programs show the lines that they name."""

from __future__ import annotations

import copy
import traceback
from pathlib import Path

import pytest
from python.test_cli import Shell, shell
from unisono.errors import ProgramError

__all__ = ["shell"]

STALE = """\
from unisono.lang import program


@program("all_reduce", in_place=True)
def stale(p):
    old = p.chunk(0, "input", 0)
    p.chunk(0, "input", 0).reduce(p.chunk(1, "input", 0))
    old.copy(1)
"""
SHOWN = """\
  7 |     p.chunk(0, "input", 0).reduce(p.chunk(1, "input", 0))
> 8 |     old.copy(1)
"""


def test_the_command_line_shows_the_lines_under_the_error(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "stale.py"
    file.write_text(STALE)
    ended = shell("plan", "compile", str(file), "-n", "2")
    assert ended.status == 2
    first, _, rest = ended.errors.partition("\n")
    assert first.startswith(f"error: {file}:8: stale reference: ")
    assert rest == SHOWN


def test_a_traceback_shows_them_and_the_text_stays_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(STALE)
    error = ProgramError(f"{file}:8: wrong; see {file}:7")
    assert str(error) == f"{file}:8: wrong; see {file}:7"
    assert "".join(traceback.format_exception_only(error)).endswith(SHOWN)
    assert copy.copy(error).__notes__ == error.__notes__


@pytest.mark.parametrize("text", ["no place", "no_such_file.py:3: wrong", "<string>:1: wrong"])
def test_what_is_not_there_is_not_shown(text: str) -> None:
    assert not hasattr(ProgramError(text), "__notes__")


def test_markup_in_a_source_is_shown_as_it_is(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "marked.py"
    file.write_text("x = [1][red]\n")
    ended = shell("plan", "compile", str(file))
    assert ended.errors.endswith("> 1 | x = [1][red]\n")
