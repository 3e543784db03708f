"""Two steps: what goes to a rank of another node is collected, and crosses as one message."""

from unisono.lang import program


@program("all_to_all")
def two_step_all_to_all(p):
    size = p.ranks_per_node
    parcel = p.scratch("parcel", p.ranks)
    for target in range(p.ranks):
        node, local = divmod(target, size)
        for source in range(p.ranks):
            c = p.chunk(source, "input", target)
            if source // size == node:
                c.copy(target, "output", source)
            else:
                c.copy(p.rank(source // size, local), parcel, node * size + source % size)
        for other in range(p.nodes):
            if other != node:
                c = p.chunk(p.rank(other, local), parcel, node * size, size)
                c.copy(target, "output", other * size)
