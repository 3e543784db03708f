"""The rules on tests/slow_tests.toml: sorted, of tests that exist, and no longer than it was."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tidy.tree import Violation

FILE = "tests/slow_tests.toml"

_TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)")
_CPP_ENTRY = re.compile(r"(\w+): (\w+\.\w+)")
_PYTHON_ENTRY = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def _cpp_tests(root: Path) -> set[str]:
    return {
        f"{suite}.{name}"
        for source in sorted((root / "tests").rglob("*_test.cc"))
        for suite, name in _TEST.findall(source.read_text())
    }


def _programs(root: Path) -> set[str]:
    """Each folder of tests has one; CMake names the others."""
    named = "\n".join(path.read_text() for path in sorted((root / "cmake").glob("*.cmake")))
    folders = {f"{path.name}_test" for path in (root / "tests").iterdir() if path.is_dir()}
    return folders | set(re.findall(r"\w+", named))


def _unknown(root: Path, tables: dict[str, dict[str, float]]) -> Iterator[tuple[str, str]]:
    tests, programs = _cpp_tests(root), _programs(root)
    for entry in tables["cpp"]:
        found = _CPP_ENTRY.fullmatch(entry)
        if not found or found[1] not in programs or found[2] not in tests:
            yield entry, "is no test"
    for entry in tables["python"]:
        found = _PYTHON_ENTRY.fullmatch(entry)
        path = root / found[1] if found else root
        if not found or not path.is_file() or f"def {found[2]}(" not in path.read_text():
            yield entry, "is no test"


def slow_list_violations(root: Path) -> list[Violation]:
    """Entries that are no tests or in the wrong order, and a list that has grown.

    TOML itself refuses an entry that is there twice.
    """
    lines = (root / FILE).read_text().splitlines()
    tables = tomllib.loads("\n".join(lines))
    complaints = list(_unknown(root, tables))
    for table in (tables["cpp"], tables["python"]):
        names = list(table)
        complaints += [
            (after, f"is out of order: it belongs before {before}")
            for before, after in pairwise(names)
            if after < before
        ]
    count = len(tables["cpp"]) + len(tables["python"])
    if count != tables["most"]:
        advice = "make one quicker" if count > tables["most"] else "lower it"
        complaints.append(("most", f"is {tables['most']}, and there are {count}: {advice}"))
    return [
        Violation(FILE, number, f"{entry} {complaint}")
        for entry, complaint in complaints
        for number, line in enumerate(lines, start=1)
        if line.startswith((entry, f'"{entry}"'))
    ]
