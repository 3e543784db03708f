"""Two binary trees with half of the data each; who is inside of one is a leaf of the other."""

from unisono.lang import program


def add_up(p, ranks, index, low, high, edges):
    root = low + (1 << (high - low).bit_length() - 1) - 1
    total = p.chunk(ranks[root], "input", index)
    for begin, end in ((low, root), (root + 1, high)):
        if begin < end:
            place = len(edges)
            part = add_up(p, ranks, index, begin, end, edges)
            edges.insert(place, (ranks[root], part.rank))
            total = total.reduce(part)
    return total


@program("all_reduce", chunks=2, in_place=True)
def double_binary_tree_all_reduce(p):
    for tree in range(2):
        edges, numbering = [], range(p.ranks)[:: (1, -1)[tree]]
        total = add_up(p, numbering, tree, 0, p.ranks, edges)
        held = {total.rank: total}
        for above, below in edges:
            held[below] = held[above].copy(below)
