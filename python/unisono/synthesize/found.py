"""What synthesis finds: a schedule of transfers, and the plan that it becomes."""

from dataclasses import dataclass

from unisono import _unisono as native

__all__ = ["Found", "synthesize"]


@dataclass(frozen=True)
class Found:
    """A schedule that was found.

    Attributes:
        name: The name of the plans that it becomes.
        links: What it was found for.
        schedule: Who sends which chunk to whom, and when: `schedule.transfers` are (chunk, from,
            to, whether it is added, start and end in microseconds). Chunk r * chunks + i is rank
            r's i-th.
        chunk_bytes: The size of a chunk for which the times hold.
    """

    name: str
    links: native.LinkGraph
    schedule: native.TransferSchedule
    chunk_bytes: int

    @property
    def time_us(self) -> float:
        """When the last chunk is there."""
        return self.schedule.duration_us

    @property
    def bound_us(self) -> float:
        """No schedule of such chunks is shorter: of an all-reduce, none that is a reduce-scatter
        and then an all-gather. 0 if no bound is known."""
        return self.schedule.bound_us

    def compile(
        self,
        *,
        in_place: bool = False,
        protocol: str = "simple",
        instances: int = 1,
        fuse: bool = True,
        slots: int = 2,
    ) -> native.Compiled:
        """The plan, verified; the arguments are those of `unisono.lang.Program.compile`."""
        return self.schedule.compile(
            self.name,
            in_place=in_place,
            protocol=protocol,
            instances=instances,
            alpha_us=max((link[2] for link in self.links.links), default=0.0) / 1e3,
            gigabytes_per_second=min((link[3] for link in self.links.links), default=1.0),
            block_bytes=self.chunk_bytes * self.schedule.chunks,
            fuse=fuse,
            slots=slots,
        )


def synthesize(
    links: native.LinkGraph,
    collective: str,
    *,
    size_bytes: int = 64 << 20,
    chunks: int = 1,
    seed: int = 1,
    tries: int = 4,
) -> Found:
    """A plan for these links, found greedily: links that are free are matched with chunks that one
    end has and the other needs, moment after moment (the idea is TACOS', Won et al., MICRO 2024).

    Args:
        links: What connects the ranks.
        collective: "all_gather", "reduce_scatter" or "all_reduce".
        size_bytes: The size of all ranks' blocks together, for which the times hold: the output
            of an all-gather.
        chunks: Chunks that each rank's block is cut into; more of them use links more evenly.
        seed: Decides among equals. The same seed gives the same plan, on every rank.
        tries: The best of so many schedules is taken.

    Raises:
        MisuseError: The collective is none of these, or there are too many ranks and chunks.
    """
    chunk_bytes = chunk_bytes_of(size_bytes, links.ranks, chunks)
    schedule = native.synthesize_greedily(
        links, collective, chunks=chunks, chunk_bytes=chunk_bytes, seed=seed, tries=tries
    )
    return Found(f"{links.name}_{collective}", links, schedule, chunk_bytes)


def chunk_bytes_of(size_bytes: int, ranks: int, chunks: int) -> int:
    """The size of a chunk, 1 or more."""
    return max(1, size_bytes // (ranks * max(1, chunks)))
