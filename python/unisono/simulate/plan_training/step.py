"""How long a training step takes: kernels, NCCL's model, and the schedule of the pipeline.

A layer's forward and backward pass of one micro-batch consist of its kernels (`part_ns`) and of the
communication that they wait for. The schedule puts passes together, with its bubble. Gradients are
summed and parameters gathered while the last and the first passes run.
"""

from dataclasses import dataclass

from unisono.simulate.kernels import Device, Share, part_ns
from unisono.simulate.layout import Layout
from unisono.simulate.models import Model, Part
from unisono.simulate.plan_training.network import Network, Pass
from unisono.simulate.schedule import Timed, run, span, split_layers
from unisono.simulate.training import check_step
from unisono.simulate.training_memory import Memory, check_memory
from unisono.simulate.training_options import Options
from unisono.simulate.training_stage import ADAM_BYTES

# Kernels take so much of a collective's time longer while it runs, too: an all-gather of
# 173 us and a reduce-scatter of 175 us each cost a GEMM 63 us (docs/reference/gpu-measurements.md,
# NCCL on 2 H200).
SLOWED = 0.36
# The cross-entropy reads and writes 32-bit logits so often, forward and backward (assumed).
_LOGIT_PASSES = 4


@dataclass(frozen=True)
class Step:
    """A training step.

    Attributes:
        time_s: How long it takes.
        mfu: Model FLOPs utilization, a part of the devices' peak; 0: unknown.
        batches: Micro-batches of each rank.
        memory: Of the GPU that needs most.
        seconds: Where the slowest stage's time goes: compute, what it waits for by kind, bubble,
            data and update.
    """

    time_s: float
    mfu: float
    batches: int
    memory: Memory
    seconds: dict[str, float]

    @property
    def exposed_s(self) -> float:
        """The time without computing, the pipeline's bubble apart."""
        return sum(
            time
            for name, time in self.seconds.items()
            if name not in ("compute", "bubble", "update")
        )


@dataclass(frozen=True)
class Question:
    """What a step's time depends on.

    Attributes:
        overlap: Communication of `tensor` and `context` overlaps with GEMMs and attention, in as
            many pieces as ranks (Transformer Engine).
    """

    model: Model
    layout: Layout
    device: Device
    how: Options
    network: Network
    overlap: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one rank."""
        return self.how.micro_batch * self.model.sequence // self.layout.context


def estimate_step(
    model: Model, layout: Layout, device: Device, how: Options, network: Network, tokens: int, *,
    overlap: bool = False, is_quick: bool = False,
) -> Step:  # fmt: skip
    """A step's time.

    Args:
        model: What is trained.
        layout: Who shares what.
        device: What computes.
        how: How a step is done.
        network: What communication takes.
        tokens: Of the whole step.
        overlap: See `Question`.
        is_quick: Take the closed form of the schedule in place of the schedule.

    Raises:
        MisuseError: The model, the batch or the memory does not allow it.
    """
    batches = check_step(model, layout, device, how, tokens)
    memory = check_memory(model, layout, how, batches, device)
    asked = Question(model, layout, device, how, network, overlap)
    forward, backward = positions_of(asked)
    own = [sum(forward[s :: layout.pipeline]) + sum(backward[s :: layout.pipeline])
           for s in range(layout.pipeline)]  # fmt: skip
    slowest = max(range(layout.pipeline), key=lambda stage: own[stage])
    busy = batches * own[slowest]
    if is_quick or layout.pipeline == 1:
        # (stages - 1) / chunks of a stage's passes: Narayanan et al., section 2.2.2.
        ahead = sum(own) / layout.pipeline * (layout.pipeline - 1) / layout.virtual
        piped = busy + ahead + 2 * (layout.pipeline - 1) * _hop(asked)
    else:
        piped = span(forward, backward, layout.pipeline, batches, _hop(asked))
    window = sum(backward[slowest :: layout.pipeline])
    data = _data(asked, window, sum(forward[slowest :: layout.pipeline]))
    is_sharded = how.optimizer == "sharded"
    state = sum(held / (copies if is_sharded else 1) for held, copies in _held(asked))
    update = device.time_ns(0, state * ADAM_BYTES)
    seconds = _seconds(asked, slowest, batches)
    # Passes that FSDP's gathers hold up are not the kernels'.
    seconds |= {"bubble": (piped - busy) / 1e9, "data": data / 1e9, "update": update / 1e9}
    time_s = (piped + data + update) / 1e9
    peak = device.peak_tflops * 1e12 * layout.ranks
    mfu = model.operations * tokens / time_s / peak if peak else 0.0
    return Step(time_s, mfu, batches, memory, seconds)


def schedule_of(asked: Question, batches: int) -> list[Timed]:
    """Every pass of every stage of a step, in nanoseconds."""
    forward, backward = positions_of(asked)
    return run(forward, backward, asked.layout.pipeline, batches, _hop(asked))


def positions_of(asked: Question) -> tuple[list[float], list[float]]:
    """Nanoseconds of the forward and of the backward pass at each position of the pipeline."""
    layout = asked.layout
    layers = split_layers(asked.model.layers, layout.pipeline * layout.virtual)
    forward, backward = layer_passes(asked)
    f, b = (_with_gathers(asked, one, is_forward=one is forward) for one in (forward, backward))
    times = [[count * f for count in layers], [count * b for count in layers]]
    for one, time in zip(times, _head(asked), strict=True):
        one[-1] += time
    return times[0], times[1]


def _with_gathers(asked: Question, one: Pass, *, is_forward: bool) -> float:
    """A layer's pass that overlaps with FSDP's gathers, and backward with its reduction."""
    layout, model = asked.layout, asked.model
    if layout.sharing == 1:
        return one.total
    parameters = sum(part.parameters for part in model.parts())
    parameters += model.expert_parameters if layout.expert == 1 else 0
    size = parameters / layout.tensor * model.element_bytes
    gathers = 1e3 * asked.network.us("all_gather", size, layout.sharing, layout.tensor)
    if not is_forward:
        gathers += 1e3 * asked.network.us("reduce_scatter", size, layout.sharing, layout.tensor)
    if asked.how.prefetch == 0:
        return one.total + gathers
    return max(one.total + SLOWED * gathers, gathers)


def layer_passes(asked: Question) -> tuple[Pass, Pass]:
    """One layer's forward and backward pass; many layouts have the same."""
    layout = asked.layout
    key = (
        asked.model, asked.device, layout.tensor, layout.context, layout.expert,
        asked.how.micro_batch, asked.how.recomputes, asked.overlap,
    )  # fmt: skip
    known = asked.network.passes
    if key not in known:
        known[key] = _layer_passes(asked)
    return known[key]


def _layer_passes(asked: Question) -> tuple[Pass, Pass]:
    model, layout, network = asked.model, asked.layout, asked.network
    tokens, tensor = asked.tokens, layout.tensor
    size = tokens * model.hidden * model.element_bytes
    # Sequence parallelism: a reduce-scatter after, and an all-gather before each block's GEMMs.
    both = network.us("all_gather", size, tensor, 1) + network.us("reduce_scatter", size, tensor, 1)
    width = 2 * model.key_width * model.element_bytes / tensor
    gathered = tokens * layout.context * width
    keys = network.us("all_gather", gathered, layout.context, tensor)
    sums = network.us("reduce_scatter", gathered, layout.context, tensor)
    routed = network.us(
        "all_to_all", size * model.experts_per_token / tensor, layout.expert, tensor
    )
    passes = []
    for is_forward in (True, False):
        compute = scores = 0.0
        kernels: list[float] = []
        for part in model.parts():
            own = _part(asked, part, is_forward)
            compute += own
            if part.reduces:
                kernels.append(own)
            if part.scores:
                scores += own
        again = asked.how.recomputes == "full" and not is_forward
        tensor_ns = sum(_exposed(asked, 1e3 * both, tensor, own) for own in kernels)
        context_ns = _exposed(
            asked, 1e3 * (keys + (0 if is_forward else sums)), layout.context, scores
        )
        exposed = {
            "tensor": tensor_ns * (2 if again else 1),
            "context": context_ns,
            "expert": 2e3 * routed * (2 if again else 1),
        }
        passes.append(Pass(compute, {name: time for name, time in exposed.items() if time}))
    return passes[0], passes[1]


def _part(asked: Question, part: Part, is_forward: bool) -> float:
    model, layout = asked.model, asked.layout
    share = Share(asked.tokens, layout.tensor, model.experts // layout.expert, model.element_bytes)
    return part_ns(asked.device, part, share, is_forward=is_forward, recompute=asked.how.recomputes)


def _exposed(asked: Question, time: float, ranks: int, kernel: float) -> float:
    """What a kernel does not hide of communication in `ranks` pieces; the first it never hides."""
    return max(time / ranks, time - kernel) if asked.overlap and ranks > 1 else time


def _head(asked: Question) -> tuple[float, float]:
    """The head and the loss, forward and backward."""
    model, tensor = asked.model, asked.layout.tensor
    logits = 4.0 * asked.tokens * model.vocabulary / tensor
    loss = asked.device.time_ns(0, _LOGIT_PASSES * logits)
    forward, backward = (_part(asked, model.head, is_forward) for is_forward in (True, False))
    return forward + loss / 2, backward + loss / 2


def _hop(asked: Question) -> float:
    """A message between two stages, of which each of the tensor ranks sends its part."""
    model, layout = asked.model, asked.layout
    size = asked.tokens * model.hidden * model.element_bytes / layout.tensor
    return 1e3 * asked.network.hop_us(size, layout.tensor * layout.data)


def _held(asked: Question) -> list[tuple[float, int]]:
    """Parameters that one rank of a stage holds, each with the number of ranks that have copies.

    Experts that ranks share have fewer copies than all else.
    """
    model, layout = asked.model, asked.layout
    own = layout.pipeline * layout.tensor
    experts = model.layers * model.expert_parameters / own
    rest = model.parameters / own - experts
    if layout.expert == 1:
        return [((rest + experts) / layout.sharing, layout.copies)]
    return [
        (rest / layout.sharing, layout.copies),
        (experts / layout.expert, layout.data // layout.expert),
    ]


def _data(asked: Question, backward: float, forward: float) -> float:
    """What is seen of the sums of gradients, and of the gathering of parameters, in nanoseconds."""
    layout, how, network = asked.layout, asked.how, asked.network
    # Each layer's part begins as soon as its gradients are there.
    chunks = max(1, asked.model.layers // layout.pipeline)
    seen = 0.0
    for held, copies in _held(asked):
        stride = layout.ranks // layout.pipeline // copies
        gradients, parameters = held * how.gradient_bytes, held * asked.model.element_bytes
        calls = [("reduce_scatter", gradients, backward), ("all_gather", parameters, forward)]
        if how.optimizer == "replicated":
            calls = [("all_reduce", gradients, backward)]
        for collective, size, window in calls:
            time = chunks * 1e3 * network.us(collective, size / chunks, copies, stride)
            hidden = min(window, time * (1 - 1 / chunks))
            seen += time - hidden + SLOWED * hidden
    return seen


def _seconds(asked: Question, stage: int, batches: int) -> dict[str, float]:
    """What a stage's passes consist of, in all its micro-batches."""
    layout = asked.layout
    layers = sum(
        split_layers(asked.model.layers, layout.pipeline * layout.virtual)[stage :: layout.pipeline]
    )
    found = {"compute": 0.0}
    for number, one in enumerate(layer_passes(asked)):
        found["compute"] += one.compute * layers
        for name, time in one.exposed.items():
            found[name] = found.get(name, 0.0) + time * layers
        if layout.sharing > 1:
            held_up = _with_gathers(asked, one, is_forward=number == 0) - one.total
            found["shard"] = found.get("shard", 0.0) + held_up * layers
    if stage == layout.pipeline - 1:
        found["compute"] += sum(_head(asked))
    return {name: time * batches / 1e9 for name, time in found.items()}
