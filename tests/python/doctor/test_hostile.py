"""Damaged, hostile and mixed-up files: each is one sentence that names it."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python.doctor.dumps import flight_recorder, write
from python.doctor.jobs import simulate
from unisono.doctor import diagnose, read_files
from unisono.doctor.files import parse
from unisono.doctor.job import Job
from unisono.errors import MisuseError
from unisono.records.parts import DumpError

FORMATS = ("nccl", "nccl_json", "ncclx", "unisono", "ras_json")
RAS_TEXT = b"""NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 77 on node 10.0.0.3 managing GPU 2

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 641
  1 ranks have launched up to operation 640
  Rank 2 -- GPU 2 managed by process 77 on node 10.0.0.3
"""


class Touch:
    """Unpickled by a careless reader, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def hostile(marker: Path) -> dict[str, tuple[bytes, str]]:
    return {
        "code_0": (pickle.dumps({"entries": [Touch(marker)]}), "nothing of it was run"),
        "memo_1": (b"\x80\x02}r\xff\xff\xff\x7f.", "more memory"),
        "claim_2": (b"\x80\x04\x8e" + (10 << 30).to_bytes(8, "little") + b"x.", "more memory"),
        "nested_3": (b"\x80\x04}N" + b"\x85" * 3_000_000 + b"Ns.", "crashed the process"),
        "empty_4": (b"", "it is empty"),
        "deep_5.json": (b'{"version":"2.10","entries":' + b"[" * 100_000, "no whole JSON"),
        "other_6.json": (b'{"a": 1}', "no dump that is known"),
        "text_7": (b"hello", "no dump that is known"),
        "rank_8.json": (
            json.dumps({"format": "unisono-record", "version": 2, "communicator": "7",
                        "rank": 9, "ranks": 4, "collectives": []}).encode(), "'rank' is 9"),
        "version_9.json": (b'{"format": "unisono-record", "version": 7}', "version 7"),
        "cut_10": (pickle.dumps({"version": "2.10", "entries": [{}] * 9})[:-20], "whole pickle"),
    }  # fmt: skip


def test_each_hostile_file_is_a_sentence_and_harms_no_other(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    job = simulate(1, "skip")
    paths = write(job, tmp_path / "good", "nccl")
    cases = hostile(marker)
    for name, (contents, _) in cases.items():
        (tmp_path / name).write_bytes(contents)
    found = diagnose(read_files([*(tmp_path / name for name in cases), *paths]))
    assert (found.verdict, found.ranks) == ("never joined", [f"rank {job.victim}"])
    assert len(found.problems) == len(cases)
    for problem, (name, (_, wanted)) in zip(found.problems, cases.items(), strict=True):
        assert problem.startswith(f"{tmp_path / name}: ")
        assert wanted in problem
    assert not marker.exists()


def test_long_lists_of_ranks_survive_a_reader_that_crashes(tmp_path: Path) -> None:
    large, small = list(range(300)), list(range(0, 300, 2))
    for rank in range(8):
        (tmp_path / f"a-{rank}.json").write_bytes(record(rank, large, "large"))
        (tmp_path / f"b-{rank}.json").write_bytes(record(rank, small, "small"))
    (tmp_path / "a-5").write_bytes(hostile(tmp_path)["nested_3"][0])
    job = read_files([tmp_path])
    assert len(job.problems) == 1
    assert "crashed the process" in job.problems[0]
    members = {group.name: [job.label(one) for one in group.members] for group in job.groups}
    assert members == {"large": [f"rank {one}" for one in large],
                       "small": [f"rank {one}" for one in small]}  # fmt: skip


def record(rank: int, world_ranks: list[int], group: str = "world") -> bytes:
    """Unisono's record of a rank without calls."""
    document = {
        "format": "unisono-record", "version": 2, "communicator": group, "group": group,
        "epoch": 0, "rank": rank, "ranks": len(world_ranks), "world_ranks": world_ranks,
        "clock": {"monotonic_ns": 1, "wall_ns": 1}, "collectives": [], "messages": [],
    }  # fmt: skip
    return json.dumps(document).encode()


RANKS = b'"world_ranks": [0, 1, 2]'


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda one: one, (0, 1, 2)),
        (lambda one: one.replace(RANKS, b'"world_ranks" :\n[0,1 , 2 ]'), (0, 1, 2)),
        # The last member of a name counts, also where the first one has been taken out.
        (lambda one: one[:-1] + b', "world_ranks": [2, 1, 0]}', (2, 1, 0)),
        (lambda one: one[:-1] + b', "world\\u005franks": [2, 1, 0]}', (2, 1, 0)),
        (lambda one: b'{"a": {"world_ranks": [7]}, ' + one[1:], (0, 1, 2)),
        (lambda one: b'{"\\"world_ranks": [7], ' + one[1:], (0, 1, 2)),
        (lambda one: one.replace(RANKS, b'"world_ranks": [0, 1, [2]]'), "which is none"),
        (lambda one: one.replace(RANKS, b'"world_ranks": [0, 1, true]'), "which is none"),
        (lambda one: one.replace(RANKS, b'"world_ranks": [0, 1, 1]'), "one rank twice"),
        (lambda one: one.replace(RANKS, b'"world_ranks": [0, 1, 2, 3]'), "4 'world_ranks'"),
        (lambda one: one.replace(RANKS, b'"world_ranks": [0, 1, 2'), "no whole JSON"),
        (lambda one: one.replace(RANKS, b'"world_ranks": null'), "no list 'world_ranks'"),
    ],
)
def test_ranks_that_are_read_once_for_many_files_are_those_of_each(
    change: Callable[[bytes], bytes], expected: tuple[int, ...] | str
) -> None:
    contents = record(0, [0, 1, 2])
    parse(contents, "first")
    if isinstance(expected, str):
        with pytest.raises(DumpError, match=expected):
            parse(change(contents), "other")
    else:
        [part] = parse(change(contents), "other")
        assert part.claims[0].members == expected


def test_no_dump_at_all_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "empty_0").write_bytes(b"")
    with pytest.raises(MisuseError, match="empty_0: it is empty"):
        read_files([tmp_path])


def test_doubles_and_other_jobs_are_left_out(tmp_path: Path) -> None:
    job = simulate(1, "skip")
    paths = write(job, tmp_path / "good", "nccl")
    double = tmp_path / "again_0"
    double.write_bytes(paths[0].read_bytes())
    small = next(one for seed in range(99) if (one := simulate(seed, "", flat=True)).ranks == 3)
    other = tmp_path / "other_1"
    data = flight_recorder(small, 1, "nccl", timing=False)
    other.write_bytes(pickle.dumps(data))
    found = diagnose(read_files([*paths, double, other]))
    assert (found.verdict, found.ranks) == ("never joined", [f"rank {job.victim}"])
    assert any("the same dump" in one for one in found.problems)
    assert any(str(other) in one and "another job" in one for one in found.problems)


def test_versions_that_differ_are_noted(tmp_path: Path) -> None:
    paths = write(simulate(1, ""), tmp_path, "nccl")
    document = pickle.loads(paths[0].read_bytes())
    paths[0].write_bytes(pickle.dumps(document | {"version": "2.4"}))
    assert "2.10, 2.4" in diagnose(read_files(paths)).notes[0]


def test_ras_text_names_the_dead() -> None:
    found = diagnose(Job(parse(RAS_TEXT, "ras.txt")))
    assert (found.verdict, found.ranks) == ("died", ["rank 2"])
    assert "process 77 on 10.0.0.3" in found.evidence[0]


def test_ras_json_without_its_comma(tmp_path: Path) -> None:
    text = write(simulate(1, "died"), tmp_path, "ras_json")[1].read_text()
    broken = _without_comma(text)
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken)
    assert diagnose(Job(parse(broken.encode(), "ras.json"))).verdict == "died"


def _without_comma(text: str) -> str:
    place = text.index('"status"', text.index('"missing_ranks": ['))
    place = text.rindex(",", 0, place)
    return text[:place] + text[place + 1 :]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, bytes]]:
    folder = tmp_path_factory.mktemp("samples")
    found = [("ras.txt", RAS_TEXT)]
    for format_ in FORMATS:
        job = simulate(1, "skip", flat=True)
        path = write(job, folder / format_, format_)[0]
        found.append((path.name, path.read_bytes()))
    return found


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def read_or_refuse(contents: bytes, name: str) -> None:
    try:
        parts = parse(contents, name)
    except DumpError:
        return
    json.dumps(diagnose(Job(parts)).document())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(
    samples: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    name, contents = data.draw(st.sampled_from(samples))
    damaged = bytearray(contents)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        # A pickle's memo may be told to grow without bound: only a reader of its own survives that.
        byte = data.draw(st.sampled_from(b'0aN,.[{]}"-\x00\x85K'))
        damaged[place] = byte
    end = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    if damaged[:1] == b"\x80":
        end = min(end, len(damaged) - 1)
        damaged = bytearray(contents)
    read_or_refuse(bytes(damaged[:end]), name)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, one in value.items():
            found += places(one, (*path, key))
    elif isinstance(value, list):
        for i, one in enumerate(value[:3]):
            found += places(one, (*path, i))
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_wrong_values_anywhere_are_read_or_refused(
    samples: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    name, contents = data.draw(st.sampled_from(samples[1:]))
    is_pickle = contents[:1] == b"\x80"
    document = pickle.loads(contents) if is_pickle else json.loads(contents)
    path = data.draw(st.sampled_from(places(document)))
    inside = document
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = data.draw(PLAIN)
    text = pickle.dumps(document) if is_pickle else json.dumps(document).encode()
    read_or_refuse(text, name)
