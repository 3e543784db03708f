"""What point-to-point messages between two ranks took."""

from dataclasses import dataclass

from unisono.profile.calls import Calls, Message

__all__ = ["PeerMessages", "peer_messages"]


@dataclass(frozen=True)
class PeerMessages:
    """Messages from a rank to a peer, or the other way, as the rank recorded them.

    Attributes:
        posts: Messages.
        busy: Seconds in which at least one was under way.
        idle: Seconds between the first and the last one in which none was.
        most_in_flight: The most bytes that were under way at once.
        bandwidth: Bytes in each busy second.
    """

    rank: int
    peer: int
    is_send: bool
    posts: int
    bytes: int
    busy: float
    idle: float
    most_in_flight: int

    @property
    def bandwidth(self) -> float:
        """Bytes in each busy second."""
        return self.bytes / self.busy if self.busy > 0 else 0.0


def peer_messages(calls: Calls) -> list[PeerMessages]:
    """By rank, peer and direction."""
    found: dict[tuple[int, int, bool], list[Message]] = {}
    for one in calls.messages:
        found.setdefault((one.rank, one.peer, one.is_send), []).append(one)
    return [_of_peer(*key, ones) for key, ones in sorted(found.items())]


def _of_peer(rank: int, peer: int, is_send: bool, ones: list[Message]) -> PeerMessages:
    # Of events at the same moment, ends come first: what follows without a pause is not at once.
    events = sorted(
        event for one in ones for event in ((one.started, 1, one.bytes), (one.ended, 0, -one.bytes))
    )
    open_calls = in_flight = most = busy = 0
    since = events[0][0]
    for at, begins, change in events:
        if open_calls:
            busy += at - since
        since = at
        open_calls += 1 if begins else -1
        in_flight += change
        most = max(most, in_flight)
    span = events[-1][0] - events[0][0]
    return PeerMessages(
        rank, peer, is_send, sum(one.messages for one in ones), sum(one.bytes for one in ones),
        busy / 1e9, (span - busy) / 1e9, most,
    )  # fmt: skip
