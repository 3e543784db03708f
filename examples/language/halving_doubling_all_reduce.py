"""Recursive halving, then doubling: half of the data to a partner, a quarter to the next, back."""

from unisono.errors import MisuseError
from unisono.lang import program


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def halving_doubling_all_reduce(p):
    if p.ranks & (p.ranks - 1):
        raise MisuseError(f"{p.ranks} ranks; recursive halving needs a power of two")
    sizes = [1 << k for k in range(p.ranks.bit_length() - 1)]
    for size in reversed(sizes):
        for rank in range(p.ranks):
            mine = p.chunk(rank, "input", rank // size * size, size)
            mine.reduce(p.chunk(rank ^ size, "input", rank // size * size, size))
    for size in sizes:
        for rank in range(p.ranks):
            p.chunk(rank, "input", rank // size * size, size).copy(rank ^ size)
