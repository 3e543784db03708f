"""What can go wrong in a job, and what the doctor should say of it.

A `Case` follows from its seed alone: the kind of hang, the program, the library, the rank at
fault and when. `Truth` is what is right: the verdicts that are, and the ranks to blame.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Library = Literal["unisono", "torch-unisono", "torch-gloo", "c++", "gpu"]
Half = Literal["develop", "judge"]

BLAMELESS = ("nothing wrong", "slow, not stuck", "undecided")
_ALL: tuple[Library, ...] = ("unisono", "torch-unisono", "torch-gloo")
_DEVICES: tuple[Library, ...] = (*_ALL, "gpu")


@dataclass(frozen=True)
class Kind:
    """One way in which a job goes wrong.

    Attributes:
        verdicts: Those that are right.
        no_file_by: Libraries whose ranks leave no file then, so that nothing tells it from a death;
            where a group's ranks are not in the dumps either, the doctor should abstain.
        undecided_by: Libraries whose dumps do not show it: there the doctor should abstain.
        needs: Of the call at which it happens: "root" for one that has a root, "receive",
            "two_groups" for one that is followed by a call of another group; empty for any.
        alters: Whether it changes a call, rather than happens between two.
        hangs: Whether the job waits for ever or fails.
        two_ends: Whether the rank at the other end may be named, too.
        socket: Whether it needs connections by TCP.
    """

    name: str
    verdicts: tuple[str, ...]
    libraries: tuple[Library, ...] = _ALL
    no_file_by: tuple[Library, ...] = ()
    undecided_by: tuple[Library, ...] = ()
    needs: str = ""
    alters: bool = False
    hangs: bool = True
    two_ends: bool = False
    socket: bool = False


_OUTSIDE = "stuck outside communication"
_ABSENT = (_OUTSIDE, "never joined")
KINDS = {
    kind.name: kind
    for kind in (
        Kind("killed", ("died",), (*_DEVICES, "c++"), no_file_by=("torch-gloo",)),
        Kind("stopped", _ABSENT, (*_ALL, "c++"), no_file_by=("torch-gloo",)),
        Kind("holds the interpreter's lock", _ABSENT, no_file_by=("torch-gloo",)),
        Kind("data loader", _ABSENT, _DEVICES),
        Kind("computes for ever", _ABSENT, ("c++",)),
        Kind("skipped", ("never joined", "other call", "deadlock across groups"), _DEVICES,
             alters=True),
        Kind("order", ("other call", "deadlock across groups"), needs="two_groups", alters=True),
        Kind("size", ("other call",), _DEVICES, alters=True),
        Kind("type", ("other call",), alters=True),
        Kind("root", ("other call",), undecided_by=("torch-gloo",), needs="root", alters=True),
        Kind("collective", ("other call", "never joined"), alters=True),
        Kind("early out", (*_ABSENT, "died"), (*_ALL, "c++"), no_file_by=("torch-gloo",)),
        Kind("dropped link", ("network",), ("unisono", "torch-unisono", "c++"),
             two_ends=True, socket=True),
        Kind("GPU error", ("GPU error",), ("gpu",)),
        Kind("full disk", (*_ABSENT, "died", "undecided"), ("unisono", "torch-unisono")),
        Kind("abort", ("aborted",), ("unisono", "c++")),
        Kind("send without receive", ("never joined", "other call", "deadlock across groups"),
             undecided_by=("torch-gloo",), needs="receive", alters=True),
        Kind("slow", BLAMELESS, hangs=False),
        Kind("healthy", BLAMELESS, (*_ALL, "c++"), hangs=False),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """What is right about a case.

    Attributes:
        ranks: Empty where nobody is to blame.
        two_ends: Whether one more rank may be named.
    """

    verdicts: tuple[str, ...]
    ranks: tuple[int, ...]
    two_ends: bool = False


@dataclass(frozen=True)
class Case:
    """A job and what happens to it.

    Attributes:
        victim: The rank at fault.
        step: When, counted in steps of the program.
        place: Chooses the call of the step; taken modulo the calls that will do.
    """

    seed: int
    kind: Kind
    layout: str
    library: Library
    ranks: int
    victim: int
    step: int
    place: int

    def truth(self) -> Truth:
        if not self.kind.hangs:
            return Truth(BLAMELESS, ())
        more: tuple[str, ...] = ()
        if self.library in self.kind.no_file_by:
            more = ("died", *_ABSENT, "undecided")
        if self.library in self.kind.undecided_by:
            more = ("undecided",)
        return Truth((*self.kind.verdicts, *more), (self.victim,), self.kind.two_ends)

    def describe(self) -> str:
        return (
            f"seed {self.seed}: {self.kind.name}, {self.layout} by {self.library}, "
            f"{self.ranks} ranks, rank {self.victim} at step {self.step}"
        )


# By half: the layouts and numbers of ranks that only it has.
LAYOUTS: dict[Half, dict[str, tuple[int, ...]]] = {
    "develop": {"world": (3, 4), "halves": (4, 8), "pipeline": (3,), "ddp": (3,), "tensor": (4,),
                "three": (8,)},
    "judge": {"world": (5, 7), "halves": (6,), "pipeline": (4, 5), "ddp": (2, 4), "fsdp": (3, 4),
              "three": (16,)},
}  # fmt: skip
_OF_TORCH = ("ddp", "fsdp", "tensor")
_CPP_RANKS: dict[Half, tuple[int, ...]] = {"develop": (4, 16, 32), "judge": (6, 24, 64)}


def draw(seed: int, half: Half, kind: Kind) -> Case:
    """The case of a seed, whose victim need not have a call that will do.

    Seeds of the halves differ: even ones develop.
    """
    seed = 2 * seed + (half == "judge")
    chance = random.Random(seed)
    library = chance.choice(kind.libraries)
    if library == "c++":
        layout, ranks = "world", chance.choice(_CPP_RANKS[half])
    else:
        layouts = {"world": (3, 4)} if library == "gpu" else LAYOUTS[half]
        fitting = [name for name in layouts if _fits(kind, library, name)]
        layout = chance.choice(fitting)
        ranks = chance.choice(layouts[layout])
    return Case(seed, kind, layout, library, ranks, chance.randrange(ranks), chance.randint(4, 8),
                chance.randrange(1000))  # fmt: skip


def _fits(kind: Kind, library: Library, layout: str) -> bool:
    if layout in _OF_TORCH and library == "unisono":
        return False
    if kind.needs == "receive":
        return layout in ("pipeline", "three")
    if kind.needs == "two_groups" or kind.name == "abort":
        return layout in ("halves", "three")
    return True
