"""NCCL on machines that nobody fitted: its choice by version, times, intervals and calibration."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unisono.cli.nccl import check_nccl, simulate_nccl
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

from unisono.simulate import nccl, read_measurements
from unisono.simulate.nccl.tables import tables_of

ROOT = Path(__file__).resolve().parents[2]
MACHINES = ROOT / "studies" / "simulator" / "machines"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def choice(machine: str, collective: str, size: int, ranks: int, nodes: int = 1) -> str:
    found = nccl.predict(nccl.find_machine(machine), nccl.Call(collective, size, ranks, nodes))
    return f"{found.choice.algorithm}/{found.choice.protocol}"


def test_what_nccls_log_says_on_8_h200_is_chosen() -> None:
    # stas00/ml-engineering: ring with LL up to 1 MiB, then NVLS with Simple.
    assert choice("dgx_h200", "all_reduce", MIB, 8) == "ring/ll"
    assert choice("dgx_h200", "all_reduce", 2 * MIB, 8) == "nvls/simple"


def test_trees_are_taken_where_nics_are_too_slow_for_a_ring() -> None:
    # Measured bandwidths there are more than a ring over these NICs can have.
    assert choice("a3_mega", "all_reduce", GIB, 16, 2) == "tree/simple"
    assert choice("ndv4", "all_reduce", GIB, 16, 2) == "ring/simple"
    assert choice("dgx_h100", "all_to_all", GIB, 16, 2) == "point_to_point/simple"


@pytest.mark.parametrize(
    ("version", "found"),
    [("2.19.4", (2, 19)), ("2.22.3", (2, 21)), ("2.24.3", (2, 23)), ("2.27.7", (2, 25)),
     ("2.30.7", (2, 28)), ("", (2, 28))],
)  # fmt: skip
def test_tables_go_by_version(version: str, found: tuple[int, int]) -> None:
    assert tables_of(version).version == found


@pytest.mark.parametrize("version", ["2.18.3", "2.33.0", "3.0", "two"])
def test_unknown_versions_are_refused(version: str) -> None:
    with pytest.raises(MisuseError, match="NCCL"):
        tables_of(version)


@settings(max_examples=50)
@given(
    st.sampled_from(nccl.machine_names()), st.sampled_from(COLLECTIVES), st.integers(8, 33),
    st.sampled_from([1, 2, 3, 4, 16]), st.integers(1, 8),
)  # fmt: skip
def test_predictions_lie_in_their_intervals(
    name: str, collective: str, bits: int, nodes: int, local: int
) -> None:
    machine = nccl.find_machine(name)
    ranks = max(2, nodes * local) if nodes == 1 else nodes * local
    one = nccl.predict(machine, nccl.Call(collective, 1 << bits, ranks, nodes))
    assert 0 < one.low_us < one.time_us < one.high_us < math.inf
    assert one.choice in [candidate for candidate, _ in one.why]
    # A byte cannot be faster than the links.
    wire = (1 << bits) / ranks * (ranks - 1 if collective != "all_to_all" else 0)
    assert one.time_us >= 0.3 * wire / machine.hardware.nvlink.value / 1000


def test_a_calibration_fits_and_is_written() -> None:
    machine = nccl.load_machine(MACHINES / "dgxc_h100.yaml")
    path = ROOT / "studies" / "simulator" / "public_nccl" / "8xh100_dgxc.json"
    points = nccl.read_points(path, machine)
    done = nccl.calibrate_machine(machine, points, ["a"])
    assert done.held < 0.08
    assert len(done.next_points) == 4
    left = [left for _, left in done.next_points]
    assert left == sorted(left, reverse=True)
    again = nccl.parse_machine(nccl.machine_to_yaml(done.machine))
    assert again == done.machine
    call = points[20].call
    wide, narrow = nccl.predict(machine, call), nccl.predict(again, call)
    assert not wide.is_fitted
    assert narrow.is_fitted
    assert narrow.high_us / narrow.low_us <= wide.high_us / wide.low_us


def test_too_few_points_are_refused() -> None:
    machine = nccl.find_machine("dgx_h100")
    with pytest.raises(MisuseError, match="needs 4"):
        nccl.calibrate_machine(
            machine, [nccl.Point(machine, nccl.Call("all_reduce", 8, 8, 1), 9.0)], []
        )


def test_all_to_alls_of_nccl_can_be_held(tmp_path: Path) -> None:
    path = ROOT / "studies" / "simulator" / "public_nccl" / "8xb200_vultr.json"
    assert not [r for r in read_measurements(path, "nccl") if r.collective == "all_to_all"]
    out = tmp_path / "a.json"
    check_nccl("hgx_b200", [path], "all_to_all", None, out)
    points = json.loads(out.read_text())["points"]
    off = sorted(abs(point["error"]) for point in points)
    assert len(points) == 24
    assert off[len(off) // 2] < 0.15


def test_the_command_says_what_was_chosen_and_why(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    simulate_nccl("all_reduce", "hgx_b200", "8", 0, ["4MiB"], None, out)
    document = json.loads(out.read_text())
    (one,) = document["results"]
    assert not document["fitted"]
    assert (one["algorithm"], one["protocol"]) == ("nvls", "simple")
    assert min(one["nccl_estimates_us"], key=one["nccl_estimates_us"].get) == "nvls/simple"


def latency_us(machine: str, call: nccl.Call, choice: nccl.Choice) -> float:
    """What its hops between nodes take with NCCL's own constants."""
    terms = nccl.terms_of(nccl.find_machine(machine), call, choice)
    return sum(
        term.coefficient for term in terms.latencies if "network_hop." in str(term.parameters)
    )


def test_chunks_of_a_ring_cross_every_edge_between_nodes() -> None:
    ring = nccl.Choice("ring", "ll")
    hop_us = tables_of("").network_us["ring"][0]
    for nodes in (2, 4):
        gather = nccl.Call("all_gather", KIB, 8 * nodes, nodes)
        assert latency_us("dgx_h100", gather, ring) == pytest.approx(nodes * hop_us)
        reduce = nccl.Call("all_reduce", KIB, 8 * nodes, nodes)
        assert latency_us("dgx_h100", reduce, ring) == pytest.approx(2 * nodes * hop_us)
    # With a rank on each node there is an edge less than nodes.
    alone = nccl.Call("all_gather", KIB, 4, 4)
    assert latency_us("dgx_h100", alone, ring) == pytest.approx(3 * hop_us)


def test_a_channel_of_an_nvls_tree_leaves_a_node_through_one_nic() -> None:
    machine = nccl.find_machine("gb200_nvl72")
    graph = nccl.platform_of(machine, 20).nvls
    assert graph is not None
    assert graph.between_gb_s == machine.hardware.nic_bandwidth.value

    def busiest_us(nodes: int) -> float:
        call = nccl.Call("all_reduce", GIB, 72 * nodes, nodes)
        return nccl.terms_of(machine, call, nccl.Choice("nvls_tree", "simple")).between.coefficient

    # 16 of the 72 NICs; inner nodes send up once and down twice.
    assert busiest_us(2) == pytest.approx(GIB / (16 * graph.between_gb_s) / 1000)
    assert busiest_us(20) == pytest.approx(3 * busiest_us(2))


def test_chunks_that_are_not_cut_to_the_call_fill_the_pipeline_longer() -> None:
    fixed = nccl.find_machine("a3_mega")
    assert fixed.stack.chunk_bytes == 512 * KIB
    cut = fixed.model_copy(update={"stack": fixed.stack.model_copy(update={"chunk_bytes": 0})})
    call = nccl.Call("all_reduce", 16 * MIB, 16, 2)
    assert nccl.predict(fixed, call).time_us > 1.3 * nccl.predict(cut, call).time_us
