"""The parameter sets behind PCCL's figures: one machine, and what each library costs on it.

What the cluster's file has from data sheets stays. Two numbers of a machine are fitted, both to
cells that PCCL's text names for all-gathers; reduce-scatters and all other cells test them.
"""

from unisono.simulate import load_cluster
from unisono.simulate.cluster import Cluster, with_numbers

_NS, _MIB = 1.0, float(1 << 20)

# RCCL and NCCL before PAT know the flat ring alone. A step of it is taken as one message for each
# channel (assumed), and costs its NIC's proxy a time of its own (fitted).
_RING = {"protocols.simple.slot": 4 * _MIB}
RING_GAP_NS = {"frontier": 38_000 * _NS, "perlmutter": 6_000 * _NS}

# PCCL sends each step of recursive doubling as one message of Cray-MPICH, inside which nothing
# overlaps (PCCL, section 4: phases follow each other); its ranks' kernels fill what the ports
# carry, and the shuffle and the sums run at half of the memory's bandwidth, of 1600 GB/s (MI250X,
# a GCD) and 1555 GB/s (A100, 40 GB). A message's overhead is fitted.
_PHASES = {
    "protocols.simple.slot": 2048 * _MIB,
    "protocols.simple.thread_block_bandwidth.inside": 1000.0,
    "protocols.simple.thread_block_bandwidth.between": 1000.0,
    "copy_bandwidth": 800.0,
    "reduction_bandwidth": 800.0,
}
STEP_OVERHEAD_NS = {"frontier": 560_000 * _NS, "perlmutter": 700_000 * _NS}

# All rings of NVLink between 4 GPUs together: three pairs of 100 GB/s.


def flat_ring(machine: str) -> Cluster:
    """RCCL or NCCL on this machine."""
    numbers = _RING | {"nics.gap": RING_GAP_NS[machine]}
    return Cluster(with_numbers(load_cluster(machine).file, numbers, "see parameters.py"))


def pccl(machine: str) -> Cluster:
    """PCCL on this machine."""
    numbers = _PHASES | {"protocols.simple.send_overhead.between": STEP_OVERHEAD_NS[machine]}
    return Cluster(with_numbers(load_cluster(machine).file, numbers, "see parameters.py"))
