"""What files do not show: copies, several runs in one folder, clocks that differ, missing ranks."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from python.doctor.dumps import write
from python.doctor.flights import Flight, Made, steps, write_flights
from python.doctor.jobs import simulate
from python.doctor.test_verdicts import seeds
from unisono.doctor import Diagnosis, diagnose, read_files

FLIGHT_RECORDER = ("nccl", "nccl_json", "gloo")
TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


def dump_of(path: Path) -> dict[str, Any]:
    contents = path.read_bytes()
    found = pickle.loads(contents) if contents[:1] == b"\x80" else json.loads(contents)
    return dict(found)


def put(path: Path, dump: dict[str, Any]) -> None:
    """The dump in its file, whose time stays."""
    times = path.stat()
    is_json = path.name.endswith(".json")
    path.write_bytes(json.dumps(dump).encode() if is_json else pickle.dumps(dump))
    os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))


def with_times(path: Path, change: Callable[[int], float]) -> None:
    dump = dump_of(path)
    for entry in dump["entries"]:
        for name in TIMES:
            entry[name] = round(change(entry[name])) if entry[name] else entry[name]
    put(path, dump)


def copied(paths: list[Path], seconds: float) -> None:
    for path in paths:
        ns = path.stat().st_mtime_ns + round(seconds * 1e9)
        os.utime(path, ns=(ns, ns))


def abstains(found: Diagnosis) -> bool:
    return found.verdict == "undecided" and not found.ranks and found.confidence == 0


@pytest.mark.parametrize("format_", FLIGHT_RECORDER)
def test_copies_of_dumps_of_a_job_that_moves_blame_nobody(tmp_path: Path, format_: str) -> None:
    for seed in seeds(2):
        paths = write(simulate(seed, "running"), tmp_path / str(seed), format_)
        for seconds in (1000, 27_555_444):
            copied(paths, seconds)
            found = diagnose(read_files(paths))
            assert not found.verdict.blames, f"seed {seed}: {found.paragraph}"
            assert not found.ranks


def test_a_copy_of_a_hang_says_what_the_verdict_would_be(tmp_path: Path) -> None:
    job = simulate(1, "outside", flat=True)
    paths = write(job, tmp_path, "nccl")
    copied(paths, 10**6)
    found = diagnose(read_files(paths))
    assert abstains(found)
    assert f"'stuck outside communication': rank {job.victim}" in found.paragraph
    assert any("it is a copy" in one for one in found.evidence)


@pytest.mark.parametrize("format_", ["nccl", "nccl_timed", "nccl_json"])
def test_a_call_that_timed_out_is_stuck_whatever_the_files_times(
    tmp_path: Path, format_: str
) -> None:
    job = simulate(1, "outside", flat=True)
    paths = write(job, tmp_path, format_)
    for path in paths:
        dump = dump_of(path)
        for entry in dump["entries"]:
            entry["retired"] = True  # and some not completed
        put(path, dump)
    copied(paths, 10**6)
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == ("stuck outside communication", [f"rank {job.victim}"])


def test_a_copy_shows_by_its_own_calls_that_one_of_them_is_stuck(tmp_path: Path) -> None:
    """Ranks 0 and 1 made calls of another group for minutes, and rank 2 none of the world."""
    groups = {"world": [0, 1, 2], "pair": [0, 1]}
    flights = []
    for rank in range(3):
        calls = steps("world", 9)
        if rank < 2:
            calls += [Made("world", 10, 12), *steps("pair", 300, 13)]
        flights.append(Flight(calls))
    paths = sorted(write_flights(tmp_path, groups, flights).iterdir())
    copied(paths, 10**6)
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == ("stuck outside communication", ["rank 2"])
    assert any("for 300.0 s when it was dumped, at least" in one for one in found.evidence)


def test_what_is_over_has_ended_only_if_the_dump_says_so(tmp_path: Path) -> None:
    """Gloo retires calls that failed, too."""
    gloo = diagnose(read_files(write(simulate(1, "", flat=True), tmp_path / "a", "gloo")))
    assert abstains(gloo)
    assert any("failed from calls that ended" in one for one in gloo.evidence)
    nccl = diagnose(read_files(write(simulate(1, "", flat=True), tmp_path / "b", "nccl")))
    assert nccl.verdict == "nothing wrong"


@pytest.mark.parametrize("format_", ["nccl", "unisono", "ncclx"])
def test_fewer_ranks_than_the_job_has_are_never_nothing_wrong(tmp_path: Path, format_: str) -> None:
    job = simulate(1, "", flat=True)
    paths = write(job, tmp_path, format_)
    assert diagnose(read_files(paths)).verdict == "nothing wrong"
    found = diagnose(read_files(paths[:1] + paths[2:]))
    assert abstains(found)
    assert found.missing == ["rank 1"]


def test_a_rank_that_is_behind_is_never_nothing_wrong(tmp_path: Path) -> None:
    paths = write(simulate(1, "", flat=True), tmp_path, "nccl")
    dump = dump_of(paths[1])
    del dump["entries"][-1]
    put(paths[1], dump)
    found = diagnose(read_files(paths))
    assert abstains(found)
    assert "rank 1 made fewer calls of group default_pg than others" in found.paragraph


def test_groups_are_joined_to_their_status_by_id(tmp_path: Path) -> None:
    """A group's name may be the id of another one, which has made more calls."""
    job = simulate(1, "outside")
    paths = write(job, tmp_path, "nccl_json")
    for rank, path in enumerate(paths):
        dump = dump_of(path)
        groups = job.of(rank)
        # Names as PyTorch gives them: numbers of all groups, while ids are the process's own count.
        names = {group: str(len(groups) - 1 - i) for i, group in enumerate(groups)}
        lasts = dict.fromkeys(range(len(groups)), 0)
        for entry in dump["entries"]:
            group = entry["process_group"][0]
            entry["pg_id"] = groups.index(group)
            entry["process_group"][0] = names[group]
            lasts[entry["pg_id"]] = max(lasts[entry["pg_id"]], entry["collective_seq_id"])
        dump["pg_config"] = {
            names[group]: {"name": names[group], "desc": "", "ranks": str(job.groups[group])}
            for group in groups
        }
        dump["pg_status"] = {str(id_): {"last_enqueued_collective": str(last)}
                             for id_, last in lasts.items()}  # fmt: skip
        put(path, dump)
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == ("stuck outside communication", [f"rank {job.victim}"])


@pytest.mark.parametrize("seconds", [-10_000, -100, 100, 10_000])
@pytest.mark.parametrize("format_", ["nccl", "unisono", "ncclx"])
def test_a_host_whose_clock_is_wrong_keeps_its_dumps(
    tmp_path: Path, format_: str, seconds: float
) -> None:
    job = simulate(1, "outside", flat=True)
    job.clocks[(job.victim + 1) % job.ranks] += seconds
    found = diagnose(read_files(write(job, tmp_path, format_)))
    assert not found.problems
    assert (found.verdict, found.ranks) == ("stuck outside communication", [f"rank {job.victim}"])


@pytest.mark.parametrize("format_", ["nccl", "nccl_json"])
def test_a_dump_of_another_run_is_left_out_by_its_calls(tmp_path: Path, format_: str) -> None:
    job = simulate(1, "outside", flat=True)
    paths = write(job, tmp_path, format_)
    other = paths[(job.victim + 1) % job.ranks]
    first = dump_of(other)["entries"][0]["time_created_ns"]
    # It began at the same time, and each of its calls took longer.
    with_times(other, lambda ns: first + 1.7 * (ns - first))
    found = diagnose(read_files(paths))
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{other}: it is of another run")


def test_a_dump_of_which_nothing_says_whose_run_it_is_makes_it_undecided(tmp_path: Path) -> None:
    job = simulate(1, "outside", flat=True)
    paths = write(job, tmp_path, "gloo")
    with_times(paths[job.victim], lambda ns: ns - 10**13)
    found = diagnose(read_files(paths))
    assert abstains(found)
    assert "may be of another run" in found.paragraph


def test_records_of_two_runs_are_told_apart_by_their_communicators(tmp_path: Path) -> None:
    job = simulate(1, "outside")
    now = write(job, tmp_path / "now", "unisono")
    before = write(simulate(1, ""), tmp_path / "before", "unisono")
    for path in before:  # the run before it, of the same programs, whose files are later
        document = json.loads(path.read_text())
        document["communicator"] = "8" + document["communicator"]
        document["process"] += 1000
        path.write_text(json.dumps(document))
    alone = diagnose(read_files(now))
    assert alone.ranks == [f"rank {job.victim}"]
    for mixed in ([*now, *before[:1]], [*now, *before[:-1:2]]):
        found = diagnose(read_files(mixed))
        assert (found.verdict, found.ranks) == (alone.verdict, alone.ranks)
        assert len(found.problems) == len(mixed) - len(now)
        assert all("another run of the job" in one for one in found.problems)


def test_subgroups_of_one_rank_are_no_jobs(tmp_path: Path) -> None:
    """A subgroup of PyTorch calls itself the world, too, and there may be many of them."""
    job = simulate(1, "skip", flat=True)
    for path in write(job, tmp_path, "unisono"):
        record = json.loads(path.read_text())
        own = record["world_ranks"][record["rank"]]
        for number in range(2):
            alone = record | {
                "communicator": f"{own}{number}", "rank": 0, "ranks": 1, "world_ranks": [own],
                "collectives": [], "messages": [],
            }  # fmt: skip
            (tmp_path / f"alone-{own}-{number}.json").write_text(json.dumps(alone))
    found = diagnose(read_files([tmp_path]))
    assert (found.verdict, found.ranks) == ("never joined", [f"rank {job.victim}"])
    assert found.problems == []
