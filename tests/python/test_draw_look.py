"""Colours, marks and numbers of charts."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest
from unisono import plans
from unisono.bench.peers import OURS, PEERS
from unisono.draw.chart import NARROW, WIDE, Axis, Bar, Series, draw_bars, draw_chart, spread
from unisono.draw.look import MARKS, PALETTE, look_of
from unisono.draw.numbers import gb_s, plain, time_us

SVG = "{http://www.w3.org/2000/svg}"


def test_algorithms_of_a_collective_have_colours_of_their_own() -> None:
    by_collective: dict[str, list[str]] = {}
    for entry in plans.algorithms():
        by_collective.setdefault(entry.collective, []).append(entry.name)
    for names in by_collective.values():
        assert len({look_of(name).colour for name in names}) == len(names)


def test_no_two_names_look_the_same() -> None:
    entries = plans.algorithms()
    names = {entry.name for entry in entries} | {entry.collective for entry in entries}
    names |= {OURS, *PEERS, "nccl", "measured"}
    assert len({look_of(name) for name in names}) == len(names)


def test_a_name_looks_the_same_whatever_stands_beside_it() -> None:
    def colour(series: list[Series]) -> set[str | None]:
        root = ElementTree.fromstring(draw_chart("c", Axis("x"), Axis("y"), series))
        return {line.get("stroke") for line in root.iter(f"{SVG}polyline")}

    points = [(1.0, 1.0), (2.0, 3.0)]
    assert colour([Series("tree ll", points, of="tree", dash=1)]) == {look_of("tree").colour}
    assert look_of("tree").colour in colour([Series("ring", points), Series("tree", points)])
    unforeseen = look_of("my own algorithm")
    assert unforeseen == look_of("my own algorithm")
    assert unforeseen.colour in PALETTE
    assert unforeseen.mark in MARKS


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (plain(1e-6), "0.000001"), (plain(0.0), "0"), (plain(123456.0), "123,456"),
        (plain(0.1 + 0.2), "0.3"), (plain(-2.5), "-2.5"),
        (time_us(0.0035), "3.5 ns"), (time_us(12.34), "12.3 µs"), (time_us(8_723_608), "8.72 s"),
        (time_us(1000.0), "1 ms"), (time_us(0.0), "0 µs"), (time_us(5e-7), "0.5 ps"),
        (gb_s(1e-6), "1 KB/s"), (gb_s(0.25), "250 MB/s"), (gb_s(450.0), "450 GB/s"),
        (gb_s(5e-10), "0.5 B/s"),
    ],
)  # fmt: skip
def test_numbers_have_units_and_no_exponent(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_ticks_have_no_exponent_and_all_text_is_inside(width: int) -> None:
    series = [
        Series(name, [(2.0**i, 10.0 ** (i / 4 - 6)) for i in range(30)])
        for name in ("ring", "hierarchical_recursive_direct simple", "tree")
    ]
    title = "all_reduce: bus bandwidth with the best protocol"
    chart = draw_chart(title, Axis("size", True), Axis("speed", True), series, width=width)
    texts = list(ElementTree.fromstring(chart).iter(f"{SVG}text"))
    assert not any(re.search(r"\de[+-]?\d", text.text or "") for text in texts)
    for text in texts:
        size = float(re.sub(r"[^0-9.]", "", text.get("style") or "11"))
        length = 0.58 * size * len(text.text or "")
        left = float(text.get("x", "0"))
        left -= {"middle": length / 2, "end": length}.get(text.get("text-anchor", ""), 0)
        assert left >= -2, text.text
        assert left + length <= width + 2, text.text


def test_names_at_lines_keep_their_distance_and_their_order() -> None:
    places = spread([10, 11, 12, 100, 299, 300], 12, 0, 300)
    assert all(b - a >= 12 - 1e-9 for a, b in itertools.pairwise(places))
    assert places[0] == 10
    assert places[3] == 100
    assert places[-1] <= 300


def test_bars_are_as_long_as_their_values() -> None:
    bars = [Bar("ring simple", 10.0, "ring"), Bar("tree simple", 40.0, "tree")]
    root = ElementTree.fromstring(draw_bars("times", Axis("time", write=time_us), bars))
    shown = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "bar"]
    lengths = [float(rect.get("width", "0")) for rect in shown]
    assert lengths[1] == pytest.approx(4 * lengths[0], rel=0.01)
    assert [rect.get("fill") for rect in shown] == [look_of(n).colour for n in ("ring", "tree")]
    assert {"10 µs", "40 µs"} <= {text.text for text in root.iter(f"{SVG}text")}
