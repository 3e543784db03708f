"""A plan becomes MSCCL's XML, for an executor whose limits it keeps."""

from itertools import pairwise
from xml.sax.saxutils import quoteattr

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.exchange.divide import divide_steps
from unisono.exchange.ends import Line, last_chunk, name_both_ends
from unisono.exchange.schema import COLLECTIVES, OPERATIONS, PROTOCOLS

__all__ = ["collective_for", "write_msccl_xml"]

_BUFFERS = {"input": "i", "output": "o", "scratch": "s"}
_KINDS = {name: kind for kind, name in OPERATIONS.items()}
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def write_msccl_xml(plan: native.Plan, executor: native.ForeignExecutor) -> str:
    """The XML of a plan.

    Steps of more chunks than the executor moves at once become several. A step of the format waits
    for one other at most: more of them become steps that only wait.
    copy_send becomes cpy and s. Reductions `re` that follow each other into one chunk are made one
    by the executor, up to 16.

    Args:
        plan: The plan.
        executor: Who is to run it.

    Raises:
        MisuseError: The executor cannot carry it; rank, thread block and value are in the text.
    """
    collective = collective_for(plan, executor)
    if plan.collective in _ROOTED and plan.root != 0:
        raise MisuseError(
            f"plan {plan.name} has root {plan.root}; MSCCL's XML names no root and means rank 0: "
            "compile it with root 0, or number the ranks so that the root is rank 0"
        )
    plan = divide_steps(plan, executor.max_step_count)
    executor.check(plan)
    _check_plan(plan, executor)
    chunks = plan.chunks_per_block
    ranks = range(plan.ranks)
    protocol = {name: key for key, name in PROTOCOLS.items()}[plan.protocol]
    lines = [
        f"<algo name={quoteattr(plan.name)} proto={quoteattr(protocol)} "
        f'nchannels="{plan.channels}" nchunksperloop="{_chunks(plan)}" ngpus="{plan.ranks}" '
        f'coll="{collective}" inplace="{int(plan.in_place)}" outofplace="{int(not plan.in_place)}" '
        f"{_sizes(plan, executor)}>"
    ]
    every = [plan.thread_blocks(rank) for rank in ranks]
    files = [_blocks(blocks, executor) for blocks in every]
    name_both_ends(every, files)
    most = {
        "i": max(plan.input_blocks(rank) for rank in ranks) * chunks,
        "o": max(plan.output_blocks(rank) for rank in ranks) * chunks,
        "s": max(plan.scratch_blocks(rank) for rank in ranks) * chunks,
    }
    for rank, blocks, written in zip(ranks, every, files, strict=True):
        _check(plan, executor, rank, blocks, written)
        own = {
            "i": plan.input_blocks(rank) * chunks,
            "o": plan.output_blocks(rank) * chunks,
            "s": plan.scratch_blocks(rank) * chunks,
        }
        # Loaders hold a peer's places against what the rank has itself.
        counts = {
            buffer: most[buffer] if last_chunk(written, buffer) >= count else count
            for buffer, count in own.items()
        }
        lines.append(
            f'  <gpu id="{rank}" i_chunks="{counts["i"]}" o_chunks="{counts["o"]}" '
            f's_chunks="{counts["s"]}">'
        )
        for number, (block, steps) in enumerate(zip(blocks, written, strict=True)):
            lines.append(
                f'    <tb id="{number}" send="{block.send_peer}" recv="{block.recv_peer}" '
                f'chan="{block.channel}">'
            )
            lines += [_text(i, step) for i, step in enumerate(steps)]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    lines.append("</algo>")
    return "\n".join(lines) + "\n"


def collective_for(plan: native.Plan, executor: native.ForeignExecutor) -> str:
    """What an executor calls the plan's collective; MisuseError if it has none."""
    for name in executor.collectives:
        if COLLECTIVES[name] == plan.collective:
            return name
    raise MisuseError(
        f"plan {plan.name} is of {plan.collective}, which {executor.name} does not know; it "
        f"knows {', '.join(executor.collectives)}"
    )


def _chunks(plan: native.Plan) -> int:
    """Chunks of what runtimes call a call's size: all blocks, or one for gather and scatter."""
    if plan.collective in ("gather", "scatter"):
        return plan.chunks_per_block
    ranks = range(plan.ranks)
    most = max(max(plan.input_blocks(rank), plan.output_blocks(rank)) for rank in ranks)
    return most * plan.chunks_per_block


def _sizes(plan: native.Plan, executor: native.ForeignExecutor) -> str:
    """The sizes that the plan serves. Where 0 doesn't mean all of them, nothing does."""
    least = f'minBytes="{plan.min_bytes}"'
    if plan.max_bytes == 0 and executor.default_max_bytes:
        return least
    return f'{least} maxBytes="{plan.max_bytes}"'


def _check_plan(plan: native.Plan, executor: native.ForeignExecutor) -> None:
    if executor.max_ranks and plan.ranks > executor.max_ranks:
        raise MisuseError(
            f"plan {plan.name} has {plan.ranks} ranks; {executor.name} reads at most "
            f"{executor.max_ranks}"
        )
    if plan.max_bytes == 0 and plan.min_bytes > executor.default_max_bytes > 0:
        raise MisuseError(
            f"plan {plan.name} serves {plan.min_bytes} bytes and more; {executor.name} takes a "
            f"file that names no greatest size up to {executor.default_max_bytes}: name one"
        )
    if executor.custom_blocks_equal and plan.collective == "custom":
        for rank in range(plan.ranks):
            inputs, outputs = plan.input_blocks(rank), plan.output_blocks(rank)
            if inputs != outputs:
                raise MisuseError(
                    f"plan {plan.name}, rank {rank}: {inputs} blocks of input and {outputs} of "
                    f"output; {executor.name} runs custom programs that have as many"
                )


def _text(number: int, step: Line) -> str:
    block, position = step.after or (-1, -1)
    return (
        f'      <step s="{number}" type="{step.kind}" srcbuf="{step.source[0]}" '
        f'srcoff="{step.source[1]}" dstbuf="{step.target[0]}" dstoff="{step.target[1]}" '
        f'cnt="{step.count}" depid="{block}" deps="{position}" hasdep="{int(step.awaited)}"/>'
    )


def _blocks(blocks: list[native.ThreadBlock], executor: native.ForeignExecutor) -> list[list[Line]]:
    """A rank's steps as they stand in the file, waits by their numbers there."""
    every = [step for block in blocks for step in block.steps]
    awaited = {(other, steps - 1) for step in every for other, steps in step.after}
    written: list[list[Line]] = []
    last: list[list[int]] = []  # by thread block and step of the plan: its last in the file
    for number, block in enumerate(blocks):
        lines: list[Line] = []
        ends: list[int] = []
        while len(ends) < len(block.steps):
            row = _row(block.steps, len(ends), {i for other, i in awaited if other == number})
            row = row[: executor.max_fused_reductions]
            # All that a row of reductions waits for, before the first: only so are they joined.
            waits: dict[int, int] = {}
            for step in row:
                for other, steps in step.after:
                    waits[other] = max(waits.get(other, 0), steps)
            for i, step in enumerate(row):
                lines += _lines(step, [] if i else [one for one in waits.items() if one[1] > 0])
                ends.append(len(lines) - 1)
        written.append(lines)
        last.append(ends)
    for lines in written:
        for line in lines:
            if line.after is not None:
                other, steps = line.after
                line.after = (other, last[other][steps - 1])
                written[other][line.after[1]].awaited = True
    for lines in written:
        _keep_apart(lines, executor.max_fused_reductions)
    return written


def _row(steps: list[native.Step], first: int, awaited: set[int]) -> list[native.Step]:
    """Steps from one on that executors make one: reductions into one place, of which only the last
    is waited for."""
    row = [steps[first]]
    for step in steps[first + 1 :]:
        before = row[-1]
        if not (
            before.operation == step.operation == "reduce"
            and before.number not in awaited
            and before.count == step.count
            and _place(before.source)[0] == _place(step.source)[0]
            and _place(before.destination) == _place(step.destination)
        ):
            break
        row.append(step)
    return row


def _place(location: native.Location | None) -> tuple[str, int]:
    return (_BUFFERS[location.buffer], location.chunk) if location is not None else ("i", -1)


def _lines(step: native.Step, waits: list[tuple[int, int]]) -> list[Line]:
    nothing = _place(None)
    source, target = _place(step.source), _place(step.destination)
    # Executors look at both; where a step has one place, it stands for the other until the peer's
    # is known.
    if step.source is None:
        source = target
    if step.destination is None:
        target = source
    lines = [Line("nop", nothing, nothing, 0, wait) for wait in waits[:-1]]
    after = waits[-1] if waits else None
    if step.operation == "copy_send":
        return [
            *lines,
            Line("cpy", source, target, step.count, after),
            Line("s", target, target, step.count, None),
        ]
    return [*lines, Line(_KINDS[step.operation], source, target, step.count, after)]


def _keep_apart(lines: list[Line], most: int) -> None:
    """Executors join reductions into one place without looking at their counts, and keep their
    bound for the first of a thread block alone: one that is marked as waited for ends such a row.
    """
    joined = 1
    for line, following in pairwise(lines):
        if line.awaited or following.after is not None or not _are_joined(line, following):
            joined = 1
        elif line.count != following.count or joined == most:
            line.awaited = True
            joined = 1
        else:
            joined += 1


def _are_joined(line: Line, following: Line) -> bool:
    return (
        line.kind == following.kind == "re"
        and line.target == following.target
        and line.source[0] == following.source[0]
    )


def _check(
    plan: native.Plan,
    executor: native.ForeignExecutor,
    rank: int,
    blocks: list[native.ThreadBlock],
    written: list[list[Line]],
) -> None:
    def wrong(what: str) -> MisuseError:
        return MisuseError(f"plan {plan.name}, rank {rank}: {what}")

    for number, lines in enumerate(written):
        if len(lines) > executor.max_steps:
            raise wrong(
                f"thread block {number} has {len(lines)} steps in the file; {executor.name} runs "
                f"at most {executor.max_steps}. More channels or instances divide them"
            )
        last = max((line.target[1] for line in lines), default=0)
        last = max([last, *(line.source[1] for line in lines)])
        if executor.last_chunk and last > executor.last_chunk:
            raise wrong(
                f"thread block {number} names chunk {last}; {executor.name} knows 0 to "
                f"{executor.last_chunk}"
            )
        awaited = [line.after[0] for line in lines if line.after is not None]
        if awaited and max(awaited) > executor.last_awaited_block:
            raise wrong(
                f"thread block {number} waits for thread block {max(awaited)}; in {executor.name} "
                f"only 0 to {executor.last_awaited_block} can be waited for"
            )
    channels = [block.channel for block in blocks]
    for channel in sorted(set(channels)):
        if channels.count(channel) > executor.max_blocks_per_channel:
            raise wrong(
                f"channel {channel} has {channels.count(channel)} thread blocks; {executor.name} "
                f"has at most {executor.max_blocks_per_channel}"
            )
    # The executor keeps the algorithm, every rank's element, and this one's parts.
    nodes = 1 + plan.ranks + len(blocks) + sum(map(len, written))
    if executor.max_nodes and nodes > executor.max_nodes:
        raise wrong(
            f"{nodes} XML elements; {executor.name} keeps at most {executor.max_nodes} of a rank"
        )
