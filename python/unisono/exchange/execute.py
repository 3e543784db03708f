"""What the steps of an MSCCL file touch: all ranks are followed, and every chunk gets its name.

MSCCL names memory, a plan names data. In a plan a rank's own contribution is read through `input`
and everything else through `output` and `scratch`, the input is never written, and a scratch chunk
lies where its size is right. So the file is executed symbolically: which chunks were overwritten
before a step, and the place in its block of the data that a scratch chunk holds, decide the names.
The order does not matter where the file is free of races, which the verifier checks afterwards.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from unisono.errors import MisuseError
from unisono.exchange.schema import OPERATIONS, Algorithm, Block, Step

__all__ = ["Named", "Shape", "execute"]

# A name in a plan: buffer, chunk. In scratch: slot, and the place in its block of what lies there.
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Shape:
    """How the collective's buffers are cut, and where they are one memory.

    Attributes:
        collective: In a plan's terms.
        ranks: The number of ranks.
        root: The root of collectives that have one.
        chunks: The number of chunks in a block.
        inputs: Chunks of the input of each rank.
        outputs: Chunks of the output of each rank.
        in_place: Whether input and output share memory.
    """

    collective: str
    ranks: int
    root: int
    chunks: int
    inputs: list[int]
    outputs: list[int]
    in_place: bool

    def cell(self, rank: int, buffer: str, index: int) -> tuple[str, int]:
        """Which memory a chunk of the file is: equal exactly where two alias."""
        if not self.in_place or buffer == "s":
            return buffer, index
        own = rank * self.chunks
        if buffer == "i":
            within = self.collective == "all_gather" or (
                self.collective == "gather" and rank == self.root
            )
            return "d", index + own if within else index
        within = self.collective == "reduce_scatter" or (
            self.collective == "scatter" and rank == self.root
        )
        return "d", index + own if within else index

    def names(self, rank: int, cell: tuple[str, int]) -> tuple[int, int]:
        """The chunk of the input and of the output that a cell is; -1: of none."""
        buffer, index = cell
        if buffer in "io":
            return (index, -1) if buffer == "i" else (-1, index)
        first_in = self.cell(rank, "i", 0)[1]
        first_out = self.cell(rank, "o", 0)[1]
        of_input, of_output = index - first_in, index - first_out
        return (
            of_input if 0 <= of_input < self.inputs[rank] else -1,
            of_output if 0 <= of_output < self.outputs[rank] else -1,
        )


@dataclass(slots=True)
class Named:
    """A step of a plan, with the file's step that it was read from."""

    operation: str
    source: Place | None
    target: Place | None
    count: int
    origin: tuple[int, int]  # thread block, step


class _MixedError(Exception):
    """A step's chunks have no common name: it must be cut into steps of one chunk each."""


@dataclass
class _Rank:
    written: set[tuple[str, int]] = field(default_factory=set)
    places: dict[tuple[str, int], int] = field(default_factory=dict)  # of what scratch holds


def execute(algorithm: Algorithm, shape: Shape) -> list[list[list[Named]]]:
    """The steps of every rank's thread blocks, without those that only wait.

    Raises:
        MisuseError: A step names chunks that do not exist, waits for a step that does not, messages
            do not fit, or nothing can go on; the line is in the text.
    """
    try:
        return _Execution(algorithm, shape, whole=True).run()
    except _MixedError:
        return _Execution(algorithm, shape, whole=False).run()


class _Execution:
    def __init__(self, algorithm: Algorithm, shape: Shape, *, whole: bool) -> None:
        self._algorithm = algorithm
        self._shape = shape
        self._whole = whole
        self._ranks = [_Rank() for _ in range(shape.ranks)]
        self._blocks = [
            [algorithm.gpus[rank].blocks[i] for i in range(len(algorithm.gpus[rank].blocks))]
            for rank in range(shape.ranks)
        ]
        self._done = [[0] * len(blocks) for blocks in self._blocks]
        self._out: list[list[list[Named]]] = [[[] for _ in blocks] for blocks in self._blocks]
        # By sender, receiver, channel: the places of the chunks of each message on its way.
        self._messages: dict[tuple[int, int, int], deque[list[int]]] = {}
        self._receivers: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._waiting: dict[tuple[int, int], set[tuple[int, int]]] = {}

    def run(self) -> list[list[list[Named]]]:
        for rank, blocks in enumerate(self._blocks):
            for number, block in enumerate(blocks):
                self._check_block(rank, number, block)
        ready = deque((r, b) for r, blocks in enumerate(self._blocks) for b in range(len(blocks)))
        while ready:
            rank, number = ready.popleft()
            moved = False
            while self._can_go_on(rank, number):
                ready.extend(self._advance(rank, number))
                moved = True
            if moved:
                ready.extend(self._waiting.pop((rank, number), ()))
        self._check_end()
        return self._out

    # What can be told before ----------------------------------------------------------------------

    def _check_block(self, rank: int, number: int, block: Block) -> None:
        for peer, does in ((block.send, "sends to"), (block.recv, "receives from")):
            if peer == rank:
                raise _wrong(block.line, f"thread block {number} of rank {rank} {does} itself")
        if block.recv >= 0:
            way = (block.recv, rank, block.channel)
            if way in self._receivers:
                other = self._receivers[way][1]
                raise _wrong(
                    block.line,
                    f"thread block {number} of rank {rank} receives from rank {block.recv} on "
                    f"channel {block.channel}, as thread block {other} does",
                )
            self._receivers[way] = (rank, number)
        for position, step in enumerate(block.steps):
            self._check_step(rank, number, position, block, step)

    def _check_step(self, rank: int, number: int, position: int, block: Block, step: Step) -> None:
        operation = OPERATIONS.get(step.kind, "")
        if "send" in operation and block.send < 0:
            raise _wrong(step.line, f"{step.kind} in a thread block that sends to nobody")
        if "recv" in operation and block.recv < 0:
            raise _wrong(step.line, f"{step.kind} in a thread block that receives from nobody")
        if operation:
            if step.kind not in ("r", "rcs"):
                self._check_place(rank, step, step.source, "src")
            if step.kind not in ("s", "rrs"):
                self._check_place(rank, step, step.target, "dst")
        if step.after is None:
            return
        other, awaited = step.after
        blocks = self._blocks[rank]
        if other >= len(blocks) or awaited >= len(blocks[other].steps):
            raise _wrong(
                step.line,
                f"waits for step {awaited} of thread block {other}, which rank {rank} has not",
            )
        if other == number and awaited >= position:
            raise _wrong(step.line, f"waits for step {awaited} of its own thread block: deadlock")
        if not blocks[other].steps[awaited].is_awaited:
            raise _wrong(
                step.line,
                f"waits for step {awaited} of thread block {other}, which has hasdep=0 (line "
                f"{blocks[other].steps[awaited].line}): executors would wait for ever",
            )

    def _check_place(self, rank: int, step: Step, place: tuple[str, int], which: str) -> None:
        buffer, index = place
        shape = self._shape
        gpu = self._algorithm.gpus[rank]
        promised = {"i": gpu.inputs, "o": gpu.outputs, "s": gpu.scratch}[buffer]
        if index < 0 or index + step.count > promised:
            raise _wrong(
                step.line,
                f"{which}off={index} with cnt={step.count} is outside of buffer {buffer} of rank "
                f"{rank}, which has {buffer}_chunks={promised}",
            )
        chunks = {"i": shape.inputs[rank], "o": shape.outputs[rank], "s": promised}[buffer]
        # In place, older files address all of the memory by either name.
        if shape.in_place and buffer != "s":
            chunks = max(shape.inputs[rank], shape.outputs[rank])
        if index + step.count > chunks:
            raise _wrong(
                step.line,
                f"{which}off={index} with cnt={step.count} is outside of buffer {buffer} of rank "
                f"{rank}; in {shape.collective} it has {chunks} chunks",
            )

    # The execution --------------------------------------------------------------------------------

    def _can_go_on(self, rank: int, number: int) -> bool:
        block = self._blocks[rank][number]
        position = self._done[rank][number]
        if position == len(block.steps):
            return False
        step = block.steps[position]
        if step.after is not None and self._done[rank][step.after[0]] <= step.after[1]:
            self._waiting.setdefault((rank, step.after[0]), set()).add((rank, number))
            return False
        if "recv" in OPERATIONS.get(step.kind, ""):
            return bool(self._messages.get((block.recv, rank, block.channel)))
        return True

    def _advance(self, rank: int, number: int) -> Iterator[tuple[int, int]]:
        """Executes a step; gives whom that may wake."""
        block = self._blocks[rank][number]
        position = self._done[rank][number]
        step = block.steps[position]
        self._done[rank][number] += 1
        operation = OPERATIONS.get(step.kind)
        if operation is None:
            return
        incoming: list[int] | None = None
        if "recv" in operation:
            incoming = self._messages[block.recv, rank, block.channel].popleft()
            if len(incoming) != step.count:
                raise _wrong(
                    step.line,
                    f"{step.kind} with cnt={step.count} takes a message of {len(incoming)} chunks "
                    f"from rank {block.recv}; both ends must have the same",
                )
        sent: list[int] = []
        for first, count in self._pieces(step):
            steps, places = self._name(rank, step, first, count, incoming)
            self._out[rank][number] += [
                Named(name, source, target, count, (number, position))
                for name, source, target in steps
            ]
            sent += places
        if "send" in operation:
            way = (rank, block.send, block.channel)
            self._messages.setdefault(way, deque()).append(sent)
            if way in self._receivers:
                yield self._receivers[way]

    def _pieces(self, step: Step) -> list[tuple[int, int]]:
        return [(0, step.count)] if self._whole else [(i, 1) for i in range(step.count)]

    def _name(
        self, rank: int, step: Step, first: int, count: int, incoming: list[int] | None
    ) -> tuple[list[tuple[str, Place | None, Place | None]], list[int]]:
        """Operations with source and target, and the places in their blocks of the chunks."""
        source = target = before = None
        places = incoming[first : first + count] if incoming is not None else []
        if step.kind not in ("r", "rcs"):
            source = self._read(rank, step.source, first, count)
            places = places or self._places(source, count)
        if step.kind == "re":
            before = self._read(rank, step.target, first, count)
        if step.kind not in ("s", "rrs"):
            target = self._write(rank, step.target, first, places)
        steps = [(OPERATIONS[step.kind], source, target)]
        # What a rank was given is read before something is added to it.
        if before is not None and before[0] == "input":
            steps.insert(0, ("copy", before, target))
        return steps, places

    def _places(self, place: Place, count: int) -> list[int]:
        return [(place[2] + i) % self._shape.chunks for i in range(count)]

    def _read(self, rank: int, place: tuple[str, int], first: int, count: int) -> Place:
        buffer, index = place
        return self._join([self._read_one(rank, buffer, index + first + i) for i in range(count)])

    def _read_one(self, rank: int, buffer: str, index: int) -> Place:
        state, chunks = self._ranks[rank], self._shape.chunks
        cell = self._shape.cell(rank, buffer, index)
        if buffer == "s":
            return "scratch", index, state.places.get(cell, 0)
        of_input, of_output = self._shape.names(rank, cell)
        if cell not in state.written and of_input >= 0:
            return "input", of_input, of_input % chunks
        if of_output >= 0:
            return "output", of_output, of_output % chunks
        return "scratch", self._shadow(rank, of_input), state.places.get(cell, 0)

    def _write(self, rank: int, place: tuple[str, int], first: int, places: list[int]) -> Place:
        state, chunks = self._ranks[rank], self._shape.chunks
        names = []
        for i, own in enumerate(places):
            buffer, index = place[0], place[1] + first + i
            cell = self._shape.cell(rank, buffer, index)
            of_input, of_output = self._shape.names(rank, cell) if buffer != "s" else (-1, -1)
            state.written.add(cell)
            if of_output >= 0:
                names.append(("output", of_output, of_output % chunks))
                continue
            # Input that is overwritten and is no output lives on in scratch.
            state.places[cell] = own
            slot = index if buffer == "s" else self._shadow(rank, of_input)
            names.append(("scratch", slot, own))
        return self._join(names)

    def _shadow(self, rank: int, index: int) -> int:
        return self._algorithm.gpus[rank].scratch + index

    def _join(self, names: list[Place]) -> Place:
        buffer, index, place = names[0]
        chunks = self._shape.chunks
        for i, name in enumerate(names):
            if name != (buffer, index + i, (place + i) % chunks):
                raise _MixedError
        return names[0]

    # The end --------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        for rank, blocks in enumerate(self._blocks):
            for number, block in enumerate(blocks):
                if self._done[rank][number] < len(block.steps):
                    raise MisuseError("\n".join(self._wait_chain(rank, number)))

    def _wait_chain(self, rank: int, number: int) -> Iterator[str]:
        """Who waits for whom, until a cycle closes or the chain ends."""
        yield "deadlock:"
        seen: set[tuple[int, int]] = set()
        while (rank, number) not in seen:
            seen.add((rank, number))
            block = self._blocks[rank][number]
            position = self._done[rank][number]
            if position == len(block.steps):
                yield f"  rank {rank}, thread block {number} has ended"
                return
            step = block.steps[position]
            here = f"  line {step.line}: rank {rank}, thread block {number}, step {position} "
            if step.after is not None and self._done[rank][step.after[0]] <= step.after[1]:
                yield f"{here}waits for step {step.after[1]} of thread block {step.after[0]}"
                number = step.after[0]
                continue
            yield f"{here}waits for a message of rank {block.recv} on channel {block.channel}"
            senders = [
                i
                for i, other in enumerate(self._blocks[block.recv])
                if other.send == rank and other.channel == block.channel
            ]
            if not senders:
                yield f"  rank {block.recv} sends nothing to rank {rank} on that channel"
                return
            rank, number = block.recv, senders[0]


def _wrong(line: int, what: str) -> MisuseError:
    return MisuseError(f"line {line}: {what}")
