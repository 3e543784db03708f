"""Windows and signals of a communicator."""

from collections.abc import Sequence

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.arrays import Array
from unisono.scan_calls import Scans
from unisono.windows import Window

__all__ = ["OneSided"]


class OneSided(Scans):
    """What a rank does without the part of another one: see `unisono.windows`.

    A signal is a counter for each pair of ranks and each number from 0 to 63: what a rank has put
    before it signals is there when the signal is seen. Ranks have signals once they have made a
    window.
    """

    def window(self, array: Array, *, dtype: str | None = None) -> Window:
        """Lets all ranks write to and read from an array of this one. Collective.

        Args:
            array: This rank's part, in CPU memory; of any length, and with rows of one shape and
                type on all ranks. It is used where it lies, as long as the window is open.
            dtype: As in CallOptions.
        """
        return Window(self, array, dtype)

    def signal(self, peer: int, number: int = 0, *, timeout: float | None = None) -> None:
        """Signals a rank, behind all that this rank has put to it.

        Args:
            peer: The rank; it may be this one.
            number: Which of the 64 signals of the two ranks.
            timeout: Seconds until it fails; None takes the communicator's.
        """
        native.signal(self._native, peer, number, timeout)

    def wait_signals(
        self,
        peers: int | Sequence[int],
        number: int = 0,
        *,
        count: int = 1,
        timeout: float | None = None,
    ) -> None:
        """Waits until ranks have signalled this one, and takes these signals.

        Args:
            peers: A rank, or several, of each of which a signal is waited for.
            number: Which of the 64 signals.
            count: How many of each.
            timeout: Seconds until it fails; None takes the communicator's.

        Raises:
            CollectiveTimeoutError: They did not come; the communicator goes on, and nothing is
                taken.
        """
        native.wait_signals(self._native, _list_of(peers), number, count, timeout)

    def test_signals(self, peers: int | Sequence[int], number: int = 0, *, count: int = 1) -> bool:
        """Takes the signals that wait_signals waits for, if all are there. Whether they were."""
        return native.test_signals(self._native, _list_of(peers), number, count)


def _list_of(peers: int | Sequence[int]) -> list[int]:
    return [peers] if isinstance(peers, int) else list(peers)


guard(globals())
