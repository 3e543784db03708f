"""What NCCL chooses for a call: an algorithm, a protocol and a number of channels.

NCCL has a formula for the time of each algorithm and protocol, latency + bytes / bandwidth, and
takes the least (nccl/src/graph/tuning.cc); then it takes as many channels as give each thread
enough to do (nccl/src/enqueue.cc). An all-to-all is sends and receives, for which there is nothing
to choose.
"""

from dataclasses import dataclass

from unisono.errors import MisuseError
from unisono.simulate.nccl.tables import ALGORITHMS, PROTOCOLS, TREE_PART, Generation, tables_of

# What posting a message to a network costs at least.
_POST_US = {"intel": 1.0, "amd": 2.0, "arm": 1.0}
# A ring over several nodes whose steps are not tiny takes so much longer than its hops, in Simple.
_PLATEAU, _PLATEAU_BYTES = 1.4, 64
# Further microseconds of PAT for each rank, and of CollNet's direct exchange for each other GPU.
_PAT_RANK_US, _ARITY_US = 2.8, 0.4
# PAT's hops between nodes overlap: each takes this part of the network's latency.
_PAT_HOP_PART = 1 / 3.5
# Threads of a thread block, and the bytes that each must have before there is one more.
_THREADS = {"ll": 512, "ll128": 640, "simple": 512}
_BYTES_A_THREAD = {"ll": 8, "ll128": 8, "simple": 64}
# A channel is not used for less traffic than this.
_LEAST_TRAFFIC = 32 << 10
_SIMPLE = PROTOCOLS.index("simple")


@dataclass(frozen=True)
class Graph:
    """Channels that NCCL has found for an algorithm, and GB/s of each inside nodes and between."""

    channels: int
    inside_gb_s: float
    between_gb_s: float

    def gb_s(self, nodes: int) -> float:
        """GB/s of a channel, as the formula takes it."""
        return self.inside_gb_s if nodes <= 2 else self.between_gb_s


@dataclass(frozen=True)
class Platform:
    """What the formula asks of a machine.

    Attributes:
        generation: A name of the tables' `generations`.
        collnet: The switches of the network can reduce, and NCCL_COLLNET_ENABLE is set.
        nvls: None where there is no NVLink SHARP, or it is off.
        version: The version of NCCL; empty: the newest known.
        algorithms: Those that are allowed (NCCL_ALGO); empty: all.
        protocols: Those that are allowed (NCCL_PROTO); empty: all.
    """

    generation: str
    rings: Graph
    trees: Graph
    nvls: Graph | None = None
    collnet: bool = False
    cpu: str = "intel"
    version: str = ""
    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()


def _one_kind(generation: str) -> Platform:
    channels, gb_s = tables_of("").generations[generation].inside
    graph = Graph(channels, gb_s, gb_s)
    return Platform(generation, graph, graph)


# GPUs on an NVSwitch without SHARP, with as much bandwidth between nodes as inside.
GENERATIONS = {name: _one_kind(name) for name in tables_of("").generations}


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


POINT_TO_POINT = Choice("point_to_point", "simple")


def candidates(call: Call, platform: Platform) -> list[Choice]:
    """What NCCL can choose from."""
    if call.collective == "all_to_all":
        return [POINT_TO_POINT]
    protocols = platform.protocols or PROTOCOLS
    able = [
        Choice(algorithm, protocol)
        for algorithm in ALGORITHMS
        for protocol in protocols
        if _can_serve(call, platform, Choice(algorithm, protocol))
    ]
    allowed = [one for one in able if one.algorithm in (platform.algorithms or ALGORITHMS)]
    # A ring serves what no allowed algorithm does.
    return allowed or [one for one in able if one.algorithm == "ring"]


def _can_serve(call: Call, platform: Platform, choice: Choice) -> bool:
    if choice.algorithm == "ring":
        return True
    if choice.algorithm == "tree":
        return call.collective == "all_reduce"
    if choice.algorithm == "pat":
        # With one GPU a node.
        gathers = call.collective in ("all_gather", "reduce_scatter")
        is_alone = call.nodes == call.ranks > 1 and choice.protocol == "simple"
        return gathers and is_alone and tables_of(platform.version).pat_part > 0
    if choice.algorithm.startswith("collnet"):
        # Its all-gather and reduce-scatter need a plugin that few have.
        is_reduced = call.collective == "all_reduce" and choice.protocol == "simple"
        return platform.collnet and call.nodes > 1 and is_reduced
    if platform.nvls is None or choice.protocol != "simple" or call.ranks <= 2 * call.nodes:
        return False
    if choice.algorithm == "nvls":
        served = ("all_reduce", "all_gather", "reduce_scatter")
        return call.nodes == 1 and call.collective in served
    return call.nodes > 1 and call.collective == "all_reduce"


def choose(call: Call, platform: Platform) -> Choice:
    """The algorithm and protocol whose formula gives the least time.

    Args:
        call: What is called.
        platform: Where; `GENERATIONS` has some.
    """
    return min(candidates(call, platform), key=lambda one: formula_us(call, one, platform))


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


def formula_us(call: Call, choice: Choice, platform: Platform) -> float:
    """What NCCL believes that the call takes; 0 for point-to-point calls, of which it has none."""
    if choice == POINT_TO_POINT:
        return 0.0
    latency = _latency_us(call, choice, platform)
    bandwidth = bandwidth_gb_s(call, choice, platform)
    if choice.algorithm == "tree":
        size = (call.bytes >> 6).bit_length() - 1
        by_size = TREE_PART[PROTOCOLS.index(choice.protocol)]
        bandwidth *= by_size[size] if 0 <= size < len(by_size) else 1
    return latency + call.bytes / (1000 * bandwidth)


def steps(call: Call) -> int:
    """The number of steps of a ring."""
    if call.collective == "all_reduce":
        return 2 * (call.ranks - 1)
    return call.ranks - 1 if call.collective in ("all_gather", "reduce_scatter") else call.ranks


def bandwidth_gb_s(call: Call, choice: Choice, platform: Platform) -> float:
    """Bytes of the call a nanosecond, when there are many."""
    tables = tables_of(platform.version)
    gpu = tables.generations[platform.generation]
    few = min(call.nodes, 3) - 1
    most_ll = gpu.ll_gb_s if call.nodes == 1 else tables.ll_between_gb_s[platform.cpu][few - 1]
    graph = platform.rings if choice.algorithm == "ring" else platform.trees
    bus = graph.channels * graph.gb_s(call.nodes)
    if choice.algorithm == "ring":
        if choice.protocol == "ll":
            kind = call.nodes > 1 or call.collective in ("all_reduce", "reduce")
            bus = min(most_ll, bus * tables.ll_part[kind])
        if choice.protocol == "ll128":
            bus = min(bus * 0.92, graph.channels * gpu.ring_ll128_gb_s[few])
        return bus * call.ranks / steps(call)
    if choice.algorithm == "tree":
        bus = min(bus * 0.92, graph.channels * gpu.tree_gb_s[few])
        if choice.protocol == "ll":
            bus = min(bus / 3.8, most_ll)
        if choice.protocol == "ll128":
            part = 7 / 9 if call.nodes == 1 else 120 / 128
            bus = min(bus * part, graph.channels * gpu.tree_ll128_gb_s[few])
        return bus / 2
    if choice.algorithm == "pat":
        return bus * tables.pat_part
    if choice.algorithm.startswith("collnet"):
        return _collnet_gb_s(call, choice, platform)
    return _nvls_gb_s(call, choice, platform, gpu, by_efficiency=tables.nvls_by_efficiency)


def _collnet_gb_s(call: Call, choice: Choice, platform: Platform) -> float:
    graph = platform.trees
    bus = graph.channels * graph.inside_gb_s
    if choice.algorithm == "collnet_direct":
        # GPUs beyond the NICs send through others.
        bus /= (1 + call.ranks / call.nodes / graph.channels) / 2
        bus *= 1.0 if platform.generation == "ampere" else 0.85
    return bus / 2


def _nvls_gb_s(
    call: Call, choice: Choice, platform: Platform, gpu: Generation, *, by_efficiency: bool
) -> float:
    graph = platform.nvls
    if graph is None:
        raise MisuseError("there is no NVLink SHARP for NVLS here")
    is_tree, two = choice.algorithm == "nvls_tree", call.nodes <= 2
    local = call.ranks / call.nodes
    if by_efficiency:
        inside = graph.inside_gb_s * gpu.nvls_efficiency * (graph.channels - 1) / graph.channels
        inside *= 2 if call.collective == "all_reduce" else (local - 1) / local
        limits = [inside]
        if call.nodes > 1:
            limits.append(graph.between_gb_s * (2 if two and is_tree else 1))
        if is_tree:
            limits.append(gpu.nvls_tree_gb_s[min(call.nodes, 3) - 1])
        ratio = call.ranks / steps(call) if call.collective == "all_reduce" else 1
    else:
        limits = [graph.inside_gb_s]
        if is_tree:
            limits.append(graph.between_gb_s * (1 if two else 0.5))
        ratio = 5 / 6
    return graph.channels * min(limits) * ratio


def _latency_us(call: Call, choice: Choice, platform: Platform) -> float:
    tables = tables_of(platform.version)
    at = PROTOCOLS.index(choice.protocol)
    algorithm = choice.algorithm
    base = tables.base_us[algorithm][at]
    inside, between = tables.nvlink_us[algorithm][at], tables.network_us[algorithm][at]
    if algorithm == "ring":
        return _ring_us(call, platform, at, base, inside)
    depth = call.nodes.bit_length() - 1
    if algorithm == "tree":
        return base + 2 * ((call.ranks // call.nodes - 1) * inside + depth * between)
    if algorithm == "pat":
        return base + linear_us(call, choice) + pat_hops(call) * between
    if algorithm.startswith("collnet"):
        hops, _ = collnet_hops(call, choice)
        return base + hops * inside + linear_us(call, choice) + between
    return base + inside + 2 * depth * between


def collnet_hops(call: Call, choice: Choice) -> tuple[int, int]:
    """Inside nodes and between them, up and down: the switches reduce."""
    others = call.ranks // call.nodes - 1
    return 2 * (others if choice.algorithm == "collnet_chain" else min(1, others)), 1


def pat_hops(call: Call) -> float:
    """Between nodes, as NCCL counts them."""
    return (call.nodes.bit_length() - 1) * _PAT_HOP_PART


def linear_us(call: Call, choice: Choice) -> float:
    """What NCCL adds for each rank, in addition to hops."""
    if choice.algorithm == "pat":
        return call.ranks * _PAT_RANK_US
    if choice.algorithm == "collnet_direct":
        return 2 * (call.ranks // call.nodes - 1) * _ARITY_US
    return 0.0


def _ring_us(call: Call, platform: Platform, at: int, base: float, inside: float) -> float:
    tables = tables_of(platform.version)
    between = tables.network_us["tree" if call.ranks == call.nodes else "ring"][at]
    if call.collective in ("broadcast", "reduce"):
        return base + (inside if call.nodes == 1 else between)
    all_steps, steps_between = steps(call), 0
    if call.nodes > 1:
        inside = max(inside, _POST_US[platform.cpu] * (3 if at == _SIMPLE else 1))
        steps_between = (call.nodes - 1) * (2 if call.collective == "all_reduce" else 1)
    latency = base + (all_steps - steps_between) * inside + steps_between * between
    is_plateau = (
        at == _SIMPLE and call.nodes > 1 and call.collective == "all_reduce"
        and call.bytes // (call.ranks * platform.rings.channels) >= _PLATEAU_BYTES
    )  # fmt: skip
    return latency * (_PLATEAU if is_plateau else 1)
