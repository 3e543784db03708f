"""Ranks in the same state are simulated once, and take as long as if each were by itself."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import (
    Device,
    Layout,
    Task,
    TaskList,
    Workload,
    load_cluster,
    simulate_workload,
    training_step,
)


@pytest.mark.parametrize("layout", [{"replicate": 2}, {"shard": 2}, {"tensor": 4, "replicate": 2}])
def test_two_data_parallel_ranks_are_simulated_once(layout: dict[str, int]) -> None:
    """Though 16 channels do not divide the gradients of a layer, if all ranks do alike."""
    cluster = load_cluster("dgx_h100")
    device = Device(tflops=400)
    step = training_step("gpt-350m", Layout(**layout), device, global_batch_tokens=8192)
    step = step.with_algorithms({"all_reduce": "recursive_doubling"})
    both = [simulate_workload(cluster, step, collapse=collapse) for collapse in (True, False)]
    assert both[0].not_collapsed == ""
    assert (both[0].simulated_ranks, both[1].simulated_ranks) == (1, step.ranks)
    assert both[0].time_us == both[1].time_us
    assert both[0].tasks == both[1].tasks


def test_messages_that_channels_do_not_divide_take_as_long_collapsed() -> None:
    cluster = load_cluster("dgx_h100")
    step = Workload("ring", 16, {"world": [list(range(16))]}, message_channels=3)
    tasks = TaskList(range(16))
    for size in (1_000_003, 7, 48):
        for kind, peer in (("send", 1), ("recv", -1)):
            tasks.add(
                Task(kind, kind, f"{kind}{size}", communicator="world", peer=peer, size_bytes=size)
            )
    step.lists.append(tasks)
    both = [simulate_workload(cluster, step, collapse=collapse) for collapse in (True, False)]
    assert both[0].simulated_ranks < both[1].simulated_ranks
    assert both[0].time_us == both[1].time_us
