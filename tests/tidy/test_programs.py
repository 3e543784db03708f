"""Holds the rule on the READMEs of bench and studies against the tree, and shows what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy import programs
from tidy.tree import ROOT, report

PYTHON = 'if __name__ == "__main__":\n    print("tea")\n'


def add(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_each_program_of_this_tree_has_a_row() -> None:
    violations = programs.unlisted_programs(ROOT)
    assert not violations, report(violations)


def test_each_row_of_this_tree_has_a_program() -> None:
    violations = programs.rows_of_nothing(ROOT)
    assert not violations, report(violations)


@pytest.mark.parametrize("folder", programs.FOLDERS)
@pytest.mark.parametrize(("name", "text"), [("pots/tea.py", PYTHON), ("tea_bench.cc", "int x;\n")])
def test_a_program_without_a_row_is_found(
    folder: str, name: str, text: str, tmp_path: Path
) -> None:
    add(tmp_path, f"{folder}/{name}", text)
    add(tmp_path, f"{folder}/README.md", f"Run `{name}`.\n| `other.py` | like `{name}` |\n")
    (one,) = programs.unlisted_programs(tmp_path)
    assert one.path == f"{folder}/{name}"
    add(tmp_path, f"{folder}/README.md", f"| `{name}` | tea |\n")
    assert programs.unlisted_programs(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    ["bench/tea.cc", "bench/pot.py", "tools/tea_bench.cc", *sorted(programs.NOT_RUN_BY_HAND)],
)
def test_what_is_no_program_needs_no_row(name: str, tmp_path: Path) -> None:
    add(tmp_path, name, "x = 1\n")
    assert programs.unlisted_programs(tmp_path) == []


def test_a_row_of_no_program_is_found(tmp_path: Path) -> None:
    add(tmp_path, f"{programs.FOLDERS[0]}/README.md", "| `cpu/tea.py` | tea |\n")
    (one,) = programs.rows_of_nothing(tmp_path)
    assert one.message == f"cpu/tea.py is not in {programs.FOLDERS[0]}"
