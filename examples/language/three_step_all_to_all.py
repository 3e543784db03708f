"""Three steps: one rank of a node collects all for another node, one there hands it out."""

from unisono.lang import program


@program("all_to_all")
def three_step_all_to_all(p):
    size, nodes = p.ranks_per_node, p.nodes
    leaving = p.scratch("leaving", nodes * size * size)
    arrived = p.scratch("arrived", nodes * size * size)
    for a in range(nodes):
        for b in range(nodes):
            if a == b:
                for i in range(size):
                    for j in range(size):
                        p.chunk(p.rank(a, i), "input", p.rank(a, j)).copy(
                            p.rank(a, j), "output", p.rank(a, i)
                        )
                continue
            sender, receiver = p.rank(a, b % size), p.rank(b, a % size)
            for i in range(size):
                c = p.chunk(p.rank(a, i), "input", b * size, size)
                c.copy(sender, leaving, (b * size + i) * size)
            c = p.chunk(sender, leaving, b * size**2, size**2).copy(receiver, arrived, a * size**2)
            for i in range(size):
                for j in range(size):
                    c[i * size + j].copy(p.rank(b, j), "output", p.rank(a, i))
