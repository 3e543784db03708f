"""What logs say of who failed first, and how that agrees with the dumps."""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from unisono.doctor.diagnosis import Verdict
from unisono.doctor.job import ranks_text, sentence
from unisono.doctor.log_ranks import LogRanks
from unisono.records.logs.events import Event, What

__all__ = ["LogCause", "causes_in_logs"]

_SHOWN = 4
_QUOTED = 200
# Signals that a process is not ended by because another one failed.
_CRASHES = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS
)  # fmt: skip
# Xids that follow another one, or are about memory that was repaired. NVIDIA's list says what each
# is: https://docs.nvidia.com/deploy/xid-errors
_FOLLOWING_XIDS = (43, 45, 63, 92, 154)
# Xids that a program's own kernel can cause.
_PROGRAM_XIDS = (13, 31, 68, 69)
# A network card gives up a message: the retries are exceeded (IBV_WC_RETRY_EXC_ERR, 12).
_RETRIES_EXCEEDED = 12
_FLUSHED = 5  # IBV_WC_WR_FLUSH_ERR: it follows another error of the connection


@dataclass
class LogCause:
    """What lines of logs say is the cause.

    Attributes:
        ranks: Labels of ranks, or of hosts and cards where no line says which rank it is.
        is_root: It explains whatever else the logs and dumps show.
    """

    verdict: Verdict
    ranks: list[str]
    confidence: float
    evidence: list[str]
    is_root: bool = False
    difference: str = ""
    would_help: list[str] = field(default_factory=list)


def causes_in_logs(events: Sequence[Event], ranks: LogRanks) -> list[LogCause]:
    """The causes that the lines name, the first of which explains most."""
    logs = _Logs(events, ranks)
    rules = (
        logs.killed, logs.cards, logs.cuda, logs.raised, logs.ended, logs.still_running,
        logs.differing, logs.absent, logs.accused, logs.links, logs.network, logs.lost,
    )  # fmt: skip
    return [cause for rule in rules if (cause := rule()) is not None]


def _quote(event: Event) -> str:
    """The line, cut to what says most."""
    text = event.text.strip()
    return f"“{text}”" if len(text) <= _QUOTED else f"“{text[:_QUOTED]}…”"


def _label(rank: int) -> str:
    return f"rank {rank}"


class _Logs:
    """The events of all logs by kind, and the rules that read them."""

    def __init__(self, events: Sequence[Event], ranks: LogRanks) -> None:
        self._ranks = ranks
        self._of: dict[What, list[Event]] = {what: [] for what in What}
        for event in events:
            self._of[event.what].append(event)

    def _who(self, event: Event) -> str:
        rank = self._ranks.rank(event)
        if rank >= 0:
            return _label(rank)
        on = f" of host {event.host}" if event.host else ""
        if event.card:
            return f"the rank on GPU {event.card}{on}"
        if event.what is What.ended and event.local_rank >= 0:
            return f"local rank {event.local_rank}{on}"
        return f"process {event.process}{on}" if event.process else (
            f"a rank{on}" if on else "a rank")  # fmt: skip

    def _labels(self, events: Sequence[Event]) -> list[str]:
        return list(dict.fromkeys(self._who(event) for event in events))

    def killed(self) -> LogCause | None:
        """A process that crashed or was killed before the others."""
        crashed = [event for event in self._of[What.ended]
                   if _signal(event) in (*_CRASHES, signal.SIGKILL)]  # fmt: skip
        memory = self._of[What.out_of_memory]
        first = [event for event in crashed if event.is_first] or crashed
        # A scheduler that ends a job kills all of its ranks.
        if not first or (len(first) > 1 and not any(event.is_first for event in first)):
            by_kernel = self._labels(memory)
            if not by_kernel or len(by_kernel) > max(1, len(crashed)):
                return None
            return LogCause(Verdict.died, by_kernel, 0.9 if crashed else 0.8, [
                f"The kernel killed {who} for its memory." for who in by_kernel[:_SHOWN]
            ], is_root=True)  # fmt: skip
        labels = self._labels(first)
        evidence = [f"{self._who(one)} ended first, by {_signal_name(one)}: {_quote(one)}."
                    for one in first[:_SHOWN]]  # fmt: skip
        by_kernel = [who for who in self._labels(memory) if who in labels]
        evidence += [f"The kernel killed {who} for its memory." for who in by_kernel[:_SHOWN]]
        unknown = not by_kernel and any(_signal(one) == signal.SIGKILL for one in first)
        return LogCause(
            Verdict.died, labels, 0.95 if by_kernel or len(labels) == 1 else 0.7, evidence,
            is_root=True, would_help=["The kernel's log of its host: it names processes that were "
                                      "killed for their memory."] if unknown else [],
        )  # fmt: skip

    def cards(self) -> LogCause | None:
        """A GPU of which the kernel reports an error."""
        found = [event for event in self._of[What.device]
                 if event.code and event.code not in _FOLLOWING_XIDS]  # fmt: skip
        hardware = [event for event in found if event.code not in _PROGRAM_XIDS]
        named = hardware or found
        if not named:
            return None
        return LogCause(
            Verdict.gpu_error, self._labels(named), 0.9 if hardware else 0.8,
            [f"The kernel reports {one.reason} for {self._who(one)}: {_quote(one)}."
             for one in named[:_SHOWN]], is_root=True,
        )  # fmt: skip

    def cuda(self) -> LogCause | None:
        """A rank on which CUDA reports an error."""
        found = [event for event in self._of[What.device] if not event.code]
        labels = self._labels(found)
        if not labels:
            return None
        return LogCause(
            Verdict.gpu_error, labels, 0.85 if len(labels) == 1 else 0.6,
            [sentence(f"{self._who(one)} reports: {one.reason}") for one in _each(self, found)],
            is_root=True,
        )  # fmt: skip

    def _first_ended(self) -> list[Event]:
        """The ranks that a launcher names first, with an exit code of their own."""
        return [event for event in self._of[What.ended]
                if event.is_first and 0 < event.code < 128 and event.code != 124]  # fmt: skip

    def raised(self) -> LogCause | None:
        """A rank whose program ended by an exception that no other rank's failure explains."""
        firsts = {self._ranks.rank(event) for event in self._first_ended()}
        by_rank: dict[int, Event] = {}
        # Where no rank is known, an exception that no other explains is the first rank's.
        for event in sorted(self._of[What.raised], key=lambda one: (
            self._ranks.rank(one) < 0, self._ranks.rank(one) < 0 and one.reason != "own")
        ):  # fmt: skip
            rank = self._ranks.rank(event)
            if rank < 0 and len(firsts) == 1:
                rank = next(iter(firsts))
            by_rank.setdefault(rank, event)
        # A rank whose watchdog wrote lines about its calls afterwards went on.
        went_on = {self._ranks.rank(event): event.line for event in self._of[What.timed_out]}
        own = {
            rank: event for rank, event in by_rank.items()
            if rank >= 0 and event.reason == "own" and went_on.get(rank, 0) < event.line
        }  # fmt: skip
        named = {rank: own[rank] for rank in own if rank in firsts} or own
        # Without a launcher's word, others must show that they failed because of it.
        others = [*self._of[What.timed_out], *self._of[What.lost], *self._of[What.accused],
                  *(one for one in by_rank.values() if one.reason == "follows")]  # fmt: skip
        if not named or not (firsts & set(named) or others):
            return None
        return LogCause(
            Verdict.died, [_label(rank) for rank in sorted(named)],
            0.9 if firsts & set(named) else 0.75 if len(named) == 1 else 0.6,
            [f"An exception ended {_label(rank)}: {_quote(named[rank])}."
             for rank in sorted(named)[:_SHOWN]], is_root=True,
        )  # fmt: skip

    def ended(self) -> LogCause | None:
        """A rank that ended first with an exit code, for a reason that no line says."""
        follows = {self._ranks.rank(event) for event in self._of[What.raised]
                   if event.reason == "follows"}  # fmt: skip
        if self._of[What.timed_out] or -1 in follows:
            return None
        first = [event for event in self._first_ended() if self._ranks.rank(event) not in follows]
        aborted = [event for event in self._of[What.ended] if event.is_first
                   and _signal(event) == signal.SIGABRT and not follows]  # fmt: skip
        named = first or aborted
        codes = {event.code for event in self._of[What.ended] if not event.is_first}
        # Ranks that ended alike may all have had one cause, which is in the output of each.
        if not named or any(one.code in codes for one in named):
            return None
        return LogCause(
            Verdict.died, self._labels(named), 0.75,
            [f"{self._who(one)} ended first: {_quote(one)}." for one in named[:_SHOWN]],
            would_help=[f"The output of {ranks_text(self._labels(named))}."],
        )  # fmt: skip

    def still_running(self) -> LogCause | None:
        """A rank that ran when the others ended because of it, as `unisono run` says."""
        found = [one for event in self._of[What.accused] if event.reason == "first"
                 for one in event.peers]  # fmt: skip
        if not found:
            return None
        reasons = Counter(event.reason for event in self._of[What.accused]
                          if found[0] in event.peers and event.reason != "first")  # fmt: skip
        reason = reasons.most_common(1)[0][0] if reasons else "no answer"
        return LogCause(
            _VERDICTS.get(reason, Verdict.stuck_outside), [_label(found[0])], 0.85,
            [f"{_label(found[0])} still ran when the others ended because of it."],
            would_help=[f"A stack of {_label(found[0])} (py-spy dump)."],
        )  # fmt: skip

    def differing(self) -> LogCause | None:
        """Ranks whose call is not that of most."""
        made = {event.rank: (event.call, event.number, event.elements, event.reason)
                for event in self._of[What.differs]}  # fmt: skip
        counts = Counter(made.values()).most_common()
        if len(counts) < 2:
            return None
        most = counts[0][0]
        has_majority = counts[0][1] > sum(count for _, count in counts[1:])
        ranks = sorted(rank for rank in made if not has_majority or made[rank] != most)
        other = next(one for one, _ in counts if one != most)
        difference = next(name for name, a, b in zip(
            ("collective", "order", "size", "type"), most, other, strict=True
        ) if a != b)  # fmt: skip
        said = "; ".join(
            f"{ranks_text([_label(rank) for rank in sorted(made) if made[rank] == one])}: "
            + ", ".join(
                (
                    one[0],
                    *((f"call {one[1]}",) if one[1] >= 0 else ()),
                    *((f"{one[2]} elements",) if one[2] >= 0 else ()),
                )
            )
            for one, _ in counts[:_SHOWN]
        )
        return LogCause(
            Verdict.other_call, [_label(rank) for rank in ranks], 0.9 if has_majority else 0.5,
            [f"{said}."], difference=difference,
        )  # fmt: skip

    def absent(self) -> LogCause | None:
        """Ranks that a monitored barrier waited for."""
        found = sorted({peer for event in self._of[What.absent] for peer in event.peers})
        if not found:
            return None
        one = self._of[What.absent][0]
        labels = [_label(rank) for rank in found]
        return LogCause(
            Verdict.never_joined, labels, 0.85,
            [f"{self._who(one)} waited for {ranks_text(labels)} in a {one.call} for "
             f"{one.timeout_ms / 1000:g} s."],
            would_help=[f"A stack of {ranks_text(labels)} (py-spy dump)."],
        )  # fmt: skip

    def accused(self) -> LogCause | None:
        """The rank that most errors of Unisono name."""
        votes = Counter((peer, event.reason) for event in self._of[What.accused]
                        for peer in event.peers if event.reason != "first")  # fmt: skip
        if not votes:
            return None
        peers = Counter({peer: sum(count for (one, _), count in votes.items() if one == peer)
                         for peer, _ in votes})  # fmt: skip
        peer, count = peers.most_common(1)[0]
        reason = max((one for one in votes if one[0] == peer), key=lambda one: votes[one])[1]
        verdict = _VERDICTS.get(reason, Verdict.died)
        named = next(event for event in self._of[What.accused]
                     if peer in event.peers and event.reason == reason)  # fmt: skip
        evidence = [f"{count} {'error names' if count == 1 else 'errors name'} {_label(peer)}: "
                    f"{_quote(named)}."]  # fmt: skip
        if verdict is Verdict.undecided or (sum(votes.values()) > count * 2):
            return None
        return LogCause(verdict, [_label(peer)], 0.85 if count > 1 else 0.75, evidence,
                        difference="collective" if reason == "mismatch" else "")  # fmt: skip

    def links(self) -> LogCause | None:
        """A host on which a port of a network card failed, where messages were lost."""
        hosts = list(dict.fromkeys(event.host for event in self._of[What.link]))
        if not hosts or not (self._of[What.network] or self._of[What.lost]
                             or self._of[What.timed_out]):  # fmt: skip
            return None
        ranks = [f"host {one}" if one else "a host" for one in hosts]
        return LogCause(Verdict.network, ranks, 0.8 if len(ranks) == 1 else 0.6, [
            f"A port failed: {_quote(one)}." for one in self._of[What.link][:_SHOWN]
        ])  # fmt: skip

    def network(self) -> LogCause | None:
        """The end that most messages share which a network card gave up."""
        found = [event for event in self._of[What.network]
                 if event.peer and event.code != _FLUSHED]  # fmt: skip
        ends = {(self._end(event), self._peer(event.peer)) for event in found}
        if not ends:
            return None
        hosts = {self._end(event): self._ranks.host(event.host) for event in found}
        host_of_end = {one: hosts.get(one, one.removeprefix("host "))
                       for pair in ends for one in pair}  # fmt: skip
        counts = Counter(host for pair in ends for host in {host_of_end[one] for one in pair})
        (host, most), *rest = counts.most_common(2)
        evidence = [
            f"{self._end(one)} got status {one.code} for a message to or from "
            f"{self._peer(one.peer)}"
            + (": its card had no answer after all retries." if one.code == _RETRIES_EXCEEDED
               else ".") for one in found[:_SHOWN]
        ]  # fmt: skip
        would_help = ["Counters of the network cards and of the switch at these ranks."]
        if len(ends) > 1 and (not rest or most > rest[0][1]):
            named = sorted(one for one, of in host_of_end.items() if of == host)
            return LogCause(Verdict.network, named if len(named) == 1 else [f"host {host}"], 0.7,
                            evidence, would_help=would_help)  # fmt: skip
        return LogCause(Verdict.network, sorted({one for pair in ends for one in pair}), 0.5,
                        evidence, would_help=would_help)  # fmt: skip

    def _end(self, event: Event) -> str:
        rank = self._ranks.rank(event)
        return _label(rank) if rank >= 0 else f"host {self._ranks.host(event.host)}"

    def _peer(self, address: str) -> str:
        host = self._ranks.host(address)
        ranks = self._ranks.ranks_on(host)
        return _label(ranks[0]) if len(ranks) == 1 else f"host {host}"

    def lost(self) -> LogCause | None:
        """The one rank of a host whose connections ended."""
        ends = Counter(self._peer(event.peer) for event in self._of[What.lost]
                       if event.reason != "store")  # fmt: skip
        if len(ends) != 1:
            return None
        [end] = ends
        if not end.startswith("rank "):
            return None
        one = next(event for event in self._of[What.lost] if event.reason != "store")
        return LogCause(
            Verdict.died, [end], 0.6, [f"A connection to {end} ended: {_quote(one)}."],
            would_help=[f"The exit status or the kernel log of {end}."],
        )  # fmt: skip


# Unisono's reasons mean these verdicts.
_VERDICTS = {
    "gone": Verdict.died, "left": Verdict.never_joined, "no answer": Verdict.stuck_outside,
    "not in call": Verdict.stuck_outside, "mismatch": Verdict.other_call, "link": Verdict.network,
    "aborted": Verdict.aborted, "waits": Verdict.undecided, "unknown": Verdict.died,
}  # fmt: skip


def _each(logs: _Logs, events: Sequence[Event]) -> Iterator[Event]:
    """One event of each rank."""
    seen: set[str] = set()
    for event in events:
        who = logs._who(event)
        if who not in seen and len(seen) < _SHOWN:
            seen.add(who)
            yield event


def _signal(event: Event) -> int:
    """The signal that ended a process; 0 if none did. A shell gives 128 plus the signal."""
    return -event.code if event.code < 0 else max(event.code - 128, 0)


def _signal_name(event: Event) -> str:
    try:
        return signal.Signals(_signal(event)).name
    except ValueError:
        return f"signal {_signal(event)}"
