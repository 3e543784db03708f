"""The bench on CUDA devices: its arithmetic anywhere, what it measures where there are devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unisono
from typer.testing import CliRunner
from unisono import _bench
from unisono import _unisono as native
from unisono.bench import device_driver
from unisono.bench.cases import Case
from unisono.bench.device import list_cases
from unisono.bench.device_rows import DeviceRequest, DeviceRow, calls_of
from unisono.bench.inputs import Inputs
from unisono.bench.ratios import points_of
from unisono.cli.app import app
from unisono.cli.bench_device import COLLECTIVES, against, bench_device
from unisono.report import write_report
from unisono.testing import run_ranks


def row(
    collective: str = "all_gather",
    size: int = 1 << 20,
    ranks: int = 4,
    time_us: float = 10.0,
    peer_us: float = 15.0,
    push_gb_s: float = 100.0,
) -> DeviceRow:
    return DeviceRow(
        collective, size, "bfloat16", "graph", False, ranks, time_us, 0, peer_us, 0, "", push_gb_s
    )


def devices() -> int:
    try:
        return native.cuda_device_count()
    except unisono.Error:
        return 0


def test_a_row_says_its_share_of_the_push_limit() -> None:
    one = row(size=4_000_000, time_us=50.0)
    assert one.ratio == pytest.approx(0.3)
    assert one.busbw_gb_s == pytest.approx(60.0)  # three of four blocks leave a device
    assert one.push_share == pytest.approx(0.6)
    assert row("all_reduce", 4_000_000, time_us=50.0).push_share == pytest.approx(1.2)
    assert row("send_recv", 4_000_000, time_us=50.0).push_share == pytest.approx(0.8)
    assert row(push_gb_s=0.0).push_share == 0.0
    assert row(peer_us=0.0).ratio == 0.0


def test_tables_have_what_was_measured() -> None:
    rows = [row(), row("all_reduce", 1024, time_us=2.0, peer_us=8.0), row(ranks=2, peer_us=5.0)]
    table = device_driver.device_table(rows)
    assert table.row_count == 3
    assert table.cells("ratio") == ["1.50", "4.00", "0.50"]
    assert table.cells("GPUs") == ["4", "4", "2"]
    assert table.cells("wrong") == ["0", "0", "0"]
    assert table.cells("us") == ["10.0", "2.00", "10.0"]
    summary = device_driver.device_summary(rows)
    columns = ("GPUs", "collective", "all sizes", "least")
    names = list(zip(*map(summary.cells, columns), strict=True))
    assert ("4", "all", "2.45", "1.50") in names
    assert ("2", "all_gather", "0.50", "0.50") in names
    assert device_driver.push_table(rows).row_count == 3


def test_the_output_begins_with_where_and_ends_with_the_average(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from unisono.cli import bench_device as command

    told = {"peer": "NCCL 2.28", "device_bytes": 1 << 20}
    monkeypatch.setattr(command.native, "cuda_device_count", lambda: 4)
    monkeypatch.setattr(command, "run_on_devices", lambda _, n: ([row(ranks=n)], told))
    request = DeviceRequest(["all_gather"], [1 << 20], ["bfloat16"], ["graph"], [False])
    assert bench_device(request, [4]) == 0
    lines = capfd.readouterr().out.rstrip("\n").split("\n")
    assert lines[0].startswith(f"unisono {unisono.__version__}, 4 CUDA devices, ")
    assert " cores, " in lines[1]
    assert lines[-1] == "average bus bandwidth: 78.6 GB/s"


def test_the_report_holds_each_way_of_calling_apart(tmp_path: Path) -> None:
    rows = [row(size=size, ranks=ranks) for size in (1024, 4096) for ranks in (2, 4)]
    made = device_driver.report_rows(rows, "nccl")
    points = points_of(made)
    assert [point.ours.collective for point in points] == [
        *["all_gather, bfloat16, graph, 2 GPUs"] * 2,
        *["all_gather, bfloat16, graph, 4 GPUs"] * 2,
    ]
    assert points[0].ours.busbw_gb_s == pytest.approx(1024 / 2 / 10.0 / 1000)
    assert points[0].ratio("nccl") == pytest.approx(1.5)
    pytest.importorskip("jinja2", reason="jinja2 is not installed: unisono[report]")
    page = tmp_path / "page.html"
    write_report(page, made, title="on devices")
    assert page.read_text().count("<svg") >= 4


def test_a_ring_brings_what_the_rank_before_sent() -> None:
    case = Case("send_recv", 1000, "int32", 3)
    given = [Inputs(case, 3, rank, seed=1).input().table for rank in range(3)]
    for rank in range(3):
        (expected,) = Inputs(case, 3, rank, seed=1).expected()
        np.testing.assert_array_equal(expected.table, given[rank - 1])
        assert (expected.phase, expected.count) == (0, 1000)


def test_cases_in_place_are_those_that_can_be() -> None:
    request = DeviceRequest(list(COLLECTIVES), [4096], in_place=[False, True])
    placed = {case.collective for case, _ in list_cases(request, 4) if case.in_place}
    assert placed == set(COLLECTIVES) - {"all_to_all", "send_recv"}


def test_fewer_of_large_calls_are_timed_together() -> None:
    assert [calls_of(size) for size in (1024, 4 << 20, 64 << 20, 4 << 30)] == [100, 20, 5, 2]


def test_peers_that_cannot_be_are_told() -> None:
    every = DeviceRequest(list(COLLECTIVES), [1024])
    assert against(every, []) == every
    symmetric = against(every, ["symm_mem"])
    assert (symmetric.collectives, symmetric.in_place) == (["all_reduce"], [True])
    for request, names, text in (
        (every, ["gloo"], "no peer on CUDA devices 'gloo'"),
        (every, ["nccl", "symm_mem"], "one at a time"),
        (DeviceRequest(["broadcast"], [1024]), ["symm_mem"], "no collective of symm_mem"),
        (DeviceRequest(["all_reduce"], [1], ["int8"]), ["symm_mem"], "no type of symm_mem"),
        (
            DeviceRequest(["all_reduce"], [1], options={"max_sms": 1}),
            ["symm_mem"],
            "cannot be set for",
        ),
    ):
        with pytest.raises(unisono.MisuseError, match=text):
            against(request, names)


def test_memory_of_nccl_takes_its_library() -> None:
    for memory, text in (("nccl", "add --against nccl"), ("host", "no memory 'host'")):
        with pytest.raises(unisono.MisuseError, match=text):
            bench_device(DeviceRequest(["broadcast"], [1024], memory=memory), [2])


@pytest.mark.skipif(devices() == 0, reason="there is no CUDA device")
def test_devices_count_what_differs() -> None:
    def count(comm: unisono.Communicator) -> list[int]:
        bench = _bench.DeviceBench(comm._native, 0, 1 << 20)
        table = np.random.default_rng(1).integers(0, 1 << 16, 97).astype(np.uint16)
        given = (table.ctypes.data, len(table), 5, 100_000, 2)
        bench.fill(bench.output_address, *given)
        found = [bench.count_wrong(bench.output_address, *given)]
        spoilt = np.array([table[5] ^ 1], np.uint16)
        bench.copy(bench.output_address, spoilt.ctypes.data, 2)
        found.append(bench.count_wrong(bench.output_address, *given))
        bench.poison(bench.output_address, 200_000, 0xA5)
        found.append(bench.count_wrong(bench.output_address, *given))
        return found

    ((none, one, all_of_them),) = run_ranks(1, count)
    assert (none, one) == (0, 1)
    assert all_of_them > 99_000


@pytest.mark.skipif(devices() < 2, reason="there are no two CUDA devices")
def test_the_command_measures_and_checks(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed: unisono[report]")
    page = tmp_path / "page.html"
    command = ["bench", "--device", "cuda", "-n", "2", "--min", "1KiB", "--max", "1MiB"]
    done = CliRunner().invoke(app, [*command, "--factor", "32", "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "send_recv" in page.read_text()


@pytest.mark.skipif(devices() > 0, reason="there is a CUDA device")
def test_without_a_device_the_bench_says_so() -> None:
    done = CliRunner().invoke(app, ["bench", "--device", "cuda", "-n", "2", "--max", "8"])
    assert done.exit_code != 0
