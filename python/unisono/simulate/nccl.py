"""What NCCL chooses for a call: an algorithm, a protocol and a number of channels.

NCCL has a formula for the time of each algorithm and protocol, alpha + bytes / bandwidth, and takes
the least (src/graph/tuning.cc of NCCL 2.28); then it takes as many channels as give each thread
enough to do (src/enqueue.cc). The constants are NCCL's. Only rings and trees over NVLink are here,
on x86 hosts; NVLS, PAT and CollNet are not.
"""

from dataclasses import dataclass

PROTOCOLS = ("ll", "ll128", "simple")

# Microseconds: of a call, and of a hop over NVLink and over a network.
_BASE_US = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
_NVLINK_US = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)}
_NETWORK_US = {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0)}
# What posting a message to a network costs at least, on an Intel host.
_POST_US = 1.0
# A ring over several nodes whose steps are not tiny takes so much longer than its hops, in Simple.
_PLATEAU, _PLATEAU_BYTES = 1.4, 64
# A tree's bandwidth, as a part of what the formula says, by protocol and size: 64 B, 128 B, ...
_TREE_PART = (
    (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8,
     0.9, 1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9,
     0.9, 0.9, 0.9, 1.0, 1.0),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8,
     0.7, 0.7, 0.8, 0.9, 0.9),
)  # fmt: skip
# Threads of a thread block, and the bytes that each must have before there is one more.
_THREADS = {"ll": 512, "ll128": 640, "simple": 512}
_BYTES_A_THREAD = {"ll": 8, "ll128": 8, "simple": 64}
# A channel is not used for less traffic than this.
_LEAST_TRAFFIC = 32 << 10


@dataclass(frozen=True)
class Generation:
    """What NCCL knows of GPUs that an NVSwitch joins. GB/s; by 1, 2 and more nodes where three."""

    rings: int
    ring_gb_s: float
    most_ll_gb_s: tuple[float, float, float]
    ring_ll128_gb_s: tuple[float, float, float]
    tree_ll128_gb_s: tuple[float, float, float]
    tree_gb_s: tuple[float, float, float]


# LL between nodes goes by the host's processor: Intel's.
GENERATIONS = {
    "ampere": Generation(
        12, 20.0, (87.7, 39.0, 20.4), (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (24.0, 23.6, 17.8)
    ),
    "hopper": Generation(
        12, 30.0, (141.0, 39.0, 20.4), (36.7, 36.7, 36.7), (36.7, 36.7, 29.0), (38.7, 41.4, 36.0)
    ),
}


@dataclass(frozen=True)
class Call:
    """A collective.

    Attributes:
        bytes: The larger of input and output.
    """

    collective: str
    bytes: int
    ranks: int
    nodes: int


@dataclass(frozen=True)
class Choice:
    """How NCCL runs a call."""

    algorithm: str
    protocol: str


def choose(call: Call, gpu: str) -> Choice:
    """The algorithm and protocol whose formula gives the least time.

    Args:
        call: What is called.
        gpu: A name of `GENERATIONS`.
    """
    algorithms = ("ring", "tree") if call.collective == "all_reduce" else ("ring",)
    choices = [Choice(algorithm, protocol) for algorithm in algorithms for protocol in PROTOCOLS]
    return min(choices, key=lambda one: formula_us(call, one, GENERATIONS[gpu]))


def channels(call: Call, choice: Choice, most: int) -> int:
    """As many as give each thread enough to do; 1 to `most`."""
    each = _BYTES_A_THREAD[choice.protocol]
    if choice == Choice("ring", "ll"):
        each *= call.ranks
    by_threads = call.bytes // (_THREADS[choice.protocol] * each)
    # Every byte goes out of a rank twice in an all-reduce.
    cell = _LEAST_TRAFFIC // (2 if call.collective == "all_reduce" else 1)
    if choice.protocol == "ll":
        cell //= 4
    by_traffic = -(-call.bytes // cell)
    return max(1, min(most, by_threads, by_traffic))


def formula_us(call: Call, choice: Choice, gpu: Generation) -> float:
    """What NCCL believes that the call takes."""
    bandwidth = _bandwidth_gb_s(call, choice, gpu)
    latency = _ring_us(call, choice) if choice.algorithm == "ring" else _tree_us(call, choice)
    return latency + call.bytes / (1000 * bandwidth)


def _steps(call: Call) -> int:
    """Of a ring."""
    if call.collective == "all_reduce":
        return 2 * (call.ranks - 1)
    return call.ranks - 1 if call.collective in ("all_gather", "reduce_scatter") else call.ranks


def _bandwidth_gb_s(call: Call, choice: Choice, gpu: Generation) -> float:
    few = min(call.nodes, 3) - 1
    protocol = choice.protocol
    bus = gpu.rings * gpu.ring_gb_s
    if choice.algorithm == "ring":
        if protocol == "ll":
            bus = min(gpu.most_ll_gb_s[few], bus / 2)
        if protocol == "ll128":
            bus = min(bus * 0.92, gpu.rings * gpu.ring_ll128_gb_s[few])
        return bus * call.ranks / _steps(call)
    bus = min(bus * 0.92, gpu.rings * gpu.tree_gb_s[few])
    if protocol == "ll":
        bus = min(bus / 3.8, gpu.most_ll_gb_s[few])
    if protocol == "ll128":
        part = 7 / 9 if call.nodes == 1 else 120 / 128
        bus = min(bus * part, gpu.rings * gpu.tree_ll128_gb_s[few])
    size = (call.bytes >> 6).bit_length() - 1
    by_size = _TREE_PART[PROTOCOLS.index(protocol)]
    return bus / 2 * (by_size[size] if 0 <= size < len(by_size) else 1)


def _ring_us(call: Call, choice: Choice) -> float:
    at = PROTOCOLS.index(choice.protocol)
    inside, between = _NVLINK_US["ring"][at], _NETWORK_US["ring"][at]
    base = _BASE_US["ring"][at]
    if call.collective in ("broadcast", "reduce"):
        return base + (inside if call.nodes == 1 else between)
    steps, steps_between = _steps(call), 0
    if call.nodes > 1:
        inside = max(inside, _POST_US * (3 if choice.protocol == "simple" else 1))
        if call.ranks == call.nodes:
            between = _NETWORK_US["tree"][at]
        steps_between = (call.nodes - 1) * (2 if call.collective == "all_reduce" else 1)
    latency = base + (steps - steps_between) * inside + steps_between * between
    is_plateau = (
        choice.protocol == "simple" and call.nodes > 1 and call.collective == "all_reduce"
        and call.bytes // call.ranks >= _PLATEAU_BYTES
    )  # fmt: skip
    return latency * (_PLATEAU if is_plateau else 1)


def _tree_us(call: Call, choice: Choice) -> float:
    at = PROTOCOLS.index(choice.protocol)
    depth = call.nodes.bit_length() - 1
    inside = (call.ranks // call.nodes - 1) * _NVLINK_US["tree"][at]
    return _BASE_US["tree"][at] + 2 * (inside + depth * _NETWORK_US["tree"][at])
