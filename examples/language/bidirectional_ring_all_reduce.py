"""Two rings in opposite directions, half of the data on each, so that links carry both ways."""

from unisono.lang import program


@program("all_reduce", chunks=lambda shape: 2 * shape.ranks, in_place=True)
def bidirectional_ring_all_reduce(p):
    for way in (1, -1):
        for i in range(p.ranks):
            index = i if way == 1 else p.ranks + i
            c = p.chunk((i + way) % p.ranks, "input", index)
            for step in range(2, p.ranks + 1):
                c = p.chunk((i + way * step) % p.ranks, "input", index).reduce(c)
            for step in range(1, p.ranks):
                c = c.copy((i + way * step) % p.ranks)
