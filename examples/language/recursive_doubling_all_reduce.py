"""Recursive doubling: in step k everybody adds what the partner at distance 2^k has."""

from unisono.errors import MisuseError
from unisono.lang import program


@program("all_reduce", in_place=True)
def recursive_doubling_all_reduce(p):
    if p.ranks & (p.ranks - 1):
        raise MisuseError(f"{p.ranks} ranks; recursive doubling needs a power of two")
    theirs = p.scratch("theirs", max(p.ranks.bit_length() - 1, 1))
    for step in range(p.ranks.bit_length() - 1):
        for rank in range(p.ranks):
            p.chunk(rank, "input", 0).copy(rank ^ 1 << step, theirs, step)
        for rank in range(p.ranks):
            p.chunk(rank, "input", 0).reduce(p.chunk(rank, theirs, step))
