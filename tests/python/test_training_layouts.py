"""Training steps with contexts, chunks of stages, uneven stages and sharded optimizers."""

from collections import Counter
from typing import Any

import pytest
from unisono.errors import MisuseError
from unisono.simulate import (
    Device,
    Layout,
    Model,
    Workload,
    load_cluster,
    parse_workload,
    simulate_workload,
    training_step,
)

DEVICE = Device(tflops=100)
SMALL = Model("small", layers=6, hidden=512, heads=8, sequence=256, vocabulary=1024)
MIXTURE = Model("moe", layers=2, hidden=512, heads=8, sequence=256, vocabulary=1024, experts=8)


def step(layout: Layout, model: Model = SMALL, batches: int = 4, **options: Any) -> Workload:
    tokens = model.sequence * layout.shard * layout.replicate * batches
    return training_step(model, layout, DEVICE, global_batch_tokens=tokens, **options)


def calls(workload: Workload, over: str, place: int = 0) -> Counter[str]:
    return Counter(
        task.call.collective
        for task in workload.lists[place].tasks
        if task.call is not None and task.communicator == over
    )


@pytest.mark.parametrize(
    "layout",
    [
        Layout(context=4),
        Layout(context=2, shard=4),
        Layout(context=2, shard=2, replicate=2),
        Layout(pipeline=2, virtual=3, replicate=2),
        Layout(pipeline=4, virtual=2),
        Layout(pipeline=4, replicate=2),
        Layout(tensor=2, context=2, pipeline=2, virtual=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", ["replicated", "sharded"])
def test_every_layout_runs_and_all_ranks_compute_what_they_must(
    layout: Layout, optimizer: str
) -> None:
    workload = step(layout, recompute=False, optimizer=optimizer)
    result = simulate_workload(load_cluster("dgx_a100"), workload)
    computed = sum(
        task.duration_ns * len(one.ranks) for one in workload.lists for task in one.tasks
    )
    tokens = SMALL.sequence * layout.shard * layout.replicate * 4
    updates = sum(
        task.duration_ns * len(one.ranks)
        for one in workload.lists
        for task in one.tasks
        if task.name == "update"
    )
    # Forward and twice as much backward, each operation on one rank.
    assert computed - updates == pytest.approx(SMALL.operations * tokens / 100e3)
    assert result.messages > 0


def test_contexts_gather_keys_and_sum_their_gradients() -> None:
    workload = step(Layout(context=4), recompute=False)
    layers, batches = SMALL.layers, 4
    assert calls(workload, "context") == {
        "all_gather": 2 * layers * batches,
        "reduce_scatter": layers * batches,
    }
    [size] = {
        task.call.size_bytes
        for task in workload.lists[0].tasks
        if task.call is not None and task.communicator == "context"
    }
    # Keys and values of the whole sequence, of 16 bits.
    assert size == SMALL.sequence * 2 * SMALL.key_width * 2
    # Parameters are alike on all of them, so their gradients are summed over all of them.
    assert [len(group) for group in workload.communicators["replicate"]] == [4]


def test_a_sharded_optimizer_scatters_gradients_and_gathers_parameters() -> None:
    plain = calls(step(Layout(replicate=8)), "replicate")
    sharded = calls(step(Layout(replicate=8), optimizer="sharded"), "replicate")
    assert set(plain) == {"all_reduce"}
    assert sharded == {"reduce_scatter": plain["all_reduce"], "all_gather": 1}


def test_experts_may_be_shared_by_copies() -> None:
    workload = step(Layout(replicate=8, expert=4), MIXTURE)
    assert [len(group) for group in workload.communicators["expert"]] == [4, 4]
    assert calls(workload, "expert") == {"all_to_all": 2 * 2 * 2 * 4}
    simulate_workload(load_cluster("dgx_a100"), workload)


@pytest.mark.parametrize("virtual", [1, 2, 3])
def test_chunks_shrink_the_bubble_as_their_closed_form_says(virtual: int) -> None:
    """(p - 1) / (v m) of the time without a bubble, where messages take next to nothing."""
    slow = Device(tflops=0.01)
    model = Model("even", layers=24, hidden=256, heads=4, sequence=64, vocabulary=1)
    batches, stages = 8, 4
    workload = training_step(
        model, Layout(pipeline=stages, virtual=virtual), slow,
        global_batch_tokens=batches * model.sequence, recompute=False,
    )  # fmt: skip
    result = simulate_workload(load_cluster("dgx_a100"), workload)
    busy_us = max(sum(task.duration_ns for task in one.tasks) for one in workload.lists) / 1e3
    bubble = result.time_us / busy_us - 1
    assert bubble == pytest.approx((stages - 1) / (virtual * batches), rel=0.03)


def test_uneven_stages_have_fewer_layers_at_the_ends() -> None:
    model = Model("uneven", layers=6, hidden=512, heads=8, sequence=256, vocabulary=1024)
    workload = step(Layout(pipeline=4), model, recompute=False)
    layers = [
        len({task.name.split(".")[1] for task in one.tasks if task.name.startswith("fwd0.layer")})
        for one in workload.lists
    ]
    assert layers == [1, 2, 2, 1]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(virtual=2), "virtual is 2; chunks of a stage need a pipeline of 2 or more"),
        (Layout(context=3), "context is 3; it must divide the sequence, 256"),
        (Layout(pipeline=3, virtual=4), "6 layers do not fill 12 positions"),
        (Layout(pipeline=3, virtual=2), "4 micro-batches; with virtual 2, pipeline 3 must divide"),
        (Layout(context=0), "context is 0; it must be 1 or more"),
    ],
    ids=str,
)
def test_impossible_layouts_say_what_would_do(layout: Layout, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        step(layout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recompute": "half"}, "recompute is 'half'; it must be none, selective or full"),
        ({"optimizer": "split"}, "optimizer is 'split'; it must be 'replicated' or 'sharded'"),
        ({"gradient_bytes": 3}, "gradient_bytes is 3; it must be 2 or 4"),
        ({"gather": "all"}, "gather is 'all'; it must be 'layer' or 'matrix'"),
    ],
    ids=str,
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        step(Layout(), **options)


def test_a_file_has_all_of_it() -> None:
    text = """
format: 1
name: step
training:
  model: llama3-70b
  layout: {tensor: 4, pipeline: 4, context: 2, virtual: 5, replicate: 2}
  device: h100
  global_batch_tokens: 131072
  recompute: selective
  optimizer: sharded
"""
    workload = parse_workload(text)
    assert workload.ranks == 64
    assert workload.peak_tflops == 989
    assert {"tensor", "context", "replicate", "pipeline"} == set(workload.communicators)
    with pytest.raises(MisuseError, match="no device 'h1'; there are a100"):
        parse_workload(text.replace("h100", "h1"))
    with pytest.raises(MisuseError, match="does not fit: a GPU of stage 0"):
        parse_workload(text.replace("virtual: 5, replicate: 2", "virtual: 1, replicate: 2")
                       .replace("tensor: 4", "tensor: 1"))  # fmt: skip
