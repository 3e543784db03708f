"""Training steps as workloads: every kind of parallelism that `Layout` has.

workload = zero3_step("gpt-7b", 1024, Device(tflops=120), global_batch_tokens=4 << 20)
result = simulate_workload(load_cluster("frontier"), workload)

Communicators are "tensor", "context", "shard", "replicate", "pipeline", "expert" and "expert_data";
ranks are numbered with tensor fastest, then context, shard, replicate and pipeline.
"""

from unisono.errors import MisuseError
from unisono.simulate.kernels import Device
from unisono.simulate.layout import Layout
from unisono.simulate.models import Model, find_model
from unisono.simulate.schedule import check_batches, split_layers
from unisono.simulate.training_memory import check_memory
from unisono.simulate.training_options import Options, options_of
from unisono.simulate.training_stage import Stage
from unisono.simulate.workload import Workload


def zero3_step(
    model: str | Model, ranks: int, device: Device, *, global_batch_tokens: int, **options: object
) -> Workload:
    """A ZeRO-3 step over `ranks`: parameters are gathered, gradients reduce-scattered, by matrix.

    Args:
        model: A name of MODELS, or a model.
        ranks: All of which share the parameters.
        device: What computes.
        global_batch_tokens: The tokens of the whole step.
        options: See `Options`.
    """
    chosen: dict[str, object] = {"gather": "matrix"} | options
    return training_step(
        model, Layout(shard=ranks), device, global_batch_tokens=global_batch_tokens, **chosen
    )


def training_step(
    model: str | Model,
    layout: Layout,
    device: Device,
    *,
    global_batch_tokens: int,
    **options: object,
) -> Workload:
    """One optimizer step: micro-batches forward and backward, and the update.

    Args:
        model: A name of MODELS, or a model.
        layout: Who shares what.
        device: What computes.
        global_batch_tokens: The tokens of the whole step; whole micro-batches for each rank.
        options: See `Options`.

    Raises:
        MisuseError: The model does not divide as the layout asks, or does not fit the device's
            memory; what would do is named.
    """
    if isinstance(model, str):
        model = find_model(model)
    how = options_of(options)
    micro_batches = check_step(model, layout, device, how, global_batch_tokens)
    check_memory(model, layout, how, micro_batches, device)
    workload = Workload(
        f"{model.name}-step", layout.ranks, layout.communicators(),
        message_protocol=how.protocol, message_channels=how.channels, tokens=global_batch_tokens,
        operations=model.operations * global_batch_tokens, peak_tflops=device.peak_tflops,
    )  # fmt: skip
    of_stage = layout.ranks // layout.pipeline
    for stage in range(layout.pipeline):
        writer = Stage(model, layout, device, how, micro_batches, stage)
        writer.list.ranks = range(stage * of_stage, (stage + 1) * of_stage)
        writer.write()
        workload.lists.append(writer.list)
    return workload


def check_step(model: Model, layout: Layout, device: Device, how: Options, tokens: int) -> int:
    """The number of micro-batches of each rank.

    Raises:
        MisuseError: The model, the batch or the experts do not divide as the layout asks.
    """
    layout.check()
    if device.tflops <= 0:
        raise MisuseError(f"tflops is {device.tflops}; it must be above 0")
    split_layers(model.layers, layout.pipeline * layout.virtual)
    if model.heads % layout.tensor != 0:
        raise MisuseError(
            f"tensor is {layout.tensor}; {model.name} has {model.heads} heads, which it must divide"
        )
    if (model.kv_heads or model.heads) % layout.tensor != 0:
        raise MisuseError(
            f"tensor is {layout.tensor}; {model.name} has {model.kv_heads} heads of keys and "
            "values, which it must divide"
        )
    if layout.expert > 1 and (
        model.experts == 0 or model.experts % layout.expert or layout.data % layout.expert
    ):
        raise MisuseError(
            f"expert is {layout.expert}; it must divide the experts of {model.name}, "
            f"{model.experts}, and context x shard x replicate, {layout.data}"
        )
    if model.sequence % layout.context:
        raise MisuseError(
            f"context is {layout.context}; it must divide the sequence, {model.sequence}"
        )
    groups = layout.shard * layout.replicate
    at_once = model.sequence * how.micro_batch * groups
    if tokens < at_once or tokens % at_once:
        raise MisuseError(
            f"the global batch is {tokens} tokens; it must be a multiple of {at_once}: a sequence "
            f"of {model.sequence} x micro_batch {how.micro_batch} x {groups} data-parallel ranks"
        )
    check_batches(layout.pipeline, layout.virtual, tokens // at_once)
    return tokens // at_once
