"""Exceptions of the ranks' programs, and the errors of Unisono that name a rank."""

import re
from collections.abc import Iterator

from unisono.records.logs.events import Event, Line, What

__all__ = ["Tracebacks", "read_unisono_error"]

_ERROR = re.compile(r"\b(?:peer error|timeout|aborted) \(rank (\d{1,7})\): (.{0,400})")
# How Unisono's sentences say each reason (`src/comm/blame/fault_reasons.h`).
_REASONS = (
    ("is gone, as", "gone"), ("left the communicator", "left"), ("does not answer", "no answer"),
    ("is not in a call of this communicator", "not in call"), ("disagree on a call", "mismatch"),
    ("though both answer", "link"), ("no rank is known to be stopped", "waits"),
    ("abort", "aborted"),
)  # fmt: skip
_BEGIN = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:: |:?$)")
_CALLS = re.compile(r"rank (\d{1,7}) calls (\w{1,40})(?: of (\d{1,19}) (\w{1,40}))?([^;]{0,200})")
_AS_CALL = re.compile(r", as call (\d{1,19})")
# A failure of another rank, of the network or of the launcher raises these.
_FOLLOWS = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|DistError|"
    r"PeerError|CollectiveTimeoutError|AbortedError|KeyboardInterrupt|SystemExit|BrokenPipeError|"
    r"ConnectionResetError|ConnectionRefusedError|RendezvousError|NCCL|gloo|ProcessGroup|TCPStore|"
    r"Socket Timeout|Connection (?:closed|reset|refused)|Broken pipe|monitoredBarrier|"
    r"Detected mismatch between collectives|collective operation"
)  # fmt: skip
# A launcher raises these about its ranks.
_OF_LAUNCHERS = re.compile(r"ChildFailedError|SignalException|CalledProcessError")
_DEVICE = re.compile(r"CUDA error: (?!out of memory)|CUBLAS_STATUS|CUDNN_STATUS|HIP error")
_MOST_STREAMS = 1 << 16


def read_unisono_error(line: Line) -> Iterator[Event]:
    """What an error of Unisono says: the rank at fault and why, or the calls that differ."""
    if "disagree on" in line.text:
        for call in _CALLS.finditer(line.text):
            number = _AS_CALL.search(call[5])
            yield Event(
                What.differs, line.text.strip()[:300], line.number, rank=int(call[1]),
                call=call[2], elements=int(call[3] or -1),
                number=int(number[1]) if number else -1, reason=(call[4] or "") + call[5],
            )  # fmt: skip
    elif found := _ERROR.search(line.text):
        said = found[2]
        reason = next((reason for words, reason in _REASONS if words in said), "unknown")
        yield Event(What.accused, line.text.strip()[:300], line.number, rank=line.rank,
                    peers=(int(found[1]),), reason=reason)  # fmt: skip


class Tracebacks:
    """The exceptions that end Python's tracebacks, of each rank's lines apart."""

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def read(self, line: Line, rank: int) -> Iterator[Event]:
        """The exception that a line names, if it ends a traceback of a rank."""
        text = line.text
        if _BEGIN in text:
            if len(self._inside) < _MOST_STREAMS:
                self._inside.add(rank)
        elif rank in self._inside and text[:1] not in (" ", "\t", ""):
            self._inside.discard(rank)
            yield from self._raised(line, text, rank)

    @staticmethod
    def _raised(line: Line, text: str, rank: int) -> Iterator[Event]:
        if _EXCEPTION.match(text) is None or _OF_LAUNCHERS.search(text):
            return
        reason = "follows" if _FOLLOWS.search(text) else "own"
        what = What.device if reason == "own" and _DEVICE.search(text) else What.raised
        yield Event(what, text[:300], line.number, rank=rank,
                    reason=text[:160] if what is What.device else reason)  # fmt: skip
