"""The output of nccl-tests and rccl-tests: their tables, and the JSON of both.

Launchers and containers put time stamps, ranks, names of services or colours before a table's rows.
The reader therefore finds a row by its own columns, wherever they begin.

nccl-tests writes JSON with `-J FILE` (its util.cu of 2.18), rccl-tests with `-Z json -x FILE`.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from unisono.errors import MisuseError
from unisono.simulate.nccl.choice import Call
from unisono.simulate.nccl.fit import Point
from unisono.simulate.nccl.machine import MachineFile

# The model has these collectives; nccl-tests' programs name them so.
_PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}  # fmt: skip
MODELLED = tuple(_PROGRAMS.values())
_EXAMPLES = ", ".join(f"{name}_perf" for name in _PROGRAMS)
# The model does not have the calls of these programs.
_OTHERS = (
    "all_reduce_bias", "alltoallv", "broadcast", "gather", "hypercube", "reduce", "scatter",
    "sendrecv",
)  # fmt: skip
# A program's name may have a prefix, and a suffix as all_reduce_perf_mpi has.
_PROGRAM = re.compile(
    rf"(?<![A-Za-z0-9_])(?:\w*?_)??({'|'.join((*_PROGRAMS, *_OTHERS))})_perf(?![a-z0-9])"
)
# From 2.17 on each run begins with this line.
_STARTING = re.compile(r"# Collective test starting: (\S+)")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s+.*?\bon\s+(\S+)")
# A row has bytes, elements, type, operation, root, and the time out of place. A root has at most
# six digits: tables of old versions have a time there, which has a point or seven digits.
_ROW = re.compile(
    r"(?<![\w.])(\d{1,18})\s+(\d{1,18})\s+([a-z]\w*)\s+(\w+)\s+(-1|\d{1,6})\s+"
    r"(\d{1,18}(?:\.\d*)?(?:e[+-]?\d{1,3})?)\s+[\d.]"
)
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# No machine has more ranks; a wrong number in JSON must not take memory.
_MOST_RANKS = 1 << 20
_IS_JSON = re.compile(r"\s*(?:\{|\[\s*\{)")


@dataclass
class _Run:
    """A run of a program, as the lines before its rows describe it.

    Attributes:
        program: As it is named; empty: none was named yet.
        collective: Empty: one that the model does not have.
        hosts: By rank.
    """

    program: str = ""
    collective: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    has_rows: bool = False


def is_nccl_tests(text: str) -> bool:
    """Whether a text is nccl-tests' or rccl-tests' output: a table with a row, or their JSON."""
    if _IS_JSON.match(text):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if isinstance(document, list):
            return "inPlace" in document[0]
        return "results" in document and "args" in document
    return any(_ROW.search(_COLOUR.sub("", line)) for line in text.splitlines())


def parse_nccl_tests(
    text: str, where: str, machine: MachineFile, ranks: int = 0, nodes: int = 0
) -> list[Point]:
    """Reads the times out of place; several runs may follow each other in a table.

    Rows of programs that the model does not have, such as broadcast_perf, are left out.

    Args:
        text: A table, or JSON.
        where: Its name, for messages.
        machine: Where it was measured.
        ranks: The number of ranks, where the text does not say it; 0: it does.
        nodes: The number of nodes, where the text does not say it.

    Raises:
        MisuseError: There is no row, a row is of one device, or no program or no devices are named
            before it.
    """
    left_out: set[str] = set()
    rows = _rows_of_json if _IS_JSON.match(text) else _rows_of_table
    found = []
    for place, run, size, time_us in rows(text, where):
        if size <= 0 or not 0 < time_us < math.inf:
            continue
        if not run.program:
            raise MisuseError(
                f"{place}: no program is named before the rows; give the command's line too, as: "
                f"{_EXAMPLES}"
            )
        if not run.collective:
            left_out.add(run.program)
            continue
        count = ranks or len(run.hosts)
        _check_ranks(place, count)
        on = nodes or len(set(run.hosts.values())) or -(-count // _local(machine))
        found.append(Point(machine, Call(run.collective, size, count, on), time_us))
    if left_out and not found:
        raise MisuseError(
            f"{where} has rows of {', '.join(sorted(left_out))} alone, which NCCL's model does not "
            f"have; it has {_EXAMPLES}"
        )
    if not found:
        raise MisuseError(
            f"{where} has no row of nccl-tests: bytes, elements, type, operation, root and a time"
        )
    return found


def _check_ranks(place: str, count: int) -> None:
    if count == 0:
        raise MisuseError(f"{place}: no devices are listed before the rows; say --ranks, --nodes")
    if count == 1:
        raise MisuseError(
            f"{place}: one device is listed, and one rank sends nothing; if each process printed a "
            "table of its own, build nccl-tests with MPI=1, or say --ranks and --nodes"
        )


def _local(machine: MachineFile) -> int:
    return int(machine.hardware.ranks_per_node.value)


def _program(line: str) -> tuple[str, str] | None:
    """The program that a line names, and the collective of the model that it runs."""
    starting = _STARTING.search(line)
    if found := list(_PROGRAM.finditer(starting[1] if starting else line)):
        one = next((match for match in found if match[1] in _PROGRAMS), found[0])
        return one[0], _PROGRAMS.get(one[1], "")
    return (starting[1], "") if starting else None


_Row = tuple[str, _Run, int, float]


def _rows_of_table(text: str, where: str) -> Iterator[_Row]:
    run = _Run()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _COLOUR.sub("", raw)
        if program := _program(line):
            run.program, run.collective = program
        if rank := _RANK.search(line):
            if run.has_rows:
                run = _Run(run.program, run.collective)
            run.hosts[int(rank[1])] = rank[2]
        row = _ROW.search(line)
        if row is None:
            continue
        run.has_rows = True
        yield f"{where}:{number}", run, int(row[1]), float(row[6])


def _rows_of_json(text: str, where: str) -> Iterator[_Row]:
    try:
        document = json.loads(text)
        parse: Callable[[Any, str], Iterator[_Row]]
        parse = _rows_of_rccl if isinstance(document, list) else _rows_of_nccl
        yield from parse(document, where)
    except MisuseError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise MisuseError(f"{where} is not nccl-tests' or rccl-tests' JSON: {what}") from None


def _rows_of_nccl(document: Any, where: str) -> Iterator[_Row]:
    """Reads nccl-tests' JSON, whose list of devices has only the first one of each process."""
    config = document["config"]
    each = _bounded(int(config["nthreads"]) * int(config["ngpus"]), "ngpus")
    _bounded(each * len(config["devices"]), "devices")
    run = _Run(*(_program(str(document["args"][0])) or ("", "")))
    for one in config["devices"]:
        first = int(one["rank"])
        run.hosts |= {rank: str(one["hostname"]) for rank in range(first, first + each)}
    for number, row in enumerate(document["results"]):
        measured = row["out_of_place"]
        time_us = float(measured.get("time", 0)) if measured else 0.0
        yield f"{where}: result {number}", run, int(row["size"]), time_us


def _rows_of_rccl(document: Any, where: str) -> Iterator[_Row]:
    """Reads rccl-tests' JSON, whose ranks are processes of several GPUs each.

    Builds without MPI do not write how many there are.
    """
    for number, row in enumerate(document):
        name = str(row["name"])
        run = _Run(name, _PROGRAMS.get(_rccl_program(name), ""))
        count = _bounded(int(row.get("ranks", 0)) * int(row.get("gpusPerRank", 1)), "ranks")
        nodes = int(row.get("nodes", 1))
        run.hosts = {rank: str(rank * nodes // count) for rank in range(count)}
        if int(row["inPlace"]) == 0:
            yield f"{where}: row {number}", run, int(row["size"]), float(row["time"])


def _bounded(ranks: int, what: str) -> int:
    if not 0 <= ranks <= _MOST_RANKS:
        raise ValueError(f"{what} make {ranks} ranks; at most {_MOST_RANKS} are read")
    return ranks


def _rccl_program(name: str) -> str:
    """The program of a collective that rccl-tests calls AllReduce, AlltoAll and so on."""
    plain = name.lower().replace("_", "")
    return next((one for one in _PROGRAMS if one.replace("_", "") == plain), "")
