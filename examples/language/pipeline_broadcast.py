"""A chain from the root, eight chunks in it at a time."""

from unisono.lang import program


@program("broadcast", chunks=8)
def pipeline_broadcast(p):
    for index in range(8):
        c = p.chunk(p.root, "input", index)
        c.copy(p.root, "output", index)
        for step in range(1, p.ranks):
            c = c.copy((p.root + step) % p.ranks, "output", index)
