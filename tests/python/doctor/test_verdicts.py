"""The doctor names what was done to simulated jobs, and blames nobody where nothing was."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from pathlib import Path

import pytest
from python.doctor.dumps import write
from python.doctor.jobs import FAULTS, simulate
from typer.testing import CliRunner
from unisono.cli.app import app
from unisono.doctor import Diagnosis, diagnose, read_files

WANTED = {
    "skip": "never joined", "outside": "stuck outside communication", "died": "died",
    "size": "other call", "type": "other call", "kind": "other call",
    "order": "deadlock across groups", "network": "network", "error": "GPU error",
}  # fmt: skip
FORMATS = ("nccl", "nccl_timed", "nccl_json", "gloo", "ncclx", "unisono")
QUICK_FORMATS = ("gloo", "unisono")
EVERY_FORMAT = [
    one if one in QUICK_FORMATS else pytest.param(one, marks=pytest.mark.slow) for one in FORMATS
]
OTHER_FAULTS = [one for one in FAULTS if one != "size"]
# What a format does not hold: the doctor has to abstain.
SILENT = {
    **{(one, fault): "undecided" for one in FORMATS[:4] for fault in ("network", "error")},
    ("gloo", "died"): "undecided",
}  # fmt: skip


def seeds(count: int) -> list[int]:
    base = random.randrange(1 << 30)
    print(f"seeds from {base}")
    return [base + i for i in range(count)]


def examine(folder: Path, seed: int, fault: str, format_: str, flat: bool = False) -> Diagnosis:
    return diagnose(read_files(write(simulate(seed, fault, flat=flat), folder, format_)))


@pytest.mark.parametrize("format_", EVERY_FORMAT)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_and_its_rank_are_named(tmp_path: Path, fault: str, format_: str) -> None:
    for seed in seeds(3):
        found = examine(tmp_path / str(seed), seed, fault, format_)
        job = simulate(seed, fault)
        wanted = SILENT.get((format_, fault), WANTED[fault])
        assert found.verdict == wanted, f"seed {seed}: {found.paragraph}"
        ranks = [] if wanted == "undecided" else [f"rank {job.victim}"]
        if fault == "network" and len(job.groups[job.at.group]) == 2 and ranks:
            # Of two ranks, either end of the link may be at fault.
            assert set(ranks) <= set(found.ranks)
        else:
            assert found.ranks == ranks, f"seed {seed}: {found.paragraph}"
        assert found.evidence
        # One thing went wrong.
        assert not found.others, f"seed {seed}: {found.others}"
        if wanted == "undecided":
            assert found.would_help
        if fault in ("size", "type"):
            assert found.difference == fault
        if fault == "order":
            assert len(found.cycle) >= 2
        if fault == "died":
            assert found.missing == ranks


@pytest.mark.parametrize("format_", EVERY_FORMAT)
@pytest.mark.parametrize(
    "fault", ["", *(pytest.param(one, marks=pytest.mark.slow) for one in ("running", "slow"))]
)
def test_nobody_is_blamed_for_a_job_that_moves(tmp_path: Path, fault: str, format_: str) -> None:
    for seed in seeds(4):
        found = examine(tmp_path / str(seed), seed, fault, format_)
        assert not found.verdict.blames, f"seed {seed}: {found.paragraph}"
        assert not found.ranks


def test_a_slow_first_call_does_not_hide_that_a_job_stands(tmp_path: Path) -> None:
    jobs = (simulate(seed, "outside", flat=True) for seed in seeds(100))
    long = (job for job in jobs if min(map(len, job.calls)) >= 16)
    for job in itertools.islice(long, 3):
        for calls in job.calls:
            calls[0].created -= 60
        last = max(made.created for calls in job.calls for made in calls)
        # Before the timeout, and far from twenty times the longest call.
        job.taken = last + 3
        found = diagnose(read_files(write(job, tmp_path / str(job.seed), "gloo")))
        assert found.verdict == "stuck outside communication", f"{job.seed}: {found.paragraph}"
        assert found.ranks == [f"rank {job.victim}"]


def test_the_time_of_a_copied_record_is_its_own(tmp_path: Path) -> None:
    for seed in seeds(3):
        paths = write(simulate(seed, "running"), tmp_path / str(seed), "unisono")
        for path in paths:
            later_ns = path.stat().st_mtime_ns + 1000 * 10**9
            os.utime(path, ns=(later_ns, later_ns))
        found = diagnose(read_files(paths))
        assert not found.verdict.blames, f"seed {seed}: {found.paragraph}"


@pytest.mark.parametrize("fault", ["size", "type", "kind", "outside"])
def test_records_of_unisono(tmp_path: Path, fault: str) -> None:
    for seed in seeds(3):
        job = simulate(seed, fault, flat=True)
        found = examine(tmp_path / str(seed), seed, fault, "unisono", flat=True)
        outside = "stuck outside communication"
        assert found.verdict == (outside if fault == "outside" else "other call")
        assert found.ranks == [f"rank {job.victim}"], f"seed {seed}: {found.paragraph}"


@pytest.mark.parametrize("fault", ["died", "error", "outside"])
def test_two_reports_of_ras(tmp_path: Path, fault: str) -> None:
    wanted = {"died": "died", "error": "GPU error", "outside": "never joined"}
    for seed in seeds(3):
        job = simulate(seed, fault, flat=True)
        paths = write(job, tmp_path / str(seed), "ras_json")
        found = diagnose(read_files(paths))
        assert (found.verdict, found.ranks) == (wanted[fault], [f"rank {job.victim}"])
        if fault == "outside":
            one = diagnose(read_files(paths[:1]))
            assert one.verdict == "undecided"
            assert "second report" in one.would_help[0]


def test_a_mixture_of_formats(tmp_path: Path) -> None:
    [seed] = seeds(1)
    job = simulate(seed, "skip")
    pickles = write(job, tmp_path / "a", "nccl")
    texts = write(job, tmp_path / "b", "nccl_json")
    half = job.ranks // 2
    found = diagnose(read_files([*pickles[:half], *texts[half:]]))
    assert (found.verdict, found.ranks) == ("never joined", [f"rank {job.victim}"])


def test_where_most_files_are_missing_it_abstains(tmp_path: Path) -> None:
    [seed] = seeds(1)
    job = simulate(seed, "outside")
    paths = write(job, tmp_path, "nccl")
    del paths[job.victim]
    found = diagnose(read_files(paths[:2]))
    assert not found.verdict.blames
    assert found.would_help


def test_calls_without_numbers_are_aligned(tmp_path: Path) -> None:
    [seed] = seeds(1)
    job = simulate(seed, "outside", flat=True, ahead=1)
    paths = write(job, tmp_path, "nccl_json")
    for path in paths:
        times = path.stat()
        document = json.loads(path.read_text())
        for entry in document["entries"]:
            del entry["collective_seq_id"]
        path.write_text(json.dumps(document))
        os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == (
        "stuck outside communication", [f"rank {job.victim}"]), found.paragraph  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "format_", "status"),
    [("", "unisono", 0), ("outside", "unisono", 3), ("size", "gloo", 3), ("", "gloo", 4)],
)
def test_the_command_ends_with_what_it_found(
    tmp_path: Path, fault: str, format_: str, status: int
) -> None:
    write(simulate(1, fault, flat=True), tmp_path, format_)
    run = CliRunner().invoke(app, ["doctor", str(tmp_path), "--json", "-"])
    assert run.exit_code == status, run.output
    assert json.loads(run.stdout)["exit_status"] == status


# A subject of several ranks with a verb for one.
_WRONG_NUMBER = re.compile(r"\branks [\d, and]+\d (is|has|was|makes|waits)\b")


def assert_well_written(found: Diagnosis) -> None:
    """Sentences, each with its one full stop, whose verbs agree with their ranks."""
    for text in (found.paragraph, *found.evidence, *found.would_help, *found.cycle):
        assert text.endswith("."), text
        assert ".." not in text, text
        assert not _WRONG_NUMBER.search(text), text
        assert text[0].isupper() or text in found.cycle, text


def test_a_verdict_on_several_ranks_is_in_the_plural(tmp_path: Path) -> None:
    [seed] = seeds(1)
    job = simulate(seed, "outside", flat=True)
    paths = write(job, tmp_path, "nccl")
    victim = paths[job.victim]
    other = paths[(job.victim + 1) % job.ranks]
    # Another rank is as far as the victim.
    times = other.stat()
    other.write_bytes(victim.read_bytes())
    os.utime(other, ns=(times.st_mtime_ns, times.st_mtime_ns))
    found = diagnose(read_files(paths))
    assert found.verdict == "stuck outside communication", found.paragraph
    assert len(found.ranks) == 2
    assert "did not join it, and are stuck outside communication." in found.paragraph
    assert_well_written(found)


@pytest.mark.parametrize(
    "fault", ["", "size", *(pytest.param(one, marks=pytest.mark.slow) for one in OTHER_FAULTS)]
)
def test_verdicts_are_written_in_sentences(tmp_path: Path, fault: str) -> None:
    for format_ in FORMATS:
        for seed in seeds(2):
            assert_well_written(examine(tmp_path / format_ / str(seed), seed, fault, format_))


def test_a_report_of_several_silent_processes_is_in_the_plural(tmp_path: Path) -> None:
    [path, _] = write(simulate(1, "outside", flat=True), tmp_path, "ras_json")
    report = json.loads(path.read_text())
    [world] = report["communicators"]
    for count, said in ((1, "is stopped as a whole: RAS cannot reach it."),
                        (2, "are stopped as a whole: RAS cannot reach them.")):  # fmt: skip
        world["missing_ranks"] = [{**one, "status": {}} for one in world["ranks"][:count]]
        path.write_text(json.dumps(report | {"communicators": [
            world | {"ranks": world["ranks"][count:]}]}))  # fmt: skip
        found = diagnose(read_files([path]))
        assert found.verdict == "died"
        assert found.paragraph.endswith(said), found.paragraph
        assert_well_written(found)
