"""Who shares what in a training job: the groups of each kind of parallelism."""

from dataclasses import dataclass

from unisono.errors import MisuseError

KINDS = ("tensor", "context", "shard", "replicate", "pipeline", "expert", "virtual")


@dataclass(frozen=True)
class Layout:
    """How many ranks each kind of parallelism has.

    The job has their product, without `expert` and `virtual`.

    Attributes:
        tensor: Ranks that share each layer's matrices (Megatron).
        shard: Ranks that share parameters, gradients and optimizer state (ZeRO-3, FSDP). With
            `context`, the ranks of both share them.
        replicate: Copies of that: with `shard` HSDP, without it plain data parallelism.
        pipeline: Stages (1F1B).
        expert: Ranks that share a layer's experts: some of `context` x `shard` x `replicate`.
        context: Ranks that share the tokens of a sequence; they gather each other's keys and
            values (section 3.3.2 of "The Llama 3 Herd of Models").
        virtual: Chunks of layers that each stage has (interleaved 1F1B).
    """

    tensor: int = 1
    shard: int = 1
    replicate: int = 1
    pipeline: int = 1
    expert: int = 1
    context: int = 1
    virtual: int = 1

    def check(self) -> None:
        """Refuses counts that no job has.

        Raises:
            MisuseError: One is below 1, or chunks are asked for without stages.
        """
        for name in KINDS:
            if getattr(self, name) < 1:
                raise MisuseError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.virtual > 1 and self.pipeline == 1:
            raise MisuseError(
                f"virtual is {self.virtual}; chunks of a stage need a pipeline of 2 or more"
            )

    @property
    def ranks(self) -> int:
        """The number of ranks of the whole job."""
        return self.tensor * self.data * self.pipeline

    @property
    def data(self) -> int:
        """Ranks that hold the same part of the model but for sharding."""
        return self.context * self.shard * self.replicate

    @property
    def sharing(self) -> int:
        """Ranks that share parameters: `shard` x `context`, or 1 without `shard`."""
        return self.shard * self.context if self.shard > 1 else 1

    @property
    def copies(self) -> int:
        """Ranks that hold a copy of the same parameters, whose gradients are summed."""
        return self.data // self.sharing

    def communicators(self) -> dict[str, list[list[int]]]:
        """By name, only those with groups of several ranks."""
        t, e, data = self.tensor, self.expert, self.data
        sizes = {
            "tensor": (t, 1),
            "context": (self.context, t),
            "shard": (self.sharing, t),
            "replicate": (self.copies, t * self.sharing),
            "pipeline": (self.pipeline, t * data),
            "expert": (e, t),
        }
        made = {
            name: _groups(self.ranks, size, stride)
            for name, (size, stride) in sizes.items()
            if size > 1
        }
        if e > 1 and data > e:
            made["expert_data"] = [
                [block * t * data + (copy * e + one) * t + tensor for copy in range(data // e)]
                for block in range(self.pipeline)
                for one in range(e)
                for tensor in range(t)
            ]
        return made


def _groups(ranks: int, size: int, stride: int) -> list[list[int]]:
    return [
        [first + offset + i * stride for i in range(size)]
        for first in range(0, ranks, size * stride)
        for offset in range(stride)
    ]
