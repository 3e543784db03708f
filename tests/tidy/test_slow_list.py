"""The list of slow tests keeps its rules, and small lists show what is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy.slow_list import FILE, slow_list_violations
from tidy.tree import ROOT, report

CPP = ['"gpu_emulated: Pot.Boils" = 9', '"pot_test: Pot.Boils" = 6', '"pot_test: Pot.Cools" = 7']
PYTHON = ['"tests/test_tea.py::test_boils" = 6', '"tests/test_tea.py::test_sips" = 6']


def violations(root: Path, cpp: list[str], python: list[str], most: int) -> list[tuple[int, str]]:
    """The complaints about a list of these entries, in a tree with two tests of each language."""
    files = {
        "tests/pot/pot_test.cc": "TEST(Pot, Boils) {}\nTEST_P(Pot,\n       Cools) {}\n",
        "tests/test_tea.py": "def test_boils(): ...\ndef test_sips(): ...\n",
        "cmake/A.cmake": "unisono_test_emulated(gpu_emulated)\n",
        FILE: "\n".join([f"most = {most}", "[cpp]", *cpp, "[python]", *python]),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [(one.line, one.message) for one in slow_list_violations(root)]


def test_this_list_keeps_the_rules() -> None:
    found = slow_list_violations(ROOT)
    assert not found, report(found)


def test_a_good_list_passes(tmp_path: Path) -> None:
    assert violations(tmp_path, CPP, PYTHON, 5) == []
    assert violations(tmp_path, [], [], 0) == []


@pytest.mark.parametrize(
    "entry",
    [
        '"pot_test: Pot.Boils" = 6',
        '"tests/test_gone.py::test_sips" = 6',
        '"tests/test_tea.py::test_gone" = 6',
        '"tests/test_tea.py" = 6',
    ],
)
def test_an_entry_that_is_no_python_test_is_found(entry: str, tmp_path: Path) -> None:
    ((line, message),) = violations(tmp_path, [], [entry], 1)
    assert (line, message) == (4, f"{entry.split(chr(34))[1]} is no test")


@pytest.mark.parametrize(
    "entry", ["pot_test: Pot.Gone", "tea_test: Pot.Boils", "Pot.Boils", "pot_test: Pot.Boils/3"]
)
def test_an_entry_that_is_no_cpp_test_is_found(entry: str, tmp_path: Path) -> None:
    assert violations(tmp_path, [f'"{entry}" = 6'], [], 1) == [(3, f"{entry} is no test")]


def test_an_entry_out_of_order_is_found(tmp_path: Path) -> None:
    ((line, message),) = violations(tmp_path, CPP[1:] + CPP[:1], PYTHON, 5)
    assert line == 5
    assert "is out of order: it belongs before pot_test: Pot.Cools" in message


@pytest.mark.parametrize(("most", "advice"), [(4, "make one quicker"), (6, "lower it")])
def test_the_number_of_entries_is_held(most: int, advice: str, tmp_path: Path) -> None:
    assert violations(tmp_path, CPP, PYTHON, most) == [
        (1, f"most is {most}, and there are 5: {advice}")
    ]
