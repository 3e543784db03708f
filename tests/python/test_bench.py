"""The bench: what it measures, what it reports, and that it sees wrong results."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unisono
from unisono import plans
from unisono.bench import driver, measure
from unisono.bench.cases import (
    Case,
    Request,
    collectives,
    list_cases,
    read_cases,
    sizes_between,
    write_cases,
)
from unisono.bench.rows import Row, bus_factor, write_document
from unisono.testing import run_ranks


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 2, 0.5),
        ("gather", 4, 0.75),
        ("scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(collective: str, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == factor


def test_bandwidths_follow_from_bytes_and_time() -> None:
    case = Case("all_reduce", 250_000, "float32", 4)
    row = Row.of(case, 1, "ring", "simple", time_us=500.0, wrong=0)
    assert row.bytes == 1_000_000
    assert row.algbw_gb_s == 2.0
    assert row.busbw_gb_s == 3.0


def test_bytes_are_of_the_larger_of_input_and_output() -> None:
    assert Case("all_gather", 10, "float32", 4).bytes == 160
    assert Case("reduce_scatter", 10, "float16", 4).bytes == 80
    assert Case("broadcast", 10, "float64", 4).bytes == 80
    assert Case("barrier", 1, "float32", 4).bytes == 0


def test_sizes_end_with_the_largest() -> None:
    assert sizes_between(8, 512, 8) == [8, 64, 512]
    assert sizes_between(8, 100, 4) == [8, 32, 100]
    assert sizes_between(8, 8, 2) == [8]
    for wrong in ((0, 8, 2), (9, 8, 2), (8, 64, 1)):
        with pytest.raises(unisono.MisuseError):
            sizes_between(*wrong)


def test_all_means_every_algorithm_that_can_serve() -> None:
    request = Request([], 6, 2, [1000], ["all"], ["all"])
    found = {(case.collective, case.algorithm) for case in list_cases(request)}
    placement = plans.Placement(6, 2)
    wanted = {
        (entry.collective, entry.name)
        for entry in plans.algorithms()
        if not entry.why_not(placement)
    }
    assert found == wanted
    assert {case.protocol for case in list_cases(request)} == set(unisono.protocols())


def test_auto_leaves_the_choice_to_the_table() -> None:
    cases = list_cases(Request([], 4, 1, [64]))
    assert [case.collective for case in cases] == collectives()
    assert {(case.algorithm, case.protocol) for case in cases} == {("", "")}


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"collectives": ["all_redcue"]}, "all_reduce"),
        ({"algorithms": ["rign"]}, "ring"),
        ({"protocols": ["simpel"]}, "simple"),
        ({"type": "float31"}, "float32"),
        ({"operation": "some"}, "sum"),
        ({"root": 4}, "0 to 3"),
    ],
)
def test_unknown_names_are_answered_with_near_ones(change: dict[str, Any], hint: str) -> None:
    with pytest.raises(unisono.MisuseError, match=hint):
        list_cases(replace(Request(ranks=4), **change))


class Picky:
    """An entry of the registry that wants a power of two."""

    name, collective = "ring", "all_gather"

    def why_not(self, placement: plans.Placement, **_: object) -> str:
        power = placement.ranks & (placement.ranks - 1) == 0
        return "" if power else f"needs a power of two, not {placement.ranks} ranks"


def test_an_algorithm_that_cannot_serve_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "algorithms", lambda collective="": [Picky()])
    named = Request(["all_gather"], 6, 1, [64], ["ring"])
    with pytest.raises(unisono.MisuseError, match="power of two, not 6"):
        list_cases(named)
    with pytest.raises(unisono.MisuseError, match="nothing to measure"):
        list_cases(replace(named, algorithms=["all"]))
    assert len(list_cases(replace(named, ranks=8))) == 1


def test_cases_survive_being_written() -> None:
    cases = list_cases(Request([], 4, 1, [64, 4096], ["all"], ["all"]))
    assert read_cases(write_cases(cases)) == cases


MIXED = [
    Case("all_reduce", 1, "float32", 3),
    Case("all_reduce", 1031, "bfloat16", 3, operation="average"),
    Case("all_reduce", 500, "float8_e4m3", 3, operation="pre_multiplied_sum", in_place=True),
    Case("reduce_scatter", 77, "int16", 3, operation="product", in_place=True),
    Case("reduce", 300, "uint64", 3, operation="max", root=2),
    Case("all_gather", 13, "float8_e5m2", 3, in_place=True),
    Case("broadcast", 100_003, "float64", 3, root=1),
    Case("broadcast", 1000, "int8", 3, root=1, in_place=True),
    Case("gather", 50, "float16", 3, root=1, in_place=True),
    Case("scatter", 50, "uint8", 3, root=2),
    Case("all_to_all", 211, "int32", 3),
    Case("all_to_all_v", 100, "float32", 3),
    Case("barrier", 1, "float32", 3),
]


@pytest.mark.parametrize("case", MIXED, ids=lambda case: f"{case.collective}-{case.type}")
def test_right_results_are_found_right(case: Case) -> None:
    request = Request(ranks=3, seconds=0.001)
    seed = int(np.random.default_rng().integers(1 << 62))
    found = run_ranks(3, lambda comm: measure.measure(case, comm, request, seed))
    assert [one.wrong for one in found] == [0, 0, 0]
    assert found[0].time_us > 0


def test_a_wrong_result_a_changed_input_and_a_stray_write_are_counted() -> None:
    case = Case("all_reduce", 64, "int32", 2)

    def spoil(comm: unisono.Communicator) -> list[int]:
        buffers = measure.Buffers(case, comm, seed=5)
        buffers.prepare()
        comm._native.run(buffers.call)
        found = [buffers.wrong()]
        buffers.target[3] ^= 1
        found.append(buffers.wrong())
        buffers.source[7] ^= 1
        found.append(buffers.wrong())
        buffers._guarded[0] ^= 1
        found.append(buffers.wrong())
        return found

    assert run_ranks(2, spoil) == [[0, 1, 2, 3]] * 2


def test_an_output_that_nobody_wrote_is_wrong() -> None:
    case = Case("all_gather", 100, "int64", 2)

    def unwritten(comm: unisono.Communicator) -> int:
        buffers = measure.Buffers(case, comm, seed=6)
        buffers.prepare()
        return buffers.wrong()

    assert all(wrong >= 199 for wrong in run_ranks(2, unwritten))


def test_ranks_report_a_row_for_each_case(tmp_path: Path) -> None:
    request = Request(
        ["all_reduce", "barrier"],
        3,
        2,
        [8, 5000],
        ["ring", "dissemination"],
        ["all"],
        seconds=0.001,
    )
    cases = list_cases(request)
    started: list[Case] = []
    rows = driver.run(request, cases, started.append)
    assert started == cases
    assert [(row.collective, row.bytes) for row in rows] == [
        (case.collective, case.bytes) for case in cases
    ]
    assert [row.wrong for row in rows] == [0] * len(cases)
    write_document(tmp_path / "rows.json", request, rows)
    document = json.loads((tmp_path / "rows.json").read_text())
    assert [Row(**row) for row in document["rows"]] == rows
    assert list(document["rows"][0]) == [
        "collective", "bytes", "type", "ranks", "nodes", "implementation", "algorithm",
        "protocol", "time_us", "algbw_gb_s", "busbw_gb_s", "wrong",
        "calls", "least_us", "most_us", "repeats", "outliers",
    ]  # fmt: skip
    assert all(row.calls >= 1 for row in rows)
    assert document["request"] == asdict(request)
    assert document["machine"]["cores"]


def test_a_rank_that_fails_is_named_with_its_case() -> None:
    request = Request(["all_reduce"], 2, 1, [64], seconds=0.001)
    impossible = Case("all_reduce", 16, "float32", 2, algorithm="no_such_algorithm")
    with pytest.raises(driver.BenchError, match=r"no_such_algorithm.*rank [01]"):
        driver.run(request, [impossible])
