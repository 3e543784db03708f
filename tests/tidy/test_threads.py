"""What the thread sanitizer leaves out has no threads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tidy.tree import ROOT

_LIST = re.compile(r"set\(UNISONO_SINGLE_THREADED\s+([\w\s]+)\)")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_STARTS_A_THREAD = re.compile(
    r"std::(thread|jthread)\b(?!::)|std::async\b|\bpthread_create\b|\bfork\("
)


def single_threaded() -> list[str]:
    """The folders of tests that cmake/UnisonoTests.cmake does not build for that sanitizer."""
    found = _LIST.search((ROOT / "cmake" / "UnisonoTests.cmake").read_text())
    assert found, "the list has moved"
    return found[1].split()


def reached_from(sources: list[Path], root: Path) -> set[Path]:
    """The files, those they include, and what implements these."""
    reached: set[Path] = set()
    waiting = list(sources)
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        for name in _INCLUDE.findall(path.read_text()):
            for folder in (root / "src", root / "tests"):
                header = folder / name
                waiting += [file for file in (header, header.with_suffix(".cc")) if file.exists()]
    return reached


def starters_of_threads(sources: list[Path], root: Path) -> list[Path]:
    """Which of the files reached start a thread, or hold one."""
    files = sorted(reached_from(sources, root))
    return [path for path in files if _STARTS_A_THREAD.search(path.read_text())]


@pytest.mark.parametrize("folder", single_threaded())
def test_tests_without_the_thread_sanitizer_start_no_thread(folder: str) -> None:
    sources = list((ROOT / "tests" / folder).glob("*.cc"))
    assert sources
    assert starters_of_threads(sources, ROOT) == []


def test_a_thread_is_found_behind_a_header(tmp_path: Path) -> None:
    test = tmp_path / "tests" / "plan" / "plan_test.cc"
    header = tmp_path / "src" / "plan" / "pool.h"
    for path, text in [
        (test, '#include "plan/pool.h"\n'),
        (header, "int cores = std::thread::hardware_concurrency();\n"),
        (header.with_suffix(".cc"), "std::thread worker_;\n"),
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert starters_of_threads([test], tmp_path) == [header.with_suffix(".cc")]
