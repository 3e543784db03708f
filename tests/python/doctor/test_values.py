"""What calls are compared by, and values that cannot be used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from python.doctor.dumps import write
from python.doctor.flights import Flight, Made, steps, write_flights
from python.doctor.jobs import simulate
from unisono.doctor import diagnose, read_files

LISTS = ("CT_pastColls", "CT_currentColls", "CT_pendingColls")


def change_calls(path: Path, change: dict[str, Any], which: int) -> None:
    """Changes one of the calls of an NCCLX dump's world; they are JSON in JSON."""
    times, document = path.stat(), json.loads(path.read_text())
    dump = document["world-hash"]
    calls = [(name, place) for name in LISTS for place in range(len(json.loads(dump[name])))]
    name, place = calls[which]
    made = json.loads(dump[name])
    made[place] |= change
    dump[name] = json.dumps(made)
    path.write_text(json.dumps(document))
    os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))


def test_an_operation_that_differs_is_another_call(tmp_path: Path) -> None:
    job = simulate(1, "network", flat=True)
    paths = write(job, tmp_path, "ncclx")
    other = (job.victim + 1) % job.ranks
    for rank, path in enumerate(paths):
        operation = "ncclMax" if rank == other else "ncclSum"
        for which in range(len(job.calls[rank])):
            change_calls(path, {"redOp": operation}, which)
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == ("other call", [f"rank {other}"]), found.paragraph
    assert "(ncclMax)" in found.evidence[0] + found.evidence[1]


@pytest.mark.parametrize(
    "change", [{"count": "many"}, {"startTs": {}}, {"root": -9}, {"dataType": [1]}, {"redOp": 1.5}]
)
def test_an_odd_value_costs_itself_and_no_verdict(tmp_path: Path, change: dict[str, Any]) -> None:
    job = simulate(1, "outside", flat=True)
    paths = write(job, tmp_path, "ncclx")
    other = paths[(job.victim + 1) % job.ranks]
    change_calls(other, change, 0)
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == ("stuck outside communication", [f"rank {job.victim}"])
    [name] = change
    assert [name in one and str(other) in one for one in found.problems] == [True]


def test_a_call_that_cannot_be_placed_blames_nobody(tmp_path: Path) -> None:
    """The victim's rank may be in it."""
    job = simulate(1, "outside", flat=True)
    paths = write(job, tmp_path, "ncclx")
    change_calls(paths[job.victim], {"collId": "x", "opCount": "x"}, -1)
    found = diagnose(read_files(paths))
    assert (found.verdict, found.ranks) == ("undecided", [])


@pytest.mark.parametrize(
    ("member", "value", "difference"),
    [("output_sizes", [[512]], "size"), ("output_dtypes", ["Half"], "type")],
)
def test_outputs_are_compared(
    tmp_path: Path, member: str, value: list[Any], difference: str
) -> None:
    """The inputs of all ranks are alike."""
    flights = [Flight([*steps("world", 9), Made("world", 10, 20, kind="_all_gather_base")])
               for _ in range(4)]  # fmt: skip
    flights[2].changes = {member: value}
    found = diagnose(read_files([write_flights(tmp_path, {"world": [0, 1, 2, 3]}, flights)]))
    assert (found.verdict, found.ranks) == ("other call", ["rank 2"]), found.paragraph
    assert found.difference == difference
