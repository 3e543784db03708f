"""What a bench says around its table: a head, doubts, spread, speed in words, an average."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import unisono
from python.test_cli import Shell, shell
from unisono.bench.cases import Case, Request
from unisono.bench.repeats import count_outliers
from unisono.bench.rows import Row
from unisono.bench.tables import speed_in_words, table_of, three_digits
from unisono.bench.words import average_bandwidth, disturbed, doubt_of, head_of
from unisono.names import operation_named, type_named

__all__ = ["shell"]

FACTS = {
    "unisono": "1.2.3", "cores": 4, "processor": "Processor X", "memory_bytes": 8 << 30,
    "load": [0.25, 0.1, 0.1],
}  # fmt: skip


def row(size: int, time_us: float, library: str = "unisono") -> Row:
    case = Case("all_reduce", size // 4, "float32", 4)
    return Row.of(case, 1, "ring", "simple", time_us, 0, library)


def request(ranks: int, nodes: int = 1) -> Request:
    return Request(
        ["all_reduce"], ranks, nodes, [8], ["auto"], ["auto"], "float32", "sum", 0, False, 0, 0.1
    )


def test_the_head_says_where_it_ran() -> None:
    assert head_of(request(8, 2), FACTS) == [
        "unisono 1.2.3, 8 ranks on 2 nodes, 2 ranks a core",
        "Processor X, 4 cores, 8 GiB of memory, load 0.2",
    ]
    assert head_of(request(1), FACTS)[0] == "unisono 1.2.3, 1 rank on 1 node"


@pytest.mark.parametrize(
    ("ranks", "cores", "load", "said"),
    [
        (2, 2, 70.2, "load 70 on 2 cores: these times are not trustworthy"),
        (2, 2, 1.0, ""),
        (8, 64, 50.0, ""),
        (8, 64, 57.0, "load 57 on 64 cores: these times are not trustworthy"),
    ],
)
def test_a_load_that_leaves_no_core_for_a_rank_is_said(
    ranks: int, cores: int, load: float, said: str
) -> None:
    assert doubt_of(ranks, {**FACTS, "cores": cores, "load": [load, 0, 0]}) == said


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.0001234, "0.000123"), (0.0999, "0.0999"), (1, "1.00"), (9.996, "10.0"),
        (12.34, "12.3"), (99.95, "100"), (123.4, "123"), (999.6, "1000"), (12345.6, "12346"),
        (0.00001234, "1.23e-05"),
    ],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_spread_and_outliers_are_told() -> None:
    assert count_outliers([1.0, 1.1, 1.0, 1.6, 9.0], 1.0) == 2
    calm = replace(row(8, 10.0), least_us=9.0, most_us=11.0, repeats=9)
    wild = replace(row(64, 10.0), least_us=9.0, most_us=42.0, repeats=9, outliers=2)
    assert table_of([calm, wild, row(512, 10.0)]).cells("spread\n(%)") == ["20", "330", "-"]
    assert disturbed([calm]) == ""
    assert disturbed([calm, wild]) == (
        "1 of 2 results have repeats that took more than 1.5 times the median, up to 4.20 times "
        "(all_reduce of 64 B): something else ran meanwhile"
    )


def test_the_average_is_of_bus_bandwidths() -> None:
    rows = [row(4000, 1.0), row(4000, 2.0)]
    assert [one.busbw_gb_s for one in rows] == [6.0, 3.0]
    assert average_bandwidth(rows) == "average bus bandwidth: 4.50 GB/s"
    assert average_bandwidth([]) == "average bus bandwidth: 0 GB/s"


def test_speed_is_said_in_words() -> None:
    rows = [
        row(8, 10.0), row(8, 20.0, "gloo"), row(8, 40.0, "mpich"),
        row(64, 10.0), row(64, 5.0, "gloo"), row(64, 40.0, "mpich"),
    ]  # fmt: skip
    gloo, mpich, best = speed_in_words(rows)
    assert gloo == (
        "unisono is as fast as gloo, as the geometric mean of 2 points; at the worst, all_reduce "
        "of 64 B, it is 0.500 times as fast as it."
    )
    assert mpich.startswith("unisono is 4.00 times as fast as mpich, as ")
    assert best.startswith("unisono is as fast as the fastest other library at each point")
    assert len(speed_in_words([one for one in rows if one.implementation != "mpich"])) == 1


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("float", "float32"), ("half", "float16"), ("bf16", "bfloat16"), ("fp32", "float32"),
     ("double", "float64"), ("int", "int32"), ("f8e4m3", "float8_e4m3"), ("int64", "int64"),
     ("flaot", "flaot")],
)  # fmt: skip
def test_nccls_names_of_types(theirs: str, ours: str) -> None:
    assert type_named(theirs) == ours
    if ours != theirs:
        assert ours in dict(unisono.data_types())


@pytest.mark.parametrize(
    ("theirs", "ours"), [("prod", "product"), ("avg", "average"), ("max", "max"), ("x", "x")]
)
def test_nccls_names_of_reductions(theirs: str, ours: str) -> None:
    assert operation_named(theirs) == ours
    if ours != "x":
        assert ours in unisono.reduce_operations()


def test_one_gpu_is_refused_with_what_is_right(shell: Shell) -> None:
    ended = shell("bench", "all_reduce", "-g", "1")
    assert ended.status == 2
    assert "-g 1 is one rank, which has no peer" in ended.errors
    assert "write -n 8 for 8 ranks" in ended.errors


def test_a_bench_has_a_head_and_ends_with_the_average(shell: Shell) -> None:
    ended = shell(
        "bench", "all_reduce", "-g", "2", "-b", "8", "-e", "64", "-d", "float", "-o", "avg",
        "--iters", "18",
    )  # fmt: skip
    assert ended.status == 0, ended.errors
    first, *_, last = ended.output.rstrip("\n").split("\n")
    assert first.startswith(f"unisono {unisono.__version__}, 2 ranks on 1 node")
    assert last.startswith("average bus bandwidth: ")
    assert "float32" in ended.output


def test_rows_hold_their_repeats(shell: Shell) -> None:
    words = ("bench", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "--iters", "18", "--json", "-")
    (found,) = json.loads(shell(*words).output)["rows"]
    assert found["repeats"] * found["calls"] == 18
    assert 0 < found["least_us"] <= found["time_us"] <= found["most_us"]
