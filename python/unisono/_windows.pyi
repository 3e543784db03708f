# ruff: noqa: A002
"""Windows and signals, a part of unisono._unisono: a stub only, there is no such module."""

from collections.abc import Sequence

from unisono._communicator import Communicator

class Window:
    """Memory of all ranks of a communicator, made by all of them."""

    def __init__(self, communicator: Communicator, address: int, bytes: int) -> None: ...
    def bytes_of(self, rank: int) -> int: ...
    def put(
        self,
        address: int,
        bytes: int,
        peer: int,
        offset: int,
        signal: int = -1,
        timeout: float | None = None,
    ) -> None: ...
    def get(
        self, address: int, bytes: int, peer: int, offset: int, timeout: float | None = None
    ) -> None: ...
    def change_word(
        self,
        operation: str,  # "add", "swap" or "compare_and_swap"
        operand: int,
        peer: int,
        offset: int,
        expected: int = 0,
        timeout: float | None = None,
    ) -> int: ...
    def close(self) -> None: ...

signals_of_a_pair: int

def flush(communicator: Communicator, peer: int, timeout: float | None = None) -> None: ...
def signal(
    communicator: Communicator, peer: int, number: int, timeout: float | None = None
) -> None: ...
def test_signals(
    communicator: Communicator, peers: Sequence[int], number: int, count: int
) -> bool: ...
def wait_signals(
    communicator: Communicator,
    peers: Sequence[int],
    number: int,
    count: int,
    timeout: float | None = None,
) -> None: ...
