"""Network namespaces as nodes, joined by shaped links: a cluster's network on one machine."""

from unisono.arguments import guard
from unisono.netbed.bed import Netbed, remove_stale
from unisono.netbed.cut import Cut, CutSchedule, parse_cut
from unisono.netbed.shape import Shape, parse_rate, parse_rates, parse_shape

__all__ = [
    "Cut",
    "CutSchedule",
    "Netbed",
    "Shape",
    "parse_cut",
    "parse_rate",
    "parse_rates",
    "parse_shape",
    "remove_stale",
]

guard(globals())
