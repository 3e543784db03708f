"""Holds the rules on words against the tree, and shows that each can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy import words
from tidy.results import FOLDERS
from tidy.tree import ROOT, report


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_tree_says_the_fields_words() -> None:
    violations = words.retired_words(ROOT)
    assert not violations, report(violations)


def test_every_permission_is_needed() -> None:
    violations = words.needless_permissions(ROOT)
    assert not violations, report(violations)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("docs/tea.md", "# Tea\n\nA cup stands\nstill.\n", 3),
        ("docs/tea.md", "# Tea\n\nIt is hot. Likewise the pot.\n", 3),
        ("README.md", "- Beside the pot\n", 1),
        ("python/tea.py", 'def tea():\n    """Waits beside\n    the pot."""\n', 2),
        ("python/tea.py", 'raise ValueError("the pot stands still")\n', 1),
        ("src/tea.cc", 'return misuse("the pot is ", "crowded");\n', 1),
        ("include/tea.h", "// Makes tea\n// beside the pot.\nint tea();\n", 1),
    ],
)
def test_a_retired_word_is_found(name: str, text: str, line: int, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    (one,) = words.retired_words(tmp_path)
    assert (one.path, one.line) == (name, line)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docs/tea.md", "# Tea\n\nA besides, `beside`, a still stand.\n\n```\nbeside\n```\n"),
        ("docs/tea.md", "A cup stands\n\nstill life.\n"),
        ("python/tea.py", "beside = 1  # beside\n"),
        ("src/tea.cc", "// beside\nint beside;\n"),
        ("include/tea.h", '#include "beside.h"\n'),
        ("tests/tea.cc", 'call("beside");\n'),
        (f"{FOLDERS[1]}/tea.md", "beside\n"),
    ],
)
def test_names_code_and_other_words_pass(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    assert words.retired_words(tmp_path) == []


def test_a_needless_permission_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "docs/tea.md", "Tea is hot.\n")
    monkeypatch.setattr(words, "ALLOWED", {"docs/tea.md": "once", "docs/gone.md": "once"})
    assert [one.path for one in words.needless_permissions(tmp_path)] == [
        "docs/tea.md",
        "docs/gone.md",
    ]
