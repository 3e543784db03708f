"""Synthesised algorithms: plans found for the links of a machine.

links = load_links("dgx_1")
found = synthesize(links, "all_gather", size_bytes=64 << 20)
print(found.time_us, found.bound_us)
plan = found.compile().plan
"""

from unisono.arguments import guard
from unisono.synthesize.exact import Point, pareto, solve
from unisono.synthesize.found import Found, synthesize
from unisono.synthesize.links import builtin_links, load_links, parse_links

__all__ = [
    "Found",
    "Point",
    "builtin_links",
    "load_links",
    "pareto",
    "parse_links",
    "solve",
    "synthesize",
]

guard(globals())
