"""How a training step is done, apart from who shares what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from unisono.errors import MisuseError

Recompute = Literal["none", "selective", "full"]
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass
class Options:
    """How a step is done.

    Attributes:
        micro_batch: Samples that a rank computes at once.
        gather: "layer" (FSDP wraps blocks) or "matrix" (ZeRO-3 fetches modules).
        prefetch: How many gathers may run ahead of the computation.
        recompute: What the backward pass computes again: "none", "selective" (attention's scores)
            or "full" (the whole forward pass; also True).
        reduce_bucket_bytes: Gradients are reduced once so many have come together; 0: each unit's.
        algorithms: By collective; for others the simulator chooses (`choose_plan`).
        protocol: The protocol of all calls.
        channels: Channels of all calls; 0: as the cluster's file says.
        optimizer: "sharded" shares the optimizer's state among copies (ZeRO-1): gradients are
            reduce-scattered, and parameters gathered after the update.
        gradient_bytes: Bytes of a gradient that is kept, as Megatron keeps 32 bits.
        fused_attention: The scores of attention stay on the chip (FlashAttention).
    """

    micro_batch: int = 1
    gather: Literal["layer", "matrix"] = "layer"
    prefetch: int = 1
    recompute: Recompute | bool = True
    reduce_bucket_bytes: int = 0
    algorithms: Mapping[str, str] = field(default_factory=dict)
    protocol: str = "simple"
    channels: int = 0
    optimizer: Literal["replicated", "sharded"] = "replicated"
    gradient_bytes: int = 4
    fused_attention: bool = True

    @property
    def recomputes(self) -> Recompute:
        """`recompute` as a word."""
        if isinstance(self.recompute, bool):
            return "full" if self.recompute else "none"
        return self.recompute

    def check(self) -> None:
        """Refuses values that no step has.

        Raises:
            MisuseError: One of them is wrong; the message says what would be right.
        """
        if self.gather not in ("layer", "matrix"):
            raise MisuseError(f"gather is '{self.gather}'; it must be 'layer' or 'matrix'")
        if self.micro_batch < 1 or self.prefetch < 0:
            raise MisuseError("micro_batch must be 1 or more, prefetch 0 or more")
        if self.recomputes not in RECOMPUTES:
            raise MisuseError(
                f"recompute is '{self.recompute}'; it must be none, selective or full"
            )
        if self.optimizer not in ("replicated", "sharded"):
            raise MisuseError(
                f"optimizer is '{self.optimizer}'; it must be 'replicated' or 'sharded'"
            )
        if self.gradient_bytes not in (2, 4):
            raise MisuseError(f"gradient_bytes is {self.gradient_bytes}; it must be 2 or 4")


def options_of(values: Mapping[str, object]) -> Options:
    """Options from names and values.

    Raises:
        MisuseError: There is no such option, or its value is wrong.
    """
    unknown = set(values) - set(Options.__dataclass_fields__)
    if unknown:
        raise MisuseError(
            f"there is no option '{min(unknown)}' of a training step; there are "
            f"{', '.join(Options.__dataclass_fields__)}"
        )
    how = Options(**values)  # type: ignore[arg-type]
    how.check()
    return how
