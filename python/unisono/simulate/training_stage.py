"""Writes the tasks of one pipeline stage's ranks in a training step."""

from dataclasses import dataclass, replace
from typing import Literal

from unisono.simulate.kernels import Device, Share, part_ns
from unisono.simulate.layout import Layout
from unisono.simulate.models import Model, Part
from unisono.simulate.schedule import Slot, order, split_layers
from unisono.simulate.training_options import Options
from unisono.simulate.workload import AUTOMATIC, Call, Task, TaskList

# A rank's part of a message is padded to this many elements, as frameworks pad to align shards:
# enough for 32 channels of whole cache lines.
_GRAIN = 1024
# What Adam moves for a parameter of 16 bits: it reads a gradient and three numbers of 32 bits, and
# writes these and the parameter.
ADAM_BYTES = 2 + 12 + 12 + 2


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


@dataclass(frozen=True)
class _Item:
    """A unit's pass of one micro-batch."""

    slot: Slot
    unit: Unit
    is_first: bool  # of the chunk's units in this pass
    is_last: bool

    @property
    def is_forward(self) -> bool:
        return self.slot.is_forward

    @property
    def batch(self) -> int:
        return self.slot.batch

    @property
    def name(self) -> str:
        return f"{'fwd' if self.is_forward else 'bwd'}{self.batch}.{self.unit.name}"


class Stage:
    """Writes the list of one pipeline stage's ranks."""

    def __init__(
        self, model: Model, layout: Layout, device: Device, how: Options, batches: int, stage: int
    ) -> None:
        self.model, self.layout, self.device, self.how = model, layout, device, how
        self.batches, self.stage = batches, stage
        self.list = TaskList(())
        self.tokens = how.micro_batch * model.sequence // layout.context
        self.experts = model.experts // layout.expert
        self.last = -1  # task of the compute stream, or the collective that the next one needs
        self.received = -1  # what the next computation needs
        self.gradients: list[int] = []  # tasks that the update waits for
        self.bucket = 0  # elements of gradients that wait to be reduced
        self.summed = 0.0  # elements that were summed over all copies

    def units(self, chunk: int) -> list[Unit]:
        """What a chunk of this stage has, in the order of the forward pass."""
        positions = self.layout.pipeline * self.layout.virtual
        layers = split_layers(self.model.layers, positions)
        position = chunk * self.layout.pipeline + self.stage
        first = sum(layers[:position])
        units = []
        if position == 0:
            units.append(Unit("embedding", (self.model.embedding,)))
        for layer in range(first, first + layers[position]):
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
        if position == positions - 1:
            units.append(Unit("head", (self.model.head,), is_gathered_only=self.model.tied))
        return units

    def items(self) -> list[_Item]:
        """All that the stage computes, in order."""
        stages, virtual = self.layout.pipeline, self.layout.virtual
        chunks = [self.units(chunk) for chunk in range(virtual)]
        items = []
        for slot in order(self.stage, stages, virtual, self.batches):
            units = chunks[slot.chunk] if slot.is_forward else chunks[slot.chunk][::-1]
            items += [
                _Item(slot, unit, i == 0, i == len(units) - 1) for i, unit in enumerate(units)
            ]
        return items

    def write(self) -> None:
        """Writes the whole step."""
        items = self.items()
        gathers: list[int] = []  # by item; -1: nothing to gather
        computed: list[int] = []
        for i, item in enumerate(items):
            while len(gathers) <= min(i + self.how.prefetch, len(items) - 1):
                ahead = len(gathers) - self.how.prefetch - 1
                gathers.append(
                    self._gather(items[len(gathers)], computed[ahead] if ahead >= 0 else -1)
                )
            self._receive(item)
            computed.append(self._compute(item, gathers[i]))
            self._send(item)
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

    def _collective(
        self, name: str, collective: str, elements: float, over: str, group: int, after: list[int],
        stream: str = "",
    ) -> int:  # fmt: skip
        return self.list.collective(
            name, self.call(collective, elements, group), over, stream=stream,
            after=[task for task in after if task >= 0],
        )  # fmt: skip

    def _gather(self, item: _Item, after: int) -> int:
        if self.layout.sharing == 1 or item.unit.parameters == 0:
            return -1
        return self._collective(
            f"gather.{item.name}", "all_gather", item.unit.parameters / self.layout.tensor, "shard",
            self.layout.sharing, [after],
        )  # fmt: skip

    def _compute(self, item: _Item, gather: int) -> int:
        parts = item.unit.parts if item.is_forward else item.unit.parts[::-1]
        needs = [gather, self.received]
        self.received = -1
        again = self.how.recomputes == "full" and not item.is_forward
        for part in parts:
            name = f"{item.name}.{part.name}" if len(parts) > 1 else item.name
            if part.routes:
                needs.append(self.route(f"{name}.dispatch"))
            if part.scores and self.layout.context > 1:
                needs.append(self.context(f"context.{name}", item.is_forward))
            after = [task for task in (*needs, self.last) if task >= 0]
            self.last = self.list.compute(name, self.part_ns(part, item), after=after)
            needs = []
            if part.routes:
                self.last = self.route(f"{name}.combine")
            if part.reduces and self.layout.tensor > 1:
                for number in range(2 if again else 1):
                    self.last = self._collective(
                        f"reduce.{name}.{number}", "all_reduce", self.tokens * self.model.hidden,
                        "tensor", self.layout.tensor, [self.last],
                    )  # fmt: skip
        return self.last

    def part_ns(self, part: Part, item: _Item) -> float:
        """What this rank's share of a part takes."""
        if part.routes:
            part = replace(part, parameters=self.model.expert_parameters // self.layout.expert)
        share = Share(self.tokens, self.layout.tensor, self.experts, self.model.element_bytes)
        return part_ns(
            self.device, part, share, is_forward=item.is_forward, recompute=self.how.recomputes
        )

    def context(self, name: str, is_forward: bool) -> int:
        """Keys and values of the whole sequence; backward, their gradients' sum as well."""
        size, ranks = self.layout.context, self.layout
        elements = self.tokens * size * 2 * self.model.key_width / ranks.tensor
        done = self._collective(name, "all_gather", elements, "context", size, [self.last])
        if is_forward:
            return done
        return self._collective(
            f"{name}.sum", "reduce_scatter", elements, "context", size, [self.last]
        )

    def route(self, name: str) -> int:
        """Tokens to their experts, or back."""
        if self.layout.expert == 1:
            return self.last
        elements = self.tokens * self.model.hidden * self.model.experts_per_token
        return self._collective(
            name, "all_to_all", elements / self.layout.tensor, "expert", self.layout.expert,
            [self.last],
        )  # fmt: skip

    def _message(self, item: _Item, kind: Literal["send", "recv"], offset: int) -> None:
        size = self.tokens * self.model.hidden * self.model.element_bytes // self.layout.tensor
        direction = "forward" if item.is_forward else "backward"
        after = (self.last,) if kind == "send" else ()
        # The two ends of a message agree on the position that is nearer to the embedding.
        nearer = self._position(item) + min(offset, 0)
        added = self.list.add(
            Task(
                kind, f"{kind}.{item.name}", f"{kind}_{direction}", after,
                communicator="pipeline", peer=offset, size_bytes=size,
                tag=2 * nearer + int(item.is_forward),
            )
        )  # fmt: skip
        if kind == "recv":
            self.received = added

    def _position(self, item: _Item) -> int:
        return item.slot.chunk * self.layout.pipeline + self.stage

    def _receive(self, item: _Item) -> None:
        self._exchange(item, "recv", -1 if item.is_forward else 1, item.is_first)

    def _send(self, item: _Item) -> None:
        self._exchange(item, "send", 1 if item.is_forward else -1, item.is_last)

    def _exchange(
        self, item: _Item, kind: Literal["send", "recv"], offset: int, is_due: bool
    ) -> None:
        positions = self.layout.pipeline * self.layout.virtual
        if is_due and 0 <= self._position(item) + offset < positions:
            self._message(item, kind, offset)

    def reduce(self, item: _Item) -> None:
        """Gradients of a unit, once its backward pass is done."""
        is_last_batch = item.batch == self.batches - 1
        if not item.unit.is_gathered_only:
            self.bucket += item.unit.parameters
        if any(part.routes for part in item.unit.parts) and is_last_batch:
            self._reduce_experts(item)
        size = self.bucket * self.model.element_bytes // self.layout.tensor
        if self.bucket == 0 or (size < self.how.reduce_bucket_bytes and not item.is_last):
            return
        elements = self.bucket / self.layout.tensor
        self.bucket = 0
        done = -1
        if self.layout.sharing > 1:
            done = self._collective(
                f"scatter.{item.name}", "reduce_scatter", elements, "shard", self.layout.sharing,
                [self.last],
            )  # fmt: skip
        if self.layout.copies > 1 and is_last_batch:
            collective = "all_reduce" if self.how.optimizer == "replicated" else "reduce_scatter"
            elements /= self.layout.sharing
            self.summed += elements
            done = self._collective(
                f"sum.{item.name}", collective, elements, "replicate", self.layout.copies,
                [self.last, done],
            )  # fmt: skip
        if done >= 0:
            self.gradients.append(done)

    def _reduce_experts(self, item: _Item) -> None:
        copies = self.layout.data // self.layout.expert
        if self.layout.expert == 1 or copies == 1:
            return
        elements = self.model.expert_parameters / self.layout.expert / self.layout.tensor
        self.gradients.append(
            self._collective(
                f"experts.{item.name}", "all_reduce", elements, "expert_data", copies, [self.last]
            )
        )

    def update(self) -> None:
        """Adam on this rank's share, at the speed of its memory."""
        layers = self.model.parameters / self.layout.pipeline
        share = layers / self.layout.tensor / self.layout.sharing
        is_sharded = self.how.optimizer == "sharded" and self.layout.copies > 1
        if is_sharded:
            share /= self.layout.copies
        after = sorted({task for task in (*self.gradients, self.last) if task >= 0})
        updated = self.list.compute(
            "update", self.device.time_ns(0, share * ADAM_BYTES), after=after
        )
        if is_sharded and self.summed:
            self._collective(
                "gather.updated", "all_gather", self.summed, "replicate", self.layout.copies,
                [updated],
            )  # fmt: skip
