"""All pairs in one step: everybody adds up everything, in the same order for the same bits."""

from unisono.lang import program


@program("all_reduce")
def one_step_all_pairs_all_reduce(p):
    for rank in range(p.ranks):
        c = p.chunk(0, "input", 0).copy(rank, "output", 0)
        for other in range(1, p.ranks):
            c = c.reduce(p.chunk(other, "input", 0))
