"""tools/gpu_gate and tools/cpu_gate: their parts, how they go on, and what they call slower.

Measurements are given, and no test times anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import turns

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gate"))

import builds  # noqa: E402
import gate  # noqa: E402
from builds import Build, GateError  # noqa: E402
from parts import Context, Measured, Part  # noqa: E402
from store import AFTER, BEFORE, Run, Store  # noqa: E402
from summary import PASSED, SLOWER, UNFINISHED, WRONG, report, to_run, wanted_turns  # noqa: E402

BUILDS = {name: Build(name, name * 8, Path(name)) for name in (BEFORE, AFTER)}
FOREVER = Context(0, Path(), float("inf"))


class Clock:
    """Time that passes only when a run takes it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A part's measurement: each case's times of the runs of a build, in turn."""

    def __init__(self, clock: Clock | None = None, seconds: float = 100.0, **times: float) -> None:
        self.times = times
        self.order: list[str] = []
        self._clock, self._seconds = clock or Clock(), seconds

    def __call__(self, build: Build, context: Context) -> Measured:
        self.order.append(build.name)
        self._clock.now += self._seconds
        return Measured({"case": self.times.get(build.name, 1.0)}, {"case": 2.0})


def part(measure: Callable[[Build, Context], Measured], name: str = "one", pairs: int = 3) -> Part:
    return Part(name, "a part", measure, pairs=pairs)


def filled(folder: Path, before: list[float], after: list[float], nccl: float = 0.0) -> Store:
    """A store with the runs of the part "one"."""
    store = Store(folder)
    for turn, (old, new) in enumerate(zip(before, after, strict=True)):
        peer = {"case": nccl} if nccl else {}
        store.add(Run("one", turn, BEFORE, 1.0, {"case": old}, peer))
        store.add(Run("one", turn, AFTER, 1.0, {"case": new}, peer))
    return store


def test_builds_run_in_turn_and_change_their_order(tmp_path: Path) -> None:
    bench = Bench()
    assert gate.measure_all([part(bench)], Store(tmp_path), BUILDS, FOREVER)
    assert bench.order == [BEFORE, AFTER, AFTER, BEFORE, BEFORE, AFTER]


def test_a_change_has_its_spread() -> None:
    found = turns.change_of("case", [10.0] * 5, [10.5, 10.3, 10.4, 9.0, 12.0])
    assert (found.before, found.after, found.ratio) == (10.0, 10.4, pytest.approx(1.04))
    assert (found.low, found.high, found.pairs) == (pytest.approx(0.9), pytest.approx(1.2), 5)
    of_ten = turns.change_of("case", [10.0] * 10, [5.0, *[10.5] * 8, 30.0])
    assert (of_ten.low, of_ten.high) == (pytest.approx(1.05), pytest.approx(1.05))


@pytest.mark.parametrize(
    ("after", "is_slower", "may_be_slower"),
    [
        ([10.3] * 5, True, False),
        ([10.2] * 5, False, False),  # 2 % is tolerated
        ([10.3, 10.3, 10.3, 9.9, 10.3], False, True),
        ([9.0, 9.0, 10.0, 11.0, 11.0], False, False),
        ([5.0] * 5, False, False),
    ],
)
def test_slower_is_more_than_two_percent_beyond_the_spread(
    after: list[float], is_slower: bool, may_be_slower: bool
) -> None:
    found = turns.change_of("case", [10.0] * 5, after)
    assert (found.is_slower, found.may_be_slower) == (is_slower, may_be_slower)


def test_cases_that_a_run_lacks_are_not_compared() -> None:
    found = turns.changes([{"a": 1.0, "b": 1.0, "c": 0.0}], [{"a": 2.0, "c": 1.0, "d": 1.0}])
    assert [one.case for one in found] == ["a"]


@pytest.mark.parametrize(
    ("after", "status"),
    [([1.0] * 3, PASSED), ([1.05] * 3, SLOWER), ([1.05, 1.05, 0.9], PASSED), ([0.5] * 3, PASSED)],
)
def test_the_exit_status_says_whether_something_is_slower(
    tmp_path: Path, after: list[float], status: int
) -> None:
    store = filled(tmp_path, [1.0] * 3, after)
    lines, found = report([part(Bench())], store, {})
    assert found == status
    assert any("SLOWER" in line for line in lines) == (status == SLOWER)
    if status == SLOWER:
        assert "1.050 (1.050 to 1.050, 3 pairs)" in lines[2]


def test_nothing_is_slower_before_all_pairs_have_run(tmp_path: Path) -> None:
    lines, status = report([part(Bench())], filled(tmp_path, [1.0], [2.0]), {})
    assert (lines, status) == (["one: 1 of 3 pairs, not finished"], PASSED)


def test_the_report_has_the_ratios_to_nccl(tmp_path: Path) -> None:
    store = filled(tmp_path, [1.0] * 3, [1.0] * 3, nccl=0.9)
    lines, status = report([part(Bench())], store, {})
    assert lines[1] == "  NCCL's time / ours: geometric mean 0.900, least 0.900"
    assert lines[2].split() == ["case", "0.900", "of", "NCCL"]
    assert status == PASSED


def test_where_a_case_may_be_slower_twice_as_many_pairs_run(tmp_path: Path) -> None:
    bench = Bench(after=1.1)
    one = part(bench)
    store = Store(tmp_path)
    assert gate.measure_all([one], store, BUILDS, FOREVER)
    assert len(bench.order) == 12
    assert wanted_turns(one, store) == 6
    assert to_run(one, store) == []


def test_a_gate_goes_on_where_the_last_command_ended(tmp_path: Path) -> None:
    clock = Clock()
    bench = Bench(clock)
    context = replace(FOREVER, deadline=250.0)
    assert not gate.measure_all([part(bench)], Store(tmp_path), BUILDS, context, clock=clock)
    # A turn ended; another could not have.
    assert bench.order == [BEFORE, AFTER]
    clock.now = 0.0
    assert not gate.measure_all([part(bench)], Store(tmp_path), BUILDS, context, clock=clock)
    assert bench.order == [BEFORE, AFTER, AFTER, BEFORE]
    clock.now = 0.0
    assert gate.measure_all([part(bench)], Store(tmp_path), BUILDS, context, clock=clock)
    assert bench.order == [BEFORE, AFTER, AFTER, BEFORE, BEFORE, AFTER]
    assert gate.measure_all([part(bench)], Store(tmp_path), BUILDS, context, clock=clock)
    assert len(bench.order) == 6


def test_the_first_turn_begins_however_little_time_is_left(tmp_path: Path) -> None:
    clock = Clock()
    bench = Bench(clock)
    context = replace(FOREVER, deadline=1.0)
    for turn in (1, 2, 3):
        clock.now = 0.0
        complete = gate.measure_all([part(bench)], Store(tmp_path), BUILDS, context, clock=clock)
        assert len(bench.order) == 2 * turn
        assert complete == (turn == 3)


def test_half_a_turn_runs_again_because_it_may_be_of_another_machine(tmp_path: Path) -> None:
    filled(tmp_path, [1.0, 1.0], [1.0, 1.0])
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    bench = Bench()
    assert gate.measure_all([part(bench)], Store(tmp_path), BUILDS, FOREVER)
    assert bench.order == [AFTER, BEFORE, BEFORE, AFTER]
    assert to_run(part(bench), Store(tmp_path)) == []


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    filled(tmp_path, [1.0], [1.0])
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text()[:-20])
    one = part(Bench())
    store = Store(tmp_path)
    assert to_run(one, store)[0] == (0, AFTER)
    store.add(Run("one", 0, AFTER, 1.0, {"case": 1.0}))
    assert to_run(one, Store(tmp_path))[0] == (1, AFTER)


class Failing:
    """A measurement that fails a number of times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.runs = failures, 0

    def __call__(self, build: Build, context: Context) -> Measured:
        self.runs += 1
        if self.runs <= self.failures:
            raise GateError("it fell over")
        return Measured({"case": 1.0})


def test_a_part_that_fails_leaves_the_others_and_fails_the_gate(tmp_path: Path) -> None:
    failing, bench = Failing(1), Bench()
    both = [part(failing), part(bench, "two")]
    store = Store(tmp_path)
    assert gate.measure_all(both, store, BUILDS, FOREVER)
    assert (failing.runs, len(bench.order)) == (1, 6)
    lines, status = report(both, store, {})
    assert status == SLOWER
    assert "  before failed in turn 1: GateError: it fell over" in lines
    # The next command tries it again.
    assert gate.measure_all(both, store, BUILDS, FOREVER)
    assert report(both, store, {})[1] == PASSED


def test_a_part_that_failed_twice_runs_only_when_it_is_named(tmp_path: Path) -> None:
    failing = Failing(3)
    store = Store(tmp_path)
    for runs in (1, 2, 2):
        gate.measure_all([part(failing)], store, BUILDS, FOREVER)
        assert failing.runs == runs
    gate.measure_all([part(failing)], store, BUILDS, FOREVER, named=True)
    assert failing.runs == 3


def test_a_part_of_tests_runs_once_on_the_second_build(tmp_path: Path) -> None:
    bench = Bench()
    tests = replace(part(bench, pairs=1), is_test=True)
    store = Store(tmp_path)
    assert report([tests], store, {}) == (["one: not run"], PASSED)
    assert gate.measure_all([tests], store, BUILDS, FOREVER)
    assert bench.order == [AFTER]
    assert report([tests], store, {}) == (["one: passed"], PASSED)


def test_parts_are_chosen_by_name_and_a_wrong_name_is_answered_with_all() -> None:
    both = [part(Bench()), replace(part(Bench(), "two"), least_gpus=2)]
    out = {"two": gate.refusal(both[1], 1)}
    assert gate.choose(both, [], out) == both[:1]
    assert gate.choose(both, ["one"], out) == both[:1]
    with pytest.raises(GateError, match="there are one, two"):
        gate.choose(both, ["three"], out)
    with pytest.raises(GateError, match="two needs 2 GPUs or more, not 1"):
        gate.choose(both, ["two"], out)
    with pytest.raises(GateError, match="no part can run here: two needs 2 GPUs"):
        gate.choose(both[1:], [], out)
    assert report(both[1:], Store(Path()), out)[0] == ["two: left out, needs 2 GPUs or more, not 1"]


def git(place: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    command = ["git", "-C", str(place), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, of which the tag `old` is the first."""
    place = tmp_path / "repository"
    place.mkdir()
    git(place, "init", "-q")
    for text in ("old", "new"):
        (place / "file").write_text(text)
        git(place, "add", "file")
        git(place, "commit", "-q", "-m", text)
        if text == "old":
            git(place, "tag", "old")
    return place


def test_packed_sources_need_no_git(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "ROOT", repository)
    wanted = {BEFORE: "old", AFTER: "HEAD"}
    commits = builds.pack(tmp_path / "gate", wanted)
    assert commits[AFTER] == git(repository, "rev-parse", "HEAD")
    assert json.loads((tmp_path / "gate" / "gate.json").read_text())["commits"] == commits
    monkeypatch.setenv("PATH", "")
    assert builds.pack(tmp_path / "gate", wanted) == commits
    with pytest.raises(GateError, match="compares"):
        builds.pack(tmp_path / "gate", {**wanted, AFTER: "old"})


def test_a_folder_is_of_the_commits_with_which_it_began(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "ROOT", repository)
    builds.pack(tmp_path / "gate", {BEFORE: "old", AFTER: "HEAD"})
    git(repository, "commit", "-q", "--allow-empty", "-m", "newer")
    with pytest.raises(GateError, match="HEAD was .* and is .*; begin with another folder"):
        builds.pack(tmp_path / "gate", {BEFORE: "old", AFTER: "HEAD"})


def test_commits_are_found_in_a_bundle(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gate"
    folder.mkdir()
    git(repository, "bundle", "create", "-q", str(folder / "both.bundle"), "HEAD", "old")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(builds, "ROOT", elsewhere)
    commits = builds.pack(folder, {BEFORE: "old", AFTER: "HEAD"})
    assert commits[BEFORE] == git(repository, "rev-parse", "old")
    with pytest.raises(GateError, match="is in no repository and in no bundle"):
        builds.commit_of("unknown", folder)


def test_the_command_measures_reports_and_exits_so(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(builds, "ROOT", repository)
    made: list[str] = []
    monkeypatch.setattr(gate, "make", lambda build, *_, **__: made.append(build.name) or 1.0)
    folder = tmp_path / "gate"

    def run(bench: Bench, *words: str) -> int:
        command = ["old", "HEAD", "--folder", str(folder), *words]
        return gate.main("A gate.", [part(bench)], 0, lambda: "a machine", command)

    assert run(Bench(), "--pack") == PASSED
    assert made == []
    assert run(Bench(), "--minutes", "0") == UNFINISHED
    assert run(Bench(), "--report") == UNFINISHED
    assert "Runs are left" in capsys.readouterr().out
    assert run(Bench()) == PASSED
    assert made == [BEFORE, AFTER] * 2
    assert run(Bench(), "two") == WRONG
    assert "two is not a part; there are one" in capsys.readouterr().err
    (folder / "runs.jsonl").unlink()
    assert run(Bench(after=1.5)) == SLOWER
    assert "SLOWER" in (folder / "report.txt").read_text()
    assert run(Bench(), "--report") == SLOWER


@pytest.mark.parametrize("place", ["bench", "bench/cpu"])
def test_both_builds_get_the_same_bench_where_their_own_is(place: str, tmp_path: Path) -> None:
    own = tmp_path / place
    own.mkdir(parents=True)
    (own / "call_bench.cc").write_text("// an older bench\n")
    builds.share_bench(tmp_path)
    for name in builds.SHARED_BENCH:
        assert (own / name).read_text() == (ROOT / "bench" / "cpu" / name).read_text()
    assert len(list(tmp_path.rglob("*.*"))) == len(builds.SHARED_BENCH)
