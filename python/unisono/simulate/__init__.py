"""The simulator: what a collective costs on a cluster that is described in a file.

cluster = load_cluster("dgx_h100")
result = simulate(cluster, "all_reduce", "ring", size_bytes=64 << 20, ranks=16)
print(result.time_us)
"""

from unisono.simulate.cluster import Cluster, builtin_clusters, load_cluster, parse_cluster
from unisono.simulate.explain import explain_path
from unisono.simulate.models import MODELS, Device, Model
from unisono.simulate.run import Job, Simulated, simulate, simulate_all
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
    "Call",
    "Cluster",
    "Device",
    "Job",
    "Layout",
    "Model",
    "Simulated",
    "SimulatedWorkload",
    "Task",
    "TaskList",
    "Workload",
    "builtin_clusters",
    "explain_path",
    "load_cluster",
    "parse_cluster",
    "simulate",
    "simulate_all",
    "simulate_workload",
    "training_step",
    "zero3_step",
]
