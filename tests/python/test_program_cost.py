"""What a program costs on a cluster, without a run."""

from __future__ import annotations

import pytest
from unisono import simulate
from unisono.errors import MisuseError
from unisono.lang import program

CLUSTER = simulate.load_cluster("dgx_h100")


@program("all_gather", in_place=True)
def direct(p):
    for rank in range(p.ranks):
        for to in range(p.ranks):
            if to != rank:
                p.chunk(rank, "output", rank).copy(to)


def test_the_cost_is_that_of_its_plan() -> None:
    for nodes in (1, 2):
        plan = direct.compile(16 if nodes == 2 else 8, nodes).plan
        simulated = simulate.simulate_plan(CLUSTER, plan, size_bytes=1 << 20, nodes=nodes)
        assert direct.cost(CLUSTER, "1MiB", plan.ranks, nodes) == simulated.time_us
        assert direct.cost(CLUSTER, 1 << 20, plan.ranks, nodes) == simulated.time_us


def test_more_data_and_more_nodes_cost_more() -> None:
    small, large = (direct.cost(CLUSTER, size, 8) for size in ("1MiB", "64MiB"))
    assert 0 < small < large < direct.cost(CLUSTER, "64MiB", 8, 2)


def test_options_are_those_of_compile() -> None:
    assert direct.cost(CLUSTER, 64, 8, protocol="ll") != direct.cost(CLUSTER, 64, 8)
    assert direct.cost(CLUSTER, 64, 8, in_place=True) > 0


@pytest.mark.parametrize(
    ("cluster", "size", "ranks", "said"),
    [
        ("dgx_h100", "1MiB", 8, r"cluster is 'dgx_h100'; it must be one of .*load_cluster\(name\)"),
        (CLUSTER, "much", 8, "much"),
        (simulate.load_cluster("hgx_h200_4"), "1MiB", 8, "ranks is 8; hgx_h200_4 has 4"),
    ],
)
def test_what_cannot_be_is_refused(cluster: object, size: str, ranks: int, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        simple.cost(cluster, size, ranks)


@program("broadcast", in_place=True)
def simple(p):
    for rank in range(1, p.ranks):
        p.chunk(0, "output", 0).copy(rank)
