"""What is done to a job, and what must then hold."""

from __future__ import annotations

import random
from dataclasses import dataclass

TIMEOUT_SECONDS = 3.0
# From a process's end to the last survivor's error; from the deadline of a call to it.
NOTICED_SECONDS = 3.0
AGREED_SECONDS = 6.0
COUNTS = (1, 1013, 60_001)


@dataclass(frozen=True)
class Kind:
    """One way to harm a job.

    Attributes:
        name: For tables and the command line.
        weight: How often it is drawn.
        least_nodes: Of the job.
        fails: Whether calls must fail on all survivors; else they must go on and be right.
        timed_out: Whether they fail at their deadline; else as soon as it is noticed.
        needs_root: Whether it changes what only root may.
        is_early: Whether it is done before the ranks have joined.
        may_suffice: Whether what is left to the victims may be enough for them, so that nothing
            need fail.
        victims_say: Of victims that live: whether they fail with an error of their own.
    """

    name: str
    weight: int
    least_nodes: int = 1
    fails: bool = True
    timed_out: bool = False
    needs_root: bool = False
    is_early: bool = False
    may_suffice: bool = False
    victims_say: bool = False


KINDS = (
    Kind("kill_one", 6),
    Kind("kill_two", 4),
    Kind("kill_node", 4, least_nodes=2),
    Kind("stop_short", 2, fails=False),
    Kind("stop_long", 4, timed_out=True, victims_say=True),
    Kind("slow", 2, fails=False),
    Kind("fork", 2, fails=False),
    Kind("descriptors", 2, is_early=True, may_suffice=True, victims_say=True),
    Kind("memory", 2, may_suffice=True, victims_say=True),
    Kind("shared_memory", 2, needs_root=True, is_early=True, may_suffice=True, victims_say=True),
    Kind("link_flaps", 1, least_nodes=2, fails=False, needs_root=True),
    Kind("black_hole", 2, least_nodes=3, timed_out=True, needs_root=True),
    Kind("half_open", 2, least_nodes=3, timed_out=True, needs_root=True),
)


@dataclass(frozen=True)
class Injection:
    """One job and what is done to it, all of which follows from the seed."""

    seed: int
    kind: Kind
    ranks: int
    nodes: int
    transport: str
    victims: tuple[int, ...]
    after_seconds: float
    collective: str = ""
    algorithm: str = ""
    count: int = 1

    def node_of(self, rank: int) -> int:
        """The node of a rank: consecutive ranks, as even as can be."""
        return rank * self.nodes // self.ranks

    def describe(self) -> str:
        """For a person who wants to see it again."""
        return (
            f"seed {self.seed}: {self.kind.name} of {list(self.victims)}, {self.ranks} ranks on "
            f"{self.nodes} nodes{' by ' + self.transport if self.transport else ''}, "
            f"{self.collective} by {self.algorithm} of {self.count}"
        )


def draw(seed: int, kinds: tuple[Kind, ...]) -> Injection:
    """The injection of a seed, but for its algorithm, which depends on what the ranks can run."""
    chance = random.Random(seed)
    kind = chance.choices(kinds, [kind.weight for kind in kinds])[0]
    on_netbed = kind.name in ("link_flaps", "black_hole", "half_open")
    nodes = max(kind.least_nodes, chance.choice((1, 1, 2, 2, 3)))
    # One more than the victims on any one node, so that somebody survives.
    ranks = max(nodes * (2 if kind.name == "kill_node" else 1), chance.randint(3, 6))
    transport = "" if nodes > 1 or on_netbed else chance.choice(("", "", "socket"))
    if kind.name == "shared_memory":
        transport = ""
    node = chance.randrange(nodes)
    on_node = [rank for rank in range(ranks) if rank * nodes // ranks == node]
    if kind.name in ("kill_node", "black_hole", "half_open", "link_flaps"):
        victims = on_node
    elif kind.name == "kill_two":
        victims = sorted(chance.sample(range(ranks), 2))
    elif kind.name in ("shared_memory", "fork"):
        victims = list(range(ranks))
    else:
        victims = [chance.randrange(ranks)]
    return Injection(
        seed=seed,
        kind=kind,
        ranks=ranks,
        nodes=nodes,
        transport=transport,
        victims=tuple(victims),
        after_seconds=chance.uniform(0.0, 0.4),
        count=chance.choice(COUNTS),
    )
