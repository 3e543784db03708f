"""Two collectives as one: the last addition of the reduce-scatter sends for the all-gather."""

from unisono.lang import program


def reduce_scatter(p):
    for i in range(p.ranks):
        c = p.chunk((i + 1) % p.ranks, "input", i)
        for step in range(2, p.ranks + 1):
            c = p.chunk((i + step) % p.ranks, "input", i).reduce(c)


def all_gather(p):
    for i in range(p.ranks):
        c = p.chunk(i, "input", i)
        for step in range(1, p.ranks):
            c = c.copy((i + step) % p.ranks)


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def fused_reduce_scatter_all_gather(p):
    reduce_scatter(p)
    all_gather(p)
