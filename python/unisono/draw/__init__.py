"""Pictures of plans: space and time, the way of a chunk, traffic, and a page with all of them."""

from unisono.arguments import guard
from unisono.draw.chunks import draw_chunks
from unisono.draw.notebook import notebook_html
from unisono.draw.page import draw_page
from unisono.draw.space_time import draw_plan
from unisono.draw.traffic import draw_traffic, traffic

__all__ = ["draw_chunks", "draw_page", "draw_plan", "draw_traffic", "notebook_html", "traffic"]

guard(globals())
