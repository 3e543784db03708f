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
from unisono.simulate.nccl.machine import (
    MachineFile,
    find_machine,
    load_machine,
    machine_names,
    machine_to_yaml,
    parse_machine,
    platform_of,
)
from unisono.simulate.nccl.measured import (
    Calibrated,
    calibrate_machine,
    parse_nccl_tests,
    read_points,
)
from unisono.simulate.nccl.model import Predicted, predict
from unisono.simulate.nccl.tables import PROTOCOLS, UNMEASURED
from unisono.simulate.nccl.timing import terms_of

__all__ = [
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
    "formula_us",
    "load_machine",
    "machine_names",
    "machine_to_yaml",
    "most_helpful",
    "parse_machine",
    "parse_nccl_tests",
    "platform_of",
    "predict",
    "predict_us",
    "read_points",
    "terms_of",
]
