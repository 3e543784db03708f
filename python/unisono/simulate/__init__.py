"""The simulator: what a collective costs on a cluster that is described in a file.

cluster = load_cluster("dgx_h100")
result = simulate(cluster, "all_reduce", "ring", size_bytes=64 << 20, ranks=16)
print(result.time_us)
"""

from unisono.simulate.calibrate import Calibration, calibrate
from unisono.simulate.cluster import (
    Cluster,
    builtin_clusters,
    load_cluster,
    number_at,
    parse_cluster,
    to_yaml,
    with_numbers,
)
from unisono.simulate.explain import explain_path
from unisono.simulate.measurements import (
    DecadeError,
    Error,
    Measurement,
    Predictor,
    errors_by_decade,
    read_measurements,
)
from unisono.simulate.models import MODELS, Device, Model
from unisono.simulate.run import (
    Job,
    LinkUse,
    Simulated,
    simulate,
    simulate_all,
    simulate_plan,
)
from unisono.simulate.training import Layout, training_step, zero3_step
from unisono.simulate.workload import (
    Call,
    SimulatedWorkload,
    Task,
    TaskList,
    Workload,
    simulate_workload,
)

__all__ = [
    "MODELS",
    "Calibration",
    "Call",
    "Cluster",
    "DecadeError",
    "Device",
    "Error",
    "Job",
    "Layout",
    "LinkUse",
    "Measurement",
    "Model",
    "Predictor",
    "Simulated",
    "SimulatedWorkload",
    "Task",
    "TaskList",
    "Workload",
    "builtin_clusters",
    "calibrate",
    "errors_by_decade",
    "explain_path",
    "load_cluster",
    "number_at",
    "parse_cluster",
    "read_measurements",
    "simulate",
    "simulate_all",
    "simulate_plan",
    "simulate_workload",
    "to_yaml",
    "training_step",
    "with_numbers",
    "zero3_step",
]
