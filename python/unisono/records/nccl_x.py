"""NCCLX's `commDump`: the JSON of one communicator, or of all of a process by hash.

Values are JSON texts in JSON, or JSON itself. Calls are past, current or pending; times are
microseconds of the host's clock. Operations of the network that are under way name their peers.
"""

import json
import re
from typing import Any

from unisono.records.parts import (
    MAX_RANKS,
    Claim,
    Columns,
    DumpError,
    Hint,
    Part,
    State,
    integer,
    text,
)
from unisono.records.whose import rank_in_name

__all__ = ["is_comm_dump", "read_comm_dump"]

FORMAT = "ncclx"
_NAMED = re.compile(r"_(\d{1,7})(?:\.[A-Za-z]+)*$")
_SENDS = ("Send", "PutSignal")
_BYTES = {"64": 8, "32": 4, "16": 2, "half": 2, "float": 4, "double": 8, "int": 4}


def is_comm_dump(document: Any) -> bool:
    """Whether a JSON document is a dump of one communicator or of several."""
    if not isinstance(document, dict):
        return False
    return "commHash" in document or any(
        isinstance(one, dict) and "commHash" in one for one in document.values()
    )


def read_comm_dump(document: dict[str, Any], file: str) -> list[Part]:
    """The part of one process.

    Raises:
        DumpError: The dump is wrong.
    """
    dumps = [document] if "commHash" in document else [
        one for one in document.values() if isinstance(one, dict) and "commHash" in one
    ]  # fmt: skip
    columns, claims, hints, odd = Columns(), [], [], []
    has_hidden_call = False
    for index, raw in enumerate(dumps):
        dump = {str(name)[:80]: _value(value, str(name)[:80]) for name, value in raw.items()}
        where = f"communicator {text(dump, 'commHash', 'a communicator')}"
        size = integer(dump, "nRanks", where, 1, MAX_RANKS)
        place = integer(dump, "rank", where, 0, max(size, 1) - 1)
        if size < 1 or place < 0:
            raise DumpError(f"{where}: it has no 'rank' and 'nRanks'")
        name = text(dump, "commDesc", where, "") or text(dump, "commHash", where)
        claims.append(Claim(name, f"{FORMAT} {dump['commHash']} {name}", size, place))
        calls = []
        for field, state in (
            ("CT_pastColls", State.ended), ("CT_currentColls", State.started),
            ("CT_currentColl", State.started), ("CT_pendingColls", State.scheduled),
            ("CT_terminalColls", State.failed),
        ):  # fmt: skip
            calls += [(one, state) for one in _list(dump.get(field), f"{where}, {field}")]
        for number, (call, state) in enumerate(calls):
            values = _Values(call, f"{where}, call {number}")
            # A call that cannot be placed hides what its rank was doing.
            has_hidden_call = not _add(columns, index, values, state, size) or has_hidden_call
            odd += values.odd
        for field in ("PT_activeOps", "MT_unfinishedRequests"):
            for one in _list(dump.get(field), f"{where}, {field}"):
                hints += _network(one, index, size, f"{where}, {field}")
        for error in _list(dump.get("processGlobalErrors"), where):
            hints.append(Hint("error", str(_short(error)), index))
    if not claims:
        raise DumpError("it holds no communicator")
    world = max(claims, key=lambda claim: claim.size)
    named = rank_in_name(file, needs_word=True)
    if named < 0 and (found := _NAMED.search(file)):
        named = int(found[1])
    rank = named if named >= 0 else world.place
    if named < 0 and sum(claim.size == world.size for claim in claims) > 1:
        raise DumpError(
            "which rank it is of is unclear: no communicator is the largest, and its name does not "
            "end in a rank, as in commdump_rank_3.json"
        )
    arrays = columns.arrays()
    # The order in which the process made them, over all of its communicators.
    order = arrays["created"].argsort(kind="stable")
    return [
        Part(
            file, FORMAT, "1", ("world", rank), claims,
            {name: values[order] for name, values in arrays.items()}, list(columns.kinds),
            list(columns.types), hints, world.size, True,
            has_hidden_call=has_hidden_call, odd=odd, ids=tuple(claim.ident for claim in claims),
        )
    ]  # fmt: skip


def _value(value: Any, name: str) -> Any:
    """JSON in a text; texts that hold none are what they are."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value[:1] in ("[", "{", '"') or value == "null" else value
    except (ValueError, RecursionError) as error:
        raise DumpError(f"'{name}' holds no whole JSON ({str(error)[:80]})") from None


def _list(value: Any, where: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    values = value if isinstance(value, list) else [value]
    for one in values:
        if not isinstance(one, dict):
            raise DumpError(f"{where}: a {type(one).__name__} where an object is needed")
    return values


class _Values:
    """The values of a call; one that cannot be used is as one that is not there.

    Attributes:
        odd: What could not be used, a sentence each.
    """

    def __init__(self, call: dict[str, Any], where: str) -> None:
        self._call, self._where = call, where
        self.odd: list[str] = []

    def integer(self, name: str, least: int, most: int = 1 << 62, default: int = -1) -> int:
        """A number, or the default."""
        try:
            return integer(self._call, name, self._where, least, most, default)
        except DumpError as error:
            self.odd.append(str(error))
            return default

    def text(self, name: str) -> str:
        """A text, empty if there is none."""
        try:
            return text(self._call, name, self._where, "")
        except DumpError as error:
            self.odd.append(str(error))
            return ""


def _add(columns: Columns, group: int, call: _Values, state: State, ranks: int) -> bool:
    """Adds a call; whether its name and its number are known, without which it has no place."""
    kind = call.text("opName")
    number = call.integer("collId", 0)
    if number < 0:
        number = call.integer("opCount", 0)
    peer = call.integer("peer", 0, ranks - 1)
    is_message = kind.startswith(("Send", "Recv")) and peer >= 0
    if not kind or (number < 0 and not is_message):
        return False
    operation = call.text("redOp")
    if operation and "reduce" in kind.lower():
        kind = f"{kind} ({operation})"
    element = call.text("dataType") or call.text("datatype")
    count = call.integer("count", 0, 1 << 55)
    width = next((bytes_ for part, bytes_ in _BYTES.items() if part in element.lower()), 1)
    size = count * width if count >= 0 and element else -1
    times = [1000 * max(call.integer(f"{one}Ts", -(1 << 62), 1 << 52, 0), 0)
             for one in ("enqueue", "start", "end")]  # fmt: skip
    if state is State.started and times[1] == 0:
        state = State.scheduled
    columns.add(
        group, {"S": "send", "R": "recv"}[kind[0]] if is_message else kind,
        number=-1 if is_message else number, type=element,
        size=size, root=call.integer("root", 0, ranks - 1),
        peer=peer, state=state, times=times,
    )  # fmt: skip
    return True


def _network(one: dict[str, Any], group: int, ranks: int, where: str) -> list[Hint]:
    """What was put and not acknowledged."""
    names = ("remoteRank", "peer", "peerRank")
    peer = next((integer(one, name, where, 0, ranks - 1) for name in names if name in one), -1)
    if peer < 0 or one.get("status") == "DONE" or one.get("opType") == "RECV":
        return []
    what = text(one, "opType", where, "") or text(one, "type", where, "put")
    said = [f"{what} to rank {peer}"]
    if "channelId" in one:
        said.append(f"on channel {integer(one, 'channelId', where)}")
    steps = {name: _short(one.get(name)) for name in ("POSTED", "TRANSMITTED", "DONE")}
    sent, done = (integer(steps, name, where) for name in ("TRANSMITTED", "DONE"))
    if sent >= 0 and sent == done:
        return []
    said += [f"{name.lower()} {count}" for name, count in steps.items() if isinstance(count, int)]
    return [Hint("network", ", ".join(said), group, peer)]


def _short(value: Any) -> Any:
    """A counter, or how many there are of what has counters."""
    if isinstance(value, dict):
        value = value.get("step", value.get("steps", value.get("errorMessage")))
    return value[:120] if isinstance(value, str) else value if isinstance(value, int) else None
