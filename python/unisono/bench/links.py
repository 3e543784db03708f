"""How well results use the links between nodes: a plan's bytes against what the links carry."""

from collections.abc import Sequence
from functools import cache

from unisono import _unisono as native
from unisono import plans
from unisono.bench.peers import OURS
from unisono.bench.rows import Row
from unisono.names import element_bytes
from unisono.tables import Table, label, number


@cache
def busiest_link_chunks(plan_name: str, protocol: str, ranks: int, nodes: int) -> tuple[int, int]:
    """Chunks that the busiest link, in its busier direction, carries in a plan; and chunks a block.

    A node has one link, which all its ranks share.
    """
    placement = plans.Placement(ranks, nodes)
    plan = plans.find_algorithm(plan_name).plan(placement, protocol=protocol)
    out, into = [0] * nodes, [0] * nodes
    for rank in range(ranks):
        here = placement.node_of(rank)
        for block in plan.thread_blocks(rank):
            if block.send_peer < 0 or placement.node_of(block.send_peer) == here:
                continue
            chunks = sum(step.count for step in block.steps if step.sends)
            out[here] += chunks
            into[placement.node_of(block.send_peer)] += chunks
    return max(out + into), plan.chunks_per_block


def link_share(row: Row, rate: int) -> float:
    """The rate at which a result's busiest link worked, over the link's bits a second.

    Headers count as bits of the link and not as bytes of the plan: with packets of 1500 bytes, TCP
    leaves 0.957 for the plan.
    """
    chunks, per_block = busiest_link_chunks(
        f"{row.algorithm}_{row.collective}", row.protocol, row.ranks, row.nodes
    )
    blocks = 1 if row.collective in ("all_reduce", "broadcast", "reduce") else row.ranks
    block_bytes = row.bytes // blocks // element_bytes(row.type) * element_bytes(row.type)
    return block_bytes * chunks / per_block * 8 / (row.time_us * 1e-6) / rate


def least_link_bytes(row: Row) -> float:
    """Bytes that some link must carry in one direction, whatever the algorithm; headers apart.

    Of nodes with as many ranks each: each node takes what only others have, once (gathered blocks,
    the root's data, the sums of others), or gives what only it has. An all-reduce is a
    reduce-scatter and an all-gather.
    """
    others = (row.nodes - 1) / row.nodes
    return row.bytes * {
        "all_gather": others,
        "reduce_scatter": others,
        "all_reduce": 2 * others,
        "broadcast": 1.0,
        "reduce": 1.0,
        "gather": others,
        "scatter": others,
        "all_to_all": others * row.ranks / row.nodes,
    }.get(row.collective, 0.0)


def least_share(row: Row, rate: int) -> float:
    """The share of a link's rate at which the least bytes went; 0 where none need go."""
    return least_link_bytes(row) * 8 / (row.time_us * 1e-6) / rate


def shares_table(rows: Sequence[Row], rate: int, title: str) -> Table:
    """A line for each row that moves data between nodes.

    `plan` is the share of the bytes that the algorithm's plan sends, `least` of those that any
    algorithm must send.
    """
    names = ("collective", "library", "algorithm", "protocol")
    table = Table(
        [*(label(name, folds=True) for name in names), *map(number, ("size", "plan", "least"))],
        title=title,
        keys=5,
    )
    for row in rows:
        if not least_link_bytes(row):
            continue
        table.add_row(
            row.collective,
            row.implementation,
            row.algorithm,
            row.protocol,
            native.format_bytes(row.bytes),
            f"{link_share(row, rate):.3f}" if row.implementation == OURS else "",
            f"{least_share(row, rate):.3f}",
        )
    return table
