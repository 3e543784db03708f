# ruff: noqa: A002
"""Communicators, a part of unisono._unisono: a stub only, there is no such module."""

from collections.abc import Mapping, Sequence

from unisono._selection import Explanation

class Buffer:
    """Memory that an object shares, by the buffer protocol or DLPack; held while this lives."""

    def __init__(self, source: object, writable: bool) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def count(self) -> int: ...  # elements
    @property
    def item_bytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> str: ...  # "float32"; "" when unisono has no such type
    @property
    def type_text(self) -> str: ...  # for messages, also of foreign types
    @property
    def on_cpu(self) -> bool: ...
    def plain(self) -> tuple[int, int, tuple[int, ...], str] | None:
        """Address, count, shape and type of a dense array in CPU memory of a known type."""

    @property
    def device(self) -> str: ...
    @property
    def contiguous(self) -> bool: ...  # in C order
    @property
    def strides(self) -> tuple[int, ...]: ...  # in elements

class Work:
    """A started call. Thread-safe; waiting releases the GIL and answers Ctrl-C."""

    def test(self) -> bool: ...
    @property
    def state(self) -> str: ...  # "running", "complete" or "failed"
    def wait(self, timeout: float | None = None) -> None: ...
    @property
    def sequence(self) -> int: ...
    @property
    def source(self) -> int: ...  # of a complete receive from any source; else -1

class Message:
    """One message of a group: a send to or a receive from `peer` of `count` elements."""

    def __init__(
        self, is_send: bool, address: int, count: int, type: str, peer: int, tag: int = 0
    ) -> None: ...

class Call:
    """A call's arguments, checked once; it may be run any number of times."""

    def __init__(
        self,
        collective: str,
        input: int,
        output: int,
        count: int,
        type: str,
        operation: str = "sum",
        root: int = 0,
        multiplier: float = 1,
        options: Mapping[str, object] = ...,  # those of CallOptions; others are passed over
        stream: int | None = None,
        send_counts: Sequence[int] = (),
        send_displacements: Sequence[int] = (),
        recv_counts: Sequence[int] = (),
        recv_displacements: Sequence[int] = (),
    ) -> None: ...

class Communicator:
    """The C++ communicator."""

    @staticmethod
    def init(
        rank: int = -1,
        world_size: int = -1,
        rendezvous: str = "",
        secret: str = "",
        node: str = "",
        interface: str = "",
        transport: str = "",
        timeout: float = 0,
        bootstrap_timeout: float = 0,
        listener: RendezvousListener | None = None,
        device: int = -1,
        calls: Mapping[str, object] = ...,  # defaults of calls on devices
        settings: dict[str, str] = ...,
        is_listening: bool = False,  # rank 0 has told the rendezvous itself
    ) -> Communicator: ...
    @property
    def compares_calls(self) -> bool: ...  # UNISONO_CHECK_CALLS
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def id(self) -> int: ...
    @property
    def device(self) -> int: ...  # -1: not known yet
    @property
    def world_ranks(self) -> list[int]: ...
    def node_of(self, rank: int) -> int: ...
    def run(self, call: Call) -> None: ...
    def submit(self, call: Call) -> Work: ...
    def submit_messages(
        self,
        messages: Sequence[Message],
        options: Mapping[str, object] = ...,
        stream: int | None = None,
    ) -> Work: ...
    def run_message(
        self, message: Message, options: Mapping[str, object] = ..., stream: int | None = None
    ) -> None: ...
    def split(self, color: int, key: int) -> Communicator | None: ...
    def shrink(self, excluded: Sequence[int]) -> Communicator: ...
    def check_failure(self) -> None: ...  # raises what has ended the communicator
    def register_plans(
        self, plans: list[str], min_bytes: int = 0, max_bytes: int | None = None
    ) -> None: ...
    def refuse_call(self, why: str) -> None: ...
    def custom_blocks(self, program: str) -> tuple[int, int]: ...
    def explain(
        self,
        collective: str,
        bytes: int | str,
        type: str = "",
        operation: str = "sum",
        in_place: bool = False,
        options: Mapping[str, object] = ...,
    ) -> Explanation: ...
    def register_memory(self, address: int, bytes: int) -> None: ...
    def memory(self) -> Memory: ...
    def dump_record(self) -> str: ...
    def dump(self) -> None: ...
    @property
    def handle(self) -> int: ...
    @staticmethod
    def from_handle(handle: int) -> Communicator: ...
    def abort(self) -> None: ...
    def destroy(self) -> None: ...
    def destroy_at_exit(self) -> None:
        """As destroy(), but calls of daemon threads are aborted after 2 s."""

def try_call(
    communicator: Communicator,
    collective: str,
    input: object,
    output: object,
    operation: str,
    root: int,
) -> bool:
    """Runs a collective of default options on plain arrays; False if it is none, and not run."""

def try_message(communicator: Communicator, is_send: bool, array: object, peer: int) -> bool:
    """The same for a message without a tag."""

def cuda_device_count() -> int: ...
def device_of_address(address: int) -> int:
    """The CUDA device whose memory is at an address; MisuseError if it is none's."""

class ConnectionMemory:
    """Memory of one connection."""

    peer: int
    channel: int
    transport: str
    bytes: int

class Memory:
    """Memory that a communicator holds, in bytes."""

    total_bytes: int
    scratch_bytes: int
    plans_bytes: int
    record_bytes: int
    device_bytes: int
    registered_bytes: int
    mapped_bytes: int
    connections: list[ConnectionMemory]

class RendezvousListener:
    """Rank 0's listener, made before the job: for launchers that can broadcast a string.

    `interface` is an address or an interface's name; empty takes `own_address()`.
    Port 0 lets the kernel choose.
    """

    def __init__(self, interface: str = "", port: int = 0) -> None: ...
    @property
    def rendezvous(self) -> str: ...  # "tcp://10.0.0.1:43121"

def own_address(towards: str = "") -> str:
    """The address by which the other ranks reach this host, IPv4 or IPv6.

    It is this host's own on the way to `towards`, where the ranks meet; else to MASTER_ADDR, on
    its default route, or that of an interface. docs/how-to/start.md has the rule. It is logged.
    """

def meet(
    store: object, key: str, rank: int, interface: str, has_secret: bool
) -> tuple[RendezvousListener | None, str, str]:
    """Rank 0's listener, where it listens, and the secret that it made, if it made one.

    Collective. The store has a name, for errors, and set(key, value), wait(key) and get(key), whose
    exceptions are raised (unisono._through_store.Meeting).
    """

def forgotten_meeting() -> str:
    """What rank 0 sets the key to once all ranks have joined, for the secret to go."""

def make_secret() -> str:
    """A fresh secret from the kernel's random numbers, 64 hexadecimal digits."""
