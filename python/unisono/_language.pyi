# ruff: noqa: A002
"""The language's part of unisono._unisono: a stub only, there is no such module."""

from typing import Any

from unisono._unisono import Plan

class Chunk:
    """Chunks as they were when a program took hold of them.

    A step that overwrites one of them makes this reference stale; steps give a fresh one.
    """

    @property
    def rank(self) -> int: ...
    @property
    def buffer(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def count(self) -> int: ...
    def copy(
        self,
        rank: int,
        buffer: str | None = None,
        index: int | None = None,
        *,
        channel: int | None = None,
    ) -> Chunk:
        """Copies the chunks to another place: buffer and index of their own unless given.

            before: input[0]@0 = a                     output[2]@1 = anything
            after:  input[0]@0 = a                     output[2]@1 = a
            with    p.chunk(0, "input", 0).copy(1, "output", 2)

        Returns the chunks at the new place. ProgramError if this reference is stale, or the place
        does not exist.
        """

    def reduce(self, other: Chunk, *, channel: int | None = None) -> Chunk:
        """Adds other chunks, of any rank, to these.

            before: input[0]@0 = a    input[0]@1 = b
            after:  input[0]@0 = a    input[0]@1 = a + b
            with    p.chunk(1, "input", 0).reduce(p.chunk(0, "input", 0))

        Returns these chunks, as they are then. ProgramError if a reference is stale.
        """

    def put(
        self,
        rank: int,
        buffer: str | None = None,
        index: int | None = None,
        *,
        channel: int | None = None,
    ) -> Chunk:
        """Writes the chunks into another rank's memory, which takes no part in it.

            before: input[0]@0 = a     output[2]@1 = anything
            after:  input[0]@0 = a     output[2]@1 on its way: a signal and a wait complete it
            with    p.chunk(0, "input", 0).put(1, "output", 2); p.signal(0, 1); p.wait(1, 0)

        Returns the chunks at the new place, which can be used once rank 1 has waited. ProgramError
        if the other rank may still be using what lies there.
        """

    def read_reduce(self, other: Chunk) -> Chunk:
        """Adds chunks in another rank's memory to these, reading them there.

            before: output[0]@0 = a      input[0]@1 = b
            after:  output[0]@0 = a + b  input[0]@1 = b
            with    p.chunk(0, "output", 0).read_reduce(p.chunk(1, "input", 0))

        Returns these chunks, as they are then. ProgramError if the other rank writes there and no
        signal and wait are between.
        """

    def __len__(self) -> int: ...
    def __getitem__(self, key: int | slice) -> Chunk: ...  # some of the chunks, as old as these

class Chunks:
    """Chunks of many ranks: a step on them is a step of each, in their order.

    For programs of millions of steps; ranks and indices are integers or arrays of them.
    """

    def copy(self, rank: Any, buffer: str, index: Any, *, channel: int | None = None) -> Chunks:
        """As Chunk.copy, for each.

        before: input[0]@0 = a, input[0]@1 = b
        after:  output[1]@1 = a, output[1]@0 = b besides
        with    p.chunks([0, 1], "input", 0).copy([1, 0], "output", 1)
        """

    def reduce(self, other: Chunks, *, channel: int | None = None) -> Chunks:
        """As Chunk.reduce, for each with the one of `other` at its place.

        before: input[0]@0 = a, input[1]@0 = b    input[0]@1 = c, input[1]@1 = d
        after:  input[0]@0 = a + c, input[1]@0 = b + d
        with    p.chunks(0, "input", [0, 1]).reduce(p.chunks(1, "input", [0, 1]))
        """

    def __len__(self) -> int: ...

class Compiled:
    """What the compiler gives: a plan that is verified."""

    @property
    def plan(self) -> Plan: ...
    @property
    def timings(self) -> list[tuple[str, float]]: ...  # CPU seconds of each pass, emit, verify
    @property
    def steps(self) -> int: ...  # executed by the proof
    @property
    def messages(self) -> int: ...
    def _repr_html_(self) -> str: ...

class Trace:
    """A program being traced; unisono.lang.Build is what programs see."""

    def __init__(
        self,
        name: str,
        collective: str,
        ranks: int,
        nodes: int,
        root: int,
        chunks: int,
        in_place: bool,
        blocks: tuple[int, int],
    ) -> None: ...
    def set_conditions(self, given: list[bool], required: list[list[int]]) -> None: ...
    def set_most_steps(self, most: int) -> None: ...
    def set_home(self, file: str, line: int) -> None: ...  # where the program begins
    def add_scratch(self, name: str, chunks: int) -> None: ...
    def chunk(self, rank: int, buffer: str, index: int, count: int = 1) -> Chunk:
        """Takes hold of `count` chunks of a rank's buffer, from `index` on.

            before: input[2]@1 = a, input[3]@1 = b
            after:  the same; c stands for both of them
            with    c = p.chunk(1, "input", 2, 2)

        buffer is "input", "output" or the name of a scratch buffer. ProgramError if there are no
        such chunks, or if they hold nothing yet.
        """

    def chunks(self, rank: Any, buffer: str, index: Any, count: int = 1) -> Chunks:
        """As chunk, for each of an array of ranks and one of indices; an integer stands for all.

        before: input[3]@0 = a, input[3]@1 = b
        after:  the same; c stands for both of them
        with    c = p.chunks([0, 1], "input", 3)
        """

    def signal(self, rank: int, to: int, *, channel: int | None = None) -> None:
        """Signals another rank that this rank's earlier puts there are complete.

            before: output[2]@1 on its way from rank 0
            after:  a token of rank 0 for rank 1, behind the put
            with    p.signal(0, 1)

        Every signal needs its wait. ProgramError if it has none.
        """

    def wait(self, rank: int, other: int, *, channel: int | None = None) -> None:
        """A rank waits for the next signal of another one.

            before: a token of rank 0 for rank 1, behind a put to output[2]@1
            after:  output[2]@1 = what was put
            with    p.wait(1, 0)

        ProgramError if the program has not given the signal: nobody would.
        """

    def begin(self) -> None: ...  # from now on it takes steps, and no other trace does
    def end(self) -> None: ...
    def caller(self) -> str: ...  # "file:line: " of who calls a method of Build
    def set_parallel(self, instances: int) -> int: ...  # what it was before
    def set_thread_blocks(
        self, send: int | None, recv: int | None
    ) -> tuple[int | None, int | None]: ...  # what they were before
    def set_channel(self, channel: int) -> int: ...  # what it was before
    @property
    def operations(self) -> int: ...
    def compile(self, options: dict[str, Any]) -> Compiled: ...
    def dump_after(self, options: dict[str, Any], pass_name: str) -> str: ...

class ForeignExecutor:
    """An executor of others that plans can be written for, and its limits."""

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...  # "msccl-xml" or "mscclpp-json"
    @property
    def summary(self) -> str: ...
    @property
    def collectives(self) -> list[str]: ...  # as the format calls them
    @property
    def max_steps(self) -> int: ...  # of a thread block, as they stand in the file
    @property
    def max_step_count(self) -> int: ...  # chunks
    @property
    def max_channels(self) -> int: ...
    @property
    def max_thread_blocks(self) -> int: ...  # of a rank
    @property
    def max_blocks_per_channel(self) -> int: ...
    @property
    def last_awaited_block(self) -> int: ...
    @property
    def max_fused_reductions(self) -> int: ...
    @property
    def max_nodes(self) -> int: ...  # XML elements of a rank; 0: no bound
    @property
    def max_ranks(self) -> int: ...  # 0: no bound
    @property
    def last_chunk(self) -> int: ...  # the greatest chunk number of a step; 0: no bound
    @property
    def default_max_bytes(self) -> int: ...  # of a file that names none; 0: no bound
    @property
    def custom_blocks_equal(self) -> bool: ...  # custom: as many chunks of input as of output
    @property
    def max_semaphores(self) -> int: ...  # 0: no bound
    def check(self, plan: Plan) -> None: ...  # its limits but for steps; MisuseError

def foreign_executors() -> list[ForeignExecutor]: ...
def passes() -> list[tuple[str, str]]:
    """The compiler's passes, in their order, and what each does."""

def run_plan(
    plan: Plan,
    inputs: list[int],
    outputs: list[int],
    count: int,
    type: str,
    operation: str,
    timeout: float,
) -> None:
    """Runs a plan on buffers by address, all ranks in this thread; see unisono.lang.run."""
