"""The simulator in Python: cluster files, results, and the command line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from unisono import cli
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import (
    builtin_clusters,
    explain_path,
    load_cluster,
    parse_cluster,
    simulate,
)

CLUSTERS = Path(__file__).resolve().parents[2] / "clusters"
TEXT = (CLUSTERS / "frontier.yaml").read_text()
GPU_TABLE = CLUSTERS.parent / "studies" / "results" / "gpu_bench_interpreted_4.txt"


def test_every_built_in_cluster_runs_a_ring_within_and_beyond_a_node() -> None:
    assert {"dgx_h100", "frontier", "perlmutter", "gb200_nvl72"} <= set(builtin_clusters())
    for name in builtin_clusters():
        cluster = load_cluster(name)
        assert cluster.name == name
        small = simulate(cluster, "all_reduce", "ring", size_bytes=1 << 20, ranks=4, channels=2)
        assert small.time_us > 0
        if cluster.machine.nodes > 1:
            ranks = 2 * cluster.machine.ranks_per_node
            large = simulate(
                cluster, "all_reduce", "ring", size_bytes=1 << 20, ranks=ranks, channels=2
            )
            assert large.time_us > small.time_us
            assert large.nic_use > 0


def test_every_number_has_a_source() -> None:
    for name in builtin_clusters():
        numbers = load_cluster(name).numbers()
        assert len(numbers) > 30
        assert all(source for _, _, source in numbers)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("200 Gb/s [olcf]", "200 [olcf]", "has no unit"),
        ("200 Gb/s [olcf]", "200 us [olcf]", "has the unit us"),
        ("200 Gb/s [olcf]", "200 Gb/s", "with a source"),
        ("200 Gb/s [olcf]", "200 Gb/s [hearsay]", "[hearsay] is not among"),
        ("200 Gb/s [olcf]", "0 Gb/s [olcf]", "must be above 0"),
        ("200 Gb/s [olcf]", "-5 Gb/s [olcf]", "with a source"),
        ("[0, 0, 1, 1, 2, 2, 3, 3]", "[0, 0, 1, 1]", "each of a node's 8 ranks needs one"),
        ("[0, 0, 1, 1, 2, 2, 3, 3]", "[0, 0, 1, 1, 2, 2, 3, 9]", "must be 0 to 3"),
        ("ranks_per_node: 8", "ranks_per_node: 7.5", "whole number"),
        ('nodes: "9856 [olcf]"', 'nodes: "94 [olcf]"', "joins only 94"),
        ("format: 1", "format: 2", "format"),
        ("format: 1", "format: 1\nformat: 1", "twice"),
        ("format: 1", "format: &a [*a]", "alias"),
        ("format: 1", "format: 1\nspeed: 9", "speed"),
    ],
)
def test_wrong_cluster_files_are_refused_by_name(old: str, new: str, complaint: str) -> None:
    assert old in TEXT
    with pytest.raises(MisuseError) as caught:
        parse_cluster(TEXT.replace(old, new, 1), "here")
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("here: ")


def test_a_cluster_has_no_more_ranks_than_places() -> None:
    with pytest.raises(MisuseError, match="hgx_h200_4 has 4"):
        simulate(load_cluster("hgx_h200_4"), "all_reduce", "ring", size_bytes=1024, ranks=5)


@pytest.mark.parametrize("size_bytes", [10**12, 2**63, 10**30])
def test_buffers_that_no_machine_has_are_refused_at_once(size_bytes: int) -> None:
    """A simulation takes as long as there are bytes."""
    began = time.process_time()
    with pytest.raises(MisuseError, match=r"at most 256 GiB|is too large"):
        simulate(load_cluster("dgx_h100"), "all_reduce", "ring", size_bytes=size_bytes, ranks=8)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("format: 2024-13-45", "month must be in 1..12"),
        (f"format: {'9' * 5000}", "a number of 5000 characters"),
        ("[" * 20_000, "nested too deep"),
        ("{a: " * 70, "nested too deep"),
    ],
    ids=["no date", "a long number", "lists", "mappings"],
)
def test_yaml_that_python_cannot_hold_is_refused_at_once(text: str, complaint: str) -> None:
    began = time.process_time()
    with pytest.raises(MisuseError, match=f"^cluster: .*{complaint}"):
        parse_cluster(text)
    assert time.process_time() - began < 1


def test_shares_of_the_path_are_the_time() -> None:
    one = simulate(
        load_cluster("frontier"), "all_gather", "ring", size_bytes=64 << 20, ranks=32, explain=True
    )
    assert sum(one.shares.values()) == pytest.approx(one.time_us)
    assert len(one.hops) == one.path_messages
    text = explain_path(one)
    assert "critical path" in text
    assert "between nodes" in text


def test_logarithmic_algorithms_win_where_latency_counts() -> None:
    frontier = load_cluster("frontier")

    def time(algorithm: str, size: int, ranks: int) -> float:
        return simulate(
            frontier, "all_gather", algorithm, size_bytes=size, ranks=ranks, channels=4
        ).time_us

    assert time("hierarchical_recursive", 1 << 20, 256) < time("ring", 1 << 20, 256) / 4
    assert time("hierarchical_recursive", 1 << 30, 32) > time("ring", 1 << 30, 32)


class Shell:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["unisono", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = self._capfd.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capfd)


def test_command_line_ranks_algorithms_by_time(shell: Shell) -> None:
    status, output, _ = shell(
        "simulate", "all_gather", "--cluster", "frontier", "--ranks", "16", "--size", "1MB",
        "--algorithm", "all", "--channels", "2", "--json", "-",
    )  # fmt: skip
    assert status == 0
    document: dict[str, Any] = json.loads(output)
    times = [one["time_us"] for one in document["results"]]
    assert len(times) > 5
    assert times == sorted(times)


def test_command_line_explains_and_writes_a_time_line(shell: Shell, tmp_path: Path) -> None:
    timeline = tmp_path / "run.json"
    status, output, _ = shell(
        "simulate", "all_reduce", "--cluster", "dgx_h100", "--ranks", "16", "--size", "1MiB",
        "--algorithm", "ring", "--channels", "2", "--explain", "--timeline", str(timeline),
    )  # fmt: skip
    assert status == 0
    assert "critical path" in output
    events = json.loads(timeline.read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert {bar["pid"] for bar in bars} == set(range(1, 17))
    assert len([event for event in events if event["ph"] == "s"]) == 16 * 2 * 30


def test_command_line_lists_clusters_and_sources(shell: Shell) -> None:
    assert "frontier" in shell("simulate", "--clusters")[1]
    assert "PCCL" not in shell("simulate", "--cluster", "dgx_h100", "--sources")[1]
    status, _, errors = shell("simulate", "all_reduce", "--cluster", "nowhere")
    assert status == 2
    assert "there is no cluster 'nowhere'" in errors


def test_command_line_shows_the_use_of_every_port_and_writes_a_report(
    shell: Shell, tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    report = tmp_path / "report.html"
    status, output, _ = shell(
        "simulate", "all_gather", "--cluster", "clos_three_layer", "--ranks", "32", "--size",
        "1MiB,4MiB", "--algorithm", "ring", "--channels", "1", "--model", "flows", "--use",
        "--html", str(report),
    )  # fmt: skip
    assert status == 0
    # One channel's ring leaves each node from the last rank, and the racks of two nodes likewise.
    assert "node 0 NIC 7" in output
    assert "node 0 NIC 6" not in output
    assert "rack 1 up" in output
    text = report.read_text()
    assert "<svg" in text
    assert "ring simple" in text
    assert "http" not in text.replace("http://www.w3.org", "")


def test_command_line_holds_the_simulator_against_measurements(
    shell: Shell, tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    report = tmp_path / "report.html"
    words = ["simulate", "--cluster", "hgx_h200_4", "--against", str(GPU_TABLE), "--model", "flows"]
    status, output, _ = shell(*words, "all_gather", "--html", str(report))
    assert status == 0
    assert "90th percentile" in output
    assert "100..1000 KB" in output
    assert "direct ll128 x8, measured" in report.read_text()
    status, output, _ = shell(*words, "all_gather", "--json", "-")
    document = json.loads(output)
    assert document["errors"][-1]["decade"] == "all"
    assert document["errors"][-1]["points"] == len(document["points"]) == 14
    status, _, errors = shell(*words, "barrier")
    assert status == 2
    assert "no measurement of barrier" in errors
