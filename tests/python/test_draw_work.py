"""What drawing a page costs, counted: a copy of all steps for each message made it quadratic."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner
from unisono import plans
from unisono.cli import plan as plan_command
from unisono.cli.app import app
from unisono.draw import contents, draw_page
from unisono.draw.contents import Contents, follow
from unisono.draw.page import _MOST_CHUNKS
from unisono.draw.svg import Svg


def ring(ranks: int) -> plans.Plan:
    return plans.find_algorithm("ring_all_reduce").plan(plans.Placement(ranks))


class Counted:
    """An object that counts which of its attributes are asked for."""

    def __init__(self, of: Any, asked: Counter[str]) -> None:
        self._of, self._asked = of, asked

    def __getattr__(self, name: str) -> Any:
        self._asked[name] += 1
        if name == "schedule":
            return lambda: Counted(self._of.schedule(), self._asked)
        return getattr(self._of, name)


def asked_of(plan: plans.Plan) -> Counter[str]:
    """What a page asks of its plan and of the schedule."""
    asked: Counter[str] = Counter()
    draw_page(cast("plans.Plan", Counted(plan, asked)))
    return asked


def work_of(plan: plans.Plan, monkeypatch: pytest.MonkeyPatch) -> int:
    """What is worded, made and drawn for a page."""
    done = 0

    def counted(inner: Callable[..., Any]) -> Callable[..., Any]:
        def count(*values: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            return inner(*values, **named)

        return count

    with monkeypatch.context() as patch:
        for kind, name in ((Contents, "words"), (Svg, "element"), (contents._Follower, "_make")):
            patch.setattr(kind, name, counted(getattr(kind, name)))
        draw_page(plan)
    return done


def test_a_schedule_s_lists_are_made_once() -> None:
    schedule = ring(4).schedule()
    assert schedule.steps is schedule.steps
    assert schedule.messages is schedule.messages


def test_all_steps_are_asked_for_as_often_whatever_their_number() -> None:
    few, many = asked_of(ring(4)), asked_of(ring(12))
    assert few["steps"] == many["steps"]
    assert few["messages"] == many["messages"]
    # A rank's steps, for each picture and list.
    assert few["thread_blocks"] / 4 == many["thread_blocks"] / 12


def test_the_work_grows_as_the_steps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = ring(6), ring(24)
    for_each = [work_of(plan, monkeypatch) / len(plan.schedule().steps) for plan in (few, many)]
    assert for_each[0] > 5
    assert for_each[1] < 1.1 * for_each[0]


def test_equal_values_are_worded_once() -> None:
    plan = ring(8)
    made = follow(plan, plan.schedule())
    whole = [n for n, value in enumerate(made.values) if len(value.of) == 8]
    # Each of 8 sums, on each rank.
    assert len(whole) == 64
    assert len({id(made.words(number)) for number in whole}) == 8


def test_progress_counts_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    plan = ring(5)
    draw_page(plan, on_progress=lambda done, total: seen.append((done, total)))
    total = 2 * len(plan.schedule().steps) + _MOST_CHUNKS
    assert {of for _, of in seen} == {total}
    done = [one for one, _ in seen]
    assert done == sorted(done)
    # All steps twice and a chunk for each rank, then what was not needed.
    assert done[-2:] == [total - _MOST_CHUNKS + 5, total]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    said = io.StringIO()
    console = Console(file=said, force_terminal=is_terminal, width=100)
    monkeypatch.setattr(plan_command, "progress_console", lambda: console)
    page = str(tmp_path / "plan.html")
    done = CliRunner().invoke(app, ["plan", "draw", "ring_all_reduce", "-n", "3", "-o", page])
    assert done.exit_code == 0, done.output
    assert ("drawing" in said.getvalue()) == is_terminal
