"""Pictures as SVG: the space-time drawing of a plan, charts, and the writer beneath them."""

from unisono.draw.space_time import draw_plan

__all__ = ["draw_plan"]
