"""The rule on what is measured and studied: each program has a row in its folder's README.

A program is a Python file that can be run, or a `*_bench.cc`. Its row begins with its path in the
folder, so that a reader finds what it measures, how it is run, and where its result is.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidy.tree import Violation, lines_of, project_files

FOLDERS = ("bench", "studies")
# The ranks of `unisono bench --against`, which it starts itself.
NOT_RUN_BY_HAND = {"bench/peers/gloo_bench.py", "bench/peers/mpi_bench.cc"}
_MAIN = re.compile(r'^if __name__ == "__main__":', re.MULTILINE)
_ROW = re.compile(r"\| `([\w./]+\.(?:py|cc))`")


def _is_program(path: Path) -> bool:
    if path.suffix == ".py":
        return bool(_MAIN.search(path.read_text(encoding="utf-8")))
    return path.match("*_bench.cc")


def _listed(page: Path) -> dict[str, int]:
    """The programs of a README's rows, with their lines."""
    if not page.exists():
        return {}
    rows = ((_ROW.match(line), number) for number, line in enumerate(lines_of(page), start=1))
    return {row[1]: number for row, number in rows if row}


def unlisted_programs(root: Path) -> list[Violation]:
    """Programs without a row."""
    found = []
    for folder in FOLDERS:
        listed = _listed(root / folder / "README.md")
        for path in project_files(root):
            name = str(path.relative_to(root))
            if (
                name.startswith(f"{folder}/")
                and name not in NOT_RUN_BY_HAND
                and _is_program(path)
                and name.removeprefix(f"{folder}/") not in listed
            ):
                found.append(Violation(name, 1, f"has no row in {folder}/README.md"))
    return found


def rows_of_nothing(root: Path) -> list[Violation]:
    """Rows whose program is not there."""
    return [
        Violation(f"{folder}/README.md", line, f"{name} is not in {folder}")
        for folder in FOLDERS
        for name, line in _listed(root / folder / "README.md").items()
        if not (root / folder / name).is_file()
    ]
