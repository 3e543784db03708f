"""What notebooks show for plans and for what is said of them."""

from functools import singledispatch
from html import escape

from unisono import _unisono as native
from unisono.draw.page import MOST_STEPS
from unisono.draw.space_time import draw_plan

__all__ = ["notebook_html"]

_MOST_STEPS = 1_500
# An algorithm is shown by its plan on so many ranks.
_SHOWN_RANKS = 4


@singledispatch
def notebook_html(shown: object) -> str:
    """HTML for a Plan, a Compiled, an Algorithm, a Report or an Explanation.

    A plan's picture is replaced by a line where it would be too large.
    """
    return _preformatted(repr(shown))


@notebook_html.register
def _(plan: native.Plan) -> str:
    steps = sum(
        len(block.steps) for rank in range(plan.ranks) for block in plan.thread_blocks(rank)
    )
    if steps > _MOST_STEPS:
        line = f"{escape(plan.name)}: {plan.collective} on {plan.ranks} ranks, {steps:,} steps"
        return f"<p>{line}; draw_page(plan) is a page of up to {MOST_STEPS:,}</p>"
    return f'<div style="overflow-x: auto">{draw_plan(plan)}</div>'


@notebook_html.register
def _(compiled: native.Compiled) -> str:
    return f"<p>{escape(repr(compiled))}</p>{notebook_html(compiled.plan)}"


@notebook_html.register
def _(algorithm: native.Algorithm) -> str:
    about = f"{algorithm.summary} {algorithm.constraint}; {algorithm.source}"
    placement = native.Placement(_SHOWN_RANKS)
    shown = f"<p><b>{escape(algorithm.plan_name)}</b>: {escape(about)}</p>"
    if algorithm.why_not(placement):
        return shown
    return shown + notebook_html(algorithm.plan(placement))


@notebook_html.register
def _(report: native.Report) -> str:
    failures = "".join(_preformatted(one.describe()) for one in report.failures)
    return f"<p>{escape(repr(report))}</p>{failures}"


@notebook_html.register
def _(explanation: native.Explanation) -> str:
    names = ("algorithm", "protocol", "channels", "time_us", "steps", "bytes_sent")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(getattr(one, name))}</td>" for name in names) + "</tr>"
        for one in explanation.candidates
    )
    above = str(explanation).partition("\n\nalgorithm ")[0]
    return f"{_preformatted(above)}<table><tr>{head}</tr>{rows}</table>"


def _preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else escape(str(value))
