"""The interactive page of a plan: one HTML file that needs nothing else.

Space and time with the contents of chunks, the way of each chunk, and the traffic from rank to
rank. The pictures are those that the SVG files have; the page adds what happens under the pointer
and the keys.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from unisono.draw.chunks import draw_family, step_channels
from unisono.draw.contents import Contents, follow
from unisono.draw.look import PALETTE
from unisono.draw.space_time import draw_plan
from unisono.draw.svg import STYLE
from unisono.draw.traffic import draw_traffic
from unisono.errors import MisuseError
from unisono.plans import Plan, Schedule

__all__ = ["draw_page"]

MOST_STEPS = 20_000
# Ways of more chunks are left out: a page of them would be slow to load, and nobody looks at all.
_MOST_CHUNKS = 64


def draw_page(
    plan: Plan,
    node_of_rank: Sequence[int] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """The page, as HTML.

    Args:
        plan: The plan, of at most 20,000 steps.
        node_of_rank: To label ranks with their nodes.
        on_progress: Called with what is done of how much, after each step that is followed, each
            that is described, and each chunk that is drawn.

    Raises:
        MisuseError: The plan has more steps than a browser can show, or does not end.
    """
    schedule = plan.schedule()
    if len(schedule.steps) > MOST_STEPS:
        raise MisuseError(
            f"{plan.name} on {plan.ranks} ranks has {len(schedule.steps):,} steps; a page shows at "
            f"most {MOST_STEPS:,}. Draw it for fewer ranks"
        )
    progress = _Progress(2 * len(schedule.steps) + _MOST_CHUNKS, on_progress)
    contents = follow(plan, schedule, progress.advance)
    data = _data(plan, schedule, contents, progress)
    progress.finish()
    parts = {
        "title": escape(f"{plan.name} on {plan.ranks} ranks"),
        "summary": escape(
            f"{plan.collective}, {plan.protocol}, {plan.channels} channel"
            f"{'s' if plan.channels > 1 else ''}{', in place' if plan.in_place else ''}: "
            f"{len(schedule.steps):,} steps, {len(schedule.messages):,} messages, "
            f"ends at time {schedule.duration}"
        ),
        "svg_style": STYLE,
        "space_time": draw_plan(plan, node_of_rank, standalone=False),
        "traffic": draw_traffic(plan, standalone=False),
        # In a script, a text must not end it.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _template())


class _Progress:
    """Counts what is done."""

    def __init__(self, total: int, on_progress: Callable[[int, int], None]) -> None:
        self._done, self._total, self._on_progress = 0, total, on_progress

    def advance(self) -> None:
        self._done += 1
        self._on_progress(self._done, self._total)

    def finish(self) -> None:
        """What was not needed counts as done."""
        self._on_progress(self._total, self._total)


def _data(
    plan: Plan, schedule: Schedule, contents: Contents, progress: _Progress
) -> dict[str, Any]:
    into = {message.receiver: i for i, message in enumerate(schedule.messages)}
    out = {message.sender: i for i, message in enumerate(schedule.messages)}
    channels = step_channels(plan)
    words: dict[str, int] = {}

    def names(values: Sequence[int]) -> list[int]:
        texts = (contents.words(number) for number in values)
        return [words.setdefault(text, len(words)) for text in texts]

    steps = []
    for index, (step, channel) in enumerate(zip(schedule.steps, channels, strict=True)):
        received, sent = into.get(index, -1), out.get(index, -1)
        steps.append([
            step.rank,
            step.thread_block,
            step.number,
            channel,
            step.start,
            step.end,
            step.text,
            names(contents.sent[received]) if received >= 0 else [],
            names(contents.stored[index]),
            names(contents.sent[sent]) if sent >= 0 else [],
            received,
            sent,
        ])  # fmt: skip
        progress.advance()
    channel_of_message = [channels[message.sender] for message in schedule.messages]
    chunks = []
    for family in contents.families()[:_MOST_CHUNKS]:
        drawn = draw_family(plan.name, contents, family, channel_of_message, standalone=False)
        chunks.append([contents.largest(family), drawn])
        progress.advance()
    return {
        "steps": steps,
        "messages": [
            [message.sender, message.receiver, channel]
            for message, channel in zip(schedule.messages, channel_of_message, strict=True)
        ],
        "chunks": chunks,
        "values": list(words),
        "colours": PALETTE,
    }


@cache
def _template() -> str:
    return resources.files("unisono.draw").joinpath("page.html").read_text(encoding="utf-8")
