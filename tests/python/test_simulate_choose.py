"""Plans chosen by the simulator: the best of all, asked once, and taken by workloads."""

from __future__ import annotations

import pytest
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import choose_plan, load_cluster, parse_workload, simulate, simulate_workload

MIB = 1 << 20


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "broadcast"])
@pytest.mark.parametrize("size", [4 << 10, 64 * MIB])
def test_the_best_of_all_plans_comes_first(collective: str, size: int) -> None:
    cluster = load_cluster("dgx_h100")
    best, *others = choose_plan(cluster, collective, size_bytes=size, ranks=16)
    for one in (best, *others):
        time = simulate(cluster, collective, one.algorithm, size_bytes=size, ranks=16).time_us
        assert best.time_us <= 1.1 * time
        assert time >= one.time_us
        assert one.verdict == "slower" or time == one.time_us


def test_stated_costs_alone_would_take_a_slower_plan() -> None:
    found = choose_plan(load_cluster("dgx_h100"), "all_reduce", size_bytes=64 * MIB, ranks=16)
    cheapest = min(found, key=lambda one: one.stated_us)
    assert found[0].algorithm == "bidirectional_ring"
    assert cheapest.algorithm == "hierarchical_recursive_direct"
    assert cheapest.time_us > 1.15 * found[0].time_us


def test_all_protocols_are_compared_and_answers_are_kept() -> None:
    cluster = load_cluster("dgx_h100")
    protocols = ["simple", "ll", "ll128"]
    small = choose_plan(cluster, "all_reduce", size_bytes=64, ranks=8, protocols=protocols)
    assert {one.protocol for one in small} == set(protocols)
    again = choose_plan(cluster, "all_reduce", size_bytes=64, ranks=8, protocols=protocols)
    assert again is small


@pytest.mark.slow
def test_plans_of_too_many_messages_are_left_to_their_stated_costs() -> None:
    found = choose_plan(load_cluster("frontier"), "all_reduce", size_bytes=64 * MIB, ranks=1024)
    large = [one for one in found if one.verdict == "too_large"]
    assert found[0].verdict == "simulated"
    assert "one_shot" in {one.algorithm for one in large}
    assert all(one.time_us == 0 for one in large)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"ranks": 4, "root": 4}, "root 4 is not a rank"),
        ({"ranks": 4, "protocols": ["fast"]}, "fast"),
        ({"ranks": 1 << 20}, "dgx_h100 has"),
        ({"ranks": 4, "type": "float31"}, "float31"),
    ],
)
def test_calls_that_cannot_be_are_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        choose_plan(load_cluster("dgx_h100"), "broadcast", size_bytes=MIB, **wrong)  # type: ignore[arg-type]


def test_workloads_take_the_plan_that_is_chosen() -> None:
    cluster = load_cluster("dgx_h100")
    text = """
format: 1
name: sum
ranks: 16
communicators: {world: {size: 16}}
programs:
  - ranks: all
    steps:
      - all_reduce: {size: 64 MiB, over: world}
"""
    result = simulate_workload(cluster, parse_workload(text))
    best = choose_plan(cluster, "all_reduce", size_bytes=64 * MIB, ranks=16)[0]
    assert result.algorithms == [("world", "all_reduce", 64 * MIB, best.algorithm)]
    assert result.time_us == pytest.approx(best.time_us)
