"""The page of `unisono watch`, which asks its server for what it shows."""

from unisono.report.parts import environment

__all__ = ["render_watch"]


def render_watch(interval_s: float) -> str:
    """The page as text; it looks again after so many seconds.

    Raises:
        MachineError: jinja2 is not installed.
    """
    template = environment().get_template("watch.html.jinja")
    page: str = template.render(interval_ms=round(1000 * interval_s))
    return page
