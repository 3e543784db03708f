"""A page of its own for one or more runs: losses, numbers, and what the ranks said when."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unisono.draw.chart import Axis, Series, draw_chart

_WIDTH, _ROW = 1040, 22
_SHOWN_SECONDS = 0.5
_COLOURS = {
    "all_reduce": "#4477aa",
    "all_gather": "#228833",
    "reduce_scatter": "#ee6677",
    "broadcast": "#ccbb44",
    "barrier": "#888888",
}
_OTHER = "#aa3377"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em;
  color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .25em .8em; border-bottom: 1px solid #ccc; text-align: right }
td:first-child, th:first-child { text-align: left }
svg { max-width: 100% }
.line { fill: none; stroke-width: 1.6 } .grid { stroke: #8884; } .title { font-weight: 600 }
text { font: 12px system-ui, sans-serif; fill: #444 }
figure { margin: 1em 0 } span.key { padding: 0 .6em; color: #fff; margin-right: .5em }
"""


def write_report(path: Path, sets: Sequence[Sequence[dict[str, Any]]], note: str = "") -> None:
    """Writes the page: each set of results beside each other."""
    title = "Training a small GPT"
    body = [f"<h1>{title}</h1>"]
    if note:
        body.append(f"<p>{html.escape(note)}</p>")
    for results in sets:
        name = " and ".join(name_of(one) for one in results)
        body.append(f"<h2>{html.escape(name)}</h2>{_table(results)}")
        body.append(f"<figure>{_losses(results)}</figure>")
        for one in results:
            body.append(f"<h3>Communication: {html.escape(name_of(one))}</h3>{_timeline(one)}")
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    path.write_text(f'<!doctype html><html lang="en">{head}{"".join(body)}</html>\n')


def name_of(result: dict[str, Any]) -> str:
    """A run's backend and parallelism."""
    return f"{result['backend']} {result['parallel']}"


def _table(results: Sequence[dict[str, Any]]) -> str:
    rows = [
        ("ranks", lambda one: str(one["ranks"])),
        ("parameters", lambda one: f"{one['parameters']:,}"),
        ("steps", lambda one: str(len(one["losses"]))),
        ("last loss (nats a byte)", lambda one: f"{one['losses'][-1][1]:.5f}"),
        ("loss on unseen text", lambda one: f"{one['tested_loss']:.5f}"),
        ("tokens/s", lambda one: f"{one['tokens_per_second']:,.0f}"),
        ("communication in a step (ms)", lambda one: f"{1e3 * one['communication_seconds']:.2f}"),
        ("share of the time", lambda one: f"{one['communication_share']:.1%}"),
    ]
    head = "".join(f"<th>{html.escape(name_of(one))}</th>" for one in results)
    lines = [
        f"<tr><td>{label}</td>{''.join(f'<td>{write(one)}</td>' for one in results)}</tr>"
        for label, write in rows
    ]
    return f"<table><tr><th></th>{head}</tr>{''.join(lines)}</table>"


def _losses(results: Sequence[dict[str, Any]]) -> str:
    series = [
        Series(name_of(one), [tuple(point) for point in one["losses"]], dash=index)
        for index, one in enumerate(results)
    ]
    return draw_chart("Loss", Axis("step"), Axis("nats a byte"), series, standalone=False)


def _timeline(result: dict[str, Any]) -> str:
    """The first part of the recorded steps: a row for each rank, a bar for each collective."""
    ranks = result["timeline"]
    if not any(ranks):
        return "<p>The run was too short for a recording.</p>"
    shown = min(_SHOWN_SECONDS, max(call[2] for calls in ranks for call in calls))
    left, height = 60, _ROW * len(ranks) + 30
    scale = (_WIDTH - left - 10) / shown
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for rank, calls in enumerate(ranks):
        y = rank * _ROW + 4
        parts.append(f'<text x="0" y="{y + 13}">rank {rank}</text>')
        for name, start, end in calls:
            if start > shown:
                break
            width = max(0.6, (min(end, shown) - start) * scale)
            parts.append(
                f'<rect x="{left + start * scale:.2f}" y="{y}" width="{width:.2f}" '
                f'height="{_ROW - 6}" fill="{_colour(name)}" fill-opacity=".8">'
                f"<title>{html.escape(name)}, {1e3 * start:.2f} to {1e3 * end:.2f} ms</title>"
                "</rect>"
            )
    for tick in range(6):
        at = shown * tick / 5
        parts.append(
            f'<text x="{left + at * scale:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{1e3 * at:.0f} ms</text>"
        )
    names = sorted({call[0] for calls in ranks for call in calls})
    keys = "".join(
        f'<span class="key" style="background:{_colour(name)}">{html.escape(name)}</span>'
        for name in names
    )
    return f"<p>{keys}</p>{''.join(parts)}</svg>"


def _colour(name: str) -> str:
    return next((colour for part, colour in _COLOURS.items() if part in name), _OTHER)
