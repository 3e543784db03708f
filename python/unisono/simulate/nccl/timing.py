"""How long NCCL's choice takes: latencies of hops, and bytes through the narrowest part.

    time = launch + hops + wire + fill        wire = the longer of inside and between the nodes
    fill = 1 / (1 / most + share / wire)

The fill is what a pipeline of chunks costs until all of its stages work: a part of the wire time
while NCCL cuts chunks to the size of the call, and a constant for each stage where they have their
full size. Each coefficient is NCCL's own constant (tables.py) or a fact of the hardware, times the
exponential of a sum of parameters, which are shared by all machines of a GPU generation or of a
transport. `priors` says where they start and how far they may go.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unisono.errors import MisuseError
from unisono.simulate.nccl.choice import (
    POINT_TO_POINT,
    Call,
    Choice,
    Platform,
    bandwidth_gb_s,
    choose,
    collnet_hops,
    linear_us,
    pat_hops,
    steps,
)
from unisono.simulate.nccl.machine import MachineFile, nics_of, platform_of
from unisono.simulate.nccl.tables import PROTOCOLS, tables_of

Array = npt.NDArray[np.float64]
# Coefficients of calls, and which parameters multiply each.
_Slot = tuple[Array, Array]

# A launch, when none is waited for, and when it is by a CUDA graph.
_LAUNCH_US = 6.6
# What a rank's proxy needs for a peer on another node, and a peer on its own, of point-to-point.
_PEER_US = {"between": 3.0, "inside": 0.3}
# Most fill of a stage, and the part of the wire time that it is below that.
_STAGE_US = {"ring": 4.0, "tree": 4.0, "nvls": 60.0, "point_to_point": 30.0,
             "collnet": 4.0, "pat": 4.0}  # fmt: skip
_NETWORK_STAGE_US = 15.0
_SHARE = 0.6
# What sends and receives reach between nodes for each GPU where a NIC is faster: 22.6 GB/s on 16
# B200 at Vultr, 24 on 128 GB300 at Oracle. Taken from these two tables, not fitted.
_POINT_TO_POINT_GB_S = 24.0
# Bytes on a wire for a byte of the call; LL's rate is limited otherwise.
_WIRE = {"ll128": 128 / 120, "simple": 1.0}


# The beginning of its first parameter's name says what a latency is.
_PART_NAMES = {
    "launch.": "launch", "hop.": "hops inside nodes", "network_hop.": "hops between nodes",
    "peer.inside": "peers inside nodes", "peer.between": "peers on other nodes",
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """A coefficient (microseconds) and the parameters whose sum's exponential multiplies it."""

    coefficient: float
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    """A call's time before parameters have values."""

    choice: Choice
    latencies: tuple[Term, ...]
    inside: Term
    between: Term
    most_fill: tuple[Term, ...]
    share: Term


def terms_of(machine: MachineFile, call: Call, choice: Choice | None = None) -> Terms:
    """The terms of NCCL's choice on a machine, or of another that is known to have run.

    Raises:
        MisuseError: The machine cannot run the call.
    """
    if call.ranks < 2 or call.nodes < 1 or call.ranks % call.nodes:
        raise MisuseError(
            f"{call.ranks} ranks on {call.nodes} nodes; 2 or more, as many on each node"
        )
    platform = platform_of(machine, call.nodes, call.ranks // call.nodes)
    choice = choice or choose(call, platform)
    tags = _Tags(
        machine.hardware.gpu,
        machine.stack.transport,
        graphs=machine.stack.graphs,
        fixed_chunks=machine.stack.chunk_bytes > 0,
    )
    if choice == POINT_TO_POINT:
        return _point_to_point(machine, call, tags)
    kind = choice.algorithm.removesuffix("_tree").partition("_")[0]
    inside_hops, network_hops = _hops(call, choice)
    tables, at = tables_of(""), PROTOCOLS.index(choice.protocol)
    link = tables.nvlink_us[choice.algorithm][at]
    wire = tables.network_us[choice.algorithm][at]
    latencies = [
        tags.launch(choice),
        Term(
            inside_hops * link + linear_us(call, choice),
            (
                f"hop.{kind}.{choice.protocol}",
                f"hop.{tags.gpu}",
                f"hop.{tags.gpu}.{choice.protocol}",
            ),
        ),
        Term(network_hops * wire, (f"network_hop.{choice.protocol}", f"hop.{tags.transport}")),
    ]
    return Terms(
        choice,
        tuple(term for term in latencies if term.coefficient > 0),
        _inside(machine, call, choice, platform, tags),
        _between(machine, call, choice, platform, tags),
        _fill(choice, kind, inside_hops, network_hops, tags),
        Term(_SHARE, (f"share.{kind}", *tags.chunks("share"))),
    )


@dataclass(frozen=True)
class _Tags:
    gpu: str
    transport: str
    graphs: bool
    fixed_chunks: bool

    def chunks(self, kind: str) -> tuple[str, ...]:
        """What chunks that are not cut to the size of a call change."""
        return (f"{kind}.fixed",) if self.fixed_chunks else ()

    def launch(self, choice: Choice) -> Term:
        kind = "graph" if self.graphs else "call"
        names = (f"launch.{kind}", f"launch.{self.gpu}", f"launch.{choice.protocol}")
        return Term(_LAUNCH_US, names)


def _hops(call: Call, choice: Choice) -> tuple[float, float]:
    local, depth = call.ranks // call.nodes, call.nodes.bit_length() - 1
    if choice.algorithm == "ring":
        # Of a chunk's way round the ring only its last edge is left out, which for most chunks is
        # one inside a node: they cross every edge between nodes.
        between = 0 if call.nodes == 1 else min(call.nodes, call.ranks - 1)
        between *= 2 if call.collective == "all_reduce" else 1
        return steps(call) - between, between
    if choice.algorithm == "tree":
        return 2 * (local - 1), 2 * depth
    if choice.algorithm == "pat":
        return 0, pat_hops(call)
    if choice.algorithm.startswith("collnet"):
        return collnet_hops(call, choice)
    return 1, 2 * depth


def _fill(
    choice: Choice, kind: str, inside: float, network: float, tags: _Tags
) -> tuple[Term, ...]:
    """In LL and LL128 GPUs wait for lines and not for chunks; trees' proxies wait for chunks."""
    if choice.protocol != "simple":
        if choice.algorithm == "ring":
            return ()
        inside = 0
    both = (f"fill.{choice.protocol}", *tags.chunks("fill"))
    return (
        Term(inside * _STAGE_US[kind], (f"fill.{kind}", *both)),
        Term(network * _NETWORK_STAGE_US, (f"fill.{kind}.network", *both)),
    )


def _inside(
    machine: MachineFile, call: Call, choice: Choice, platform: Platform, tags: _Tags
) -> Term:
    """Bytes through NVLink, at what NCCL reaches on one node."""
    alone = platform_of(machine, 1)
    name = "nvls" if choice.algorithm == "nvls_tree" else choice.algorithm
    local = call.ranks // call.nodes
    if local == 1:
        return Term(0.0, ())
    if choice.algorithm.startswith("collnet"):
        # All bytes up and down a chain; directly, each GPU's part from all others and to them.
        part = 2.0 if choice.algorithm == "collnet_chain" else 2 * (local - 1) / local
        return Term(
            call.bytes * part / machine.hardware.nvlink.value / 1000,
            ("bytes.collnet.simple", f"bytes.collnet.{tags.gpu}"),
        )
    if choice.algorithm == "ring":
        one = Call(call.collective, call.bytes, call.ranks, 1)
    else:
        one = Call(call.collective, call.bytes, local, 1)
    speed = bandwidth_gb_s(one, Choice(name, choice.protocol), _newest(alone))
    return Term(
        call.bytes / speed / 1000,
        (f"bytes.{name}.{choice.protocol}", f"bytes.{name}.{tags.gpu}"),
    )


def _newest(platform: Platform) -> Platform:
    return Platform(
        platform.generation, platform.rings, platform.trees, platform.nvls, cpu=platform.cpu
    )


def _between(
    machine: MachineFile, call: Call, choice: Choice, platform: Platform, tags: _Tags
) -> Term:
    """Bytes through a node's NICs."""
    if call.nodes == 1:
        return Term(0.0, ())
    nics, channels = nics_of(machine.hardware, call.ranks // call.nodes), 0
    if choice.algorithm == "nvls_tree" and platform.nvls is not None:
        channels = platform.nvls.channels
    if choice.algorithm in ("ring", "pat"):
        part = steps(call) / call.ranks
    elif choice.algorithm.startswith("collnet"):
        part = 1.0
    elif choice.protocol == "ll":
        part = 2.0
    else:
        part = _tree_part(call, nics, channels)
    if choice.protocol == "ll":
        # What a processor's memory lets LL's flags through.
        limits = tables_of("").ll_between_gb_s[machine.hardware.cpu]
        speed = limits[min(call.nodes, 3) - 2]
        return Term(
            call.bytes * part / speed / 1000,
            ("network_bytes.ll", f"network_bytes.ll.{tags.transport}"),
        )
    moved = call.bytes * part * _WIRE[choice.protocol]
    return Term(
        moved / (min(nics, channels or nics) * machine.hardware.nic_bandwidth.value) / 1000,
        (f"network_bytes.{choice.protocol}", f"network_bytes.{tags.transport}"),
    )


def _tree_part(call: Call, nics: int, channels: int) -> float:
    """How often the busiest NICs of a node send each byte of the call in a tree.

    An inner node sends up once and down twice, a leaf only up. There are two trees, and each node
    is inside one of them: where a NIC serves channels of both, that is twice on average; where each
    of the `channels` has a NIC of its own, the NICs of inner nodes send three times.
    """
    if call.nodes == 2:
        return 1.0
    return 3.0 if 0 < channels <= nics else 2.0


def _network_gb_s(machine: MachineFile, call: Call) -> float:
    """The network of the NICs that a node's ranks use."""
    hardware = machine.hardware
    return nics_of(hardware, call.ranks // call.nodes) * hardware.nic_bandwidth.value


def _point_to_point(machine: MachineFile, call: Call, tags: _Tags) -> Terms:
    local = call.ranks // call.nodes
    far = call.ranks - local
    share = call.bytes / call.ranks
    # PXN brings all but a GPU's own part to the GPU next to the NIC of the receiver's rail.
    relayed = far * (local - 1) / local if machine.stack.pxn else 0.0
    nics = _network_gb_s(machine, call)
    latencies = [
        tags.launch(POINT_TO_POINT),
        Term((local - 1) * _PEER_US["inside"], ("peer.inside",)),
        Term(far * _PEER_US["between"], ("peer.between", f"hop.{tags.transport}")),
    ]
    between = Term(0.0, ())
    if far:
        if nics <= 0:
            raise MisuseError(f"{machine.name} has no NICs, and {call.nodes} nodes are asked for")
        speed = min(nics / local, _POINT_TO_POINT_GB_S)
        between = Term(
            share * far / speed / 1000,
            ("network_bytes.point_to_point", f"network_bytes.{tags.transport}"),
        )
    return Terms(
        POINT_TO_POINT,
        tuple(term for term in latencies if term.coefficient > 0),
        Term(
            share * (local - 1 + relayed) / machine.hardware.nvlink.value / 1000,
            ("bytes.point_to_point", f"bytes.ring.{tags.gpu}"),
        ),
        between,
        (Term(_STAGE_US["point_to_point"], ("fill.point_to_point",)),),
        Term(_SHARE, ("share.point_to_point",)),
    )


class Model:
    """Many calls' terms as arrays, to be timed again and again with other parameters."""

    def __init__(self, terms: Sequence[Terms], names: Sequence[str] | None = None) -> None:
        self.terms = terms
        found = {name for one in terms for term in _all_terms(one) for name in term.parameters}
        self.names = list(names) if names is not None else sorted(found)
        self._place = {name: i for i, name in enumerate(self.names)}
        self._latencies = self._slots([one.latencies for one in terms])
        self._inside = self._slot([one.inside for one in terms])
        self._between = self._slot([one.between for one in terms])
        self._most = self._slots([one.most_fill for one in terms])
        self._share = self._slot([one.share for one in terms])

    def _slots(self, sums: Sequence[tuple[Term, ...]]) -> list[_Slot]:
        """Sums of terms, filled up with zeros."""
        most = max((len(one) for one in sums), default=0)
        return [
            self._slot([one[i] if i < len(one) else Term(0.0, ()) for one in sums])
            for i in range(most)
        ]

    def _slot(self, terms: Sequence[Term]) -> _Slot:
        uses = np.zeros((len(terms), len(self.names)))
        for row, term in enumerate(terms):
            for name in term.parameters:
                if name in self._place:
                    uses[row, self._place[name]] = 1.0
        return np.array([term.coefficient for term in terms]), uses

    def times_us(self, values: Array) -> Array:
        """With values of `names`, all at 0 for NCCL's own constants."""
        latency, most, inside, between, share = self._parts(values)
        wire, most_fill = np.maximum(inside, between), sum(most, self._nothing)
        fill = most_fill * wire / np.maximum(wire + share * most_fill, 1e-9)
        return np.asarray(sum(latency, self._nothing) + wire + fill)

    def parts_us(self, values: Array) -> dict[str, float]:
        """What the time of the first call consists of; only the longer wire counts."""
        latency, _, inside, between, _ = self._parts(values)
        parts = {
            name: float(time[0])
            for term, time in zip(self.terms[0].latencies, latency, strict=True)
            for begin, name in _PART_NAMES.items()
            if term.parameters[0].startswith(begin)
        }
        wire = "bytes inside nodes" if inside[0] >= between[0] else "bytes between nodes"
        parts[wire] = max(float(inside[0]), float(between[0]))
        fill = float(self.times_us(values)[0]) - sum(parts.values())
        return parts | {"fill of the pipeline": max(0.0, fill)}

    def slopes(self, values: Array) -> Array:
        """Slopes of the times' logarithms: a row for each call, a column for each parameter."""
        latency, parts, inside, between, share = self._parts(values)
        most = sum(parts, self._nothing)
        wire = np.maximum(inside, between)
        d_wire = np.where(
            (inside >= between)[:, None],
            inside[:, None] * self._inside[1],
            between[:, None] * self._between[1],
        )
        slopes = d_wire + _slopes(latency, self._latencies)
        slopes += (
            (share * most**2)[:, None] * d_wire
            + (wire**2)[:, None] * _slopes(parts, self._most)
            - (most**2 * wire * share)[:, None] * self._share[1]
        ) / (np.maximum(wire + share * most, 1e-9) ** 2)[:, None]
        return np.asarray(slopes / self.times_us(values)[:, None])

    @property
    def _nothing(self) -> Array:
        return np.zeros(len(self.terms))

    def _parts(self, values: Array) -> tuple[list[Array], list[Array], Array, Array, Array]:
        """Latencies, parts of the most fill, wire inside and between, and the fill's share."""

        def of(slot: _Slot) -> Array:
            coefficients, uses = slot
            return np.asarray(coefficients * np.exp(uses @ values))

        return (
            [of(slot) for slot in self._latencies], [of(slot) for slot in self._most],
            of(self._inside), of(self._between), of(self._share),
        )  # fmt: skip


def _slopes(times: Sequence[Array], slots: Sequence[_Slot]) -> Array | float:
    """The slopes of a sum of terms."""
    return sum((time[:, None] * slot[1] for time, slot in zip(times, slots, strict=True)), 0.0)


def _all_terms(one: Terms) -> list[Term]:
    return [*one.latencies, one.inside, one.between, *one.most_fill, one.share]
