"""Exact synthesis of small plans, k-synchronous as SCCL's (Cai et al., PPoPP 2021), with CP-SAT.

A plan has `steps` steps, one after another, and `rounds` rounds that are divided among them: in a
step of r rounds a link carries r times its bandwidth, counted in chunks. It takes

    steps * latency + rounds / chunks * (a block's bytes / bandwidth of the slowest link)

so for one number of steps the fewest rounds a chunk are wanted, and over all numbers of steps the
Pareto set of steps and rounds a chunk.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from unisono import _unisono as native
from unisono.errors import MachineError, MisuseError
from unisono.extras import missing_extra
from unisono.synthesize.found import Found, chunk_bytes_of

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Point", "pareto", "solve"]

_MOST_VARIABLES = 1 << 20


class _Move(NamedTuple):
    chunk: int
    source: int
    target: int
    step: int
    links: list[int]  # that it crosses
    adds: bool = False


@dataclass(frozen=True)
class Point:
    """One plan of the Pareto set, or what is known of its place there.

    Attributes:
        steps: The number of steps of the plan.
        rounds: The number of rounds in all steps together.
        chunks: Chunks that each rank's block is cut into.
        found: The plan; None where none was found in the time that there was, and none was
            excluded either.
    """

    steps: int
    rounds: int
    chunks: int
    found: Found | None

    @property
    def cost(self) -> Fraction:
        """Rounds a chunk: the bytes on the busiest link, in blocks of a rank."""
        return Fraction(self.rounds, self.chunks)


def solve(
    links: native.LinkGraph,
    collective: str,
    *,
    steps: int,
    rounds: int,
    chunks: int,
    size_bytes: int = 64 << 20,
    seconds: float = 60,
    workers: int = 0,
) -> Found | None:
    """A plan of so many steps, rounds and chunks; None if there is none.

    Args:
        links: What connects the ranks. Bandwidths must be multiples of the slowest one.
        collective: "all_gather", "reduce_scatter" or "all_reduce". An all-reduce is a
            reduce-scatter and an all-gather of `steps` and `rounds` each.
        steps: Steps of the plan.
        rounds: Rounds, at least one in each step.
        chunks: Chunks that each rank's block is cut into.
        size_bytes: The size of all ranks' blocks together, for which times are stated.
        seconds: The time to look for it.
        workers: Threads of the solver; 0: one for each core.

    Raises:
        MisuseError: The numbers make no sense, or the problem is too large for an exact solver.
        MachineError: OR-Tools is missing, or the time was not enough to find out.
    """
    _check(links, collective, steps, rounds, chunks)
    chunk_bytes = chunk_bytes_of(size_bytes, links.ranks, chunks)
    problem = _Problem(links, chunk_bytes)
    moves: list[_Move] = []
    if collective != "all_gather":
        backwards = _Problem(_reversed(links), chunk_bytes)
        found = backwards.moves(steps, rounds, chunks, seconds, workers)
        if found is None:
            return None
        moves += [
            one._replace(source=one.target, target=one.source, step=steps - 1 - one.step, adds=True)
            for one in found
        ]
    if collective != "reduce_scatter":
        found = problem.moves(steps, rounds, chunks, seconds, workers)
        if found is None:
            return None
        first = steps if moves else 0
        moves += [one._replace(step=first + one.step) for one in found]
    name = f"{links.name}_{collective}_{steps}_{rounds}_{chunks}"
    return Found(name, links, _schedule(problem, collective, chunks, moves), chunk_bytes)


def pareto(
    links: native.LinkGraph,
    collective: str,
    *,
    most_steps: int | None = None,
    extra_rounds: int = 4,
    most_chunks: int = 6,
    size_bytes: int = 64 << 20,
    seconds: float = 60,
    workers: int = 0,
) -> Iterator[Point]:
    """The Pareto set of steps and rounds a chunk, from the fewest steps to the fewest rounds a
    chunk that any plan can have; what could not be decided in time is among it without a plan.

    Args:
        links: What connects the ranks.
        collective: As for `solve`.
        most_steps: No plans of more steps are looked for; twice the fewest, and at least 4, unless
            given.
        extra_rounds: Rounds beyond one a step, at most (SCCL's k).
        most_chunks: Chunks a rank's block is cut into, at most.
        size_bytes: As for `solve`.
        seconds: The time for each combination that is tried.
        workers: As for `solve`.

    Raises:
        MisuseError: As for `solve`.
        MachineError: OR-Tools is missing.
    """
    _check(links, collective, 1, 1, most_chunks)
    problems = {"all_gather": [links], "reduce_scatter": [_reversed(links)]}.get(
        collective, [links, _reversed(links)]
    )
    fewest = max(_Problem(one, 1).fewest_steps() for one in problems)
    least = max(_Problem(one, 1).least_cost() for one in problems)
    best: Fraction | None = None
    for steps in range(fewest, (most_steps or max(4, 2 * fewest)) + 1):
        tried = {
            (Fraction(rounds, chunks), chunks, rounds)
            for chunks in range(1, most_chunks + 1)
            for rounds in range(steps, steps + extra_rounds + 1)
        }
        for cost, chunks, rounds in sorted(tried):
            if cost < least or (best is not None and cost >= best):
                continue
            found, is_known = None, True
            try:
                found = solve(
                    links,
                    collective,
                    steps=steps,
                    rounds=rounds,
                    chunks=chunks,
                    size_bytes=size_bytes,
                    seconds=seconds,
                    workers=workers,
                )
            except _OutOfTimeError:
                is_known = False
            if found is not None or not is_known:
                yield Point(steps, rounds, chunks, found)
            if found is not None:
                best = cost
                break
        if best == least:
            return


class _OutOfTimeError(MachineError):
    """The solver could neither find a plan nor exclude it."""


class _Problem:
    """The routes of a graph, and what they carry in a round."""

    def __init__(self, links: native.LinkGraph, chunk_bytes: int) -> None:
        self.ranks = links.ranks
        slowest = min((gb_s for *_, gb_s, _ in links.links), default=1.0)
        self.latency_us = 0.0
        self.round_us = chunk_bytes / slowest / 1e3
        self.capacity = []  # of a link, in chunks a round
        for source, target, _, gb_s, lanes in links.links:
            times = gb_s / slowest
            if abs(times - round(times)) > 1e-6 * times:
                raise MisuseError(
                    f"the exact solver counts bandwidths in whole multiples of the slowest; the "
                    f"link from {source} to {target} of {links.name} has {gb_s} GB/s, which is "
                    f"{times:.3f} times {slowest} GB/s"
                )
            self.capacity.append(lanes * round(times))
        latencies = [latency for _, _, latency, _, _ in links.links]
        self.routes = links.routes(chunk_bytes)
        self.latency_us = max(
            (sum(latencies[number] for number in route) / 1e3 for _, _, route in self.routes),
            default=0.0,
        )
        self._distance = _distances(links.ranks, self.routes)

    def fewest_steps(self) -> int:
        """The fewest steps of any plan: the greatest distance."""
        return max(1, max(max(row) for row in self._distance))

    def least_cost(self) -> Fraction:
        """Rounds a chunk that the rank needs into which the least can go."""
        into: list[set[int]] = [set() for _ in range(self.ranks)]
        for _, target, links in self.routes:
            into[target].add(links[-1])
        rates = [sum(self.capacity[number] for number in links) for links in into]
        return Fraction(self.ranks - 1, max(1, min(rates)))

    def moves(
        self, steps: int, rounds: int, chunks: int, seconds: float, workers: int
    ) -> list[_Move] | None:
        """Moves of an all-gather; None if there are none."""
        if self.fewest_steps() > steps or rounds < steps:
            return None
        cp = _solver()
        model = cp.CpModel()
        sent = self._variables(model, steps, chunks)
        self._constrain_chunks(model, sent, steps, chunks)
        length = [model.new_int_var(1, rounds, f"rounds{step}") for step in range(steps)]
        model.add(sum(length) == rounds)
        over: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        for (_, route, step), variable in sent.items():
            for number in self.routes[route][2]:
                over.setdefault((number, step), []).append(variable)
        for (number, step), variables in over.items():
            model.add(sum(variables) <= self.capacity[number] * length[step])
        solver = cp.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        status = solver.solve(model)
        if status == cp.INFEASIBLE:
            return None
        if status not in (cp.OPTIMAL, cp.FEASIBLE):
            raise _OutOfTimeError(
                f"{seconds:g} s were not enough to tell whether there is a plan of {steps} steps, "
                f"{rounds} rounds and {chunks} chunks"
            )
        return [
            _Move(chunk, *self.routes[route][:2], step, self.routes[route][2])
            for (chunk, route, step), variable in sent.items()
            if solver.value(variable)
        ]

    def _variables(
        self, model: "cp_model.CpModel", steps: int, chunks: int
    ) -> dict[tuple[int, int, int], "cp_model.IntVar"]:
        """Whether a chunk crosses a route in a step, where it can have come that far."""
        count = self.ranks * chunks * len(self.routes) * steps
        if count > _MOST_VARIABLES:
            raise MisuseError(
                f"{self.ranks} ranks with {chunks} chunks each, "
                f"{len(self.routes)} routes and {steps} "
                f"steps are {count} variables; the exact solver takes {_MOST_VARIABLES}: use the "
                "greedy one"
            )
        return {
            (chunk, route, step): model.new_bool_var(f"c{chunk}w{route}s{step}")
            for chunk in range(self.ranks * chunks)
            for route, (source, target, _) in enumerate(self.routes)
            if target != chunk // chunks
            for step in range(self._distance[chunk // chunks][source], steps)
        }

    def _constrain_chunks(
        self,
        model: "cp_model.CpModel",
        sent: dict[tuple[int, int, int], "cp_model.IntVar"],
        steps: int,
        chunks: int,
    ) -> None:
        """Every rank gets every chunk once, and sends on only what it got in earlier steps."""
        got: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = {}
        for (chunk, route, step), variable in sent.items():
            got.setdefault((chunk, self.routes[route][1]), []).append((step, variable))
        for arrivals in got.values():
            model.add_exactly_one(variable for _, variable in arrivals)
        for (chunk, route, step), variable in sent.items():
            source = self.routes[route][0]
            if source != chunk // chunks:
                before = [other for earlier, other in got[chunk, source] if earlier < step]
                model.add(sum(before) >= variable)


def _check(links: native.LinkGraph, collective: str, steps: int, rounds: int, chunks: int) -> None:
    served = ("all_gather", "reduce_scatter", "all_reduce")
    if collective not in served:
        raise MisuseError(f"plans for {collective} are not synthesized; {', '.join(served)} are")
    if min(steps, rounds, chunks) < 1:
        raise MisuseError(
            f"steps, rounds and chunks are {steps}, {rounds} and {chunks}; they must be 1 or more"
        )


def _solver() -> ModuleType:
    try:
        from ortools.sat.python import cp_model as solver
    except ImportError as missing:
        what = "the exact solver (greedy synthesis works without it)"
        raise missing_extra(what, str(missing.name), "synthesize") from None
    module: ModuleType = solver
    return module


def _reversed(links: native.LinkGraph) -> native.LinkGraph:
    turned = [(b, a, latency, gb_s, lanes) for a, b, latency, gb_s, lanes in links.links]
    return native.LinkGraph.make(links.name, links.ranks, links.switches, turned)


def _distances(ranks: int, routes: list[tuple[int, int, list[int]]]) -> list[list[int]]:
    """Ways from rank to rank, at least."""
    following: list[set[int]] = [set() for _ in range(ranks)]
    for source, target, _ in routes:
        following[source].add(target)
    rows = []
    for rank in range(ranks):
        row, front, reached = [0] * ranks, {rank}, {rank}
        for steps in range(1, ranks):
            front = {other for one in front for other in following[one]} - reached
            reached |= front
            for other in front:
                row[other] = steps
        rows.append(row)
    return rows


def _schedule(
    problem: _Problem, collective: str, chunks: int, moves: list[_Move]
) -> native.TransferSchedule:
    """Steps as times: each lasts until the busiest link is done."""
    carried = Counter((one.step, number) for one in moves for number in one.links)
    rounds = [0] * (1 + max((one.step for one in moves), default=-1))
    for (step, number), count in carried.items():
        rounds[step] = max(rounds[step], -(-count // problem.capacity[number]))
    lengths = (problem.latency_us + one * problem.round_us for one in rounds)
    starts = list(itertools.accumulate(lengths, initial=0.0))
    return native.TransferSchedule.make(
        collective,
        problem.ranks,
        chunks,
        [
            (one.chunk, one.source, one.target, one.adds, starts[one.step], starts[one.step + 1])
            for one in moves
        ],
    )
