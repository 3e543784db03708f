"""Programs: a function, the collective that it is, and how its data is cut."""

import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError, ProgramError
from unisono.lang.build import Build
from unisono.lang.conditions import Conditions, check_whole
from unisono.lang.places import place_of, told_at
from unisono.lang.watch import EndlessLoopError, watched

__all__ = ["Program", "Shape", "load", "program"]


@dataclass(frozen=True)
class Shape:
    """For which communicator a program is compiled.

    Attributes:
        ranks: The number of ranks.
        nodes: The number of nodes; every node has as many ranks.
        root: The root rank, of collectives that have one.
    """

    ranks: int
    nodes: int = 1
    root: int = 0

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node."""
        return self.ranks // self.nodes


# Names input chunks: (rank, chunk).
Place = tuple[int, int]
Given = Callable[[Shape, int, int], bool]
Wanted = Callable[[Shape, int, int], Iterable[Place] | None]
Blocks = tuple[int, int] | Callable[[Shape], tuple[int, int]]


@dataclass(frozen=True)
class Program:
    """A program, for any number of ranks that its author allows.

    Attributes:
        name: The name of the program, and of its plans.
        function: What it does, called with a `Build`.
        collective: Its meaning; "custom" with conditions of its own.
        chunks: Chunks that a block is divided into, for a shape.
        in_place: Whether input and output are one memory to the program. Such a program can be
            compiled for calls in place and out of place, others only out of place.
        blocks: Blocks of input and output, or a function of the shape that gives them; only of
            custom collectives. None: one of each.
        given: Precondition of a custom collective: whether input chunk (rank, index) holds data.
        wanted: Postcondition of a custom collective: the input chunks, as (rank, index), whose sum
            output chunk (rank, index) holds at the end, each once; None for anything.
        most_steps: A program that takes more steps is stopped; at most 2^24.
        idle_seconds: A program that takes none for so long is stopped.
    """

    name: str
    function: Callable[..., None]
    collective: str
    chunks: Callable[[Shape], int]
    in_place: bool = False
    blocks: Blocks | None = None
    given: Given | None = None
    wanted: Wanted | None = None
    most_steps: int = 1 << 24
    idle_seconds: float = 10

    def __post_init__(self) -> None:
        if self.collective == "custom":
            return
        own = {"blocks": self.blocks, "given": self.given, "wanted": self.wanted}
        if named := [name for name, value in own.items() if value is not None]:
            raise ProgramError(
                f"{_home_of(self.function)}program {self.name}: {' and '.join(named)} with "
                f"{self.collective}, which has blocks and conditions of its own; only a custom "
                "program declares them"
            )

    @property
    def line(self) -> int:
        """Where its function, or the first of its decorators, begins in its file."""
        return self.function.__code__.co_firstlineno

    def trace(self, ranks: int, nodes: int = 1, *, root: int = 0, **parameters: Any) -> Build:
        """Runs the program, so that its steps are written down.

        Args:
            ranks: The number of ranks.
            nodes: The number of nodes, which must divide the ranks.
            root: The root rank, of collectives that have one.
            **parameters: Passed on to the program.

        Raises:
            ProgramError: The program makes a mistake that is detected at once: an index out of
                range, a stale or uninitialised chunk, an exception of Python's; file, line and
                values are in the text.
        """
        for name, value in (("ranks", ranks), ("nodes", nodes), ("root", root)):
            check_whole(f"program {self.name}: ", name, value)
        if ranks < 1 or nodes < 1 or ranks % nodes:
            raise ProgramError(
                f"program {self.name}: {ranks} ranks cannot be divided equally among {nodes} "
                "nodes; every node must have as many ranks"
            )
        shape = Shape(ranks, nodes, root)
        home = _home_of(self.function)
        with told_at(home):
            build, says_something = self._begin(shape)
            code = self.function.__code__
            build.set_home(code.co_filename, code.co_firstlineno)
            build.begin()
            try:
                with watched(lambda: build.operations, self.idle_seconds):
                    self.function(build, **parameters)
            except EndlessLoopError as error:
                raise ProgramError(
                    f"{place_of(error)}no step for {self.idle_seconds:g} s: the program loops for "
                    "ever; one that computes for so long declares idle_seconds"
                ) from None
            finally:
                build.end()
            # One rank may have nothing to do.
            if not says_something and (build.operations or ranks > 1):
                raise ProgramError(
                    f"{home}program {self.name}: the postcondition asks for nothing: wanted is "
                    "None for every output chunk of every rank, so any program would meet it"
                )
        return build

    def _begin(self, shape: Shape) -> tuple[Build, bool]:
        """What the program is called with, and whether its postcondition asks for anything."""
        home = f"program {self.name}: "
        chunks = check_whole(home, "chunks", self.chunks(shape))
        blocks = self.blocks(shape) if callable(self.blocks) else self.blocks or (1, 1)
        if not (isinstance(blocks, tuple | list) and len(blocks) == 2):
            raise ProgramError(f"{home}blocks is {blocks!r}; it is (blocks of input, of output)")
        inputs, outputs = (check_whole(home, "a number of blocks", one) for one in blocks)
        if not isinstance(self.in_place, bool):
            raise ProgramError(f"{home}in_place is {self.in_place!r}; it is True or False")
        if check_whole(home, "most_steps", self.most_steps) < 1:
            raise ProgramError(f"{home}most_steps is {self.most_steps}; it is 1 or more")
        seconds = self.idle_seconds
        if not (isinstance(seconds, int | float) and seconds > 0):
            raise ProgramError(f"{home}idle_seconds is {seconds!r}; it is a number above 0")
        build = Build(
            self.name,
            self.collective,
            ranks=shape.ranks,
            nodes=shape.nodes,
            root=shape.root,
            chunks=chunks,
            in_place=self.in_place,
            blocks=(inputs, outputs),
        )
        build.set_most_steps(self.most_steps)
        if self.collective != "custom" or self.wanted is None:
            return build, True
        where = Conditions(self.name, shape, inputs * chunks, outputs * chunks)
        given = where.given(self.given)
        required = where.wanted(self.wanted)
        build.set_conditions(given, required)
        return build, any(required)

    def compile(
        self,
        ranks: int,
        nodes: int = 1,
        *,
        root: int = 0,
        in_place: bool = False,
        protocol: str = "simple",
        instances: int = 1,
        alpha_us: float = 5.0,
        gigabytes_per_second: float = 20.0,
        block_bytes: int = 0,
        fuse: bool = True,
        slots: int = 2,
        target: str | None = None,
        check_passes: bool = False,
        **parameters: Any,
    ) -> native.Compiled:
        """A plan of the program, verified.

        Args:
            ranks: The number of ranks.
            nodes: The number of nodes, which must divide the ranks.
            root: The root rank, of collectives that have one.
            in_place: Whether the plan is for calls in place.
            protocol: "simple", "ll" or "ll128".
            instances: The whole program is done by so many instances side by side, as if it stood
                in `parallelize(instances)`.
            alpha_us: What a message costs before its first byte, in microseconds.
            gigabytes_per_second: A connection's bandwidth; with `alpha_us` it decides which
                contiguous messages become one.
            block_bytes: The size of a block for which that is decided; 0: all become one.
            fuse: Whether instructions are fused.
            slots: Messages that a connection must hold at least.
            target: Whose limits the plan must keep: "msccl", "executor-nccl", "rccl" or "mscclpp".
            check_passes: Prove the program after every pass, and name the one that broke it.
            **parameters: Passed on to the program.

        Raises:
            ProgramError: The program is wrong; file, line and values are in the text.
        """
        build = self.trace(ranks, nodes, root=root, **parameters)
        return build.compile(
            {
                "in_place": in_place,
                "protocol": protocol,
                "instances": instances,
                "alpha_us": alpha_us,
                "gigabytes_per_second": gigabytes_per_second,
                "block_bytes": block_bytes,
                "fuse": fuse,
                "slots": slots,
                "target": target,
                "check_passes": check_passes,
            }
        )

    def cost(
        self,
        cluster: Any,
        size: int | str,
        ranks: int,
        nodes: int = 1,
        *,
        root: int = 0,
        **options: Any,
    ) -> float:
        """Microseconds that the program's plan takes on a cluster, as the simulator predicts.

        Args:
            cluster: A cluster, of `unisono.simulate.load_cluster`.
            size: Bytes of the larger of a rank's input and output, as a number or as "64MiB".
            ranks: The number of ranks.
            nodes: The nodes that they are spread over, for the program and on the cluster.
            root: The root rank.
            **options: in_place, protocol, instances and so on, as for `compile`.

        Raises:
            ProgramError: The program is wrong.
            MisuseError: `cluster` is not one, or has too few places; or the size cannot be read.
        """
        if not hasattr(cluster, "time_us"):
            raise MisuseError(
                f"cluster is {cluster!r}; it must be one of unisono.simulate.load_cluster(name)"
            )
        size_bytes = native.parse_bytes(size) if isinstance(size, str) else size
        plan = self.compile(ranks, nodes, root=root, **options).plan
        time_us: float = cluster.time_us(plan, size_bytes, nodes)
        return time_us

    def dump_after(
        self, pass_name: str, ranks: int, nodes: int = 1, *, root: int = 0, **options: Any
    ) -> str:
        """The compiler's state after a pass, as text. `unisono.lang.passes()` names them; "trace"
        is what stands before all.

        Args:
            pass_name: The pass.
            ranks: The number of ranks.
            nodes: The number of nodes.
            root: The root rank.
            **options: in_place, protocol, instances and so on, as for `compile`.
        """
        return self.trace(ranks, nodes, root=root).dump_after(options, pass_name)

    def _repr_html_(self) -> str:
        """What a notebook shows: its plan for 4 ranks on one node or two, or what is wrong."""
        complaint = ""
        for nodes in (1, 2):
            try:
                return self.compile(4, nodes).plan._repr_html_()
            except MisuseError as error:
                complaint = complaint or str(error)
        return f"<pre>{escape(complaint)}</pre>"


def program(
    collective: str,
    *,
    chunks: int | Callable[[Shape], int] = 1,
    in_place: bool = False,
    blocks: Blocks | None = None,
    given: Given | None = None,
    wanted: Wanted | None = None,
    most_steps: int = 1 << 24,
    idle_seconds: float = 10,
    name: str | None = None,
) -> Callable[[Callable[..., None]], Program]:
    """Makes a function a program. The arguments are the attributes of `Program`.

    @program("broadcast", chunks=4)
    def star_broadcast(p):
        for rank in range(p.ranks):
            if rank != p.root:
                p.chunk(p.root, "input", 0, 4).copy(rank, "output", 0)
    """
    if collective == "custom" and wanted is None:
        raise ProgramError("a custom program needs its postcondition: wanted=")

    def make(function: Callable[..., None]) -> Program:
        return Program(
            name=name or function.__name__,
            function=function,
            collective=collective,
            chunks=chunks if callable(chunks) else lambda shape: chunks,
            in_place=in_place,
            blocks=blocks,
            given=given,
            wanted=wanted,
            most_steps=most_steps,
            idle_seconds=idle_seconds,
        )

    return make


def _home_of(function: Callable[..., None]) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}: "


def load(path: Path | str) -> list[Program]:
    """The programs that a Python file defines, in its order. The file is executed.

    Raises:
        ProgramError: The file cannot be read or executed, or defines none.
    """
    path = Path(path)
    module_name = f"unisono_program_{path.stem}"
    specification = importlib.util.spec_from_file_location(module_name, path)
    if specification is None or specification.loader is None or not path.is_file():
        raise ProgramError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module
    with told_at(f"{path}: "):
        specification.loader.exec_module(module)
    # One program may have several names in the file.
    found = list({id(v): v for v in vars(module).values() if isinstance(v, Program)}.values())
    if not found:
        raise ProgramError(f"{path} defines no program; decorate one with @program(...)")
    return found
