"""Holds the transports' rules and tests against each other, and proves that each check can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tidy.contract import HEADER, SUITE, rows, untested_rows, untested_transports
from tidy.tree import ROOT, Violation, report

ROW = "//   order         A signal comes last.\n//                 - Put.SignalLast\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree that breaks no rule."""
    write(tmp_path, HEADER, f"{ROW}//\n// Threads: one.\n")
    write(tmp_path, f"{SUITE}/put_test.cc", "TEST_P(Put, SignalLast) {}\n")
    write(tmp_path, f"{SUITE}/factories.h", '#include "transport/shm/transport.h"\n')
    write(tmp_path, "src/transport/shm/connection.cc", "int x;\n")
    return tmp_path


@pytest.mark.parametrize("rule", [untested_rows, untested_transports])
def test_this_tree_keeps_the_rule(rule: Callable[[Path], list[Violation]]) -> None:
    violations = rule(ROOT)
    assert not violations, report(violations)


def test_the_table_is_found() -> None:
    assert {"ordering", "withdrawal", "bound"} <= {name for _, name, _ in rows(ROOT)}


def test_a_clean_tree_passes(small_tree: Path) -> None:
    assert untested_rows(small_tree) + untested_transports(small_tree) == []


@pytest.mark.parametrize(
    "row",
    ["//   bound         Ten at most.\n", f"{ROW}//                 - Put.SignalFirst\n"],
    ids=["no test", "no such test"],
)
def test_a_rule_without_its_test_is_found(row: str, small_tree: Path) -> None:
    write(small_tree, HEADER, f"{ROW}{row}")
    assert len(untested_rows(small_tree)) == 1


def test_a_transport_that_is_not_held_to_the_rules_is_found(small_tree: Path) -> None:
    write(small_tree, "src/transport/pigeon/connection.cc", "int x;\n")
    assert len(untested_transports(small_tree)) == 1
