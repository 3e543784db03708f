# ruff: noqa: A002
"""What measures the library and compares it with others; nothing else needs it."""

from collections.abc import Sequence

from unisono._unisono import Call, Communicator

def serve_bench(communicator: Communicator, path: str) -> None:
    """Serves the driver of a comparison at a Unix socket: what `bench/peers/worker.h` says."""

class DeviceBench:
    """Times calls on a CUDA device, a communicator's and NCCL's, on buffers of its own.

    These are memory of NCCL's where `nccl` is the path of its library.
    """

    def __init__(
        self, communicator: Communicator, device: int, max_bytes: int, nccl: str = ""
    ) -> None: ...
    @property
    def input_address(self) -> int: ...
    @property
    def output_address(self) -> int: ...
    @property
    def stream(self) -> int: ...
    def copy(self, to: int, source: int, bytes: int) -> None: ...  # any memories
    def poison(self, address: int, bytes: int, value: int) -> None: ...
    # `count` elements that repeat a host table of `period` elements from its element `phase` on.
    def fill(
        self, out: int, table: int, period: int, phase: int, count: int, width: int
    ) -> None: ...
    def count_wrong(
        self, found: int, table: int, period: int, phase: int, count: int, width: int
    ) -> int: ...
    def make_landing(self) -> bytes: ...  # what peers store into; a handle to open
    def open_landings(self, handles: Sequence[bytes]) -> None: ...
    # Plain stores of so many bytes to each peer.
    def push_us(self, bytes: int, blocks: int, calls: int) -> float: ...
    # Kernels that do nothing, one after another.
    def launch_us(self, calls: int, in_graph: bool) -> float: ...
    @staticmethod
    def make_nccl_id(library: str) -> bytes: ...
    def join_nccl(self, library: str, id: bytes) -> int: ...  # collective; NCCL's version
    # In a ring the input goes to the next rank, the output comes from the one before.
    def run(self, call: Call, by_nccl: bool, is_ring: bool, in_graph: bool) -> None: ...
    def time_us(
        self, call: Call, by_nccl: bool, is_ring: bool, in_graph: bool, calls: int
    ) -> float: ...
