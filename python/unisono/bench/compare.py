"""The comparison: the same calls by this library and others, in turn, size by size."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from unisono import plans
from unisono.bench import peers
from unisono.bench.cases import Case, Request
from unisono.bench.copies import copy_bandwidth_gb_s
from unisono.bench.driver import places_of
from unisono.bench.group import Command, Group, PeerError, Times
from unisono.bench.machine import oversubscription
from unisono.bench.peers import OURS, Variant
from unisono.bench.repeats import BARRIERS, count_outliers, fitting_calls, skew_seconds
from unisono.bench.rows import Row
from unisono.errors import MisuseError
from unisono.job_folder import job_folder
from unisono.names import check_names

COMPARED = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "all_to_all",
    "send_recv",
)

# Every round measures each library once; what disturbs the machine for a moment then disturbs one
# round of all rather than all rounds of one.
_ROUNDS = 5
_REPEATS = 3
# A first guess at a call's time, in which reading the clock does not count.
_GUESS_SECONDS = 0.001
_GUESSES = 3
# The difference to a call timed alone is what the ranks' unequal starts add.
_FEWEST_GUESSED = 2
# A call this slow is repeated once a round.
_SLOW_SECONDS = 0.05
# Warm-up calls, as a share of the timed ones.
_WARM_UP_SHARE = 4
_COMMAND_SECONDS = 120.0


@dataclass
class Comparison:
    """What was measured.

    Attributes:
        rows: For each case one row of each implementation: of its best settings there, which
            `algorithm` names.
        libraries: What each variant's library calls itself.
        left_out: Cases for which no time was left.
        copy_gb_s: How fast a core copies memory, in GB/s, measured before.
    """

    rows: list[Row] = field(default_factory=list)
    libraries: dict[str, str] = field(default_factory=dict)
    left_out: list[Case] = field(default_factory=list)
    copy_gb_s: float = 0.0


def comparison_cases(request: Request) -> list[Case]:
    """The cases of a request, the smallest first, so that little is lost if time runs out.

    Raises:
        MisuseError: The request has what is not compared.
    """
    check_names("compared collective", request.collectives, COMPARED)
    if request.ranks < 2:
        raise MisuseError(f"a comparison on {request.ranks} rank; it must be 2 ranks or more")
    fixed = {
        "type": (request.type, "float32"),
        "operation": (request.operation, "sum"),
        "root": (request.root, 0),
        "nodes": (request.nodes if not request.netbed else 1, 1),
        "delay": (request.delay, ""),
        "algorithm": (request.algorithms, ["auto"]),
        "protocol": (request.protocols, ["auto"]),
    }
    for name, (given, only) in fixed.items():
        if given != only:
            shown = only[0] if isinstance(only, list) else only
            raise MisuseError(
                f"{name} is {given}; compared with other libraries it must be {shown or 'none'}"
            )
    cases = []
    for size in request.sizes:
        for collective in request.collectives or COMPARED:
            one = Case(collective, 1, request.type, request.ranks, in_place=request.in_place)
            count = max(1, size // one.bytes)
            cases.append(
                Case(collective, count, request.type, request.ranks, in_place=request.in_place)
            )
    return list(dict.fromkeys(cases))


def compare(
    request: Request,
    against: Sequence[str],
    cases: Sequence[Case],
    *,
    stop_after: float = 0.0,
    on_start: Callable[[Case], None] = lambda case: None,
    on_rows: Callable[[list[Row]], None] = lambda rows: None,
    complain: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Measures cases by this library and the peers named, on ranks that sleep in between.

    Args:
        request: Ranks and how long to measure.
        against: Names of `peers.PEERS`.
        cases: What to measure, of `comparison_cases`.
        stop_after: Seconds after which no further case begins; 0 for no limit.
        on_start: Told each case as it begins.
        on_rows: Told each case's rows as they are there.
        complain: Called with a warning where fewer settings of a peer are measured than exist.

    Raises:
        MachineError: A peer is not installed.
        PeerError: All of a library's settings failed.
    """
    check_names("library", against, peers.PEERS)
    begin = time.monotonic()
    done = Comparison(copy_gb_s=copy_bandwidth_gb_s(request.ranks))
    with ExitStack() as stack:
        folder = stack.enter_context(job_folder())
        bed = stack.enter_context(places_of(request))
        variants = [peers.ours(request.ranks, bed)]
        for peer in against:
            variants += peers.variants_of(peer, request.ranks, folder, bed)
        groups = peers.start_all(variants, request.ranks, complain)
        for group in groups.values():
            stack.callback(group.close)
        done.libraries = {variant.name: group.description for variant, group in groups.items()}
        for index, case in enumerate(cases):
            if stop_after and time.monotonic() - begin > stop_after:
                done.left_out = list(cases[index:])
                break
            on_start(case)
            rows = _rows(case, request.nodes, _Turns(case, request, groups, complain).take())
            done.rows += rows
            on_rows(rows)
    return done


@dataclass
class _Result:
    """The result of one variant in one case."""

    calls: int = 1
    repeats: int = _REPEATS
    us: list[float] = field(default_factory=list)
    wrong: int = 0


class _Turns:
    """The libraries' turns in one case."""

    def __init__(
        self,
        case: Case,
        request: Request,
        groups: dict[Variant, Group],
        complain: Callable[[str], None],
    ) -> None:
        self._case, self._request, self._groups = case, request, groups
        self._complain = complain
        self._results: dict[Variant, _Result] = {}

    def take(self) -> dict[Variant, _Result]:
        """All rounds, of those that did not fail."""
        for variant in list(self._groups):
            self._attempt(self._plan, variant)
        for turn in range(_ROUNDS):
            order = list(self._groups)
            first = turn % len(order)
            for variant in order[first:] + order[:first]:
                self._attempt(self._measure, variant)
        return {variant: self._results[variant] for variant in self._groups}

    def _attempt(self, action: Callable[[Variant], None], variant: Variant) -> None:
        """Settings of a peer that fail are given up, as long as the peer has others."""
        try:
            action(variant)
        except PeerError as error:
            self._groups.pop(variant).close()
            if all(other.implementation != variant.implementation for other in self._groups):
                raise
            self._complain(str(error))

    def _plan(self, variant: Variant) -> None:
        """Decides how many calls a repeat has.

        By the quickest of several guesses: one in which a rank lost its core would leave too few
        calls, and their time would be that of ranks that begin one after another.
        """
        first = self._tell(variant, warm_up=1, repeats=1, calls=1).us[0]
        if first * 1e-6 > _SLOW_SECONDS:
            self._results[variant] = _Result(self._request.iterations or 1, 1)
            return
        first = min(self._tell(variant, warm_up=1, repeats=_GUESSES, calls=1).us)
        calls = max(_FEWEST_GUESSED, fitting_calls(_GUESS_SECONDS, first * 1e-6))
        guess = min(self._tell(variant, warm_up=0, repeats=_GUESSES, calls=calls).us)
        self._results[variant] = _Result(
            self._request.iterations or self._calls(first * 1e-6, guess * 1e-6, calls),
            1 if guess * 1e-6 > _SLOW_SECONDS else _REPEATS,
        )

    def _calls(self, single_seconds: float, call_seconds: float, calls: int) -> int:
        """Calls of a repeat, from the times of a call alone and of one among so many."""
        skew = skew_seconds(single_seconds, call_seconds, calls)
        seconds = self._request.seconds / (_ROUNDS * _REPEATS)
        return fitting_calls(max(seconds, BARRIERS * skew), call_seconds - skew / calls)

    def _measure(self, variant: Variant) -> None:
        result = self._results[variant]
        warm_up = max(1, result.calls // _WARM_UP_SHARE)
        times = self._tell(variant, warm_up, result.repeats, result.calls)
        result.us += times.us
        result.wrong += times.wrong

    def _tell(self, variant: Variant, warm_up: int, repeats: int, calls: int) -> Times:
        case = self._case
        command = Command(case.collective, case.count, case.in_place, warm_up, repeats, calls)
        return self._groups[variant].measure(command, _COMMAND_SECONDS)


def _rows(case: Case, nodes: int, results: dict[Variant, _Result]) -> list[Row]:
    """A row for each implementation, of its fastest settings; ours first."""
    best: dict[str, tuple[float, Variant]] = {}
    for variant, result in results.items():
        median = statistics.median(result.us)
        if variant.implementation not in best or median < best[variant.implementation][0]:
            best[variant.implementation] = (median, variant)
    rows = []
    for implementation, (median, variant) in best.items():
        algorithm, protocol = variant.settings, ""
        if implementation == OURS and case.collective != "send_recv":
            placement = plans.Placement(case.ranks, nodes)
            chosen = plans.choose(
                case.collective, case.bytes, placement, oversubscription(case.ranks)
            )
            algorithm, protocol = chosen.algorithm, chosen.protocol
        wrong = results[variant].wrong
        calls = results[variant].calls
        row = Row.of(case, nodes, algorithm, protocol, median, wrong, implementation, calls)
        us = results[variant].us
        rows.append(replace(
            row, least_us=round(min(us), 3), most_us=round(max(us), 3), repeats=len(us),
            outliers=count_outliers(us, median),
        ))  # fmt: skip
    return rows
