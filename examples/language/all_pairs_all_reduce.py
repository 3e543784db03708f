"""All pairs in two steps: rank i adds up chunk i of everybody, and sends everybody the sum."""

from unisono.lang import program


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def all_pairs_all_reduce(p):
    for i in range(p.ranks):
        c = p.chunk(i, "input", i)
        for step in range(1, p.ranks):
            c = c.reduce(p.chunk((i + step) % p.ranks, "input", i))
        for step in range(1, p.ranks):
            c.copy((i + step) % p.ranks)
