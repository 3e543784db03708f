# ruff: noqa: A002
"""The simulator's part of unisono._unisono: a stub only, there is no such module."""

from unisono._unisono import Algorithm, Plan

class Machine:
    """A cluster in numbers; `unisono.simulate.Cluster` makes it from a file."""

    @staticmethod
    def from_json(json: str) -> Machine: ...
    @staticmethod
    def log_gops(
        ranks: int,
        *,
        latency_ns: float,
        overhead_ns: float,
        gap_ns: float,
        gap_ns_per_byte: float,
        overhead_ns_per_byte: float,
    ) -> Machine:
        """One node whose only costs are these."""
    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def ranks_per_node(self) -> int: ...
    @property
    def node_gb_s(self) -> float: ...
    @property
    def nic_gb_s(self) -> float: ...
    @property
    def max_ranks(self) -> int: ...

class SimulationProgress:
    """How far a simulation is, readable from other threads."""

    def __init__(self) -> None: ...
    @property
    def done(self) -> int:
        """The done of `total`: steps of thread blocks, tile by tile, or operations of GOAL."""
    @property
    def total(self) -> int:
        """0 until they have been counted."""
    def stop(self) -> None:
        """The simulation ends soon, with a MisuseError."""

class SimulatedCollective:
    """What a simulated collective took; times in microseconds, of all its calls."""

    time_us: float
    first_us: float
    last_rank: int
    messages: int
    steps: int
    wire_bytes: int
    events: int
    path_messages: int
    path_messages_inter_node: int
    shares: dict[str, float]
    hops: list[tuple[int, int, int, float, float]]  # sender, receiver, bytes, sent, arrived
    # Rank, or node of a NIC; the NIC or -1; bytes sent; parts of the time it sends and receives.
    ports: list[tuple[int, int, int, float, float]]
    # Level, unit, number, whether it leads up, GB/s, bytes.
    links: list[tuple[int, int, int, bool, float, float]]
    ranks: int
    nodes: int
    simulated_ranks: int
    not_collapsed: str
    tiles: int
    largest_message_bytes: int
    closed_form_us: float
    node_port_bytes: int
    nic_bytes: int

def simulate_collective(
    machine: Machine,
    algorithm: Algorithm,
    *,
    ranks: int,
    nodes: int = 0,
    count: int,
    type: str = "float32",
    protocol: str = "simple",
    channels: int = 1,
    root: int = 0,
    model: str = "loggops",
    noise: float = 0.0,
    seed: int = 1,
    explain: bool = False,
    calls: int = 1,
    collapse: bool = True,
    max_events: int = ...,
    timeline: int = -1,
    progress: SimulationProgress | None = None,
) -> SimulatedCollective:
    """One collective's plan on a machine. Lets go of the GIL."""

def choose_plan(
    machine: Machine,
    collective: str,
    *,
    ranks: int,
    nodes: int = 0,
    count: int,
    type: str = "float32",
    protocols: list[str],
    channels: int = 1,
    root: int = 0,
    engine: str = "",
    sms: int = 132,
) -> list[tuple[str, str, float, float, float, str]]:
    """All plans that can serve a call, the best first. Lets go of the GIL.

    With an engine ("host" or "gpu", of GPUs with `sms` SMs) only those that it runs.

    Returns:
        Of each the algorithm, protocol, stated time, simulated time and that in flows (0: not
        asked) in microseconds, and "simulated", "slower" (cut: the simulated time is a lower bound)
        or "too_large" (not simulated).
    """

class SimulatedWorkload:
    """What a simulated workload took; times in microseconds."""

    time_us: float
    last_rank: int
    messages: int
    wire_bytes: int
    events: int
    path_messages: int
    path_messages_inter_node: int
    shares: dict[str, float]
    hops: list[tuple[int, int, int, float, float]]  # sender, receiver, bytes, sent, arrived
    ranks: int
    nodes: int
    simulated_ranks: int
    not_collapsed: str
    iterations_us: list[float]  # when the last rank had ended each
    tasks: list[tuple[int, int, float, float]]  # of the shown rank: task, iteration, began, ended
    served: list[tuple[str, int, int, str]]  # communicator, call, ranks, algorithm

def simulate_workload(
    machine: Machine,
    workload: str,
    *,
    model: str = "loggops",
    noise: float = 0.0,
    seed: int = 1,
    explain: bool = False,
    collapse: bool = True,
    max_events: int = ...,
    timeline: int = -1,
    shown_rank: int = 0,
    progress: SimulationProgress | None = None,
) -> SimulatedWorkload:
    """A workload, as JSON, on a machine. Lets go of the GIL."""

def simulate_plan(
    machine: Machine,
    plan: Plan,
    *,
    nodes: int = 0,
    count: int,
    type: str = "float32",
    model: str = "loggops",
    explain: bool = False,
    calls: int = 1,
    collapse: bool = True,
    max_events: int = ...,
    timeline: int = -1,
    progress: SimulationProgress | None = None,
) -> SimulatedCollective:
    """Any plan on a machine. Lets go of the GIL."""

class GoalSchedule:
    """For each rank a graph of sends, receives and calculations."""

    @staticmethod
    def read(contents: bytes) -> GoalSchedule:
        """Text or binary, by its first bytes."""
    @property
    def ranks(self) -> int: ...
    @property
    def operations(self) -> int: ...
    def operations_of(
        self, rank: int
    ) -> list[tuple[str, int, int, int, int, list[int], list[int]]]:
        """Kind, size, peer, tag, cpu, and what it requires: to have ended, to have begun."""
    def to_text(self) -> str: ...
    def to_binary(self) -> bytes: ...

class GoalResult:
    """What a GOAL schedule took; times in microseconds."""

    time_us: float
    ranks_us: list[float]
    last_rank: int
    operations: int
    messages: int
    bytes: int
    events: int

def goal_of_collective(
    machine: Machine,
    algorithm: Algorithm,
    *,
    ranks: int,
    nodes: int = 0,
    count: int,
    type: str = "float32",
    protocol: str = "simple",
    channels: int = 1,
    root: int = 0,
) -> GoalSchedule:
    """A collective's plan as GOAL. Lets go of the GIL."""

def goal_of_plan(
    machine: Machine, plan: Plan, *, count: int, type: str = "float32"
) -> GoalSchedule:
    """Any plan as GOAL. Lets go of the GIL."""

def goal_of_workload(machine: Machine, workload: str) -> GoalSchedule:
    """A workload, as JSON, as GOAL. Lets go of the GIL."""

def run_goal(
    machine: Machine,
    schedule: GoalSchedule,
    *,
    rendezvous_bytes: int = ...,
    max_events: int = ...,
    progress: SimulationProgress | None = None,
) -> GoalResult:
    """Runs a schedule as LogGOPSim does. Lets go of the GIL."""
