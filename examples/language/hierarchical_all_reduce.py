"""Four phases: reduce-scatter in the nodes, between them, all-gather between them, in them."""

from unisono.lang import program


def add_round(p, ring, index, count):
    c = p.chunk(ring[1 % len(ring)], "input", index, count)
    for step in range(2, len(ring) + 1):
        c = p.chunk(ring[step % len(ring)], "input", index, count).reduce(c)


def tell_round(p, ring, index, count):
    c = p.chunk(ring[0], "input", index, count)
    for rank in ring[1:]:
        c = c.copy(rank)


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def hierarchical_all_reduce(p):
    size, nodes = p.ranks_per_node, p.nodes
    for phase, inside in ((add_round, 1), (add_round, 0), (tell_round, 0), (tell_round, 1)):
        for n in range(nodes):
            for g in range(size):
                if inside:
                    ring = [p.rank(n, (g + step) % size) for step in range(size)]
                    phase(p, ring, g * nodes, nodes)
                else:
                    ring = [p.rank((n + step) % nodes, g) for step in range(nodes)]
                    phase(p, ring, g * nodes + n, 1)
