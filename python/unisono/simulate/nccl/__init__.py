"""NCCL's own decisions, and how long they take on machines that nobody measured."""

from unisono.simulate.cluster import machine_names
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
from unisono.simulate.nccl.machine import (
    MachineFile,
    find_machine,
    load_machine,
    machine_to_yaml,
    parse_machine,
    platform_of,
)
from unisono.simulate.nccl.measured import (
    Calibrated,
    calibrate_machine,
    read_points,
)
from unisono.simulate.nccl.model import Predicted, forced, parts_us, predict
from unisono.simulate.nccl.outputs import is_nccl_tests, parse_nccl_tests
from unisono.simulate.nccl.tables import ALGORITHMS, PROTOCOLS, UNMEASURED
from unisono.simulate.nccl.timing import terms_of

__all__ = [
    "ALGORITHMS",
    "GENERATIONS",
    "POINT_TO_POINT",
    "PROTOCOLS",
    "UNMEASURED",
    "Calibrated",
    "Call",
    "Choice",
    "Graph",
    "MachineFile",
    "OwnFit",
    "Platform",
    "Point",
    "Predicted",
    "calibrate_machine",
    "candidates",
    "channels",
    "choose",
    "find_machine",
    "fit_all",
    "fit_one",
    "forced",
    "formula_us",
    "is_nccl_tests",
    "load_machine",
    "machine_names",
    "machine_to_yaml",
    "most_helpful",
    "parse_machine",
    "parse_nccl_tests",
    "parts_us",
    "platform_of",
    "predict",
    "predict_us",
    "read_points",
    "terms_of",
]
