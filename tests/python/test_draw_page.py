"""The interactive page, in a real browser; the other pictures; what notebooks show."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from python.browser import in_browser
from typer.testing import CliRunner
from unisono import lang, plans
from unisono.cli.app import app
from unisono.draw import draw_chunks, draw_page, draw_traffic, traffic
from unisono.draw.contents import follow, in_words
from unisono.errors import MisuseError

LIBRARY = Path(__file__).parents[2] / "examples" / "language"
SVG = "{http://www.w3.org/2000/svg}"

# Does what a person does, and writes down what the page shows.
DRIVER = Path(__file__).with_name("page_driver.js").read_text(encoding="utf-8")


def ring(ranks: int = 4) -> plans.Plan:
    return plans.find_algorithm("ring_all_reduce").plan(plans.Placement(ranks))


def drive(page: str, folder: Path, width: int, height: int) -> dict[str, object]:
    """What the driver saw in a window of this size."""
    return in_browser(page, DRIVER, folder, width, height)


def test_the_page_works_in_a_browser_by_keys_and_by_pointer(tmp_path: Path) -> None:
    plan = ring()
    schedule = plan.schedule()
    seen = drive(draw_page(plan), tmp_path, 1280, 900)
    assert (seen["bars"], seen["arrows"]) == (len(schedule.steps), len(schedule.messages))
    assert (seen["narrow"], seen["beside"], seen["overflow"]) == (False, True, 0)
    assert seen["first"] == seen["above"] == "rank 0, thread block 0, step 0"
    assert seen["does"] == schedule.steps[0].text
    assert seen["second"] == "rank 0, thread block 0, step 1"
    assert seen["last"] == "rank 0, thread block 0, step 6"
    assert seen["below"] == "rank 1, thread block 0, step 0"
    message = next(one for one in schedule.messages if one.sender == 0)
    receiver = schedule.steps[message.receiver]
    assert seen["along"] == (
        f"rank {receiver.rank}, thread block {receiver.thread_block}, step {receiver.number}"
    )
    assert re.fullmatch(r"input\[\d\] of rank 0", str(seen["received"]))
    assert seen["back"] == "rank 0, thread block 0, step 0"
    assert seen["lit"] == 3  # the message and both its ends
    assert (seen["after"], seen["dimmed"]) == ("Steps", False)
    assert seen["hovered"] == "rank 0, thread block 0, step 3"
    assert seen["larger"] == pytest.approx(1.25)
    assert seen["hidden"] == len(schedule.messages)
    assert seen["tab"] == "tab-chunk"
    assert seen["dots"] == 4 + 3 + 3
    assert "input[1] of ranks 0-3" in str(seen["chunk"])
    assert (seen["cells"], seen["visible"]) == (4, 1)


def test_in_a_narrow_window_nothing_hangs_over(tmp_path: Path) -> None:
    plan = plans.find_algorithm("hierarchical_ring_all_gather").plan(plans.Placement(16, 2))
    seen = drive(draw_page(plan, [rank // 8 for rank in range(16)]), tmp_path, 500, 800)
    assert (seen["narrow"], seen["beside"], seen["overflow"]) == (True, False, 0)


@pytest.mark.parametrize("entry", plans.algorithms(), ids=lambda entry: entry.plan_name)
def test_the_last_values_are_what_the_collective_promises(entry: plans.Algorithm) -> None:
    placement = plans.Placement(4, 2)
    if entry.why_not(placement) or entry.collective in ("all_to_all_v", "point_to_point"):
        pytest.skip(entry.why_not(placement) or "blocks of several sizes")
    plan = entry.plan(placement)
    schedule = plan.schedule()
    contents = follow(plan, schedule)
    if entry.collective == "barrier":
        return
    # The output, as the last step that stores to each of its chunks left it.
    holds: dict[tuple[int, int], tuple[int, frozenset[tuple[int, int]]]] = {}
    steps = [
        step for rank in range(4) for block in plan.thread_blocks(rank) for step in block.steps
    ]
    for timed, step, stored in zip(schedule.steps, steps, contents.stored, strict=True):
        if step.destination is None or step.destination.buffer != "output":
            continue
        for i, number in enumerate(stored):
            place = (timed.rank, step.destination.chunk + i)
            if holds.get(place, (-1, 0))[0] <= timed.end:
                holds[place] = (timed.end, contents.values[number].of)
    chunks = plan.chunks_per_block
    for rank in range(4):
        for chunk in range(plan.output_blocks(rank) * chunks):
            block, part = divmod(chunk, chunks)
            wanted = {
                "all_reduce": {(other, chunk) for other in range(4)},
                "reduce": {(other, chunk) for other in range(4)},
                "reduce_scatter": {(other, rank * chunks + chunk) for other in range(4)},
                "all_gather": {(block, part)},
                "gather": {(block, part)},
                "broadcast": {(0, chunk)},
                "scatter": {(0, rank * chunks + chunk)},
                "all_to_all": {(block, rank * chunks + part)},
            }[entry.collective]
            if entry.collective in ("reduce", "gather") and rank != 0:
                continue
            assert holds[rank, chunk][1] == wanted, (rank, chunk)


def test_one_chunk_s_way_holds_every_rank_and_every_message() -> None:
    plan = lang.load(LIBRARY / "ring_all_reduce.py")[0].compile(5).plan
    root = ElementTree.fromstring(draw_chunks(plan, 2))
    dots = [one for one in root.iter(f"{SVG}circle") if one.get("class") == "dot"]
    # Each rank's own, four sums, four copies of the last one.
    assert len(dots) == 5 + 4 + 4
    texts = [dot[0].text or "" for dot in dots]
    assert sum("input[2] of ranks 0-4" in text for text in texts) == 5
    with pytest.raises(MisuseError, match="chunk is 5; .* moves 5, numbered from 0"):
        draw_chunks(plan, 5)


def test_the_traffic_matrix_counts_what_messages_carry() -> None:
    plan = ring()
    sent = traffic(plan)
    assert set(sent) == {(rank, (rank + 1) % 4) for rank in range(4)}
    assert set(sent.values()) == {(6, 6)}
    root = ElementTree.fromstring(draw_traffic(plan))
    hovers = [one[0].text for one in root.iter(f"{SVG}rect") if one.get("class") == "bar"]
    assert "rank 3 to rank 0: 1.5 blocks (6 chunks) in 6 messages" in hovers


def test_values_are_named_for_people() -> None:
    assert in_words(frozenset({(0, 1), (1, 1), (2, 1), (5, 1)})) == "input[1] of ranks 0-2, 5"
    assert in_words(frozenset({(3, 0)})) == "input[0] of rank 3"
    assert in_words(frozenset()) == "nothing"


def test_notebooks_show_plans_and_programs() -> None:
    assert "space-time drawing of ring_all_reduce" in ring()._repr_html_()
    assert "960 steps" not in ring()._repr_html_()
    assert "<svg" not in ring(64)._repr_html_()
    assert "steps" in ring(64)._repr_html_()
    program = lang.load(LIBRARY / "hierarchical_all_reduce.py")[0]
    assert "<svg" in program._repr_html_()

    @lang.program("all_reduce")
    def nothing(p: lang.Build) -> None:
        pass

    assert nothing._repr_html_().startswith("<pre>")


def test_a_page_that_no_browser_could_show_is_refused() -> None:
    with pytest.raises(MisuseError, match="a page shows at most 20,000"):
        draw_page(ring(128))


def test_the_command_writes_all_pictures(tmp_path: Path) -> None:
    for name, options in (
        ("plan.html", []),
        ("chunk.svg", ["--view", "chunk", "--chunk", "1"]),
        ("traffic.svg", ["--view", "traffic"]),
    ):
        arguments = ["plan", "draw", "ring_all_reduce", "-n", "3", "-o", str(tmp_path / name)]
        done = CliRunner().invoke(app, [*arguments, *options])
        assert done.exit_code == 0, done.output
        assert "ring_all_reduce" in (tmp_path / name).read_text(encoding="utf-8")
