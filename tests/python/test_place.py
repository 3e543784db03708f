"""Calls of registered programs that some ranks make in place and others do not."""

from pathlib import Path

import numpy as np
import pytest
from unisono import lang
from unisono.lang import program
from unisono.testing import run_ranks

EXAMPLE = Path(__file__).parents[2] / "examples/language/pipeline_broadcast.py"


@program("all_reduce")
def through_rank_1(p):
    total = p.chunk(1, "input", 0).copy(1, "output", 0)
    for rank in range(p.ranks):
        if rank != 1:
            total = total.reduce(p.chunk(rank, "input", 0))
    for rank in range(p.ranks):
        if rank != 1:
            total.copy(rank, "output", 0)


@program(
    "custom",
    blocks=(2, 2),
    wanted=lambda shape, rank, index: [((rank - 1) % shape.ranks, 1 - index)],
)
def from_before(p):
    """The blocks of the rank before, in turn."""
    for rank in range(p.ranks):
        for block in range(2):
            p.chunk(rank, "input", block).copy((rank + 1) % p.ranks, "output", 1 - block)


def plan_of_last_call(comm):
    return comm.record()["collectives"][-1]["plan"]


@pytest.mark.parametrize("nodes", [1, 2])  # one shares memory, two use sockets
def test_every_mixture_of_places_runs_the_registered_program(nodes):
    def check(comm):
        comm.register(through_rank_1, nodes=1)
        for in_place in range(1 << comm.size):
            for count in (5, 3000):
                x = np.full(count, comm.rank + 1.0)
                out = x if in_place >> comm.rank & 1 else None
                np.testing.assert_array_equal(comm.all_reduce(x, out=out), 6.0)
                assert plan_of_last_call(comm) == "through_rank_1"
                np.testing.assert_array_equal(x, 6.0 if out is x else comm.rank + 1.0)

    run_ranks(3, check, nodes=nodes)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_broadcast_in_place_at_the_root_runs_the_registered_program(nodes):
    (pipeline,) = lang.load(EXAMPLE)

    def check(comm):
        for root in range(comm.size):
            comm.register(pipeline, nodes=1, root=root)
            x = np.arange(1000.0) if comm.rank == root else np.zeros(1000)
            comm.broadcast(x, root=root)
            np.testing.assert_array_equal(x, np.arange(1000.0))
            assert plan_of_last_call(comm) == "pipeline_broadcast"

    run_ranks(3, check, nodes=nodes)


@pytest.mark.parametrize("nodes", [1, 2])
def test_custom_programs_run_in_place_on_any_ranks(nodes):
    def check(comm):
        comm.register(from_before, nodes=1)
        before = (comm.rank - 1) % comm.size
        for in_place in range(1 << comm.size):
            x = np.repeat([2.0 * comm.rank, 2.0 * comm.rank + 1], 50)
            out = x if in_place >> comm.rank & 1 else None
            got = comm.run(from_before, x, out=out)
            np.testing.assert_array_equal(got, np.repeat([2.0 * before + 1, 2.0 * before], 50))

    run_ranks(3, check, nodes=nodes)
