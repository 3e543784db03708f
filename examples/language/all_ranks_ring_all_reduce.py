"""Ring all-reduce with a step of all ranks in a call: thousands of ranks are traced at once."""

from unisono.lang import program


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def all_ranks_ring_all_reduce(p):
    i = p.all_ranks
    c = p.chunks((i + 1) % p.ranks, "input", i)
    for step in range(2, p.ranks + 1):
        c = p.chunks((i + step) % p.ranks, "input", i).reduce(c)
    for step in range(1, p.ranks):
        c = c.copy((i + step) % p.ranks, "input", i)
