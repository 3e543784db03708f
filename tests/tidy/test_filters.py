"""Filters of GoogleTest name tests that exist: one that matches nothing would pass unseen."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from tidy.tree import ROOT

NAMED = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)
PATTERN = re.compile(r"[*\w/]*\.[*\w/]+|\*\w+\*")


REST_TIER = ROOT / "tests" / "rest_tier.cmake"


def all_tests() -> set[str]:
    """Suite.Test of all C++ tests, without the names and numbers of parameters."""
    found: set[str] = set()
    for source in (ROOT / "tests").rglob("*_test.cc"):
        found |= {f"{suite}.{name}" for suite, name in NAMED.findall(source.read_text())}
    return found


def filters() -> list[tuple[str, str]]:
    """Every pattern of a filter, with the file that has it."""
    found = []
    emulated = ROOT / "cmake" / "UnisonoEmulatedGpu.cmake"
    for path in (ROOT / "tools" / "gpu_test", emulated, REST_TIER):
        for line in path.read_text().splitlines():
            if not line.lstrip().startswith("#") and ("Gpu" in line or path == REST_TIER):
                found += [
                    (path.name, word)
                    for word in re.split(r"[\s:\"'=()]+", line)
                    if PATTERN.fullmatch(word)
                ]
    return found


@pytest.mark.parametrize(("where", "pattern"), filters())
def test_a_filter_matches_a_test(where: str, pattern: str) -> None:
    # Without the parameter's prefix and number: Ranks/Suite.Test/4.
    suite, _, name = pattern.partition(".")
    plain = f"{suite.rpartition('/')[2]}.{name.partition('/')[0]}" if name else pattern
    assert any(fnmatchcase(test, plain) for test in all_tests()), f"{where}: {pattern}"


def test_filters_are_found() -> None:
    assert len(filters()) > 30
