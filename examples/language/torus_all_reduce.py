"""A torus of nodes by ranks: half of the data goes along rows first, half along columns first."""

from unisono.lang import program


def along(p, reduces, ring, index, count):
    start = 1 % len(ring) if reduces else 0
    c = p.chunk(ring[start], "input", index, count)
    for step in range(1, len(ring)):
        rank = ring[(start + step) % len(ring)]
        c = p.chunk(rank, "input", index, count).reduce(c) if reduces else c.copy(rank)


@program("all_reduce", chunks=lambda shape: 2 * shape.ranks, in_place=True)
def torus_all_reduce(p):
    for half, (rows, columns) in enumerate(
        ((p.nodes, p.ranks_per_node), (p.ranks_per_node, p.nodes))
    ):
        at = (lambda y, x: p.rank(y, x)) if half == 0 else (lambda y, x: p.rank(x, y))
        for reduces, phase in ((True, "x"), (True, "y"), (False, "y"), (False, "x")):
            for y in range(rows):
                for x in range(columns):
                    index = half * p.ranks + x * rows
                    if phase == "x":
                        ring = [at(y, (x + s) % columns) for s in range(columns)]
                        along(p, reduces, ring, index, rows)
                    else:
                        ring = [at((y + s) % rows, x) for s in range(rows)]
                        along(p, reduces, ring, index + y, 1)
