"""Fitting clusters to measurements, and the errors that are left."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unisono import cli
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

from unisono.simulate import (
    Cluster,
    Error,
    Measurement,
    Predictor,
    builtin_clusters,
    calibrate,
    errors_by_decade,
    load_cluster,
    number_at,
    parse_cluster,
    read_measurements,
    to_yaml,
    with_numbers,
)
from unisono.simulate.calibrate import split
from unisono.simulate.predict import Prediction

RESULTS = Path(__file__).resolve().parents[2] / "studies" / "results"
GPU_TABLE = RESULTS / "gpu_bench_interpreted_4.txt"

TRUTH = {
    "protocols.simple.launch": 5200.0,
    "protocols.simple.recv_overhead.inside": 2300.0,
    "node.bandwidth": 270.0,
    "reduction_bandwidth": 6.0,
}


def points(file_of: Cluster) -> list[Measurement]:
    """What a cluster would measure."""
    cases = [
        Measurement(collective, algorithm, "simple", 4, 1, size, "float32", 1.0, channels=24)
        for collective, algorithm in (("all_reduce", "ring"), ("all_gather", "direct"))
        for size in (1 << 12, 1 << 16, 1 << 20, 1 << 24)
    ]
    predictor = Predictor(file_of.file, "flows")
    return [replace(one, time_us=predictor.time_us(one)) for one in cases]


@pytest.mark.slow
def test_numbers_come_back_from_the_times_that_they_make() -> None:
    slower = {"reduction_bandwidth": 200.0}
    start = Cluster(with_numbers(load_cluster("hgx_h200_4").file, slower, "a start"))
    truth = Cluster(with_numbers(start.file, TRUTH, "made up"))
    found = calibrate(start, points(truth), numbers=list(TRUTH), rounds=15)
    assert {place: found.values[place] for place in TRUTH} == pytest.approx(TRUTH, rel=0.05)
    assert len(found.fitted) == len(found.held) == 4
    assert max(abs(error.relative) for error in found.held) < 0.02
    again = parse_cluster(to_yaml(found.file))
    fitted = number_at(again.file, "node.bandwidth")
    assert "unisono calibrate" in again.file.sources[fitted.source]
    assert fitted.source != number_at(start.file, "node.bandwidth").source


def test_a_star_is_one_number_of_all_protocols() -> None:
    start = load_cluster("hgx_h200_4")
    place = "protocols.*.launch"
    names = [f"protocols.{name}.launch" for name in ("simple", "ll", "ll128")]
    truth = Cluster(with_numbers(start.file, dict.fromkeys(names, 9000.0), "made up"))
    found = calibrate(start, points(truth), numbers=[place], rounds=10)
    assert found.values == {place: pytest.approx(9000.0, rel=0.02)}
    assert found.units == {place: "ns"}
    assert len({number_at(found.file, name).value for name in names}) == 1


def test_what_cannot_be_fitted_is_refused() -> None:
    cluster = load_cluster("hgx_h200_4")
    good = points(cluster)
    with pytest.raises(MisuseError, match="1 measurements"):
        calibrate(cluster, good[:1])
    with pytest.raises(MisuseError, match="no number 'node.speed' in hgx_h200_4; there are .*node"):
        calibrate(cluster, good, numbers=["node.speed"])
    with pytest.raises(MisuseError, match="hgx_h200_4 has 4"):
        calibrate(cluster, [replace(one, ranks=8) for one in good])


def test_every_cluster_is_written_as_it_was_read() -> None:
    for name in builtin_clusters():
        cluster = load_cluster(name)
        assert parse_cluster(to_yaml(cluster.file)).file == cluster.file


def test_the_gpu_benchs_table_is_read() -> None:
    rows = read_measurements(GPU_TABLE)
    assert len(rows) == 68
    ring = next(row for row in rows if row.algorithm == "ring" and row.collective == "all_reduce")
    assert ring == Measurement(
        "all_reduce", "ring", "simple", 4, 1, 4194304, "bfloat16", 53.66, 32, 20, 4, 131072,
        of_first=True,
    )  # fmt: skip


def test_zero_copy_rows_are_simple_and_specialised_kernels_have_the_clusters_channels(
    tmp_path: Path,
) -> None:
    table = tmp_path / "table.txt"
    rows = [
        "all_gather direct ll128 1 65536 5.8 8.5",
        "all_gather direct zero_copy 30 8388608 35 1",
    ]
    head = ["0, NVIDIA H200, 1", "collective algorithm proto ch bytes us GB/s bus"]
    table.write_text("\n".join(head + rows))
    assert [row.channels for row in read_measurements(table)] == [1, 30]
    table.write_text("\n".join(["specialised kernels: here", *head, *rows]))
    found = read_measurements(table)
    assert [(row.protocol, row.channels) for row in found] == [("ll128", 0), ("simple", 30)]


@pytest.mark.parametrize(
    ("cluster", "files", "median", "ninetieth"),
    [
        ("hgx_h200_4", ["gpu_bench_interpreted_4.txt", "gpu_bench_interpreted_slots_4.txt"], 3, 8),
        (
            "hgx_h200_4_specialised",
            ["gpu_bench_specialised_4.txt", "gpu_bench_zero_copy_4.txt"],
            6,
            15,
        ),
    ],
)
def test_measured_times_of_our_plans_are_met(
    cluster: str, files: list[str], median: float, ninetieth: float
) -> None:
    every = [row for file in files for row in read_measurements(RESULTS / file)]
    # On the first of them one_shot is a kernel that interprets no plan.
    points = [row for row in every if cluster != "hgx_h200_4" or row.algorithm != "one_shot"]
    errors, refused = Predictor(load_cluster(cluster).file, "flows").check(split(points)[1])
    assert not refused
    off = sorted(100 * abs(error.relative) for error in errors)
    assert off[len(off) // 2] <= median
    assert off[len(off) * 9 // 10] <= ninetieth


def test_a_benchs_json_is_read(tmp_path: Path) -> None:
    row = {
        "collective": "all_gather", "bytes": 4096, "type": "float32", "ranks": 4, "nodes": 1,
        "implementation": "unisono", "algorithm": "ring", "protocol": "ll", "time_us": 12.5,
        "algbw_gb_s": 0.0, "busbw_gb_s": 0.0, "wrong": 0,
    }  # fmt: skip
    file = tmp_path / "rows.json"
    theirs = {**row, "implementation": "nccl", "algorithm": ""}
    file.write_text(json.dumps({"rows": [row, theirs, {**row, "collective": "send_recv"}]}))
    [ours] = read_measurements(file)
    assert (ours.bytes, ours.protocol, ours.time_us) == (4096, "ll", 12.5)
    [chosen] = read_measurements(file, "nccl")
    assert chosen.algorithm == ""
    with pytest.raises(MisuseError, match="no measurement of 'gloo'"):
        read_measurements(file, "gloo")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no bench's JSON"),
        ("{}", "no 'rows'"),
        ('{"rows": [1]}', "no bench's JSON"),
        ('{"rows": [{"implementation": "unisono"}]}', "no 'collective'"),
        ("a table of nothing", "no measurement"),
        ("", "no measurement"),
    ],
)
def test_what_is_no_bench_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(MisuseError) as caught:
        read_measurements(file)
    assert complaint in str(caught.value)
    assert str(file) in str(caught.value)


def error(size: int, relative: float) -> Error:
    one = Measurement("all_reduce", "ring", "simple", 4, 1, size, "float32", 100.0)
    return Error(one, Prediction("ring", "simple", 1, 100.0 * (1 + relative)))


def test_errors_are_told_by_decade() -> None:
    rows = errors_by_decade([error(8, 0.5), error(1000, -0.1), error(9999, 0.2), error(10000, 0.0)])
    assert [(row.decade, row.points) for row in rows] == [
        ("1..10 B", 1), ("1..10 KB", 2), ("10..100 KB", 1), ("all", 4),
    ]  # fmt: skip
    assert rows[1].median == pytest.approx(0.15)
    assert rows[1].worst == pytest.approx(0.2)
    assert rows[-1].ninetieth == pytest.approx(0.41)


@given(st.lists(st.tuples(st.integers(1, 10**12), st.floats(-0.9, 9)), max_size=30))
def test_decades_hold_all_points(values: list[tuple[int, float]]) -> None:
    rows = errors_by_decade([error(size, relative) for size, relative in values])
    assert sum(row.points for row in rows) == 2 * len(values)
    for row in rows:
        assert 0 <= row.median <= row.ninetieth <= row.worst + 1e-12


def test_command_line_fits_and_writes_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "fitted.yaml"
    words = ["calibrate", str(GPU_TABLE), "--cluster", "hgx_h200_4", "--rounds", "1",
             "--number", "node.bandwidth", "--model", "loggops", "-o", str(output)]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["unisono", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    said = capfd.readouterr().out
    assert "held back" in said
    assert "90th percentile" in said
    assert load_cluster(output).name == "hgx_h200_4"


PASTED = """\
$ ./all_reduce_perf -b 1M -e 1G -f 8 -g 8
#  Rank  0 Group  0 Pid  1 on  node1 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  1 on  node1 device  1 [0x43] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  1 on  node1 device  2 [0x52] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  1 on  node1 device  3 [0x61] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    40.51   25.88   45.30      0
     8388608       2097152     float     sum      -1    83.46  100.51  175.90      0
   134217728      33554432     float     sum      -1    647.9  207.16  362.52      0
  1073741824     268435456     float     sum      -1   4036.0  266.04  465.57      0
"""


@pytest.mark.slow
def test_nccl_tests_output_can_be_pasted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unisono", "calibrate", "-", "--cluster", "dgx_h100"],
        input=PASTED, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 points of dgx_h100" in done.stdout
    assert "measure next" in done.stdout
