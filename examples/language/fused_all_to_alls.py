"""Two all-to-alls back to back, as a mixture of experts has them: out to the experts, and home.

Fused, a chunk is sent home in the step that receives it; two collectives would wait in between.
"""

from unisono.lang import program


@program(
    "custom",
    chunks=lambda shape: shape.ranks,
    wanted=lambda shape, rank, index: [(rank, index)],
)
def fused_all_to_alls(p):
    visiting = p.scratch("visiting", p.ranks)
    for rank in range(p.ranks):
        for expert in range(p.ranks):
            p.chunk(rank, "input", expert).copy(expert, visiting, rank)
    for expert in range(p.ranks):
        for rank in range(p.ranks):
            p.chunk(expert, visiting, rank).copy(rank, "output", expert)
