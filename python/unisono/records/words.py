"""Entries of Unisono's records in words: an object for each call."""

from typing import Any

import numpy as np

from unisono.records.entries import TIMES, Entries
from unisono.records.parts import MAX_RANKS, DumpError, Hint, State, integer, integers, text, texts

__all__ = ["Words"]

Array = np.ndarray[Any, Any]
_STATES = {
    "scheduled": int(State.scheduled), "started": int(State.started), "ended": int(State.ended),
    "failed": int(State.failed), "aborted": int(State.failed),
}  # fmt: skip


class Words(Entries):
    """Entries as a record holds them in words.

    Attributes:
        sequences: The numbers of all collectives, of those that are left out, too.
        hints: What calls wait for that have not ended, and when these were made.
    """

    def __init__(self, document: dict[str, Any], name: str, ranks: int) -> None:
        super().__init__(name)
        entries = document.get(name)
        if not isinstance(entries, list):
            raise DumpError(f"the record has no list '{name}'")
        self._one = name.removesuffix("s")
        self._most = (ranks or MAX_RANKS) - 1
        self._place_of: dict[str, int] = {}
        self.sequences: Array = np.zeros(0, np.int64)
        self.hints: list[tuple[int, Hint]] = []
        for i, one in enumerate(entries):
            if not isinstance(one, dict):
                raise DumpError(f"{self._one} {i} is no object")
        if entries:
            self._read(entries)

    def _read(self, entries: list[dict[str, Any]]) -> None:
        of = self.columns
        for time in TIMES:
            of[time] = integers(entries, time, self._one, 0, default=0)
        self.states = self._states_of(entries)
        of["bytes"] = integers(entries, "bytes", self._one, 0)
        if self.is_messages:
            of["direction"] = self._places(entries, "direction")
            of["peer"] = integers(entries, "peer", self._one, -1, self._most)
        else:
            self.sequences = of["sequence"] = integers(entries, "sequence", self._one, 0)
            of["root"] = integers(entries, "root", self._one, 0, self._most)
            of["collective"] = self._places(entries, "collective")
            of["operation"] = self._places(entries, "operation", "")
            of["type"] = self._places(entries, "type", "")
        self.names, self.count = list(self._place_of), len(entries)
        # What a graph holds runs when the graph does, of which the record tells nothing.
        kept = [i for i, one in enumerate(entries) if one.get("captured") is not True]
        if len(kept) < len(entries):
            self.columns = {column: values[kept] for column, values in of.items()}
            self.states, self.count = self.states[kept], len(kept)
        for i, made, state in zip(
            kept, self.columns[TIMES[0]].tolist(), self.states.tolist(), strict=True
        ):
            waiting = entries[i].get("waiting")
            if isinstance(waiting, dict) and state != State.ended:
                self.hints.append((made, self._hint(waiting, f"{self._one} {i}")))

    def _states_of(self, entries: list[dict[str, Any]]) -> Array:
        said = texts(entries, "state", self._one)
        codes = [_STATES.get(one, -1) for one in said]
        if -1 in codes:
            wrong = codes.index(-1)
            raise DumpError(f"{self._one} {wrong}: '{said[wrong]}' is no state of a call")
        states = np.array(codes, np.int8)
        # It waited for its turn on the host when another call failed.
        is_on_host = np.array([one.get("path") == "host" for one in entries])
        never_began = (states == State.failed) & (self.columns["started_ns"] == 0) & is_on_host
        states[never_began] = State.scheduled
        return states

    def _places(
        self, entries: list[dict[str, Any]], column: str, default: str | None = None
    ) -> Array:
        """The places of a member's texts among the names, which get those that they lack."""
        place_of = self._place_of
        return np.array([place_of.setdefault(one, len(place_of))
                         for one in texts(entries, column, self._one, default)])  # fmt: skip

    def _hint(self, waiting: dict[str, Any], where: str) -> Hint:
        peer = integer(waiting, "peer", where, -1, self._most)
        kind = text(waiting, "kind", where)
        channel, expected, got = (
            integer(waiting, one, where) for one in ("channel", "expected", "got")
        )
        what = f"{kind} of rank {peer} on channel {channel}, {expected} expected, {got} seen"
        return Hint("waiting", what, 0, peer)
