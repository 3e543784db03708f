"""The rules of src/transport/transport.h and the transports: each is held by tests/conformance."""

from __future__ import annotations

import re
from pathlib import Path

from tidy.tree import Violation, lines_of

HEADER = "src/transport/transport.h"
SUITE = "tests/conformance"

_ROW = re.compile(r"//   (\w[\w -]*?)  +\S")
_NAME = re.compile(r"//  +- (\w+\.\w+)$")
_TEST = re.compile(r"\bTEST_P\((\w+),\s*(\w+)\)")


def _suite(root: Path) -> str:
    return "\n".join(path.read_text() for path in sorted((root / SUITE).glob("*")))


def rows(root: Path) -> list[tuple[int, str, list[tuple[int, str]]]]:
    """The table's rules: line, name, and the lines and names of their tests."""
    found: list[tuple[int, str, list[tuple[int, str]]]] = []
    for number, line in enumerate(lines_of(root / HEADER), 1):
        if name := _NAME.match(line):
            if found:
                found[-1][2].append((number, name[1]))
        elif row := _ROW.match(line):
            found.append((number, row[1], []))
    return found


def untested_rows(root: Path) -> list[Violation]:
    """Rules that name no test, and tests that are not in the suite."""
    tests = {".".join(match) for match in _TEST.findall(_suite(root))}
    found = []
    for line, rule, names in rows(root):
        if not names:
            found.append(Violation(HEADER, line, f"'{rule}' names no test of {SUITE}"))
        found += [
            Violation(HEADER, at, f"there is no TEST_P {name} in {SUITE}")
            for at, name in names
            if name not in tests
        ]
    return found


def untested_transports(root: Path) -> list[Violation]:
    """Folders with a connection that the suite includes nothing of."""
    suite = _suite(root)
    return [
        Violation(str(path.relative_to(root)), 1, f"{SUITE} has no row for this transport")
        for path in sorted((root / "src/transport").glob("*/connection.cc"))
        if f'#include "transport/{path.parent.name}/' not in suite
    ]
