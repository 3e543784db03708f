"""PCCL's all-gather: rings between the nodes, one for each local number, then rings inside."""

from unisono.lang import program


@program("all_gather", in_place=True)
def hierarchical_all_gather(p):
    for rank in range(p.ranks):
        node, local = divmod(rank, p.ranks_per_node)
        c = p.chunk(rank, "output", rank)
        for step in range(1, p.nodes):
            c = c.copy(p.rank((node + step) % p.nodes, local))
    for rank in range(p.ranks):
        node, local = divmod(rank, p.ranks_per_node)
        for other in range(p.nodes):
            c = p.chunk(rank, "output", p.rank(other, local))
            for step in range(1, p.ranks_per_node):
                c = c.copy(p.rank(node, (local + step) % p.ranks_per_node))
