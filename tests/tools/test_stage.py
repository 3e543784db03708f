"""The suite's sums: nothing that failed, crashed or was left out ends in a green line."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import cpp
import pytest
import stage
from reports import gtest_outcome, junit_outcome
from stage import Lane, Log, MissingError, Outcome, Suite


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the parts' logs."""
    monkeypatch.setattr(stage, "BUILD", tmp_path)
    return tmp_path


def gtest_report(folder: Path, *cases: dict[str, object]) -> None:
    """Writes a report as GoogleTest does."""
    suites = [{"testsuite": [{"classname": "Plan", **case} for case in cases]}]
    (folder / "plan_test.json").write_text(json.dumps({"testsuites": suites, "time": "1.5s"}))


def test_gtest_cases_are_counted_by_their_result(tmp_path: Path) -> None:
    gtest_report(
        tmp_path,
        {"name": "holds", "status": "RUN", "result": "COMPLETED"},
        {"name": "breaks", "status": "RUN", "result": "COMPLETED", "failures": [{}]},
        {"name": "cannot", "status": "RUN", "result": "SKIPPED"},
        {"name": "disabled", "status": "NOTRUN", "result": "SUPPRESSED"},
    )
    outcome = gtest_outcome(tmp_path, "[thread] ")
    assert (outcome.passed, outcome.failed) == (1, 1)
    assert outcome.failures == ["[thread] Plan.breaks"]
    assert outcome.skipped == ["[thread] Plan.cannot", "[thread] Plan.disabled"]
    assert outcome.programs == {"[thread] plan_test": 1.5}


def test_junit_cases_are_counted_by_their_result(tmp_path: Path) -> None:
    report = tmp_path / "pytest.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="a" name="holds" time="0.5"/>'
        '<testcase classname="a" name="breaks" time="0.25"><failure/></testcase>'
        '<testcase classname="a" name="stumbles"><error/></testcase>'
        '<testcase classname="a" name="cannot"><skipped message="no GPU"/></testcase>'
        "</testsuite></testsuites>"
    )
    outcome = junit_outcome(report)
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert outcome.failures == ["a::breaks", "a::stumbles"]
    assert outcome.skipped == ["a::cannot: no GPU"]
    assert outcome.programs == {"a": 0.75}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome(passed=3), 0),
        (Outcome(passed=3, failed=1, failures=["Plan.breaks"]), 1),
        (Outcome(), 1),
    ],
    ids=["all passed", "one failed", "nothing ran"],
)
def test_the_exit_status_tells_the_truth(
    outcome: Outcome, status: int, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite()
    suite.run("c++", lambda _: outcome)
    assert suite.close() == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert f"{outcome.passed} passed, {outcome.failed} failed" in last


@pytest.mark.parametrize(
    ("failures", "second", "status"),
    [
        (1, Outcome(passed=8), 0),
        (1, Outcome(passed=7, failed=1, failures=["Plan.breaks0"]), 1),
        (stage.MOST_UNSTABLE + 1, Outcome(passed=8), 1),
    ],
    ids=["passes alone", "fails alone", "many fail"],
)
def test_few_failures_are_run_again_alone(
    failures: int,
    second: Outcome,
    status: int,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"Plan.breaks{each}" for each in range(failures)]
    suite = Suite()
    suite.run(
        "c++",
        lambda _: Outcome(passed=3, failed=failures, failures=list(names)),
        again=lambda _: second,
    )
    suite.run("python", lambda _: Outcome(passed=2))
    assert suite.close() == status
    lines = capsys.readouterr().out.splitlines()
    unstable = f"UNSTABLE {names[0]}: failed next to other work, passed alone"
    assert (unstable in lines) == (status == 0)
    left = 0 if status == 0 else failures
    assert lines[-1].startswith(f"==== 5 passed, {left} failed")


def test_a_crash_is_not_run_again(logs: Path) -> None:
    def part(log: Log) -> Outcome:
        return Outcome(passed=3, failed=1, failures=["thread: fault_test"], has_crashed=True)

    def again(log: Log) -> Outcome:
        raise AssertionError("run again")

    suite = Suite()
    suite.run("c++ thread sanitizer", part, again=again)
    assert not suite.again
    assert suite.close() == 1


def test_what_was_left_out_is_listed_with_its_reason(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite()
    suite.run("c++", lambda _: Outcome(passed=1))
    suite.skip("fuzz", "clang is missing")
    assert suite.close() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "SKIPPED fuzz: clang is missing" in lines
    assert "1 passed, 0 failed, 1 skipped" in lines[-1]


def test_a_part_that_cannot_run_is_skipped_with_its_reason(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(log: Log) -> Outcome:
        raise MissingError("GoogleTest is missing")

    suite = Suite()
    assert suite.run("c++, build", part).missing == "GoogleTest is missing"
    assert suite.close() == 1, "nothing was tested"
    assert "SKIPPED c++, build: GoogleTest is missing" in capsys.readouterr().out


def test_the_slowest_steps_and_programs_are_shown(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"program {each}" for each in range(stage.SLOWEST + 1)]
    suite = Suite("fast tier")
    programs = {name: float(number) for number, name in enumerate(names)}
    suite.run("c++", lambda _: Outcome(passed=1, programs=programs))
    assert suite.close(["a note"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("fast tier, the 10 slowest programs and files of tests: seconds")
    shown = [line.split()[-1] for line in lines[first + 1 : first + 1 + stage.SLOWEST]]
    assert shown == [str(each) for each in range(stage.SLOWEST, 0, -1)]
    assert lines[-2] == "a note"
    assert lines[-1].startswith("==== 1 passed, 0 failed in ")


def test_a_command_that_takes_too_long_is_ended(logs: Path) -> None:
    log = Log("some/part")
    assert not log.run(["sleep", "60"], timeout_seconds=0.1)
    assert "did not end within 0.1 s" in log.path.read_text()
    assert not log.run(["false"])
    assert "ended with code 1" in log.path.read_text()
    assert log.run(["true"])


def test_lanes_run_beside_each_other_and_in_order() -> None:
    both = threading.Barrier(2, timeout=180)
    done: list[str] = []

    def part(name: str) -> Outcome:
        both.wait()
        done.append(name)
        return Outcome(passed=1)

    lanes = [Lane(), Lane()]
    for lane, names in zip(lanes, (("a1", "a2"), ("b1", "b2")), strict=True):
        outcomes = [lane.add(lambda name=name: part(name)) for name in names]
    for lane in lanes:
        lane.close()
    assert [outcome.result().passed for outcome in outcomes] == [1, 1]
    assert [name for name in done if name.startswith("a")] == ["a1", "a2"]
    assert [name for name in done if name.startswith("b")] == ["b1", "b2"]


def test_a_part_that_breaks_fails_the_suite(logs: Path) -> None:
    def breaks(log: Log) -> Outcome:
        raise RuntimeError(f"no {log.path.name} today")

    suite = Suite()
    assert suite.run("part", breaks).failures == ["part: no part.log today"]
    assert suite.close() == 1


def test_the_table_of_fuzzers_has_their_runs_and_findings() -> None:
    report = "#9 NEW cov: 12 ft: 3\n#10 NEW cov: 34 ft: 5\nDone 2000 runs in 61 second(s)\n"
    table = cpp.fuzz_table(
        {"json": report, "plan_text": "did not end"}, {"json": 0, "plan_text": 2}
    )
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["json", "2,000", "61", "34", "0"],
        ["plan_text", "0", "0", "0", "2"],
        ["all", "2,000", "61", "2"],
    ]


def test_a_program_that_crashes_is_named(tmp_path: Path) -> None:
    assert cpp.failed_programs(tmp_path) == "ctest"
    log = tmp_path / "Testing" / "Temporary" / "LastTestsFailed.log"
    log.parent.mkdir(parents=True)
    log.write_text("7:conformance\n23:transport\n")
    assert cpp.failed_programs(tmp_path) == "conformance, transport"
    shown = "[ RUN      ] A.One\n[       OK ] A.One\n[ RUN      ] A.Two\nSUMMARY: race in f\n"
    assert cpp.last_words(shown) == "; A.Two; race in f"
    assert cpp.last_words("killed") == ""


def test_a_failure_far_from_the_end_of_its_log_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "BUILD", tmp_path)
    log = Log("part")
    report = "==7==ERROR: LeakSanitizer: detected memory leaks\nDirect leak of 8 bytes\n"
    log.path.write_text("quiet\n" * 50 + report + "quiet\n" * 500)
    log.show_failures()
    shown = capsys.readouterr().out
    assert "LeakSanitizer" in shown
    assert "Direct leak" in shown
    assert len(shown.splitlines()) < 2 * stage.SHOWN_LINES
