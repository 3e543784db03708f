"""Holds the rules on results against the tree, and proves that each can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tidy import results
from tidy.results import FOLDERS, MOST_FILES
from tidy.tree import ROOT, Violation, report

FOLDER = FOLDERS[0]

Rule = Callable[[Path], list[Violation]]

ALL_RULES: list[Rule] = [
    results.too_many_results,
    results.dated_results,
    results.unshown_results,
    results.missing_results,
]


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree that breaks no rule."""
    for name in ("tea_pots_2.txt", "tea_pots_2.json", "tea_pots_4.txt", "tea.txt"):
        add(tmp_path, f"{FOLDER}/{name}", "1 pot\n")
    page = f"`tea_pots_{{2,4}}.txt` and `{FOLDER}/tea.txt` show `{FOLDER}/tea_*`; tea_pots_go.py.\n"
    add(tmp_path, "docs/tea.md", page)
    return tmp_path


def add(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.__name__)
def test_this_tree_keeps_the_rule(rule: Rule) -> None:
    violations = rule(ROOT)
    assert not violations, report(violations)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.__name__)
def test_a_clean_tree_passes(rule: Rule, small_tree: Path) -> None:
    assert rule(small_tree) == []


@pytest.mark.parametrize(
    "name", ["pots_2025-01-02.txt", "pots_20250102_4.json", "pots_evening_4.txt", "pots_2_later.md"]
)
def test_a_name_with_a_time_is_found(name: str, small_tree: Path) -> None:
    add(small_tree, f"{FOLDER}/{name}", "")
    (one,) = results.dated_results(small_tree)
    assert one.path == f"{FOLDER}/{name}"


@pytest.mark.parametrize("page", ["all in tea_pots_*", "see tea.json", ""])
def test_a_result_that_no_page_names_is_found(page: str, small_tree: Path) -> None:
    add(small_tree, "docs/tea.md", page)
    add(small_tree, f"{FOLDER}/cups.txt", f"as in {FOLDER}/tea.txt and tea_pots_4.txt")
    assert len(results.unshown_results(small_tree)) == 5


def test_more_files_than_the_limit_are_found(small_tree: Path) -> None:
    for number in range(MOST_FILES - 4):
        add(small_tree, f"{FOLDERS[number % 2]}/cups_{number}.txt", "")
    assert results.too_many_results(small_tree) == []
    add(small_tree, f"{FOLDERS[1]}/one_more.txt", "")
    (one,) = results.too_many_results(small_tree)
    assert one.message.startswith(f"{MOST_FILES + 1} files")


def test_a_mention_is_of_its_folders_file(small_tree: Path) -> None:
    add(small_tree, "docs/cup.md", f"`{FOLDERS[1]}/tea.txt`\n")
    (one,) = results.missing_results(small_tree)
    assert one.path == "docs/cup.md"


@pytest.mark.parametrize(
    "mention",
    [
        f"`{FOLDER}/cups.txt`",
        f"`{FOLDER}/cups_*`",
        f"`{FOLDER}/tea_pots_{{2,8}}.txt`",
        "`tea_pots_8.txt`",
    ],
)
@pytest.mark.parametrize("file", ["src/tea.cc", "clusters/tea.yaml", f"{FOLDER}/tea.txt"])
def test_a_mention_of_no_result_is_found(file: str, mention: str, small_tree: Path) -> None:
    add(small_tree, file, f"# Measured: {mention}.\n")
    (one,) = results.missing_results(small_tree)
    assert one.path == file
