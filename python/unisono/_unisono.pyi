# ruff: noqa: A002
"""The native core: what the C++ layers offer, almost one to one.

`unisono` (communicators) and `unisono.plans` (plans) are the doors to it; `Buffer`, `Communicator`
and `Work` here take addresses and are for them alone.
"""

from collections.abc import Sequence
from typing import Any

from unisono._communicator import Buffer as Buffer
from unisono._communicator import Call as Call
from unisono._communicator import Communicator as Communicator
from unisono._communicator import ConnectionMemory as ConnectionMemory
from unisono._communicator import Memory as Memory
from unisono._communicator import Message as Message
from unisono._communicator import RendezvousListener as RendezvousListener
from unisono._communicator import Work as Work
from unisono._communicator import cuda_device_count as cuda_device_count
from unisono._communicator import device_of_address as device_of_address
from unisono._communicator import forgotten_meeting as forgotten_meeting
from unisono._communicator import make_secret as make_secret
from unisono._communicator import meet as meet
from unisono._communicator import own_address as own_address
from unisono._communicator import try_call as try_call
from unisono._communicator import try_message as try_message
from unisono._language import Chunk as Chunk
from unisono._language import Chunks as Chunks
from unisono._language import Compiled as Compiled
from unisono._language import ForeignExecutor as ForeignExecutor
from unisono._language import Trace as Trace
from unisono._language import foreign_executors as foreign_executors
from unisono._language import passes as passes
from unisono._language import run_plan as run_plan
from unisono._schedule import Arrow as Arrow
from unisono._schedule import Failure as Failure
from unisono._schedule import Report as Report
from unisono._schedule import Schedule as Schedule
from unisono._schedule import TimedStep as TimedStep
from unisono._selection import Candidate as Candidate
from unisono._selection import Explanation as Explanation
from unisono._selection import PlanCandidate as PlanCandidate
from unisono._selection import PlanDistance as PlanDistance
from unisono._selection import SelectionRow as SelectionRow
from unisono._selection import candidates as candidates
from unisono._selection import choose as choose
from unisono._selection import explain as explain
from unisono._selection import explain_device as explain_device
from unisono._selection import selection_table as selection_table
from unisono._simulation import *  # noqa: F403
from unisono._synthesis import LinkGraph as LinkGraph
from unisono._synthesis import TransferSchedule as TransferSchedule
from unisono._synthesis import synthesize_greedily as synthesize_greedily
from unisono._windows import *  # noqa: F403

__version__: str
__nanobind_version__: str

# What there is ------------------------------------------------------------------------------------

class Setting:
    """A row of the table of settings."""

    @property
    def variable(self) -> str: ...  # "UNISONO_TIMEOUT"
    @property
    def type(self) -> str: ...  # text, integer, bytes, duration or boolean
    @property
    def default(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def value(self) -> str: ...  # as this process's environment had it
    @property
    def is_set(self) -> bool: ...

def settings() -> list[Setting]:
    """The table of settings, with what this process's environment had when it was first read.

    `init(settings=...)` hands other values to one communicator.
    """

def unknown_variables() -> list[str]:
    """A sentence for each variable of the environment named UNISONO_... that nothing reads."""

def has_kernels() -> bool:
    """Whether GPU kernels were compiled into this installation."""

def name_hint(name: str, known: list[str]) -> str:
    """How the message about an unknown name ends: "; did you mean ring or tree?"."""

def simd_level() -> str:
    """The instruction set that the reductions use here: baseline, avx2 or avx512."""

def data_types() -> list[tuple[str, int]]:
    """Names of the element types and their sizes in bytes."""

def reduce_operations() -> list[str]:
    """Names of the reductions."""

def collectives() -> list[str]:
    """Names of the collectives that can be called."""

def usable_slots() -> int:
    """Messages that a connection on host memory holds, as UNISONO_SLOTS is set."""

def end_when_interrupted() -> int:
    """Ends the process 0.1 s after a SIGINT; the descriptor for signal.set_wakeup_fd."""

def hold_daemon_threads() -> None:
    """From now on, a thread that Python ends while it finalizes is held instead.

    For the main thread, before the interpreter finalizes.
    """

def transports() -> list[tuple[str, bool, str, str]]:
    """The transports, the best first.

    Each one's name, whether it works on this machine, a note for a person, and which ranks it
    joins.
    """

def near_cards(sysfs: str) -> list[dict[str, Any]]:
    """The network cards of each GPU and NUMA node, by a folder with the kernel's device files.

    Of each: user ("GPU 0000:07:00.0"), numa_node, distance ("PXB"), cards and description, a
    sentence. Of each card: name, interfaces, rdma_devices, pci_address, gb_s and users, the number
    of GPUs or NUMA nodes that have it. What is not known is None.
    """

def usual_transport(is_same_node: bool) -> str:
    """The transport that two ranks use, of one node or of two, where both have everything."""

def protocols() -> list[str]:
    """Names of the protocols."""

def parse_bytes(text: str) -> int:
    """Bytes of a size as people write it: "4MiB", "64K" (= 65536), "64KB" (= 64000)."""

def format_bytes(bytes: int) -> str:
    """A size as people read it: "64 KiB"."""

def parse_seconds(text: str) -> float:
    """Seconds of a duration as people write it: "200us", "30s", "2min"."""

# Plans --------------------------------------------------------------------------------------------

class Placement:
    """Which node each rank is on. Nodes get consecutive ranks, as evenly as possible."""

    def __init__(self, ranks: int, nodes: int = 1) -> None: ...
    @staticmethod
    def from_nodes(node_of_rank: Sequence[int]) -> Placement: ...
    @property
    def ranks(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    def node_of(self, rank: int) -> int: ...
    def ranks_on(self, node: int) -> int: ...
    def with_levels(self, locations: Sequence[str]) -> Placement:
        """The same, with each node's location, as `UNISONO_LEVELS` has it: "rack=r12,zone=z3"."""

    def with_spans(self, spans: Sequence[tuple[str, int, int]]) -> Placement:
        """The same, with levels whose units are consecutive nodes.

        Each level, the nearest first, has its name, the nodes in one of its units, and how many ns
        longer a message takes that leaves a unit.
        """

    @property
    def levels(self) -> list[str]: ...  # their names, the nearest first
    def levels_left(self, rank: int, other: int) -> int:
        """How many levels a message between two ranks leaves; -1 inside a node."""

class Algorithm:
    """An entry of the registry: one algorithm for one collective."""

    @property
    def name(self) -> str: ...  # "ring"
    @property
    def collective(self) -> str: ...
    @property
    def plan_name(self) -> str: ...  # "ring_all_reduce"
    @property
    def summary(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def constraint(self) -> str: ...
    def _repr_html_(self) -> str: ...  # see unisono.draw.notebook_html
    def why_not(
        self,
        placement: Placement,
        *,
        root: int = 0,
        in_place: bool = False,
        protocol: str = "simple",
        channels: int = 1,
    ) -> str:
        """Why it cannot serve such a call; empty when it can."""

    def plan(
        self,
        placement: Placement,
        *,
        root: int = 0,
        in_place: bool = False,
        protocol: str = "simple",
        channels: int = 1,
    ) -> Plan:
        """The plan of all ranks. MisuseError when it cannot serve, saying why."""

    def cost(
        self,
        placement: Placement,
        block_bytes: float,
        *,
        root: int = 0,
        in_place: bool = False,
        protocol: str = "simple",
        channels: int = 1,
    ) -> Cost:
        """What the plan costs for blocks of `block_bytes` (count times the element's size)."""

def algorithms(collective: str = "") -> list[Algorithm]:
    """The registry, grouped by collective; all of it, or one collective's entries."""

def find_algorithm(plan_name: str) -> Algorithm:
    """By plan name, "ring_all_reduce". MisuseError with the near names when there is none."""

class Cost:
    """The cost of a plan: messages on the longest chain and bytes of the busiest rank."""

    @property
    def steps(self) -> int: ...
    @property
    def steps_inter_node(self) -> int: ...
    @property
    def steps_leaving(self) -> list[int]: ...  # of them, by how many levels they leave
    @property
    def messages(self) -> int: ...
    @property
    def messages_inter_node(self) -> int: ...
    @property
    def messages_of_all(self) -> int: ...  # of all ranks together
    @property
    def bytes_sent(self) -> float: ...
    @property
    def bytes_sent_inter_node(self) -> float: ...
    @property
    def bytes_copied(self) -> float: ...  # so that the blocks of a message lie together
    @property
    def bytes_reduced(self) -> float: ...
    @property
    def exact(self) -> bool: ...  # otherwise upper bounds

class Location:
    """`count` chunks of a buffer, from `chunk` on (the count is the step's)."""

    @property
    def buffer(self) -> str: ...  # input, output or scratch
    @property
    def chunk(self) -> int: ...

class Step:
    """A step of an unrolled thread block."""

    @property
    def number(self) -> int: ...  # in its thread block, from 0
    @property
    def operation(self) -> str: ...  # "recv_reduce_copy"
    @property
    def source(self) -> Location | None: ...
    @property
    def destination(self) -> Location | None: ...
    @property
    def count(self) -> int: ...  # chunks
    @property
    def after(self) -> list[tuple[int, int]]: ...  # (thread block, steps it must have completed)
    @property
    def peers(self) -> list[int]: ...  # of read_reduce
    @property
    def sends(self) -> bool: ...
    @property
    def receives(self) -> bool: ...
    @property
    def text(self) -> str: ...  # "recv_reduce_copy input[1] -> output[1], from rank 3"

class ThreadBlock:
    """A thread block, loops unrolled."""

    @property
    def channel(self) -> int: ...
    @property
    def send_peer(self) -> int: ...  # -1: none
    @property
    def recv_peer(self) -> int: ...
    @property
    def steps(self) -> list[Step]: ...

class Plan:
    """A plan of all ranks."""

    @staticmethod
    def from_text(text: str) -> Plan: ...
    @staticmethod
    def from_json(text: str) -> Plan: ...
    @property
    def name(self) -> str: ...
    @property
    def collective(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def root(self) -> int: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def chunks_per_block(self) -> int: ...
    @property
    def max_step_count(self) -> int: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...  # 0: no limit
    def input_blocks(self, rank: int) -> int: ...
    def output_blocks(self, rank: int) -> int: ...
    def scratch_blocks(self, rank: int) -> int: ...
    def to_text(self, rank: int | None = None) -> str: ...  # all ranks, or the header and one rank
    def to_json(self) -> str: ...
    def thread_blocks(self, rank: int) -> list[ThreadBlock]: ...
    def verify(
        self,
        slots: int | None = None,
        zero_copy: bool = True,
        allow_different_orders: bool = False,
    ) -> Report:
        """Verifies the plan: `Report.slots` are the fewest with which it is right.

        Of a custom plan everything but its results is verified, which its program states, not the
        plan: see `Report.results_verified`.

        Args:
            slots: Messages that a connection holds at most; None: as many as it has in every
                transport, as UNISONO_SLOTS is set: `unisono plan verify` and `register` count on as
                many.
            zero_copy: Also where messages are read from the sender's memory.
            allow_different_orders: Sums that ranks add in different orders are no failure.
        """

    def one_sided(self, mapped: Sequence[int]) -> Plan:
        """The plan that runs where peers can write to output buffers: messages become puts.

        Args:
            mapped: The ranks whose outputs every peer can write to.
        """

    def schedule(self, slots: int = 8) -> Schedule: ...  # MisuseError when it does not end
    def storage(self, rank: int, buffer: str, chunk: int) -> tuple[str, int]:
        """The buffer and chunk where a rank's chunk lies: the same for two that alias."""

    def _repr_html_(self) -> str: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Played:
    """What a seed of chaos came to."""

    @property
    def wrong(self) -> list[str]: ...  # what did not hold
    @property
    def calls(self) -> int: ...  # that succeeded, over all ranks
    @property
    def failures(self) -> int: ...  # calls that ended in an error
    @property
    def events(self) -> int: ...
    @property
    def hash(self) -> int: ...  # of all events, in order
    @property
    def seconds(self) -> float: ...  # virtual
    @property
    def places(self) -> list[str]: ...  # that ranks came to, as "call/transport.put"
    @property
    def is_repeatable(self) -> bool: ...
    @property
    def story(self) -> str: ...  # of the shortest failure; empty where nothing is wrong

def play_chaos(
    seed: int,
    ranks: int,
    nodes: int,
    operations: int,
    strikes: int,
    twice: bool,
    shrinks: bool,
) -> Played: ...
