"""The suite's list of parts: each in one tier, each after what it needs, none lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import run
import stage
from stage import Log, MissingError, Outcome, Suite

ROOT = Path(__file__).resolve().parents[2]


def part(name: str, work: run.Work, after: str | None = None, is_build: bool = False) -> run.Part:
    """A part of the fast tier."""
    return run.Part(name, run.FAST, work, is_build, after)


def passes(log: Log) -> Outcome:
    return Outcome(passed=1)


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite whose logs are in a folder of the test."""
    monkeypatch.setattr(stage, "BUILD", tmp_path)
    return Suite()


def test_every_part_is_in_one_tier_and_after_a_build_of_the_list() -> None:
    every = run.parts(injections=1, fuzz_seconds=1)
    names = [each.name for each in every]
    assert len(set(names)) == len(names)
    assert {each.tier for each in every} == {run.FAST, run.REST}
    for each in every:
        if each.after is not None:
            needed = every[names.index(each.after)]
            assert needed.is_build, each.name
            assert names.index(needed.name) < names.index(each.name)
            assert needed.tier == run.FAST or each.tier == run.REST, each.name


def test_a_part_of_the_rest_brings_the_build_that_it_needs() -> None:
    every = run.parts(injections=1, fuzz_seconds=1)
    rest = [each for each in every if each.name == "c++, rest"]
    assert [each.name for each in run.with_needed(rest, every)] == ["c++, build", "c++, rest"]


def test_what_a_failed_build_was_for_does_not_run(suite: Suite) -> None:
    def never(log: Log) -> Outcome:
        raise AssertionError("it ran")

    def fails(log: Log) -> Outcome:
        return Outcome(failed=1, failures=["build"])

    def lacks(log: Log) -> Outcome:
        raise MissingError("no compiler")

    run.run(
        suite,
        [
            part("a, build", fails, is_build=True),
            part("a", never, after="a, build"),
            part("b, build", lacks, is_build=True),
            part("b", never, after="b, build"),
            part("c, build", passes, is_build=True),
            part("c", passes, after="c, build"),
        ],
    )
    assert (suite.total.passed, suite.total.failed) == (2, 1)
    assert suite.total.failures == ["build"]
    assert sorted(suite.total.skipped) == ["b, build: no compiler", "b: no compiler"]


def test_the_list_is_printed_and_unknown_parts_are_refused() -> None:
    command = [sys.executable, ROOT / "tools" / "suite" / "run.py"]
    listed = subprocess.run([*command, "--list"], capture_output=True, text=True)
    assert "fast  c++\n" in listed.stdout
    assert "rest  clang-tidy\n" in listed.stdout
    refused = subprocess.run([*command, "nonsense"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "no part is called nonsense; --list names them" in refused.stderr
