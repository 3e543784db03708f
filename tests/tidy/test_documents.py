"""Holds the rules on documentation against the tree, and proves that each can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tidy import documents
from tidy.results import FOLDERS
from tidy.tree import ROOT, Violation, report

Rule = Callable[[Path], list[Violation]]
ALL_RULES: list[Rule] = [documents.wide_lines, documents.unled_pages]
LEAD = "This page shows how to make tea in `a.b. c`. It is for people\nwho drink it. More.\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.__name__)
def test_this_tree_keeps_the_rule(rule: Rule) -> None:
    violations = rule(ROOT)
    assert not violations, report(violations)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.__name__)
def test_a_clean_tree_passes(rule: Rule, tmp_path: Path) -> None:
    write(tmp_path, "docs/how-to/tea.md", f"# Make tea\n\n{LEAD}\n| {'x' * 200} |\n{'ü' * 120}\n")
    write(tmp_path, "docs/decisions/0001-tea.md", "# Tea\n\n**Question.** Which?\n")
    write(tmp_path, f"{FOLDERS[1]}/tea.md", "x" * 200)
    assert rule(tmp_path) == []


@pytest.mark.parametrize("name", ["README.md", "docs/decisions/0001-tea.md"])
@pytest.mark.parametrize("line", ["x" * 121, "    " + "x" * 117, "- " + "ü" * 119])
def test_a_wide_line_is_found(name: str, line: str, tmp_path: Path) -> None:
    write(tmp_path, name, f"# Tea\n\n{line}\n")
    (one,) = documents.wide_lines(tmp_path)
    assert (one.path, one.line) == (name, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Tea\n",
        "# Tea\n\n```sh\ntea\n```\n",
        "# Tea\n\nTea is hot. This page is for people who drink it.\n",
        "# Tea\n\nThis page shows how to make tea. It is hot. The page is for people.\n",
        f"# Tea\n\n## Pots\n\n{LEAD}",
    ],
    ids=["empty", "title", "code", "another subject", "no reader", "later"],
)
@pytest.mark.parametrize("room", documents.ROOMS)
def test_a_page_that_does_not_say_what_it_is_for_is_found(
    room: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path, f"docs/{room}/tea.md", text)
    (one,) = documents.unled_pages(tmp_path)
    assert one.path == f"docs/{room}/tea.md"
