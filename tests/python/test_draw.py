"""Drawings and charts: well-formed, complete, and true to what they show."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import pytest
import unisono
from unisono import plans
from unisono.draw import draw_plan
from unisono.draw.chart import Axis, Series, draw_chart
from unisono.draw.svg import STYLE, Svg

SVG = "{http://www.w3.org/2000/svg}"


def parts(svg: str, tag: str, of_class: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [one for one in root.iter(SVG + tag) if one.get("class") == of_class]


@pytest.mark.parametrize(
    ("name", "ranks", "nodes"),
    [
        ("ring_all_reduce", 4, 1),
        ("tree_all_reduce", 8, 2),
        ("pat_all_gather", 7, 1),
        ("hierarchical_ring_all_gather", 16, 3),
        ("direct_all_to_all", 16, 1),
        ("dissemination_barrier", 5, 1),
    ],
)
def test_every_step_is_a_bar_and_every_message_an_arrow(name: str, ranks: int, nodes: int) -> None:
    plan = plans.find_algorithm(name).plan(plans.Placement(ranks, nodes))
    schedule = plan.schedule()
    svg = draw_plan(plan)
    bars, arrows = parts(svg, "rect", "bar"), parts(svg, "line", "arrow")
    assert len(bars) == len(schedule.steps)
    assert len(arrows) == len(schedule.messages)
    titles = [bar[0].text or "" for bar in bars]
    assert all(step.text in title for step, title in zip(schedule.steps, titles, strict=True))


def test_arrows_go_forward_in_time_and_stay_inside() -> None:
    plan = plans.find_algorithm("rabenseifner_all_reduce").plan(plans.Placement(6))
    svg = draw_plan(plan)
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for arrow in parts(svg, "line", "arrow"):
        x1, y1, x2, y2 = (float(arrow.get(key, "nan")) for key in ("x1", "y1", "x2", "y2"))
        assert 0 < x1 < x2 < width
        assert 0 < min(y1, y2) <= max(y1, y2) < height


def test_the_legend_names_what_occurs_and_nothing_else() -> None:
    plan = plans.find_algorithm("ring_all_gather").plan(plans.Placement(4))
    texts = {one.text for one in ElementTree.fromstring(draw_plan(plan)).iter(SVG + "text")}
    used = {step.operation for step in plan.schedule().steps}
    assert used <= texts
    assert not texts & ({"recv_reduce_send", "read_reduce", "put"} - used)


def test_nodes_are_named_when_given() -> None:
    plan = plans.find_algorithm("ring_all_gather").plan(plans.Placement(4, 2))
    assert "rank 3 (node 1)" in draw_plan(plan, [0, 0, 1, 1])
    assert "(node" not in draw_plan(plan)


def test_a_plan_that_waits_for_itself_is_not_drawn() -> None:
    text = plans.find_algorithm("ring_all_gather").plan(plans.Placement(2)).to_text()
    assert "send" in text
    stuck = "\n".join(line for line in text.splitlines() if " send " not in f" {line.strip()} ")
    with pytest.raises(unisono.MisuseError):
        draw_plan(plans.Plan.from_text(stuck))


def test_inside_a_page_the_style_sheet_is_the_page_s() -> None:
    plan = plans.find_algorithm("ring_all_gather").plan(plans.Placement(3))
    inside = draw_plan(plan, standalone=False)
    assert STYLE not in inside
    assert "http" not in inside
    assert STYLE in draw_plan(plan)


def test_text_in_a_picture_is_escaped() -> None:
    svg = Svg(10, 10, "<&>")
    svg.label(1, 1, "a < b & c", class_='"x"')
    svg.rect(0, 0, 1, 1, "<hover>")
    root = ElementTree.fromstring(svg.text())
    assert root.findtext(f"{SVG}text") == "a < b & c"
    assert root.findtext(f".//{SVG}title") == "<hover>"


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_chart_s_points_keep_their_order(logarithmic: bool) -> None:
    series = Series("one", [(2.0**i, 0.001 * 3.0**i) for i in range(12)])
    svg = draw_chart("chart", Axis("x", logarithmic, base=2), Axis("y", logarithmic), [series])
    (line,) = parts(svg, "polyline", "line")
    places = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    assert all(b[0] > a[0] for a, b in itertools.pairwise(places))
    assert all(b[1] <= a[1] for a, b in itertools.pairwise(places))
    if logarithmic:
        steps = [b[1] - a[1] for a, b in itertools.pairwise(places)]
        assert all(math.isclose(step, steps[0], abs_tol=0.25) for step in steps)


def test_charts_of_a_single_value_and_of_a_constant_can_be_drawn() -> None:
    for points in ([(8.0, 1.0)], [(1.0, 5.0), (2.0, 5.0)], [(1.0, 0.0), (2.0, 0.0)]):
        ElementTree.fromstring(draw_chart("c", Axis("x"), Axis("y"), [Series("s", points)]))
    one = [Series("s", [(8.0, 1.0)])]
    ElementTree.fromstring(draw_chart("c", Axis("x", True, base=2), Axis("y", True), one))
