"""Levels of a cluster's network, and which parallel groups of a model fit where.

Ranks of a training job form groups: tensor parallelism, expert parallelism, pipeline stages. What
needs the network most belongs nearest, and consecutive ranks are near each other (NCCLX, section
5.4: groups are mapped to racks, zones and buildings).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unisono._unisono import Placement
from unisono.errors import MisuseError

__all__ = [
    "Group",
    "Placed",
    "locations_in_cluster",
    "parse_groups",
    "place_groups",
    "spans_of_cluster",
]

_MAX_GROUPS = 8


@dataclass(frozen=True)
class Group:
    """A dimension of a model's parallelism: its name, and the ranks in each of its groups."""

    name: str
    size: int


@dataclass(frozen=True)
class Placed:
    """Where the groups of one dimension are.

    Attributes:
        name: The dimension's name.
        size: Ranks in a group.
        stride: From one rank of a group to its next.
        groups: How many there are.
        inside: How many of them stay inside a node, then inside a unit of each level, the nearest
            first; the last number is that of those which no unit holds.
        where: The smallest unit that holds each group whole: "node", "rack"; "cluster" for none.
        advice: What to change; empty where there is nothing to say.
    """

    name: str
    size: int
    stride: int
    groups: int
    inside: list[int]
    where: str
    advice: str


def parse_groups(text: str) -> list[Group]:
    """Groups as a person writes them, the nearest first: "tensor=8,expert=4,pipeline=2".

    Raises:
        MisuseError: It is no such text; the message quotes the part that is wrong.
    """
    out: list[Group] = []
    for part in text.split(","):
        name, equals, size = part.partition("=")
        if not equals or not name or not size.isdecimal() or int(size) < 1:
            raise MisuseError(
                f"groups: '{part}' is not NAME=RANKS with 1 rank or more; write for example "
                "tensor=8,expert=4,pipeline=2"
            )
        if any(name == one.name for one in out):
            raise MisuseError(f"groups: '{name}' is named twice; name each group once")
        out.append(Group(name, int(size)))
    if len(out) > _MAX_GROUPS:
        raise MisuseError(f"groups: there are {len(out)}; name at most {_MAX_GROUPS}")
    return out


def place_groups(placement: Placement, groups: Sequence[Group]) -> list[Placed]:
    """Where each dimension's groups are, where consecutive ranks form the first one.

    The ranks that the sizes leave over form a last dimension, "data".

    Raises:
        MisuseError: The sizes do not divide the ranks.
    """
    product = 1
    for group in groups:
        product *= group.size
    if placement.ranks % product:
        sizes = " x ".join(f"{one.name} {one.size}" for one in groups)
        raise MisuseError(
            f"{sizes} are {product} ranks, which do not divide the {placement.ranks} ranks; "
            "choose sizes whose product divides them"
        )
    wanted = list(groups)
    if product < placement.ranks and all(one.name != "data" for one in groups):
        wanted.append(Group("data", placement.ranks // product))
    out = []
    stride = 1
    for group in wanted:
        out.append(_placed(placement, group, stride))
        stride *= group.size
    return out


def _placed(placement: Placement, group: Group, stride: int) -> Placed:
    names = ["node", *placement.levels]
    inside = [0] * (len(names) + 1)
    block = stride * group.size
    for first in range(0, placement.ranks, block):
        for offset in range(stride):
            inside[_farthest(placement, first + offset, stride, group.size) + 1] += 1
    farthest = max(index for index, count in enumerate(inside) if count)
    where = [*names, "cluster"][farthest]
    advice = _advice(placement, group, stride, inside, [*names, "cluster"])
    return Placed(group.name, group.size, stride, sum(inside), inside, where, advice)


def _farthest(placement: Placement, first: int, stride: int, size: int) -> int:
    ranks = range(first, first + stride * size, stride)
    # Units nest, so the farthest of one member is that of the group.
    return max((placement.levels_left(first, rank) for rank in ranks), default=-1)


def _advice(
    placement: Placement, group: Group, stride: int, inside: list[int], units: list[str]
) -> str:
    """Where some groups go farther than others, or the first ones leave their node."""
    used = [index for index, count in enumerate(inside) if count]
    if len(used) > 1:
        near = units[used[0]]
        return (
            f"{sum(inside) - inside[used[0]]} of {sum(inside)} {group.name} groups leave their "
            f"{near}, and the others stay: choose sizes up to {group.name} whose product, now "
            f"{stride * group.size}, divides the ranks of each {near}"
        )
    on_node = min(placement.ranks_on(node) for node in range(placement.nodes))
    if stride == 1 and used[-1] > 0 and group.size > 1:
        fits = max(size for size in range(1, on_node + 1) if group.size % size == 0)
        return (
            f"each {group.name} group of {group.size} ranks leaves its node, which has {on_node}: "
            f"{group.name}={fits} stays inside"
            if fits > 1
            else f"no {group.name} group of 2 ranks or more fits into nodes of {on_node}"
        )
    return ""


def spans_of_cluster(name: str) -> list[tuple[str, int, int]]:
    """The levels of a cluster file, as `Placement.with_spans` takes them.

    The latency of a level is that of messages which stay inside its units, so a message that leaves
    the units of one level takes that of the next. The last level holds all nodes.

    Raises:
        MisuseError: There is no such cluster, or its file is wrong.
    """
    from unisono.simulate import load_cluster

    network = load_cluster(name).file.network
    nearest = network[0].latency.value if network else 0
    return [
        (level.name, int(level.nodes.value), round(above.latency.value - nearest))
        for level, above in pairwise(network)
    ]


def locations_in_cluster(name: str, nodes: Iterable[int]) -> list[str]:
    """Where nodes are in the cluster of a cluster file, as `UNISONO_LEVELS` has it; "none" where
    the cluster has one level.

    Args:
        name: A built-in cluster's name, or a file.
        nodes: The nodes' numbers in the cluster, from 0: units have consecutive nodes.

    Raises:
        MisuseError: There is no such cluster, its file is wrong, or it has no such node.
    """
    from unisono.simulate import load_cluster

    spans, most = spans_of_cluster(name), int(load_cluster(name).file.nodes.value)
    out = []
    for node in nodes:
        if not 0 <= node < most:
            raise MisuseError(
                f"node is {node}; the cluster {name} has {most} nodes, numbered 0 to {most - 1}"
            )
        units = (f"{level}={node // size}+{longer}ns" for level, size, longer in spans)
        out.append(",".join(units) or "none")
    return out
