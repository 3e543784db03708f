"""What clang-tidy need not read again, and what is said of ccache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import compiler_cache
import pytest
import tidy_cache
from tidy_cache import TidyCache, parse_dependencies

LISTING = """a.cc.o: #deps 2, deps mtime 17 (VALID)
    ../src/a.cc
    ../src/a.h

b.cc.o: #deps 1, deps mtime 17 (STALE)
    ../src/b.cc
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one unit."""
    (tmp_path / "src").mkdir()
    (tmp_path / ".clang-tidy").write_text("Checks: all\n")
    (tmp_path / "src" / "a.cc").write_text("int a;\n")
    (tmp_path / "src" / "a.h").write_text("// a\n")
    return tmp_path


def cache_of(root: Path, tool: str = "LLVM 18") -> TidyCache:
    """A cache as a run of the suite opens it."""
    tidy_cache.digest_of.cache_clear()
    dependencies = parse_dependencies(LISTING, root / "build")
    return TidyCache(root / "cache", root, tool, dependencies)


def test_a_unit_is_clean_until_anything_that_it_includes_changes(root: Path) -> None:
    command = f"c++ -c {root}/src/a.cc"
    first = cache_of(root)
    key = first.key(command, "a.cc.o")
    assert not first.is_clean(key)
    first.add(key)
    again = cache_of(root)
    assert again.is_clean(again.key(command, "a.cc.o"))
    assert not again.is_clean(again.key(command + " -DX", "a.cc.o"))
    newer = cache_of(root, "LLVM 19")
    assert not newer.is_clean(newer.key(command, "a.cc.o"))
    (root / "src" / "a.h").write_text("// b\n")
    changed = cache_of(root)
    assert not changed.is_clean(changed.key(command, "a.cc.o"))
    (root / "src" / "a.h").write_text("// a\n")
    (root / ".clang-tidy").write_text("Checks: none\n")
    stricter = cache_of(root)
    assert not stricter.is_clean(stricter.key(command, "a.cc.o"))


def test_a_unit_of_which_ninja_knows_nothing_is_never_clean(root: Path) -> None:
    cache = cache_of(root)
    for target in ("b.cc.o", "c.cc.o"):
        key = cache.key("c++", target)
        cache.add(key)
        assert not cache.is_clean(key)


def test_keys_that_nothing_asks_for_are_removed(root: Path) -> None:
    cache = cache_of(root)
    for name, age in (("old", tidy_cache.MOST_AGE_SECONDS + 60), ("new", 60)):
        cache.add(name)
        os.utime(cache.folder / name, (time.time() - age,) * 2)
    cache_of(root)
    assert [path.name for path in cache.folder.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            "Cacheable calls:   10 /  12 (83.3%)\n  Hits:   9 /  10 (90.0%)\n    Direct: 9 / 9\n",
            "ccache: 9 of 10 calls of compilers were hits (90 %)",
        ),
        ("", "ccache: no call of a compiler"),
        ("  Hits:   0 /  0\n", "ccache: no call of a compiler"),
    ],
)
def test_the_hits_of_ccache_are_said(report: str, said: str) -> None:
    assert compiler_cache.sentence(report) == said
