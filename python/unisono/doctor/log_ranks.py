"""Which rank a line of a log is about: by what ranks say of themselves in any of the logs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from unisono.records.logs.events import Event, What

__all__ = ["LogRanks", "host_of"]

_Process = tuple[str, int]
_Kind = TypeVar("_Kind", str, int)


def host_of(name: str) -> str:
    """A host without its domain; addresses stay as they are."""
    return name if name.replace(".", "").isdigit() or ":" in name else name.split(".")[0]


class LogRanks:
    """Who the processes, cards and hosts are that lines name.

    Attributes:
        size: Ranks of the job, 0 where no line says it.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.size = 0
        self._of_process: dict[_Process, int] = {}
        self._of_card: dict[tuple[str, str], int] = {}
        self._hosts: dict[str, str] = {}
        places: dict[int, list[Event]] = {}
        highest = -1
        for event in events:
            if event.what is What.address:
                self._hosts[event.peer] = host_of(event.host)
            elif event.what is What.place:
                places.setdefault(event.size, []).append(event)
            highest = max(highest, event.rank)
            if event.rank >= 0 and event.process and event.what in (What.place, What.ended):
                self._of_process[host_of(event.host), event.process] = event.rank
        if places and max(places) > highest:
            self._take_world(places[max(places)])

    def _take_world(self, places: Sequence[Event]) -> None:
        """The largest communicator's ranks are the job's, if it is one communicator."""
        groups = {event.group for event in places if event.group}
        found = {(host_of(event.host), event.process): event.place for event in places}
        if len(groups) > 1 or len(set(found.values())) < len(found):
            return
        if any(found.get(process, rank) != rank for process, rank in self._of_process.items()):
            return
        self.size = places[0].size
        self._of_process |= found
        for event in places:
            if event.card:
                self._of_card[host_of(event.host), event.card] = event.place

    def rank(self, event: Event) -> int:
        """The rank that a line is about; -1 where nothing says it."""
        if event.rank >= 0:
            return event.rank
        host = host_of(event.host)
        if event.process and (found := _one(self._of_process, host, event.process)) >= 0:
            return found
        return _one(self._of_card, host, event.card) if event.card else -1

    def host(self, name: str) -> str:
        """The host that has an address or a name."""
        return self._hosts.get(name, host_of(name))

    def ranks_on(self, host: str) -> list[int]:
        """The ranks of a host, as far as lines say it."""
        return sorted({rank for (of, _), rank in self._of_process.items() if of == host})


def _one(ranks: Mapping[tuple[str, _Kind], int], host: str, kind: _Kind) -> int:
    """The rank with this process or card on a host; on any one host where the line names none."""
    if (host, kind) in ranks:
        return ranks[host, kind]
    found = {rank for (of, one), rank in ranks.items() if one == kind and not (of and host)}
    return found.pop() if len(found) == 1 else -1
