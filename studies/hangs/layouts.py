"""The programs of the corpus: groups, and what each rank calls in a step.

A step is a list of calls and of names of parts that only PyTorch has (a pass of DDP, say).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kinds import Case

WORLD = "world"
# More than any library holds of a message that nobody receives.
MESSAGE = 1 << 20


@dataclass(frozen=True)
class Call:
    """A collective of a group, or a message to or from a peer, a rank of the group."""

    group: str
    kind: str
    elements: int = 250
    type: str = "float32"
    root: int = 0
    peer: int = -1


Step = list[Call | str]
# By family, its groups: disjoint lists of ranks.
Groups = dict[str, list[list[int]]]


@dataclass(frozen=True)
class Layout:
    """Attributes:
    groups: Of so many ranks.
    step: What a rank calls, by rank and number of ranks.
    """

    groups: Callable[[int], Groups]
    step: Callable[[int, int], Step]


def _world_step(_rank: int, ranks: int) -> Step:
    return [
        Call(WORLD, "broadcast", 500, root=1 % ranks), Call(WORLD, "all_reduce", 4096),
        Call(WORLD, "all_gather", 64), Call(WORLD, "reduce", 300, root=ranks - 1),
    ]  # fmt: skip


def _halves(ranks: int) -> Groups:
    return {"half": [list(range(ranks // 2)), list(range(ranks // 2, ranks))]}


def _halves_step(_rank: int, _ranks: int) -> Step:
    return [
        Call("half", "all_reduce", 2000), Call(WORLD, "all_reduce", 10),
        Call("half", "broadcast", 700), Call(WORLD, "all_gather", 20),
    ]  # fmt: skip


def _pipeline_step(rank: int, ranks: int) -> Step:
    step: Step = []
    if rank > 0:
        step.append(Call(WORLD, "recv", MESSAGE, peer=rank - 1))
    if rank < ranks - 1:
        step.append(Call(WORLD, "send", MESSAGE, peer=rank + 1))
    return [*step, Call(WORLD, "all_reduce", 4), Call(WORLD, "broadcast", 100, root=ranks - 1)]


def _training(part: str) -> Callable[[int, int], Step]:
    def step(_rank: int, _ranks: int) -> Step:
        return [Call(WORLD, "broadcast", 128), part, Call(WORLD, "all_reduce", 1)]

    return step


def _pairs(ranks: int) -> Groups:
    return {"tp": [[one, one + 1] for one in range(0, ranks, 2)]}


def _tensor_step(_rank: int, _ranks: int) -> Step:
    return ["tensor", Call("tp", "all_gather", 32), Call(WORLD, "all_reduce", 1)]


def _cube(ranks: int) -> tuple[int, int, int]:
    """Ranks along tensor, data and pipeline parallelism."""
    return (2, 2, ranks // 4)


def _three(ranks: int) -> Groups:
    tensor, data, stages = _cube(ranks)

    def rank_of(t: int, d: int, p: int) -> int:
        return t + tensor * (d + data * p)

    return {
        "tp": [[rank_of(t, d, p) for t in range(tensor)]
               for d in range(data) for p in range(stages)],
        "dp": [[rank_of(t, d, p) for d in range(data)]
               for t in range(tensor) for p in range(stages)],
        "pp": [[rank_of(t, d, p) for p in range(stages)]
               for t in range(tensor) for d in range(data)],
    }  # fmt: skip


def _three_step(rank: int, ranks: int) -> Step:
    tensor, data, stages = _cube(ranks)
    stage = rank // (tensor * data)
    step: Step = []
    if stage > 0:
        step.append(Call("pp", "recv", MESSAGE, peer=stage - 1))
    step += [Call("tp", "all_reduce", 2048), Call("tp", "all_gather", 512)]
    if stage < stages - 1:
        step.append(Call("pp", "send", MESSAGE, peer=stage + 1))
    return [*step, Call("dp", "all_reduce", 16000), Call("tp", "all_reduce", 4),
            Call(WORLD, "all_reduce", 1), Call("dp", "broadcast", 300)]  # fmt: skip


def _no_groups(_ranks: int) -> Groups:
    return {}


LAYOUTS = {
    "world": Layout(_no_groups, _world_step),
    "halves": Layout(_halves, _halves_step),
    "pipeline": Layout(_no_groups, _pipeline_step),
    "ddp": Layout(_no_groups, _training("ddp")),
    "fsdp": Layout(_no_groups, _training("fsdp")),
    "tensor": Layout(_pairs, _tensor_step),
    "three": Layout(_three, _three_step),
}


def able_victim(case: Case, rank: int) -> bool:
    """Whether the rank has a call at which the kind can happen."""
    return bool(_places(case, LAYOUTS[case.layout].step(rank, case.ranks)))


def harmed_step(case: Case, step: Step) -> tuple[Step, int]:
    """The victim's step, and the place before which it is struck (-1: a call differs instead)."""
    places = _places(case, step)
    place = places[case.place % len(places)]
    if not case.kind.alters:
        return step, place
    return _altered(case, list(step), place), -1


def _places(case: Case, step: Step) -> list[int]:
    if not case.kind.alters:
        return list(range(len(step)))
    calls = [i for i, one in enumerate(step) if isinstance(one, Call)]
    return [i for i in calls if _will_do(case, step, i)]


def _will_do(case: Case, step: Step, place: int) -> bool:
    call = step[place]
    assert isinstance(call, Call)
    needs = case.kind.needs
    if needs == "root":
        return call.kind in ("broadcast", "reduce")
    if needs == "receive":
        return call.kind == "recv"
    if needs == "two_groups":
        after = step[place + 1] if place + 1 < len(step) else ""
        return isinstance(after, Call) and after.group != call.group and min(
            call.peer, after.peer) < 0 and max(call.peer, after.peer) < 0  # fmt: skip
    return call.peer < 0


def _altered(case: Case, step: Step, place: int) -> Step:
    call = step[place]
    assert isinstance(call, Call)
    match case.kind.name:
        case "skipped" | "send without receive":
            del step[place]
        case "order":
            step[place : place + 2] = step[place : place + 2][::-1]
        case "size":
            step[place] = replace(call, elements=call.elements + 1 + case.place % 7)
        case "type":
            step[place] = replace(call, type="float64")
        case "root":
            step[place] = replace(call, root=1 if call.root == 0 else 0)
        case "collective":
            step[place] = replace(
                call, kind="all_gather" if call.kind == "all_reduce" else "all_reduce"
            )
        case other:
            raise ValueError(f"no call can be altered by '{other}'")
    return step
