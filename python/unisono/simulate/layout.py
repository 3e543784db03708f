"""Who shares what in a training job: the groups of each kind of parallelism."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """How many ranks each kind of parallelism has; the job has their product, without `expert`.

    Attributes:
        tensor: Ranks that share each layer's matrices (Megatron).
        shard: Ranks that share parameters, gradients and optimizer state (ZeRO-3, FSDP).
        replicate: Copies of that: with `shard` HSDP, without it plain data parallelism.
        pipeline: Stages (1F1B).
        expert: Ranks that share a layer's experts: some of `shard`.
    """

    tensor: int = 1
    shard: int = 1
    replicate: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def ranks(self) -> int:
        """The number of ranks of the whole job."""
        return self.tensor * self.shard * self.replicate * self.pipeline

    def communicators(self) -> dict[str, list[list[int]]]:
        """By name, only those with groups of several ranks."""
        t, s, r = self.tensor, self.shard, self.replicate
        e = self.expert
        sizes = {
            "tensor": (t, 1),
            "shard": (s, t),
            "replicate": (r, t * s),
            "pipeline": (self.pipeline, t * s * r),
            "expert": (e, t),
        }
        made = {
            name: _groups(self.ranks, size, stride)
            for name, (size, stride) in sizes.items()
            if size > 1
        }
        if e > 1 and s * r > e:
            copies = range(s // e * r)
            made["expert_data"] = [
                [block * t * s * r + (copy * e + one) * t + tensor for copy in copies]
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
