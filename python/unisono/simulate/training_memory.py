"""Memory that a training step needs on each GPU, and what would help where it is too much.

Activations are those of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models", equations 1 to 6 and section 4.3, with sequence parallelism: each of a layer's tensors is
kept once and divided among the ranks of `tensor`. A parameter has 2 bytes, a gradient
`gradient_bytes`, and Adam 12 bytes in mixed precision (a 32-bit copy and two moments): Rajbhandari
et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 3.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from unisono.errors import MisuseError
from unisono.simulate.kernels import Device
from unisono.simulate.layout import Layout
from unisono.simulate.models import Model
from unisono.simulate.schedule import in_flight, split_layers
from unisono.simulate.training_options import Options

_ADAM_STATE_BYTES = 12
# A CUDA context, cuBLAS's workspace and NCCL's buffers (assumed).
_RUNTIME_BYTES = 3_000_000_000
# What an allocator holds beyond its tensors, at most, in the upper end of an interval (assumed).
_FRAGMENTED = 0.1


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU.

    Attributes:
        stage: The pipeline stage whose GPUs need most.
        parameters: Those that a rank holds, in 16 bits.
        gradients: Those that a rank holds.
        optimizer: Adam's state.
        activations: What forward passes keep for backward passes.
        buffers: Gathered parameters, buckets of gradients, and messages between stages.
        runtime: What CUDA and the libraries hold.
    """

    stage: int
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    runtime: float = _RUNTIME_BYTES

    @property
    def total(self) -> float:
        """All of it, in bytes."""
        return (
            self.parameters + self.gradients + self.optimizer + self.activations + self.buffers
            + self.runtime
        )  # fmt: skip

    @property
    def high(self) -> float:
        """The upper end of an interval: an allocator cuts its memory into pieces."""
        return self.total + _FRAGMENTED * (self.activations + self.buffers)


def activation_bytes(
    model: Model, tokens: int, tensor: int, recompute: str, *, fused_attention: bool = True
) -> float:
    """What one layer keeps of one micro-batch on one rank.

    Args:
        model: Its dimensions. Models with biases are taken to be trained with dropout.
        tokens: Tokens of the micro-batch on this rank's `context` share.
        tensor: Ranks that share the layer.
        recompute: none, selective or full.
        fused_attention: No scores are kept in any case.
    """
    h, f = model.hidden, model.mlp_width
    if recompute == "full":
        return 2.0 * tokens * h / tensor
    masks = 1 if model.biases else 0
    norms = 4 * h
    # Inputs of the first matrix, queries, keys and values, and inputs of the second.
    attention = 2 * h + 2 * h + 4 * model.key_width + 2 * h + masks * h
    if recompute == "none" and not fused_attention:
        # The softmax, its dropout's mask and its output, for each head and each earlier token.
        attention += 5 * model.heads * model.sequence
    copies = model.experts_per_token if model.experts else 1
    # SwiGLU keeps both of its inputs and their product, GELU its input and output.
    mlp = copies * (2 * h + (6 if model.mlp == "swiglu" else 4) * f) + masks * h
    return tokens * (norms + attention + mlp) / tensor


def memory_of(model: Model, layout: Layout, how: Options, batches: int) -> Memory:
    """What a GPU of the stage that needs most must hold.

    Args:
        model: What is trained.
        layout: Who shares what.
        how: How a step is done.
        batches: Micro-batches of each rank in a step.
    """
    layers = split_layers(model.layers, layout.pipeline * layout.virtual)
    # With equal layers, the first stage keeps most activations, and the last has the logits.
    stages = {0, layout.pipeline - 1, layout.pipeline // 2}
    found = [_of_stage(model, layout, how, batches, stage, layers) for stage in sorted(stages)]
    return max(found, key=lambda one: one.total)


def _of_stage(
    model: Model, layout: Layout, how: Options, batches: int, stage: int, layers: list[int]
) -> Memory:
    own = sum(layers[stage :: layout.pipeline])
    is_first, is_last = stage == 0, stage == layout.pipeline - 1
    plain = sum(part.parameters for part in model.parts())
    rest = model.embedding.parameters if is_first else 0
    # A tied head on a stage of its own is a copy of the embedding.
    rest += model.head.parameters if is_last and not (model.tied and is_first) else 0
    dense = (own * plain + rest) / layout.tensor
    experts = own * model.expert_parameters / layout.expert / layout.tensor
    held = (dense + (experts if layout.expert == 1 else 0)) / layout.sharing
    held += experts if layout.expert > 1 else 0
    # Sharded state is spread over all copies, but experts have fewer of them.
    spread = layout.copies if how.optimizer == "sharded" else 1
    expert_copies = layout.data // layout.expert if how.optimizer == "sharded" else 1
    if layout.expert > 1:
        state = dense / layout.sharing / spread + experts / expert_copies
    else:
        state = held / spread
    tokens = how.micro_batch * model.sequence // layout.context
    a_layer = activation_bytes(
        model, tokens, layout.tensor, how.recomputes, fused_attention=how.fused_attention
    )
    passes = in_flight(stage, layout.pipeline, layout.virtual, batches)
    activations = passes * own / layout.virtual * a_layer
    if how.recomputes == "full":
        # The layer that is computed again keeps all of its own.
        activations += activation_bytes(model, tokens, layout.tensor, "selective")
    if is_last:
        # Section 4.3: the last norm, the head's input, and logits in 32 bits.
        activations += 4 * tokens * (model.hidden + model.vocabulary) / layout.tensor
    unit = (plain + (model.expert_parameters if layout.expert == 1 else 0)) / layout.tensor
    buffers = 2.0 * tokens * model.hidden * model.element_bytes / layout.tensor
    if layout.sharing > 1:
        gathered = max(unit, rest / layout.tensor) * model.element_bytes
        buffers += (how.prefetch + 1) * gathered + gathered
    buffers += min(how.reduce_bucket_bytes, held * how.gradient_bytes)
    return Memory(
        stage, held * model.element_bytes, held * how.gradient_bytes, state * _ADAM_STATE_BYTES,
        activations, buffers,
    )  # fmt: skip


def check_memory(
    model: Model, layout: Layout, how: Options, batches: int, device: Device
) -> Memory:
    """Refuses what does not fit the device's memory.

    Raises:
        MisuseError: It does not fit; the message says what is over, by how much, and what helps.
    """
    memory = memory_of(model, layout, how, batches)
    capacity = device.memory_gb * 1e9
    if not capacity or memory.total <= capacity:
        return memory
    parts = sorted(
        ((value, name) for name, value in asdict(memory).items() if name != "stage"), reverse=True
    )
    listed = ", ".join(f"{name} {value / 1e9:.1f}" for value, name in parts if value > 5e7)
    raise MisuseError(
        f"{model.name} does not fit: a GPU of stage {memory.stage} needs {memory.total / 1e9:.1f} "
        f"GB and has {device.memory_gb:.1f}, {(memory.total - capacity) / 1e9:.1f} GB too few "
        f"({listed}); {_advice(model, layout, how, batches, capacity)}"
    )


def _advice(model: Model, layout: Layout, how: Options, batches: int, capacity: float) -> str:
    """Single changes that make it fit, or those that save most."""
    tried = []
    for text, other_layout, other in _changes(model, layout, how):
        try:
            total = memory_of(model, other_layout, other, batches).total
        except MisuseError:
            continue
        tried.append((total, text))
    tried.sort()
    fit = [f"{text} ({total / 1e9:.1f} GB)" for total, text in tried if total <= capacity]
    if fit:
        return f"what would fit: {', '.join(fit[:3])}"
    if not tried:
        return "it takes more GPUs, or more memory on each"
    best = [f"{text} ({total / 1e9:.1f} GB)" for total, text in tried[:3]]
    return f"no single change is enough; the most is saved by {', '.join(best)}"


def _changes(model: Model, layout: Layout, how: Options) -> Iterator[tuple[str, Layout, Options]]:
    if how.recomputes != "full":
        yield "recompute full", layout, replace(how, recompute="full")
    if how.optimizer == "replicated" and layout.copies > 1:
        yield "optimizer sharded", layout, replace(how, optimizer="sharded")
    if how.micro_batch > 1:
        half = how.micro_batch // 2
        yield f"micro_batch {half}", layout, replace(how, micro_batch=half)
    if layout.replicate > 1 and layout.shard == 1:
        moved = replace(layout, shard=layout.replicate, replicate=1)
        yield f"shard {layout.replicate} in place of replicate", moved, how
    if layout.replicate % 2 == 0:
        for name in ("tensor", "pipeline", "context"):
            more = 2 * getattr(layout, name)
            if name == "tensor" and (more > 8 or (model.kv_heads or model.heads) % more):
                continue
            halved = replace(layout, replicate=layout.replicate // 2, **{name: more})
            yield f"{name} {more} with replicate {halved.replicate}", halved, how
