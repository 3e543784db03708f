"""Runs the bench: starts the ranks, and passes on what rank 0 reports."""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Self

from unisono import plans
from unisono.bench.cases import Case, Request, write_cases
from unisono.bench.machine import oversubscription
from unisono.bench.rows import Row
from unisono.errors import Error
from unisono.job_folder import job_folder
from unisono.launcher import launch
from unisono.netbed import CutSchedule, Netbed, parse_cut, parse_shape

# How soon the end of a job is noticed that reports nothing more.
_POLL_SECONDS = 0.1
# Of the launcher, after Ctrl-C and SIGTERM.
_INTERRUPTED = (130, 143)


class BenchError(Error):
    """The ranks failed; the text says in which case."""


def run(
    request: Request,
    cases: Sequence[Case],
    on_start: Callable[[Case], None] = lambda case: None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Measures the cases on fresh ranks of this machine.

    Args:
        request: Ranks, nodes and how long to measure.
        cases: What to measure, of `list_cases`.
        on_start: Told each case as it begins, by another thread.
        on_row: Told each row as it is there, by another thread.

    Raises:
        BenchError: A rank failed, or a call did.
        KeyboardInterrupt: Ctrl-C; the ranks have ended.
    """
    with job_folder() as job:
        (job / "request.json").write_text(json.dumps(request.to_json()))
        (job / "cases.json").write_text(write_cases(cases))
        cuts = [parse_cut(text, request.rails) for text in request.cuts]
        with (
            places_of(request) as places,
            CutSchedule(places, cuts) as schedule,
            _Listener(
                job / "results", request, cases, on_start, schedule.begin, on_row
            ) as listener,
        ):
            outcome = launch(
                ["-m", "unisono.bench.rank", "unisono.bench.worker", str(job)],
                request.ranks,
                nodes=request.nodes,
                environment={"UNISONO_DELAY": request.delay} if request.delay else {},
                prefix_output=False,
                places=places,
            )
    if outcome.exit_code in _INTERRUPTED and outcome.failed_rank is None:
        raise KeyboardInterrupt
    if not outcome.ok:
        during = f" during {_describe(listener.current)}" if listener.current else ""
        raise BenchError(f"the bench failed{during}: {outcome.message}")
    if schedule.missed:
        raise BenchError(
            f"all calls ended before the cut of {schedule.missed[0].describe()}; measure longer "
            "calls (--min) or more of them (--iterations)"
        )
    return listener.rows


def places_of(request: Request) -> contextlib.AbstractContextManager[Netbed | None]:
    """Where the ranks of a request run, for as long as the block lasts."""
    if not request.netbed:
        return contextlib.nullcontext()
    shape = f"{request.nodes}x{request.ranks // request.nodes}"
    return Netbed(parse_shape(shape, request.rate, request.rails))


class _Listener:
    """A thread that reads rank 0's reports while the block runs.

    Attributes:
        rows: What has been measured.
        current: The case that began last.
    """

    def __init__(
        self,
        pipe: Path,
        request: Request,
        cases: Sequence[Case],
        on_start: Callable[[Case], None],
        on_timed: Callable[[], None],
        on_row: Callable[[Row], None],
    ) -> None:
        self.rows: list[Row] = []
        self.current: Case | None = None
        self._request, self._cases = request, cases
        self._on_start, self._on_timed, self._on_row = on_start, on_timed, on_row
        self._ended = threading.Event()
        os.mkfifo(pipe)
        # Open for writing as well, so that reading never meets the end of file.
        self._descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._listen, name="bench listener")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        os.write(self._descriptor, b"\n")  # has the thread look at once
        self._thread.join()
        os.close(self._descriptor)

    def _listen(self) -> None:
        for line in self._lines():
            told = json.loads(line)
            case = self.current = self._cases[told["case"]]
            if "wrong" in told:
                self.rows.append(_row(case, self._request, told))
                self._on_row(self.rows[-1])
            elif "timed" in told:
                self._on_timed()
            else:
                self._on_start(case)

    def _lines(self) -> Iterator[bytes]:
        """Lines from the pipe, until the ranks have ended and it is empty."""
        rest = b""
        with DefaultSelector() as selector:
            selector.register(self._descriptor, EVENT_READ)
            while True:
                ended = self._ended.is_set()
                if selector.select(0 if ended else _POLL_SECONDS):
                    *lines, rest = (rest + os.read(self._descriptor, 1 << 16)).split(b"\n")
                    yield from filter(None, lines)
                elif ended:
                    return


def _row(case: Case, request: Request, told: dict[str, Any]) -> Row:
    algorithm, protocol = case.algorithm, case.protocol
    if not algorithm or not protocol:
        placement = plans.Placement(request.ranks, request.nodes)
        chosen = plans.choose(
            case.collective, case.bytes, placement, oversubscription(request.ranks)
        )
        protocol = protocol or chosen.protocol
        algorithm = algorithm or chosen.algorithm
    row = Row.of(
        case,
        request.nodes,
        algorithm,
        protocol,
        told["time_us"],
        told["wrong"],
        calls=told["calls"],
    )
    return replace(row, **{name: told[name] for name in ("repeats", "outliers")},
                   **{name: round(told[name], 3) for name in ("least_us", "most_us")})  # fmt: skip


def _describe(case: Case) -> str:
    by = f" by {case.algorithm}" if case.algorithm else ""
    over = f" over {case.protocol}" if case.protocol else ""
    return f"{case.collective} of {case.bytes} bytes{by}{over}"
