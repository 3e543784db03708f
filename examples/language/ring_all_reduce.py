"""Ring all-reduce: a chunk goes round to be added up, and round again to be told."""

from unisono.lang import program


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def ring_all_reduce(p):
    for i in range(p.ranks):
        c = p.chunk((i + 1) % p.ranks, "input", i)
        for step in range(2, p.ranks + 1):
            c = p.chunk((i + step) % p.ranks, "input", i).reduce(c)
        for step in range(1, p.ranks):
            c = c.copy((i + step) % p.ranks)
