"""Runs jobs of two and four ranks on two nodes that soft-RoCE joins, in the guest."""

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from unisono.launcher import launch

SECONDS = 200
# The largest call alone moves 2.4 MB each way, in packets of 4 KiB.
LEAST_PACKETS = 500
PROGRAM = textwrap.dedent("""
    import numpy as np, unisono

    with unisono.init() as comm:
        size, rank = comm.size, comm.rank
        for count in (1, 1_000, 70_001, 300_000):
            every = [np.arange(count) * (one + 3) % 1_000_003 for one in range(size)]
            assert np.array_equal(comm.all_reduce(every[rank]), sum(every)), ("all_reduce", count)
            gathered = np.ravel(comm.all_gather(every[rank]))
            assert np.array_equal(gathered, np.concatenate(every)), ("all_gather", count)
            wide = [np.concatenate([one + part for part in range(size)]) for one in every]
            mine = sum(wide)[rank * count : (rank + 1) * count]
            assert np.array_equal(comm.reduce_scatter(wide[rank]), mine), ("reduce_scatter", count)
        # Its pages may not be stored to, and verbs pins what it sends.
        read_only = np.frombuffer(bytes(range(256)) * 1024, dtype=np.uint8)
        sent = comm.broadcast(read_only if rank == 0 else np.zeros_like(read_only), root=0)
        assert np.array_equal(sent, read_only)
        comm.barrier()
        used = {one["transport"] for one in comm.memory()["connections"]}
        assert used == {"ofi"}, used
        print(f"rank {rank} of {size} on {comm.nodes} nodes is right")
""")


class Cards:
    """Places each node's ranks at the node's card of rail 0."""

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """The command itself: all nodes share a network namespace."""
        return list(command)

    def variables(self, node: int) -> dict[str, str]:
        """The address of the node's card."""
        return {"UNISONO_INTERFACE": f"10.77.0.{node + 1}"}


def packets(node: int) -> int:
    """How many packets of RoCE a node's card has received."""
    counters = Path(f"/sys/class/infiniband/roce_n{node}r0/ports/1/hw_counters")
    return int((counters / "rcvd_pkts").read_text())


def is_right(ranks: int) -> bool:
    """Runs a job of two nodes; whether it is right and its data have crossed the wire."""
    before = [packets(node) for node in range(2)]
    outcome = launch(
        ["-c", PROGRAM],
        ranks,
        nodes=2,
        environment={"UNISONO_TRANSPORT": "ofi", "FI_PROVIDER": "verbs;ofi_rxm"},
        places=Cards(),
        timeout=SECONDS,
    )
    if not outcome.ok:
        print(outcome.message)
        return False
    received = [packets(node) - before[node] for node in range(2)]
    print(f"packets received by the nodes: {received}")
    return min(received) > LEAST_PACKETS


if __name__ == "__main__":
    sys.exit(0 if is_right(2) and is_right(4) else 1)
