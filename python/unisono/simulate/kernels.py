"""How long a device's kernels take: GEMMs by their shape, attention, and what moves bytes.

A GEMM is cut into tiles, one for each SM at a time. A last wave that is not full, a
tile that is not full, and the beginning and end of a tile cost speed: NVIDIA, "Matrix
Multiplication Background User's Guide" (DU-09799-001), sections 2.3 and 3. `DEVICES` says where the
speeds are from.
"""

from dataclasses import dataclass

from unisono.errors import MisuseError
from unisono.simulate.models import Part

# Rows and columns of a tile, and its speed relative to the largest's: a smaller tile reads more
# bytes for each operation (table in section 2.3 of the guide).
_TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.9), (64, 128, 0.75))
# A tile begins and ends as if it summed over so many elements more.
_TILE_ENDS = 128
# A causal mask leaves half of the scores (section 3.1 of Dao, "FlashAttention-2").
_CAUSAL = 0.5
# The backward pass of attention multiplies five times where the forward pass does twice.
_SCORES_BACKWARD = 2.5
# Kernels of a training step take so many times as long as alone: power is limited, there are gaps,
# and kernels that are not in the model. Fitted to the `fit` rows of
# studies/simulator/published_steps.yaml, all of them on H100, and taken for every device.
_IN_TRAINING = 1.25
# Kernels that only move bytes reach this part of the memory's bandwidth (assumed).
_STREAMED = 0.8


@dataclass(frozen=True)
class Device:
    """What computes.

    Without `sms` it is a roofline: GEMMs of every shape reach `tflops`.

    Attributes:
        tflops: 10^12 operations a second that large GEMMs reach.
        memory_gb_s: 10^9 bytes a second of its memory; 0: no limit.
        peak_tflops: 10^12 operations a second of its data sheet, for MFU; 0: unknown.
        memory_gb: 10^9 bytes of its memory; 0: unknown, nothing is refused.
        sms: Tiles of a GEMM that run at once; 0: GEMMs have no shape.
        attention: The part of the peak that attention reaches, forward.
        attention_backward: The same for the backward pass.
    """

    tflops: float
    memory_gb_s: float = 0.0
    peak_tflops: float = 0.0
    memory_gb: float = 0.0
    sms: int = 0
    attention: float = 0.0
    attention_backward: float = 0.0

    def time_ns(self, operations: float, moved_bytes: float = 0.0) -> float:
        """The longer of computing, at the speed of large GEMMs, and moving bytes."""
        compute = operations / self.tflops / 1e3
        return max(compute, moved_bytes / self.memory_gb_s if self.memory_gb_s > 0 else 0.0)

    def gemm_ns(self, rows: int, columns: int, inner: int) -> float:
        """The product of a (rows, inner) and an (inner, columns) matrix of 16 bits.

        Args:
            rows: Of the result.
            columns: Of the result.
            inner: Elements that are summed for each of the result.
        """
        moved = 2.0 * (rows * inner + inner * columns + rows * columns)
        if not self.sms:
            return self.time_ns(2.0 * rows * columns * inner, moved)
        each_tflops = self.tflops / self.sms
        compute = min(
            -(-(-(-rows // high) * -(-columns // wide)) // self.sms)
            * (2.0 * high * wide * (inner + _TILE_ENDS) / (each_tflops * part) / 1e3)
            for high, wide, part in _TILES
        )
        return max(compute, moved / self.memory_gb_s)


# Peaks, bandwidths, memory and SMs are NVIDIA's data sheets (dense BF16, SXM). `tflops`
# is 0.822 of the peak, which makes a GEMM of 8192 x 8192 x 8192 reach the 777 TFLOP/s that we have
# measured on an H200 (docs/reference/gpu-measurements.md); on an A100 and an H100 we have measured
# none. The parts that attention reaches are assumed, between FlashAttention-2 and -3 (Shah et al.,
# "FlashAttention-3": 35 % of an H100's peak, and up to 75 %).
DEVICES = {
    "a100": Device(256, 2039, 312, 80, 108, 0.55, 0.45),
    "h100": Device(813, 3350, 989, 80, 132, 0.55, 0.45),
    "h200": Device(813, 4800, 989, 141, 132, 0.55, 0.45),
}


def find_device(name: str) -> Device:
    """A device by its name in DEVICES.

    Raises:
        MisuseError: There is none of that name.
    """
    if name not in DEVICES:
        raise MisuseError(f"there is no device '{name}'; there are {', '.join(DEVICES)}")
    return DEVICES[name]


@dataclass(frozen=True)
class Share:
    """What one rank computes of a part.

    Attributes:
        tokens: Tokens of a micro-batch on this rank.
        tensor: Ranks that share each matrix.
        experts: Experts of a layer on this rank; 0: the model has none.
        element_bytes: Bytes of a weight.
    """

    tokens: int
    tensor: int = 1
    experts: int = 0
    element_bytes: int = 2


def part_ns(
    device: Device, part: Part, share: Share, *, is_forward: bool, recompute: str = "none"
) -> float:
    """What a part takes of one micro-batch on one rank.

    Args:
        device: What computes.
        part: What is computed.
        share: Whose share of it.
        is_forward: Or the gradients of inputs and weights.
        recompute: "full" computes the forward pass once more before the backward pass. Fused
            attention does so with its scores anyway, which is all that "selective" asks.
    """
    if not device.sms:
        again = 1 if recompute == "full" else 0
        passes = 1 if is_forward else 2 + again
        return _roofline_ns(device, part, share, passes, selective=recompute == "selective")
    forward = _shaped_ns(device, part, share, is_forward=True)
    if is_forward:
        return forward
    backward = _shaped_ns(device, part, share, is_forward=False)
    return backward + (forward if recompute == "full" else 0.0)


def _roofline_ns(
    device: Device, part: Part, share: Share, passes: int, *, selective: bool
) -> float:
    operations = passes * part.operations
    if selective and passes > 1:
        operations += part.scores
    weights = part.parameters * share.element_bytes
    moved = passes * (part.activations * share.tokens + weights) / share.tensor
    return device.time_ns(operations * share.tokens / share.tensor, moved)


def _shaped_ns(device: Device, part: Part, share: Share, *, is_forward: bool) -> float:
    passes = 1 if is_forward else 2
    time = passes * part.activations * share.tokens / share.tensor / device.memory_gb_s / _STREAMED
    scores = part.scores * share.tokens / share.tensor * _CAUSAL
    peak = device.peak_tflops * 1e3
    if is_forward:
        time += scores / (peak * device.attention)
    else:
        time += _SCORES_BACKWARD * scores / (peak * device.attention_backward)
    groups = max(1, share.experts) if part.chosen else 1
    rows = -(-share.tokens * max(1, part.chosen) // groups)
    for gemm in part.gemms:
        inner = max(1, gemm.inputs // (share.tensor if gemm.splits == "inputs" else 1))
        columns = max(1, gemm.outputs // (share.tensor if gemm.splits == "outputs" else 1))
        if is_forward:
            time += groups * device.gemm_ns(rows, columns, inner)
        else:
            time += groups * device.gemm_ns(rows, inner, columns)
            time += groups * device.gemm_ns(inner, columns, rows)
    return _IN_TRAINING * time
