"""Training steps: sizes, dependencies, and what parallelism does to the time."""

from typing import Any

import pytest
from unisono.errors import MisuseError
from unisono.simulate import (
    MODELS,
    Device,
    Layout,
    Model,
    Workload,
    load_cluster,
    simulate_workload,
    training_step,
    zero3_step,
)

DEVICE = Device(tflops=100)
SMALL = Model("small", layers=4, hidden=1024, heads=8, sequence=256, vocabulary=4096)


def step(layout: Layout, model: Model = SMALL, batches: int = 2, **options: Any) -> Workload:
    tokens = model.sequence * layout.shard * layout.replicate * batches
    return training_step(model, layout, DEVICE, global_batch_tokens=tokens, **options)


def sizes(workload: Workload, collective: str) -> list[int]:
    return [
        task.call.size_bytes
        for task in workload.lists[0].tasks
        if task.call is not None and task.call.collective == collective
    ]


@pytest.mark.parametrize(
    ("name", "billions"), [("gpt-7b", 6.7), ("gpt-13b", 12.9), ("gpt-30b", 30), ("gpt-175b", 175)]
)
def test_models_have_their_names_parameters(name: str, billions: float) -> None:
    assert MODELS[name].parameters / 1e9 == pytest.approx(billions, rel=0.03)


def test_zero3_messages_are_tens_to_hundreds_of_megabytes() -> None:
    """PCCL, Figure 2 and section 2.1; FSDP's layers pass a gigabyte with larger models."""
    workload = zero3_step("gpt-7b", 128, DEVICE, global_batch_tokens=128 * 2048)
    gathers = sizes(workload, "all_gather")
    assert min(gathers) > 30e6
    assert max(gathers) < 500e6
    layers = training_step(
        "gpt-30b", Layout(shard=128), DEVICE, global_batch_tokens=128 * 2048, gather="layer"
    )
    assert max(sizes(layers, "all_gather")) > 1e9
    # Twice gathered and once reduced, but for the head, whose weights are the embedding's.
    assert len(gathers) == 2 * (4 * 32 + 2)
    assert len(sizes(workload, "reduce_scatter")) == 4 * 32 + 1


@pytest.mark.parametrize(
    "layout",
    [
        Layout(),
        Layout(shard=16),
        Layout(replicate=16),
        Layout(shard=8, replicate=2),
        Layout(tensor=8, shard=2),
        Layout(tensor=2, pipeline=4, shard=2),
        Layout(pipeline=2, replicate=8),
    ],
    ids=str,
)
def test_every_layout_runs_and_computes_what_it_must(layout: Layout) -> None:
    workload = step(layout)
    result = simulate_workload(load_cluster("dgx_a100"), workload, explain=True)
    operations = sum(part.operations for part in SMALL.parts()) * SMALL.layers
    operations += SMALL.head.operations
    # Forward, forward again and backward; every stage has as much, but for the head.
    least_us = 2 * 4 * SMALL.sequence * operations / layout.tensor / layout.pipeline / 100e6 * 0.8
    assert result.compute_us >= least_us
    assert result.time_us >= result.compute_us
    assert sum(result.shares.values()) == pytest.approx(result.time_us)
    if layout.ranks > 1:
        assert result.messages > 0


def test_experts_exchange_tokens() -> None:
    model = Model("moe", layers=2, hidden=512, heads=8, sequence=256, vocabulary=4096, experts=8)
    workload = step(Layout(shard=8, expert=4), model)
    # To the experts and back, forward, and the same backward; two layers, two micro-batches.
    assert len(sizes(workload, "all_to_all")) == 2 * 2 * 2 * 2
    assert len(sizes(workload, "all_reduce")) == 2
    result = simulate_workload(load_cluster("dgx_a100"), workload)
    assert {name for name, *_ in result.algorithms} == {"shard", "expert", "expert_data"}
    alone = step(Layout(shard=8), model)
    assert max(sizes(alone, "all_gather")) > max(sizes(workload, "all_gather"))


def test_a_slow_network_shows_up_as_exposed_communication() -> None:
    cluster = load_cluster("dgx_a100")
    few = simulate_workload(cluster, step(Layout(shard=16), prefetch=0))
    more = simulate_workload(cluster, step(Layout(shard=16), prefetch=2))
    assert few.exposed_us > more.exposed_us > 0
    assert few.compute_us == pytest.approx(more.compute_us)


def test_pipelines_take_turns() -> None:
    """1F1B: p stages and m micro-batches take about (m + p - 1) of a stage's two passes."""
    cluster = load_cluster("dgx_a100")
    one = simulate_workload(cluster, step(Layout(pipeline=2), batches=1)).time_us
    for batches in (2, 6):
        time_us = simulate_workload(cluster, step(Layout(pipeline=2), batches=batches)).time_us
        assert time_us == pytest.approx(one * (batches + 1) / 2, rel=0.15)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(pipeline=7), "4 layers do not fill 7 positions .* at most 6 have work"),
        (Layout(tensor=3), "tensor is 3; small has 8 heads, which it must divide"),
        (Layout(shard=4, expert=2), "expert is 2; it must divide the experts of small, 0"),
        (Layout(shard=0), "shard is 0; it must be 1 or more"),
    ],
)
def test_impossible_layouts_say_what_would_do(layout: Layout, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        step(layout)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(MisuseError, match="no model 'gpt-8b'; there are gpt-125m"):
        zero3_step("gpt-8b", 8, DEVICE, global_batch_tokens=8 * 2048)
    with pytest.raises(MisuseError, match="multiple of 16384"):
        zero3_step("gpt-7b", 8, DEVICE, global_batch_tokens=1000)
    with pytest.raises(MisuseError, match="no option 'batch'"):
        zero3_step("gpt-7b", 8, DEVICE, global_batch_tokens=8 * 2048, batch=3)
    with pytest.raises(MisuseError, match="128 ranks; hgx_h200_4 has 4"):
        simulate_workload(load_cluster("hgx_h200_4"), step(Layout(shard=128)))
