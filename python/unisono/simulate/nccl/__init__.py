"""NCCL's own decisions, and how long they take on machines that nobody measured."""

from unisono.simulate.nccl.choice import (
    GENERATIONS,
    POINT_TO_POINT,
    Call,
    Choice,
    Graph,
    Platform,
    candidates,
    channels,
    choose,
    formula_us,
)
from unisono.simulate.nccl.fit import OwnFit, Point, fit_all, fit_one, most_helpful, predict_us
from unisono.simulate.nccl.machine import MachineFile, load_machine, parse_machine, platform_of
from unisono.simulate.nccl.tables import PROTOCOLS
from unisono.simulate.nccl.timing import terms_of

__all__ = [
    "GENERATIONS",
    "POINT_TO_POINT",
    "PROTOCOLS",
    "Call",
    "Choice",
    "Graph",
    "MachineFile",
    "OwnFit",
    "Platform",
    "Point",
    "candidates",
    "channels",
    "choose",
    "fit_all",
    "fit_one",
    "formula_us",
    "load_machine",
    "most_helpful",
    "parse_machine",
    "platform_of",
    "predict_us",
    "terms_of",
]
