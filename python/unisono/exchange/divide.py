"""A plan with steps of many chunks becomes one whose steps have no more than an executor takes."""

import json
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError

__all__ = ["divide_steps"]


def divide_steps(plan: native.Plan, most: int) -> native.Plan:
    """The plan itself, or one that does the same in steps of at most so many chunks.

    A step of n chunks becomes ceil(n / most) steps of nearly equal size, at both ends of a message
    alike. Loops are written out. More messages are under way then: the plan is verified anew.

    Args:
        plan: The plan.
        most: Chunks of a step.

    Raises:
        MisuseError: Divided, the plan would not be right with two slots in a connection.
    """
    ranks = range(plan.ranks)
    if all(
        step.count <= most
        for rank in ranks
        for block in plan.thread_blocks(rank)
        for step in block.steps
    ):
        return plan
    whole: dict[str, Any] = json.loads(plan.to_json())
    for rank in ranks:
        blocks = plan.thread_blocks(rank)
        ends = [_ends(block, most) for block in blocks]
        for number, block in enumerate(blocks):
            whole["programs"][rank]["thread_blocks"][number]["body"] = [
                part for step in block.steps for part in _parts(step, ends, most)
            ]
    divided = native.Plan.from_json(json.dumps(whole))
    if plan.collective != "custom" and not (report := divided.verify(slots=2)).ok:
        raise MisuseError(
            f"plan {plan.name} has steps of more than {most} chunks, and is not right when they "
            f"are divided:\n{report.failures[0].describe()}"
        )
    return divided


def _count_of_parts(step: native.Step, most: int) -> int:
    return max(1, -(-step.count // most))


def _ends(block: native.ThreadBlock, most: int) -> list[int]:
    """How many steps the first n of a thread block become."""
    ends = [0]
    for step in block.steps:
        ends.append(ends[-1] + _count_of_parts(step, most))
    return ends


def _parts(step: native.Step, ends: list[list[int]], most: int) -> list[dict[str, Any]]:
    parts = _count_of_parts(step, most)
    out = []
    for i in range(parts):
        first = step.count * i // parts
        part: dict[str, Any] = {"operation": step.operation}
        for key, location in (("source", step.source), ("destination", step.destination)):
            if location is not None:
                part[key] = {"buffer": location.buffer, "index": location.chunk + first}
        count = step.count * (i + 1) // parts - first
        if count > 1:
            part["count"] = count
        if i == 0 and step.after:
            part["after"] = [
                {"thread_block": other, "steps": ends[other][steps]} for other, steps in step.after
            ]
        out.append(part)
    return out
