"""Programs of the language that a communicator takes for its calls, or that are called by name."""

from typing import Any, Unpack

from unisono import _unisono as native
from unisono.arrays import Array, Returned, View, rows, shape_text
from unisono.calls import CallOptions, Calls
from unisono.errors import MisuseError
from unisono.lang.program import Program
from unisono.lang.register import register

__all__ = ["Programs"]


class Programs(Calls):
    """What a communicator does with programs."""

    def register(
        self,
        program: Program | native.Plan,
        sizes: tuple[int, int | None] = (0, None),
        *,
        nodes: int | None = None,
        **options: Any,
    ) -> None:
        """From now on calls of the program's collective, of its root, take it. Collective.

        A program is compiled for this communicator. The latest takes precedence;
        `algorithm=` asks for any by name. Each rank may call in place or out of place. A program
        that is not declared `in_place` runs on a copy of the input where a rank calls in place.
        MisuseError if a rank's program is wrong, or ranks differ; no rank has registered any
        then. A program with a collective of its own ("custom") is called with `run`.

        Args:
            program: A program of the language, or a plan.
            sizes: Bytes that it serves (the larger of a rank's input and output); None: no bound.
            nodes: To compile for; None takes the communicator's, which need equally many ranks.
            **options: Of `Program.compile`: instances, protocol, root and so on.
        """
        register(self._native, program, sizes, nodes, options)

    def run(
        self,
        program: Program | str,
        x: Array,
        op: str = "sum",
        *,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Calls a registered program that has a collective of its own. Collective.

        Args:
            program: The program, or its name.
            x: This rank's input, of as many blocks as the program has; equally large on all ranks.
            op: What its reductions do: "sum", "product", "min" or "max".
            out: The program's output blocks, each as large as one of x; `out=x` works in place.
                None makes one, in which chunks that the program leaves alone hold anything.
            **options: See CallOptions; `algorithm` is the program.

        Returns:
            The output; with async_op, a Work.

        Raises:
            MisuseError: No such program is registered, x is not of so many blocks, or out of
                another size.
        """
        name = program.name if isinstance(program, Program) else program
        if isinstance(program, Program) and program.collective != "custom":
            raise MisuseError(
                f"program {name} is of {program.collective}: call {program.collective}, which "
                f"takes it once it is registered; run is for custom programs"
            )
        if "algorithm" in options:
            raise MisuseError(f"run of {name} with algorithm=; the program is the algorithm")
        inputs, outputs = self._native.custom_blocks(name)
        what = f"program {name}"
        source = self._input(x, what, options, writable=out is x, op=op)
        if inputs == 0 or source.count % inputs:
            raise MisuseError(
                f"the input of {what} on rank {self.rank} has shape {shape_text(source.shape)}; "
                f"it must be made of {inputs} blocks of one size"
            )
        shape = _shape_of_blocks(source, inputs, outputs)
        target = source if out is x else self._output(out, source, shape, what, options)
        options["algorithm"] = name
        return self._call("custom", source, target, source.count // inputs, options, operation=op)


def _shape_of_blocks(source: View, inputs: int, outputs: int) -> tuple[int, ...]:
    """The output's shape: blocks lie along the first dimension where the input's do."""
    first, rest = rows(source)
    if inputs == outputs:
        return (first, *rest) if source.shape else ()
    if first % inputs == 0:
        return (first // inputs * outputs, *rest)
    return (source.count // inputs * outputs,)
