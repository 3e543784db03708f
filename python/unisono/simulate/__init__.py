"""The simulator: what a collective costs on a cluster that is described in a file.

cluster = load_cluster("dgx_h100")
result = simulate(cluster, "all_reduce", "ring", size_bytes=64 << 20, ranks=16)
print(result.time_us)
"""

from unisono.arguments import guard
from unisono.simulate.calibrate import Calibration, calibrate
from unisono.simulate.choose import Candidate, choose_plan
from unisono.simulate.cluster import (
    Cluster,
    builtin_clusters,
    load_cluster,
    number_at,
    parse_cluster,
    to_yaml,
    with_numbers,
)
from unisono.simulate.explain import explain_path, explain_workload
from unisono.simulate.goal import SUFFIXES as GOAL_SUFFIXES
from unisono.simulate.goal import (
    LogGops,
    goal_of_collective,
    goal_of_plan,
    goal_of_workload,
    parse_log_gops,
    read_goal,
    run_goal,
    write_goal,
)
from unisono.simulate.goal_workload import simulate_goal, workload_of_goal
from unisono.simulate.kernels import DEVICES, Device, find_device
from unisono.simulate.layout import Layout
from unisono.simulate.load import load_workload
from unisono.simulate.measurements import Measurement, read_measurements
from unisono.simulate.models import MODELS, Model, find_model
from unisono.simulate.predict import DecadeError, Error, Predictor, errors_by_decade
from unisono.simulate.progress import Progress
from unisono.simulate.run import (
    Job,
    LinkUse,
    Simulated,
    simulate,
    simulate_all,
    simulate_plan,
)
from unisono.simulate.training import training_step, zero3_step
from unisono.simulate.tune import COLLECTIVES as TUNED_COLLECTIVES
from unisono.simulate.tune import Row, selection_file, tune
from unisono.simulate.workload import (
    Call,
    SimulatedWorkload,
    Task,
    TaskList,
    Workload,
    simulate_workload,
)
from unisono.simulate.workload_file import load_model, parse_workload
from unisono.simulate.workload_nccl import can_run_on_nccl, simulate_workload_nccl

__all__ = [
    "DEVICES",
    "GOAL_SUFFIXES",
    "MODELS",
    "TUNED_COLLECTIVES",
    "Calibration",
    "Call",
    "Candidate",
    "Cluster",
    "DecadeError",
    "Device",
    "Error",
    "Job",
    "Layout",
    "LinkUse",
    "LogGops",
    "Measurement",
    "Model",
    "Predictor",
    "Progress",
    "Row",
    "Simulated",
    "SimulatedWorkload",
    "Task",
    "TaskList",
    "Workload",
    "builtin_clusters",
    "calibrate",
    "can_run_on_nccl",
    "choose_plan",
    "errors_by_decade",
    "explain_path",
    "explain_workload",
    "find_device",
    "find_model",
    "goal_of_collective",
    "goal_of_plan",
    "goal_of_workload",
    "load_cluster",
    "load_model",
    "load_workload",
    "number_at",
    "parse_cluster",
    "parse_log_gops",
    "parse_workload",
    "read_goal",
    "read_measurements",
    "run_goal",
    "selection_file",
    "simulate",
    "simulate_all",
    "simulate_goal",
    "simulate_plan",
    "simulate_workload",
    "simulate_workload_nccl",
    "to_yaml",
    "training_step",
    "tune",
    "with_numbers",
    "workload_of_goal",
    "write_goal",
    "zero3_step",
]

guard(globals())
