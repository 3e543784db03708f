"""AllToNext: every rank's data goes to the next rank; between nodes over all NICs of both."""

from unisono.lang import program


@program(
    "custom",
    chunks=lambda shape: shape.ranks_per_node,
    given=lambda shape, rank, index: rank + 1 < shape.ranks,
    wanted=lambda shape, rank, index: [(rank - 1, index)] if rank > 0 else None,
)
def all_to_next(p):
    size = p.ranks_per_node
    leaving, arrived = p.scratch("leaving", size), p.scratch("arrived", size)
    for rank in range(p.ranks - 1):
        if (rank + 1) % size:
            p.chunk(rank, "input", 0, size).copy(rank + 1, "output", 0)
            continue
        node = rank // size
        for nic in range(size):
            c = p.chunk(rank, "input", nic)
            if nic < size - 1:
                c = c.copy(p.rank(node, nic), leaving, nic)
            if nic > 0:
                c = c.copy(p.rank(node + 1, nic), arrived, nic)
            c.copy(rank + 1, "output", nic)
