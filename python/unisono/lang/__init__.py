"""The language: a collective as chunks that move between ranks.

A program is a function that takes hold of chunks and says where they go. The compiler finds what
every rank must do for that, verifies it, and gives an ordinary plan; or it says on which line of
the program the mistake is.

    from unisono.lang import program

    @program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
    def ring_all_reduce(p):
        for i in range(p.ranks):
            c = p.chunk((i + 1) % p.ranks, "input", i)
            for step in range(1, p.ranks):
                c = p.chunk((i + 1 + step) % p.ranks, "input", i).reduce(c)
            for step in range(p.ranks - 1):
                c = c.copy((i + 1 + step) % p.ranks)

    compiled = ring_all_reduce.compile(8)
    print(compiled.plan.to_text(rank=0))
"""

from unisono._unisono import Chunk, Chunks, Compiled, passes
from unisono.arguments import guard
from unisono.errors import ProgramError
from unisono.lang.build import Build
from unisono.lang.program import Program, Shape, load, program
from unisono.lang.run import run

__all__ = [
    "Build",
    "Chunk",
    "Chunks",
    "Compiled",
    "Program",
    "ProgramError",
    "Shape",
    "load",
    "passes",
    "program",
    "run",
]

# What programs call on a Build finds its place by who called it, and told_at answers for it.
guard(globals(), without=("Build",))
