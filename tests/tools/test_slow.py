"""Slow tests are found in the suite's reports, on an idle machine and on a loaded one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import slow


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A folder for the reports of a run."""
    return tmp_path


def gtest_report(folder: Path, program: str, **seconds: float) -> None:
    """Writes a report as GoogleTest does; a name has its suite before `__`."""
    cases = [
        {
            "classname": f"By/{name.partition('__')[0]}",
            "name": f"{name.partition('__')[2]}/7",
            "time": f"{taken}s",
        }
        for name, taken in seconds.items()
    ]
    (folder / f"{program}.json").write_text(json.dumps({"testsuites": [{"testsuite": cases}]}))


def junit_report(folder: Path, **seconds: float) -> list[Path]:
    """Writes a report of one file of tests as pytest does."""
    cases = "".join(
        f'<testcase classname="tests.python.test_tea" name="{name}[x]" time="{taken}"/>'
        for name, taken in seconds.items()
    )
    (folder / "pytest.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return [folder / "pytest.xml"]


def test_what_is_over_the_limit_and_not_listed_is_found(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=9, Pot__Pours=0.1, Pot__Cools=7)
    files = junit_report(reports, test_sips=5.5, test_smells=4.9)
    listed = {"pot_test: Pot.Cools": 7.0}
    expected = ["pot_test: Pot.Boils", "tests/python/test_tea.py::test_sips"]
    assert slow.over_limit(reports, files, listed, 5) == expected
    assert slow.over_limit(reports, files, listed, 8) == expected[:1]


def test_of_several_cases_and_reports_the_longest_counts(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=1)
    gtest_report(reports, "pot_test_1", Pot__Boils=6)
    assert slow.measured(reports, []) == {"pot_test: Pot.Boils": 6}


def test_on_a_loaded_machine_the_limit_grows_as_the_listed_tests_do(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=30, Pot__Cools=21, Pot__Pours=12, Pot__Spills=18)
    listed = {"pot_test: Pot.Boils": 10.0, "pot_test: Pot.Cools": 7.0}
    assert slow.over_limit(reports, [], listed, 5) == ["pot_test: Pot.Spills"]


def test_a_fast_machine_does_not_lower_the_limit(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=5, Pot__Pours=4)
    assert slow.over_limit(reports, [], {"pot_test: Pot.Boils": 10.0}, 5) == []


def test_what_is_listed_and_quick_is_named(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=0.9, Pot__Cools=6, Pot__Pours=0.1)
    listed = {"pot_test: Pot.Boils": 6.0, "pot_test: Pot.Cools": 6.0, "pot_test: Pot.Rests": 6.0}
    assert slow.quick(reports, [], listed) == ["pot_test: Pot.Boils"]
    (line,) = slow.report(reports, [], listed)
    assert line == "QUICK pot_test: Pot.Boils: 0.90 s; take it off slow_tests.toml"


def test_the_report_says_what_is_slow(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=9)
    assert slow.report(reports, [], {}) == [
        "SLOW pot_test: Pot.Boils: 9.0 s, more than 5.0, and not in slow_tests.toml"
    ]


def test_a_list_of_what_is_slow_can_be_printed(reports: Path) -> None:
    gtest_report(reports, "pot_test", Pot__Boils=9, Pot__Cools=5.5, Pot__Pours=1)
    assert slow.entries(reports, junit_report(reports, test_sips=6)) == [
        "most = 3",
        "",
        "[cpp]",
        '"pot_test: Pot.Boils" = 9.0',
        '"pot_test: Pot.Cools" = 5.5',
        "",
        "[python]",
        '"tests/python/test_tea.py::test_sips" = 6.0',
    ]


def test_the_list_can_be_read() -> None:
    assert all(seconds > 0 for seconds in slow.read_list().values())
