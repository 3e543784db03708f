# ruff: noqa: A002
"""The selection's part of unisono._unisono: a stub only, there is no such module."""

from collections.abc import Mapping, Sequence

from unisono._unisono import Cost, Placement

class Candidate:
    """A plan that could serve a call, and what the cost model says."""

    @property
    def algorithm(self) -> str: ...
    @property
    def plan_name(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def time_us(self) -> float: ...
    @property
    def cost(self) -> Cost: ...

class PlanCandidate:
    """A plan that could serve the call, in an explanation."""

    @property
    def algorithm(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def time_us(self) -> float: ...  # by the cost model
    @property
    def longer_us(self) -> float: ...  # of it, because messages leave racks, zones and so on
    @property
    def steps(self) -> int: ...  # messages on the longest chain
    @property
    def steps_inter_node(self) -> int: ...
    @property
    def bytes_sent(self) -> float: ...  # by the rank that sends most
    @property
    def bytes_sent_inter_node(self) -> float: ...

class PlanDistance:
    """The messages of a plan that go equally far in the network."""

    @property
    def where(self) -> str: ...  # "inside a node", "inside a rack", "between racks"
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> float: ...
    @property
    def longer_us(self) -> float: ...  # than inside a unit of the nearest level

class Explanation:
    """Which plan a call takes, who decided that, and what else could serve.

    `str()` and `repr()` give it as a table of at most 80 columns.
    """

    @property
    def collective(self) -> str: ...
    @property
    def bytes(self) -> int: ...  # the larger of a rank's input and output
    @property
    def ranks(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def algorithm(self) -> str: ...  # or the registered program's name
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def path(self) -> str: ...  # a kernel's name, "host" or "copy_engine"
    @property
    def thread_blocks(self) -> int: ...  # of the kernel; 0: there is none
    @property
    def slots(self) -> int: ...  # that hold what is on its way to a peer; 0: none are used
    @property
    def chunk_bytes(self) -> int: ...  # of data, that a slot holds
    @property
    def origin(self) -> str: ...  # "cost model", "setting", "registration", or the file of rows
    @property
    def min_bytes(self) -> int: ...  # of the sizes for which it decided so
    @property
    def max_bytes(self) -> int | None: ...  # None: no limit
    @property
    def note(self) -> str: ...  # why that path, or what holds for all calls
    @property
    def candidates(self) -> list[PlanCandidate]: ...  # the fastest first
    @property
    def levels(self) -> str: ...  # "4 racks (+12 us), 2 zones"; empty where none are known
    @property
    def distances(self) -> list[PlanDistance]: ...  # of the plan's messages, the nearest first
    def _repr_html_(self) -> str: ...

class SelectionRow:
    """A row of the selection table: serves calls of min_bytes to max_bytes."""

    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int | None: ...  # None: no limit
    @property
    def algorithm(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def origin(self) -> str: ...  # "cost model", or the file

# In all of them `oversubscription` is the most ranks that share a core, 1 or more.
def selection_table(
    collective: str,
    placement: Placement,
    oversubscription: float = 1.0,
    settings: dict[str, str] = ...,
) -> list[SelectionRow]:
    """The rows in the order in which they are tried.

    `settings` are variables and texts, as `unisono.init` takes them; here and below, the others are
    those of this process.
    """

def choose(
    collective: str,
    bytes: int | str,
    placement: Placement,
    oversubscription: float = 1.0,
    settings: dict[str, str] = ...,
) -> SelectionRow:
    """The row that decides a call of `bytes` (the larger of a rank's input and output)."""

def candidates(
    collective: str,
    bytes: int | str,
    placement: Placement,
    oversubscription: float = 1.0,
    parameters: Sequence[float] | None = None,
    settings: dict[str, str] = ...,
) -> list[Candidate]:
    """All plans that could serve, fastest first; with `parameters`, by a cost model of these."""

def cost_parameters() -> list[float]:
    """The cost model's parameters, in the order of src/comm/select/cost_model.cc."""

def explain(
    collective: str,
    bytes: int | str,
    placement: Placement,
    oversubscription: float = 1.0,
    settings: dict[str, str] = ...,
) -> Explanation:
    """Which plan a call would take, and why; `bytes` may be a text, as "1MiB"."""

def explain_device(
    collective: str,
    bytes: int | str,
    ranks: int,
    architecture: str = "",
    sms: int = 132,
    settings: dict[str, str] = ...,
    type: str = "",
    operation: str = "sum",
    in_place: bool = False,
    options: Mapping[str, object] = ...,
) -> Explanation:
    """Which plan a call on the GPUs of one host would take, on which kernel, and why.

    No GPU is needed: rows of a table decide, by the GPU's architecture ("sm_90"; empty: the newest
    that has rows). `sms` is how many SMs each GPU has. The others say how the call is made; an
    empty `type`: any.

    Raises:
        MisuseError: No architecture has that name, or no plan serves the call.
    """
