"""Paths in comments exist, and small trees show which are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy import paths
from tidy.tree import ROOT, report


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree with two files to be named."""
    add(tmp_path, "docs/decisions/0001-tea.md", "# Tea\n")
    add(tmp_path, "src/base/cup.h", "#pragma once\n")
    add(tmp_path, "src/base/cup.cc", '#include "base/cup.h"\n')
    add(tmp_path, "tests/base/cup_test.cc", "int x;\n")
    return tmp_path


def add(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_paths_of_this_tree_exist() -> None:
    violations = paths.missing_paths(ROOT)
    assert not violations, report(violations)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("src/base/a.cc", "int x;  // see docs/gone.md\n", 1),
        ("src/base/a.cc", "/* A cup:\n   src/gone/cup.h. */\n", 2),
        ("src/base/a.cc", '\nreturn misuse("see docs/gone.md");\n', 2),
        ("src/base/a.cuh", "// base/gone.h has it.\n", 1),
        ("src/base/a.cc", "// src/base/{cup,gone}.h have it.\n", 1),
        ("src/base/a.cc", "// src/base/gone*.h have it.\n", 1),
        ("python/a.py", '"""A cup.\n\nAs docs/gone.md says.\n"""\n', 3),
        ("python/a.py", "x = 1  # docs/gone.md\n", 1),
        ("python/a.py", 'HEAD = "# Written by us; see docs/gone.md"\n', 1),
        ("tests/base/b_test.cc", "// docs/gone.md\n", 1),
        ("tests/test_a.py", 'def test():\n    """As docs/gone.md says."""\n', 2),
        ("cmake/a.cmake", "# docs/gone.md\n", 1),
        ("tools/a.toml", '"src/base/gone.cc: x" = "y"\n', 1),
        ("tools/a", "#!/bin/sh\n# docs/gone.md\n", 2),
    ],
)
def test_a_path_that_does_not_exist_is_found(
    name: str, text: str, line: int, small_tree: Path
) -> None:
    add(small_tree, name, text)
    (one,) = paths.missing_paths(small_tree)
    assert (one.path, one.line) == (name, line)
    assert "gone" in one.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/base/a.cc", "// src/base/cup.{h,cc}, base/cup.h, docs/decisions/0001; src/base.\n"),
        ("src/base/a.cc", "// nccl/src/gone.cc, https://a.b/docs/gone.md, and/or, base/sugar\n"),
        ("src/base/a.cc", "// src/base/*.cc, tests/base/cup_test\n"),
        ("src/base/a.cc", 'auto path = "src/base/gone.cc";\n'),
        ("python/a.py", 'PATH = "docs/gone.md"\n'),
        ("tests/test_a.py", 'add(tree, "# See docs/gone.md")\n'),
        ("tests/base/b_test.cc", 'call("see docs/gone.md");\n'),
        ("docs/a.md", "See docs/gone.md.\n"),
    ],
)
def test_other_paths_pass(name: str, text: str, small_tree: Path) -> None:
    add(small_tree, name, text)
    assert paths.missing_paths(small_tree) == []
