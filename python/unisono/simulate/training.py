"""Training steps as workloads: ZeRO-3 (FSDP), HSDP, tensor, pipeline and expert parallelism.

workload = zero3_step("gpt-7b", 1024, Device(tflops=120), global_batch_tokens=4 << 20)
result = simulate_workload(load_cluster("frontier"), workload)

Communicators are "tensor", "shard", "replicate", "pipeline", "expert" and "expert_data"; ranks are
numbered with tensor fastest, then shard, replicate and pipeline.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from unisono.errors import MisuseError
from unisono.simulate.layout import Layout
from unisono.simulate.models import MODELS, Device, Model, Part
from unisono.simulate.workload import AUTOMATIC, Call, Task, TaskList, Workload

# A rank's part of a message is padded to this many elements, as frameworks pad to align shards:
# enough for 32 channels of whole cache lines.
_GRAIN = 1024
# What Adam moves for a parameter of 16 bits: it reads a gradient and three numbers of 32 bits, and
# writes these and the parameter.
_ADAM_BYTES = 2 + 12 + 12 + 2


@dataclass(frozen=True)
class Unit:
    """What is gathered at once: some parts of a layer."""

    name: str
    parts: tuple[Part, ...]
    is_gathered_only: bool = False  # its gradient is part of another's

    @property
    def parameters(self) -> int:
        """The number of parameters of its weights, before any sharding."""
        return sum(part.parameters for part in self.parts)


@dataclass
class Options:
    """How a step is done.

    Attributes:
        micro_batch: Samples that a rank computes at once.
        gather: "layer" (FSDP wraps blocks) or "matrix" (ZeRO-3 fetches modules).
        prefetch: How many gathers may run ahead of the computation.
        recompute: The backward pass computes the forward pass again.
        reduce_bucket_bytes: Gradients are reduced once so many have come together; 0: each unit's.
        algorithms: By collective; for others the simulator chooses (`choose_plan`).
        protocol: The protocol of all calls.
        channels: Channels of all calls; 0: as the cluster's file says.
    """

    micro_batch: int = 1
    gather: Literal["layer", "matrix"] = "layer"
    prefetch: int = 1
    recompute: bool = True
    reduce_bucket_bytes: int = 0
    algorithms: Mapping[str, str] = field(default_factory=dict)
    protocol: str = "simple"
    channels: int = 0


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
        MisuseError: The model does not divide as the layout asks; what would do is named.
    """
    if isinstance(model, str):
        if model not in MODELS:
            raise MisuseError(f"there is no model '{model}'; there are {', '.join(MODELS)}")
        model = MODELS[model]
    unknown = set(options) - set(Options.__dataclass_fields__)
    if unknown:
        raise MisuseError(
            f"there is no option '{min(unknown)}' of a training step; there are "
            f"{', '.join(Options.__dataclass_fields__)}"
        )
    how = Options(**options)  # type: ignore[arg-type]
    micro_batches = _check(model, layout, device, how, global_batch_tokens)
    workload = Workload(
        f"{model.name}-step", layout.ranks, layout.communicators(),
        message_protocol=how.protocol, message_channels=how.channels, tokens=global_batch_tokens,
        operations=model.operations * global_batch_tokens, peak_tflops=device.peak_tflops,
    )  # fmt: skip
    of_stage = layout.ranks // layout.pipeline
    for stage in range(layout.pipeline):
        writer = _Stage(model, layout, device, how, micro_batches, stage)
        writer.list.ranks = range(stage * of_stage, (stage + 1) * of_stage)
        writer.write()
        workload.lists.append(writer.list)
    return workload


def _check(model: Model, layout: Layout, device: Device, how: Options, tokens: int) -> int:
    """The number of micro-batches of each rank."""
    for name in ("tensor", "shard", "replicate", "pipeline", "expert"):
        if getattr(layout, name) < 1:
            raise MisuseError(f"{name} is {getattr(layout, name)}; it must be 1 or more")
    if device.tflops <= 0:
        raise MisuseError(f"tflops is {device.tflops}; it must be above 0")
    if how.gather not in ("layer", "matrix"):
        raise MisuseError(f"gather is '{how.gather}'; it must be 'layer' or 'matrix'")
    if how.micro_batch < 1 or how.prefetch < 0:
        raise MisuseError("micro_batch must be 1 or more, prefetch 0 or more")
    if model.layers % layout.pipeline != 0:
        raise MisuseError(
            f"pipeline is {layout.pipeline}; {model.name} has {model.layers} layers, which it must "
            "divide"
        )
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
        model.experts == 0 or model.experts % layout.expert or layout.shard % layout.expert
    ):
        raise MisuseError(
            f"expert is {layout.expert}; it must divide the experts of {model.name}, "
            f"{model.experts}, and shard, {layout.shard}"
        )
    at_once = model.sequence * how.micro_batch * layout.shard * layout.replicate
    if tokens < at_once or tokens % at_once:
        raise MisuseError(
            f"the global batch is {tokens} tokens; it must be a multiple of {at_once}: a sequence "
            f"of {model.sequence} x micro_batch {how.micro_batch} x "
            f"{layout.shard * layout.replicate} data-parallel ranks"
        )
    return tokens // at_once


def _schedule(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[bool, int]]:
    """1F1B: whether forward, and which micro-batch."""
    warm_up = min(stages - stage - 1, micro_batches)
    for i in range(warm_up):
        yield True, i
    for i in range(micro_batches - warm_up):
        yield True, warm_up + i
        yield False, i
    for i in range(micro_batches - warm_up, micro_batches):
        yield False, i


@dataclass(frozen=True)
class _Item:
    """A unit's pass of one micro-batch."""

    is_forward: bool
    batch: int
    unit: Unit
    is_first: bool  # of the stage's units in this pass
    is_last: bool

    @property
    def name(self) -> str:
        return f"{'fwd' if self.is_forward else 'bwd'}{self.batch}.{self.unit.name}"


class _Stage:
    """Writes the list of one pipeline stage's ranks."""

    def __init__(
        self, model: Model, layout: Layout, device: Device, how: Options, batches: int, stage: int
    ) -> None:
        self.model, self.layout, self.device, self.how = model, layout, device, how
        self.batches, self.stage = batches, stage
        self.list = TaskList(())
        self.tokens = how.micro_batch * model.sequence
        self.last = -1  # task of the compute stream, or the collective that the next one needs
        self.received = -1  # what the next computation needs
        self.gradients: list[int] = []  # tasks that the update waits for
        self.bucket = 0  # elements of gradients that wait to be reduced

    def parameters(self, part: Part) -> float:
        """What a rank holds of it, or gathers, before tensor parallelism."""
        if not part.routes:
            return part.parameters
        return self.model.expert_parameters / self.layout.expert

    def units(self) -> list[Unit]:
        layers = self.model.layers // self.layout.pipeline
        units = []
        if self.stage == 0:
            units.append(Unit("embedding", (self.model.embedding,)))
        for layer in range(self.stage * layers, (self.stage + 1) * layers):
            parts = self.model.parts()
            if self.layout.expert == 1:
                # Experts that no one shares are gathered as all other parameters are.
                parts = [
                    replace(part, parameters=self.model.expert_parameters) if part.routes else part
                    for part in parts
                ]
            if self.how.gather == "layer":
                units.append(Unit(f"layer{layer}", tuple(parts)))
            else:
                units += [Unit(f"layer{layer}.{part.name}", (part,)) for part in parts]
        if self.stage == self.layout.pipeline - 1:
            units.append(Unit("head", (self.model.head,), is_gathered_only=self.model.tied))
        return units

    def items(self) -> list[_Item]:
        units = self.units()
        items = []
        for is_forward, batch in _schedule(self.stage, self.layout.pipeline, self.batches):
            ordered = units if is_forward else units[::-1]
            items += [
                _Item(is_forward, batch, unit, i == 0, i == len(units) - 1)
                for i, unit in enumerate(ordered)
            ]
        return items

    def write(self) -> None:
        items = self.items()
        gathers: list[int] = []  # by item; -1: nothing to gather
        computed: list[int] = []
        for i, item in enumerate(items):
            while len(gathers) <= min(i + self.how.prefetch, len(items) - 1):
                ahead = len(gathers) - self.how.prefetch - 1
                gathers.append(
                    self.gather(items[len(gathers)], computed[ahead] if ahead >= 0 else -1)
                )
            self.receive(item)
            computed.append(self.compute(item, gathers[i]))
            self.send(item)
            if not item.is_forward:
                self.reduce(item)
        self.update()

    def call(self, collective: str, elements: float, group: int) -> Call:
        """A call of so many elements, the larger of input and output, padded to whole shards."""
        shard = -(-int(elements) // (group * _GRAIN)) * _GRAIN
        return Call(
            collective,
            max(shard, _GRAIN) * group * self.model.element_bytes,
            self.how.algorithms.get(collective, AUTOMATIC),
            self.how.protocol,
            self.how.channels,
            {1: "uint8", 2: "bfloat16", 4: "float32"}[self.model.element_bytes],
        )

    def collective(
        self, name: str, collective: str, elements: float, over: str, group: int, after: list[int],
        stream: str = "",
    ) -> int:  # fmt: skip
        return self.list.collective(
            name, self.call(collective, elements, group), over, stream=stream,
            after=[task for task in after if task >= 0],
        )  # fmt: skip

    def gather(self, item: _Item, after: int) -> int:
        if self.layout.shard == 1 or item.unit.parameters == 0:
            return -1
        return self.collective(
            f"gather.{item.name}", "all_gather", item.unit.parameters / self.layout.tensor, "shard",
            self.layout.shard, [after],
        )  # fmt: skip

    def compute(self, item: _Item, gather: int) -> int:
        parts = item.unit.parts if item.is_forward else item.unit.parts[::-1]
        needs = [gather, self.received]
        self.received = -1
        # Backward: the gradients of inputs and of weights, and the forward pass once more.
        passes = 1 if item.is_forward else (3 if self.how.recompute else 2)
        reductions = 2 if self.how.recompute and not item.is_forward else 1
        for part in parts:
            name = f"{item.name}.{part.name}" if len(parts) > 1 else item.name
            if part.routes:
                needs.append(self.route(f"{name}.dispatch"))
            operations = passes * part.operations * self.tokens / self.layout.tensor
            weights = self.parameters(part) * self.model.element_bytes
            moved = passes * (part.activations * self.tokens + weights) / self.layout.tensor
            after = [task for task in (*needs, self.last) if task >= 0]
            self.last = self.list.compute(name, self.device.time_ns(operations, moved), after=after)
            needs = []
            if part.routes:
                self.last = self.route(f"{name}.combine")
            if part.reduces and self.layout.tensor > 1:
                for again in range(reductions):
                    self.last = self.collective(
                        f"reduce.{name}.{again}", "all_reduce", self.tokens * self.model.hidden,
                        "tensor", self.layout.tensor, [self.last],
                    )  # fmt: skip
        return self.last

    def route(self, name: str) -> int:
        """Tokens to their experts, or back."""
        if self.layout.expert == 1:
            return self.last
        elements = self.tokens * self.model.hidden * self.model.experts_per_token
        return self.collective(
            name, "all_to_all", elements / self.layout.tensor, "expert", self.layout.expert,
            [self.last],
        )  # fmt: skip

    def message(self, item: _Item, kind: Literal["send", "recv"], offset: int) -> None:
        size = self.tokens * self.model.hidden * self.model.element_bytes // self.layout.tensor
        direction = "forward" if item.is_forward else "backward"
        after = (self.last,) if kind == "send" else ()
        added = self.list.add(
            Task(
                kind, f"{kind}.{item.name}", f"{kind}_{direction}", after,
                communicator="pipeline", peer=offset, size_bytes=size, tag=int(item.is_forward),
            )
        )  # fmt: skip
        if kind == "recv":
            self.received = added

    def receive(self, item: _Item) -> None:
        offset = -1 if item.is_forward else 1
        if item.is_first and 0 <= self.stage + offset < self.layout.pipeline:
            self.message(item, "recv", offset)

    def send(self, item: _Item) -> None:
        offset = 1 if item.is_forward else -1
        if item.is_last and 0 <= self.stage + offset < self.layout.pipeline:
            self.message(item, "send", offset)

    def reduce(self, item: _Item) -> None:
        """Gradients of a unit, once its backward pass is done."""
        is_last_batch = item.batch == self.batches - 1
        if not item.unit.is_gathered_only:
            self.bucket += item.unit.parameters
        if any(part.routes for part in item.unit.parts) and is_last_batch:
            self.reduce_experts(item)
        size = self.bucket * self.model.element_bytes // self.layout.tensor
        if self.bucket == 0 or (size < self.how.reduce_bucket_bytes and not item.is_last):
            return
        elements = self.bucket / self.layout.tensor
        self.bucket = 0
        done = -1
        if self.layout.shard > 1:
            done = self.collective(
                f"scatter.{item.name}", "reduce_scatter", elements, "shard", self.layout.shard,
                [self.last],
            )  # fmt: skip
        if self.layout.replicate > 1 and is_last_batch:
            done = self.collective(
                f"sum.{item.name}", "all_reduce", elements / self.layout.shard, "replicate",
                self.layout.replicate, [self.last, done],
            )  # fmt: skip
        if done >= 0:
            self.gradients.append(done)

    def reduce_experts(self, item: _Item) -> None:
        copies = self.layout.shard * self.layout.replicate // self.layout.expert
        if self.layout.expert == 1 or copies == 1:
            return
        elements = self.model.expert_parameters / self.layout.expert / self.layout.tensor
        self.gradients.append(
            self.collective(
                f"experts.{item.name}", "all_reduce", elements, "expert_data", copies, [self.last]
            )
        )

    def update(self) -> None:
        """Adam on this rank's share, at the speed of its memory."""
        layers = self.model.parameters / self.layout.pipeline
        share = layers / self.layout.tensor / self.layout.shard
        after = sorted({task for task in (*self.gradients, self.last) if task >= 0})
        self.list.compute("update", self.device.time_ns(0, share * _ADAM_BYTES), after=after)
