"""Synthesis' part of unisono._unisono: a stub only, there is no such module."""

from collections.abc import Sequence

from unisono._unisono import Compiled, Machine

class LinkGraph:
    """Ranks, switches, and the directed links between them; ranks are 0 .. ranks - 1."""

    @staticmethod
    def make(
        name: str,
        ranks: int,
        switches: int,
        links: Sequence[tuple[int, int, float, float, int]],  # from, to, ns, GB/s, lanes
    ) -> LinkGraph:
        """MisuseError that names the link if an end or a number is wrong, or if some rank cannot
        reach another one."""

    @staticmethod
    def of_machine(machine: Machine, ranks: int, nodes: int = 0) -> LinkGraph:
        """The links that a cluster's ports, NICs and uplinks stand for."""

    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def switches(self) -> int: ...
    @property
    def links(self) -> list[tuple[int, int, float, float, int]]: ...  # as for make
    def routes(self, chunk_bytes: int) -> list[tuple[int, int, list[int]]]:
        """Ways from rank to rank, by one link or through switches: from, to, numbers of links."""

class TransferSchedule:
    """Who sends which chunk to whom, and when."""

    @staticmethod
    def make(
        collective: str,
        ranks: int,
        chunks: int,
        transfers: Sequence[tuple[int, int, int, bool, float, float]],
    ) -> TransferSchedule: ...
    @property
    def collective(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def chunks(self) -> int: ...  # of each rank's own
    @property
    def transfers(self) -> list[tuple[int, int, int, bool, float, float]]:
        """Chunk, from, to, whether it is added, start and end in microseconds; by start."""

    @property
    def duration_us(self) -> float: ...
    @property
    def bound_us(self) -> float: ...  # 0: not known
    def compile(
        self,
        name: str,
        *,
        in_place: bool = False,
        protocol: str = "simple",
        instances: int = 1,
        alpha_us: float = 5.0,
        gigabytes_per_second: float = 20.0,
        block_bytes: int = 0,
        fuse: bool = True,
        slots: int = 2,
    ) -> Compiled:
        """The plan, verified; reductions keep the schedule's order."""

def synthesize_greedily(
    graph: LinkGraph,
    collective: str,
    *,
    chunks: int = 1,
    chunk_bytes: int = 1 << 20,
    seed: int = 1,
    tries: int = 4,
) -> TransferSchedule:
    """A schedule for these links; see unisono.synthesize.synthesize."""
