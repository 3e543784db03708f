"""The output of nccl-tests and rccl-tests: what may stand before a row, programs, JSON, devices."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

from unisono.simulate import nccl

MIB = 1 << 20
ROW = (
    "     1048576        262144     float     sum      -1     82.1    12.7    24.7      0     82.3"
)
WHOLE = nccl.Call("all_reduce", MIB, 16, 2)


def table(rows: str = ROW, ranks: int = 16, program: str = "all_reduce_perf") -> str:
    devices = "".join(
        f"#  Rank {r:2} Group  0 Pid   1000 on  node{r // 8} device {r % 8} [0000:1b:00] H100\n"
        for r in range(ranks)
    )
    return f"# Collective test starting: {program}\n{devices}{rows}\n"


def read(text: str, ranks: int = 0, nodes: int = 0) -> list[nccl.Point]:
    return nccl.parse_nccl_tests(text, "x", nccl.find_machine("dgx_h100"), ranks, nodes)


def test_a_table_is_read() -> None:
    (one,) = read(table())
    assert (one.call, one.time_us) == (WHOLE, 82.1)


@pytest.mark.parametrize(
    "prefix",
    [
        "nccl-1  | ", "[0] ", "[default0]:", "[1,0]<stdout>:", "0: ", " 12: ", "[rank3]: ",
        "2026-01-02T03:04:05.678901Z ", "[2026-01-02 03:04:05] ", "2026-01-02 03:04:05,678 INFO ",
        "Jan 02 03:04:05 node0 run[4711]: ", "4711 ", "pod/nccl-0 4711 ", "12:00:01.123 stdout F ",
        "\x1b[36mnccl-1  |\x1b[0m ", "\x1b[1;32m",
    ],
)  # fmt: skip
def test_anything_may_stand_before_a_row(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in table().splitlines())
    (one,) = read(text)
    assert (one.call, one.time_us) == (WHOLE, 82.1)
    assert nccl.is_nccl_tests(text)


@pytest.mark.parametrize(
    ("program", "collective"),
    [
        ("all_reduce_perf_mpi", "all_reduce"),
        ("all_gather_perf-2.18", "all_gather"),
        ("nccl_reduce_scatter_perf", "reduce_scatter"),
        ("./build/alltoall_perf.x", "all_to_all"),
    ],
)
def test_names_of_programs_may_have_more(program: str, collective: str) -> None:
    assert [one.call.collective for one in read(table(program=program))] == [collective]
    pasted = table().replace("# Collective test starting: all_reduce_perf", f"$ {program} -b 1M")
    assert [one.call.collective for one in read(pasted)] == [collective]


def test_a_folder_of_another_name_is_not_the_program() -> None:
    line = "$ ./gather_perf/all_reduce_perf -b 1M > alltoall_perf.log"
    pasted = table().replace("# Collective test starting: all_reduce_perf", line)
    assert [one.call.collective for one in read(pasted)] == ["all_reduce"]


@pytest.mark.parametrize("other", ["broadcast_perf", "reduce_perf", "alltoallv_perf", "own_perf"])
def test_rows_of_other_programs_are_not_those_before(other: str) -> None:
    points = read(table() + table(program=other) + table(program="alltoall_perf", ranks=8))
    calls = [(one.call.collective, one.call.ranks) for one in points]
    assert calls == [("all_reduce", 16), ("all_to_all", 8)]
    with pytest.raises(MisuseError, match=rf"x has rows of {other} alone.* it has all_reduce_perf"):
        read(table(program=other))


def test_a_time_of_seconds_is_no_root() -> None:
    # Before 2.11 there was no column of roots.
    with pytest.raises(MisuseError, match="has no row of nccl-tests"):
        read(table("1073741824 268435456 float sum 1234567 0.87 1.52 0"))
    (long,) = read(table("8589934592 2147483648 float sum -1 1234567 6.96 13.0 0"))
    assert long.time_us == 1234567


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "x has no row of nccl-tests"),
        (table().split("\n", 1)[1], "no program is named before the rows"),
        (table(ranks=0), "x:2: no devices are listed before the rows; say --ranks"),
        (table(ranks=1), r"x:3: one device is listed, and one rank sends nothing.*MPI=1"),
    ],
)
def test_output_that_says_too_little_is_refused(text: str, match: str) -> None:
    with pytest.raises(MisuseError, match=match):
        read(text)


def test_what_devices_do_not_say_options_do() -> None:
    for ranks in (0, 1):
        (one,) = read(table(ranks=ranks), ranks=16, nodes=2)
        assert one.call == WHOLE


def nccl_json(**config: int) -> dict[str, Any]:
    """What `all_reduce_perf_mpi -J` writes on two nodes with a process and 8 GPUs on each."""
    devices = [
        {"rank": 8 * n, "group": 0, "pid": 1, "hostname": f"node{n}", "device": 0} for n in range(2)
    ]
    row = {"size": MIB, "count": 262144, "type": "float", "redop": "sum", "root": "    -1"}
    return {
        "version": 2,
        "args": ["nccl-tests/build/all_reduce_perf_mpi", "-J", "alltoall_perf.json"],
        "config": {"nthreads": 1, "ngpus": 8, **config, "devices": devices},
        "results": [
            {**row, "out_of_place": {"time": 82.1, "nwrong": 0.0}, "in_place": {"time": 83.0}},
            {**row, "out_of_place": None, "in_place": {"time": 83.0}},
        ],
    }


def test_json_of_nccl_tests_is_read() -> None:
    text = json.dumps(nccl_json())
    assert nccl.is_nccl_tests(text)
    (one,) = read(text)
    assert (one.call, one.time_us) == (WHOLE, 82.1)
    (small,) = read(json.dumps(nccl_json(ngpus=4, nthreads=1)))
    assert (small.call.ranks, small.call.nodes) == (8, 2)


def rccl_json(**more: int) -> list[dict[str, Any]]:
    """What `all_reduce_perf -Z json -x` writes."""
    row = {"numCycle": 0, "name": "AllReduce", "size": MIB, "type": "float", "redop": "sum",
           "time": 82.1, "algBw": 12.7, "busBw": 24.7, "wrong": "0", **more}  # fmt: skip
    other = {**row, "name": "AlltoAll", "size": 2 * MIB}
    return [{**row, "inPlace": 0}, {**row, "inPlace": 1, "time": 90.0}, {**other, "inPlace": 0}]


def test_json_of_rccl_tests_is_read() -> None:
    text = json.dumps(rccl_json(nodes=2, ranks=8, ranksPerNode=4, gpusPerRank=2))
    assert nccl.is_nccl_tests(text)
    first, second = read(text)
    assert (first.call, first.time_us) == (WHOLE, 82.1)
    assert second.call == nccl.Call("all_to_all", 2 * MIB, 16, 2)
    # A build without MPI does not say how many there were.
    assert read(json.dumps(rccl_json()), ranks=16, nodes=2)[0].call == WHOLE
    with pytest.raises(MisuseError, match=r"x: row 0: no devices are listed"):
        read(json.dumps(rccl_json()))


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ([{"inPlace": 0}], "it has no 'name'"),
        ([{"inPlace": "a", "name": "AllReduce"}], "not nccl-tests' or rccl-tests' JSON"),
        ({"args": [], "results": []}, "it has no 'config'"),
        ({**nccl_json(), "args": ["a.out"]}, "no program is named"),
        ({**nccl_json(), "results": 5}, "not nccl-tests' or rccl-tests' JSON"),
        ({"args": [], "results": [], "config": {"nthreads": 1, "ngpus": 1, "devices": []}}, "JSON"),
        (nccl_json(ngpus=1 << 40), "ngpus make 1099511627776 ranks; at most 1048576"),
        (nccl_json(ngpus=1 << 20), "devices make 2097152 ranks"),
        (rccl_json(ranks=1 << 40), "ranks make 1099511627776 ranks"),
        ([{**rccl_json()[0], "size": float("inf")}], "not nccl-tests' or rccl-tests' JSON"),
        ([{**rccl_json(ranks=8)[0], "time": float("inf")}], "x has no row of nccl-tests"),
    ],
)
def test_json_that_is_wrong_is_refused(document: Any, match: str) -> None:
    with pytest.raises(MisuseError, match=match):
        read(json.dumps(document))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_text_crashes_the_reader(data: st.DataObject) -> None:
    right = data.draw(st.sampled_from(
        [table(), json.dumps(nccl_json()), json.dumps(rccl_json(ranks=8, nodes=2))]
    ))  # fmt: skip
    junk = st.sampled_from(
        ["9" * 5000, "-1", "1e999", "NaN", "null", "[]", "{}", '"', "\n", "# Rank 99999999999 on a",
         "\x1b[3", "\u0661", " 8 8 float sum -1 1e999 1 ", "gather_perf", "Infinity", "[" * 5000]
    )  # fmt: skip
    text = right
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        word = data.draw(st.one_of(junk, st.text(max_size=4)))
        text = text[:at] + word + text[at + data.draw(st.integers(0, 12)) :]
    nccl.is_nccl_tests(text)
    with contextlib.suppress(MisuseError):
        for point in read(text):
            assert point.call.ranks >= 2
            assert 0 < point.time_us < math.inf


def test_the_bench_of_this_library_is_not_nccl_tests(tmp_path: Path) -> None:
    row = {
        "collective": "all_reduce", "bytes": MIB, "type": "float32", "ranks": 8, "nodes": 1,
        "implementation": "nccl", "algorithm": "ring", "protocol": "ll", "time_us": 30.0,
        "busbw_gb_s": 1.0,
    }  # fmt: skip
    text = json.dumps({"rows": [row, {**row, "collective": "broadcast"}]})
    assert not nccl.is_nccl_tests(text)
    file = tmp_path / "rows.json"
    file.write_text(text)
    (one,) = nccl.read_points(file, nccl.find_machine("dgx_h100"))
    # What a row says that ran is predicted, not what NCCL would choose.
    assert one.choice == nccl.Choice("ring", "ll")
