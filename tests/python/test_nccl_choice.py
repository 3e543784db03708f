"""What NCCL chooses, as the simulator has it from NCCL's sources, and measurements of NCCL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import Predictor, load_cluster, read_measurements
from unisono.simulate.calibrate import split
from unisono.simulate.nccl import GENERATIONS, Call, Choice, channels, choose, formula_us
from unisono.simulate.nccl_chain import chain_plan

STUDIES = Path(__file__).resolve().parents[2] / "studies"
KIB, MIB = 1 << 10, 1 << 20


def all_reduce(size: int, ranks: int = 4, nodes: int = 1) -> Call:
    return Call("all_reduce", size, ranks, nodes)


def test_protocols_follow_each_other_with_the_size() -> None:
    chosen = [
        choose(all_reduce(size), GENERATIONS["hopper"]) for size in (KIB, MIB, 4 * MIB, 64 * MIB)
    ]
    assert chosen == [
        Choice("ring", "ll"), Choice("ring", "ll"), Choice("ring", "ll128"),
        Choice("ring", "simple"),
    ]  # fmt: skip


def test_trees_serve_small_sizes_on_many_nodes() -> None:
    assert choose(all_reduce(64 * KIB, 512, 64), GENERATIONS["ampere"]).algorithm == "tree"
    assert choose(all_reduce(1024 * MIB, 16, 2), GENERATIONS["ampere"]) == Choice("ring", "simple")
    assert choose(Call("all_gather", 64 * KIB, 512, 64), GENERATIONS["ampere"]).algorithm == "ring"


def test_the_formula_is_that_of_nccl_where_it_can_be_done_by_hand() -> None:
    gpu = GENERATIONS["hopper"]
    # 8.4 us and 6 hops of 3.4; 360 GB/s times 4/6.
    simple = formula_us(all_reduce(240_000_000), Choice("ring", "simple"), gpu)
    assert simple == pytest.approx(8.4 + 6 * 3.4 + 1000)
    # 6.8 us and 2 times 3 hops of 0.6; 360 GB/s times 0.92 / 3.8 / 2, all of it at 64 B.
    tree = formula_us(all_reduce(64), Choice("tree", "ll"), gpu)
    assert tree == pytest.approx(6.8 + 6 * 0.6 + 64 / (180_000 * 0.92 / 3.8))


@pytest.mark.parametrize(
    ("size", "choice", "expected"),
    [
        (32 * KIB, Choice("tree", "simple"), 1),
        (64 * KIB, Choice("tree", "simple"), 2),
        (512 * KIB, Choice("tree", "simple"), 16),
        (MIB, Choice("tree", "simple"), 24),
        (64 * KIB, Choice("ring", "ll"), 4),
        (64 * KIB, Choice("ring", "ll128"), 4),
        (8, Choice("ring", "ll"), 1),
    ],
)
def test_a_channel_is_used_where_its_threads_have_enough_to_do(
    size: int, choice: Choice, expected: int
) -> None:
    assert channels(all_reduce(size), choice, 24) == expected


@given(
    st.integers(1, 1 << 34),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]),
    st.sampled_from(sorted(GENERATIONS)),
    st.integers(1, 64),
    st.integers(1, 8),
)
def test_more_bytes_never_take_fewer_channels(
    size: int, collective: str, gpu: str, nodes: int, ranks_per_node: int
) -> None:
    ranks = max(2, nodes * ranks_per_node)
    small, large = (Call(collective, each, ranks, nodes) for each in (size, 2 * size))
    choice = choose(small, GENERATIONS[gpu])
    assert 1 <= channels(small, choice, 32) <= channels(large, choice, 32) <= 32
    assert (
        0
        < formula_us(small, choice, GENERATIONS[gpu])
        <= formula_us(large, choice, GENERATIONS[gpu])
    )


@pytest.mark.parametrize("name", ["nccl_us", "peer_us"])
def test_the_device_bench_is_read_in_graphs(tmp_path: Path, name: str) -> None:
    row = {"bytes": MIB, "type": "bfloat16", "in_place": False, "ranks": 4, "time_us": 1.0}
    rows = [
        row | {"collective": "all_reduce", "mode": "graph", name: 17.9},
        row | {"collective": "all_reduce", "mode": "eager", name: 19.0},
        row | {"collective": "all_to_all", "mode": "graph", name: 13.0},
    ]
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"request": {}, "rows": rows}))
    (one,) = read_measurements(path, "nccl")
    path.write_text(json.dumps({"request": {"peer": "symm_mem"}, "rows": rows}))
    with pytest.raises(MisuseError, match="has no measurement of 'nccl'"):
        read_measurements(path, "nccl")
    assert (one.collective, one.time_us, one.calls, one.library) == ("all_reduce", 17.9, 20, "nccl")


@pytest.mark.parametrize(
    ("cluster", "file", "model", "median", "ninetieth"),
    [
        ("hgx_h200_4_nccl", "results/gpu_nccl_choice_4.json", "flows", 0.05, 0.15),
        ("hgx_h200_4_nccl", "results/gpu_nccl_choice_4_unfitted.json", "flows", 0.05, 0.15),
        ("a3_mega", "simulator/public_nccl/16xh100.json", "loggops", 0.05, 0.15),
    ],
)
def test_measured_times_of_nccl_are_met(
    cluster: str, file: str, model: str, median: float, ninetieth: float
) -> None:
    points = read_measurements(STUDIES / file, "nccl")
    errors, refused = Predictor(load_cluster(cluster).file, model).check(points)
    assert not refused
    off = sorted(abs(error.relative) for error in errors)
    assert off[len(off) // 2] <= median
    assert off[len(off) * 9 // 10] <= ninetieth


@given(st.integers(2, 9), st.sampled_from(["simple", "ll", "ll128"]), st.integers(1, 5))
def test_the_chain_is_a_right_all_reduce(ranks: int, protocol: str, channels: int) -> None:
    report = chain_plan(ranks, protocol, channels).verify(slots=1)
    assert report.ok, report


def test_the_tree_of_a_node_is_met() -> None:
    path = STUDIES / "results" / "gpu_nccl_protocols_4.json"
    points = [one for one in read_measurements(path, "nccl") if one.algorithm == "tree"]
    held = split(points)[1]
    errors = Predictor(load_cluster("hgx_h200_4_nccl_tree").file, "flows").errors(held)
    off = sorted(abs(error.relative) for error in errors)
    assert off[len(off) // 2] <= 0.05
    assert off[len(off) * 9 // 10] <= 0.15
