"""Jobs with three kinds of parallelism, simulated from a seed, in which one thing goes wrong.

A rank makes calls ahead of its GPU, which takes them one after another: a call ends when all ranks
of its group have come to it. What each format would hold of that is written by `dumps.py`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

STEP_S = 0.25
TIMEOUT_S = 600
START_NS = 1_780_000_000 * 10**9
FAULTS = (
    "skip", "outside", "died", "size", "type", "kind", "order", "network", "error",
)  # fmt: skip
STEPS = 6


@dataclass(frozen=True)
class Op:
    """A call of a program: of a group, or a message to the peer."""

    group: str
    kind: str
    size: int
    type: str = "Float"
    peer: int = -1
    index: int = -1  # which collective of its group it is, as its rank counts


@dataclass
class Made:
    """A call that a rank has made; times in seconds of the job's clock."""

    op: Op
    created: float
    started: float = 0.0
    ended: float = 0.0


@dataclass
class Job:
    """What happened.

    Attributes:
        groups: Their ranks.
        calls: By rank, in order.
        clocks: By rank, how much its clock is ahead, in seconds.
        taken: When the dumps are made.
    """

    seed: int
    ranks: int
    groups: dict[str, list[int]]
    programs: list[list[Op]]
    fault: str
    victim: int
    at: Op | None = None
    harmed: int = -1
    calls: list[list[Made]] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    taken: float = 0.0

    def of(self, rank: int) -> list[str]:
        """The groups that a rank is in."""
        return [name for name, members in self.groups.items() if rank in members]


def three_dimensional(random_: random.Random) -> tuple[int, dict[str, list[int]], list[list[Op]]]:
    """Ranks, groups and programs of a job of tensor, data and pipeline parallel groups."""
    tp, dp, pp = random_.choice([(2, 2, 4), (4, 2, 2), (2, 4, 2), (4, 4, 2)])
    ranks = tp * dp * pp
    groups = {"world": list(range(ranks))}
    programs: list[list[Op]] = []

    def rank_of(t: int, d: int, p: int) -> int:
        return t + tp * (d + dp * p)

    for rank in range(ranks):
        t, d, p = rank % tp, rank // tp % dp, rank // (tp * dp)
        groups[f"tp{d}.{p}"] = [rank_of(i, d, p) for i in range(tp)]
        groups[f"dp{t}.{p}"] = [rank_of(t, i, p) for i in range(dp)]
        groups[f"pp{t}.{d}"] = [rank_of(t, d, i) for i in range(pp)]
        step = []
        if p > 0:
            step.append(Op(f"pp{t}.{d}", "recv", 4096, peer=p - 1))
        step += [Op(f"tp{d}.{p}", "all_reduce", 8192), Op(f"tp{d}.{p}", "_all_gather_base", 2048)]
        if p < pp - 1:
            step.append(Op(f"pp{t}.{d}", "send", 4096, peer=p + 1))
        step += [
            Op(f"dp{t}.{p}", "_reduce_scatter_base", 65536), Op(f"tp{d}.{p}", "all_reduce", 16),
            Op("world", "all_reduce", 4),
        ]  # fmt: skip
        programs.append(step * STEPS)
    return ranks, groups, programs


def one_group(random_: random.Random) -> tuple[int, dict[str, list[int]], list[list[Op]]]:
    """A job of data parallelism alone."""
    ranks = random_.choice([3, 4, 16])
    step = [Op("world", "all_reduce", 4096), Op("world", "all_gather", 512),
            Op("world", "all_reduce", 64)]  # fmt: skip
    return ranks, {"world": list(range(ranks))}, [step * STEPS for _ in range(ranks)]


def simulate(seed: int, fault: str = "", *, ahead: int = 0, flat: bool = False) -> Job:
    """A job with a fault in one call of one rank; with none it ends, or is stopped under way."""
    random_ = random.Random(seed)
    ranks, groups, programs = one_group(random_) if flat else three_dimensional(random_)
    job = Job(seed, ranks, groups, programs, fault, random_.randrange(ranks))
    job.clocks = [random_.uniform(-5, 5) for _ in range(ranks)]
    _harm(job, random_)
    for rank, program in enumerate(job.programs):
        counts: dict[str, int] = {}
        for place, op in enumerate(program):
            if op.peer < 0:
                counts[op.group] = counts.get(op.group, -1) + 1
                program[place] = replace(op, index=counts[op.group])
        if rank == job.victim and job.harmed < len(program):
            job.at = program[job.harmed]
    _run(job, random_, ahead or random_.choice([1, 2, 5]))
    return job


def _harm(job: Job, random_: random.Random) -> None:
    """Changes the victim's program where the fault says so; `at` is the call that is harmed."""
    program = job.programs[job.victim]
    length = len(program) // STEPS
    first = length * random_.randint(3, STEPS - 2)
    wanted = [i for i in range(first, first + length) if program[i].kind == "all_reduce"
              and (len(job.groups) == 1 or program[i].group.startswith("tp"))]  # fmt: skip
    place = wanted[0]
    job.harmed = place
    if job.fault == "skip":
        del program[place]
    elif job.fault in ("outside", "died"):
        del program[place:]
    elif job.fault == "size":
        program[place] = replace(program[place], size=program[place].size + 4)
    elif job.fault == "type":
        program[place] = replace(program[place], type="Int")
    elif job.fault == "kind":
        program[place] = replace(program[place], kind="broadcast")
    elif job.fault == "order" and len(job.groups) > 1:
        # The call before the one of all ranks is of the tensor group, whose ranks are among them.
        place = first + length - 2
        program[place : place + 2] = program[place : place + 2][::-1]


# A slow rank idles for at most so many steps before it makes a call, and again before it starts it.
_MOST_IDLE_STEPS = 6


def _run(job: Job, random_: random.Random, ahead: int) -> None:
    """Steps of time until nothing moves, or until the dumps are made."""
    job.calls = [[] for _ in range(job.ranks)]
    done = [0] * job.ranks
    broken = job.harmed if job.fault in ("network", "error") else -1
    stop = random_.randint(5, 30) if job.fault in ("slow", "running") else 1 << 30
    now, quiet, idle = 0.0, 0, 0
    while quiet < 3 and stop > 0:
        now += STEP_S * random_.uniform(0.8, 1.2)
        moved, stop = False, stop - 1
        is_cut = stop == 0
        for rank, program in enumerate(job.programs):
            if job.fault == "slow" and rank == job.victim:
                # Idle for 20 times the longest call it would be stuck, as the doctor says.
                idle = idle + 1 if random_.random() < 0.8 and idle < _MOST_IDLE_STEPS else 0
                moved = True
                if idle > 0:
                    continue
            calls = job.calls[rank]
            while len(calls) < len(program) and len(calls) - done[rank] < ahead:
                calls.append(Made(program[len(calls)], now + 1e-4 * len(calls)))
                moved = True
            if done[rank] < len(calls) and not calls[done[rank]].started:
                calls[done[rank]].started = max(now, calls[done[rank]].created) + 1e-5
                moved = True
        for rank in range(job.ranks):
            # The dumps are made in the middle of things.
            if is_cut and random_.random() < 0.7:
                continue
            for other in _partners(job, rank, done, broken):
                job.calls[other][done[other]].ended = now + 0.01
                done[other] += 1
                moved = True
        quiet = 0 if moved else quiet + 1
    ends = all(count == len(program) for count, program in zip(done, job.programs, strict=True))
    job.taken = now + (0.02 if stop == 0 or ends else TIMEOUT_S)


def _partners(job: Job, rank: int, done: list[int], broken: int) -> list[int]:
    """The ranks whose calls end with the one that a rank is at; empty if it has to wait."""

    def at(one: int) -> Made | None:
        calls = job.calls[one]
        return calls[done[one]] if done[one] < len(calls) and calls[done[one]].started else None

    mine = at(rank)
    if mine is None:
        return []
    members = job.groups[mine.op.group]
    if mine.op.peer >= 0:
        peer = members[mine.op.peer]
        theirs = at(peer)
        fits = theirs is not None and theirs.op.group == mine.op.group and (
            theirs.op.peer == members.index(rank) and theirs.op.kind != mine.op.kind)  # fmt: skip
        return [rank, peer] if fits else []
    for one in members:
        theirs = at(one)
        if theirs is None or theirs.op != mine.op:
            return []
        if one == job.victim and done[one] == broken:
            return []
    return members
