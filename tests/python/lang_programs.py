"""Programs of the language that several tests run."""

from unisono.lang import program


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def ring(p):
    for i in range(p.ranks):
        c = p.chunk((i + 1) % p.ranks, "input", i)
        for step in range(2, p.ranks + 1):
            c = p.chunk((i + step) % p.ranks, "input", i).reduce(c)
        for step in range(1, p.ranks):
            c = c.copy((i + step) % p.ranks)


@program("all_reduce", chunks=lambda shape: shape.ranks)
def reads(p):
    for rank in range(p.ranks):
        c = p.chunk(rank, "input", rank).copy(rank, "output", rank)
        for step in range(1, p.ranks):
            c = c.read_reduce(p.chunk((rank + step) % p.ranks, "input", rank))
        for step in range(1, p.ranks):
            to = (rank + step) % p.ranks
            c.put(to)
            p.signal(rank, to)
            p.wait(to, rank)
