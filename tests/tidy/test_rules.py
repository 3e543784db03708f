"""Holds the rules on text against the tree, and proves on small trees that each can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tidy import rules
from tidy.tree import ROOT, Violation, project_files, report

Rule = Callable[[Path], list[Violation]]

ALL_RULES: list[Rule] = [
    rules.length_violations,
    rules.function_violations,
    rules.word_violations,
    rules.header_violations,
    rules.environment_violations,
    rules.undeclared_setting_violations,
    rules.unread_settings,
    rules.undocumented_dependencies,
]

SETTINGS = 'constexpr std::array rows{SettingRow{Setting::log, "UNISONO_LOG", text, "", ""}};\n'


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree that breaks no rule."""
    files = {
        "src/base/settings.cc": SETTINGS,
        "src/base/log.cc": 'auto level = settings().text(Setting::log); auto v = getenv("X");\n',
        "src/base/log.h": "#pragma once\n",
        "pyproject.toml": "[build-system]\nrequires = ['cmake>=3']\n[project]\n"
        "dependencies = ['numpy>=1']\n[project.optional-dependencies]\na = ['rich', 'unisono[b]']",
        "docs/reference/dependencies.md": "`cmake` builds, `numpy` and `rich` too.\n"
        "UNISONO_* are settings.\n",
    }
    for name, text in files.items():
        add(tmp_path, name, text)
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
    ("rule", "file", "text"),
    [
        (rules.length_violations, "src/base/long.cc", "int x;\n" * (rules.MAX_LINES + 1)),
        (
            rules.function_violations,
            "python/unisono/a.py",
            "@f\ndef g(\n    a: int,\n) -> None:\n" + "    f()\n" * (rules.MAX_FUNCTION_LINES - 3),
        ),
        (rules.word_violations, "src/base/a.cc", "// " + "TO" + "DO: later\n"),
        (rules.word_violations, "README.md", "See /ho" + "me/me/main.\n"),
        (rules.word_violations, "tools/x", "get " + "pypi" + ".org/x\n"),
        (rules.header_violations, "src/base/a.h", "int x;\n"),
        (rules.environment_violations, "src/comm/a.cc", 'auto* v = std::getenv("HOME");\n'),
        (rules.undeclared_setting_violations, "src/comm/a.cc", 'f("UNISONO_LOUD");\n'),
        (rules.undeclared_setting_violations, "docs/a.md", "Set `UNISONO_LOUD`.\n"),
        (rules.unread_settings, "src/base/log.cc", "int x;\n"),
        (rules.undocumented_dependencies, "docs/reference/dependencies.md", "`cmake`, `rich`\n"),
    ],
)
def test_a_violation_is_found(rule: Rule, file: str, text: str, small_tree: Path) -> None:
    add(small_tree, file, text)
    assert len(rule(small_tree)) == 1


def test_no_file_is_tracked_that_was_made() -> None:
    made = [path for path in project_files() if {"__pycache__", ".venv"} & set(path.parts)]
    assert not made
