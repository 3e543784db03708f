"""From a job to its diagnosis: the first call that is stuck, and why."""

import numpy as np

from unisono.doctor.causes import cause_of, skipped
from unisono.doctor.diagnosis import Call, Cause, Diagnosis, GroupLine, OtherCause, Verdict
from unisono.doctor.differences import departed
from unisono.doctor.job import Job, number_of, ranks_text
from unisono.doctor.logs import with_logs
from unisono.doctor.match import SHIFT
from unisono.doctor.quiet import judge_quiet, missing_ranks
from unisono.doctor.reports import judge_reports
from unisono.doctor.stuck import How, how_stuck
from unisono.doctor.timeline import timeline_of
from unisono.doctor.waits import Node, Waits
from unisono.records.parts import State

__all__ = ["diagnose"]

_SHOWN_GROUPS = 1000
# A cause that is named after another one is what a rank did, or did not, by its own dump.
_LEAST_WEIGHT = 4


def diagnose(job: Job) -> Diagnosis:
    """Says which call is the first that is stuck, and which ranks are to blame.

    Where the dumps do not show it, the verdict is `undecided` and says what is missing.
    """
    waits = Waits(job)
    how = how_stuck(waits)
    found, stuck = _judge(job, waits, how)
    reported = judge_reports(job)
    if reported is not None and (
        not job.processes or not found.verdict.blames or reported.verdict is Verdict.died
    ):
        reported.call = found.call
        found = reported
    found = with_logs(job, found)
    if job.doubts and found.verdict is not Verdict.undecided:
        found = _doubtful(job, found)
    found.missing = missing_ranks(job)
    found.groups = _groups(job, waits)
    found.problems, found.notes = job.problems, job.notes
    found.timeline = timeline_of(waits, stuck)
    found.evidence = [one[0].upper() + one[1:] for one in found.evidence]
    return found


def _judge(job: Job, waits: Waits, how: How) -> tuple[Diagnosis, int | None]:
    if not waits.nodes:
        return judge_quiet(job, waits), None
    causes = {index: cause for index in range(len(waits.nodes))
              if (cause := cause_of(waits, index)) is not None}  # fmt: skip
    reach = {index: waits.reached_from(index) for index in range(len(waits.nodes))}
    if causes:
        index = max(causes, key=lambda one: (
            causes[one].verdict.blames, causes[one].is_certain,
            sum(one in each for each in reach.values()), causes[one].weight,
            -_begin(waits, waits.nodes[one]),
        ))  # fmt: skip
        cause, cycle = causes[index], []
    else:
        cycles = {index: waits.cycle(index) for index in range(len(waits.nodes))}
        index = min((one for one in cycles if cycles[one]), key=lambda one: len(cycles[one]))
        cause, cycle = _deadlock(waits, cycles[index]), cycles[index]
    node = waits.nodes[index]
    if how.is_stuck is not True and not cause.is_lasting:
        return _not_stuck(waits, node, cause, how), index
    waiting = sum(index in each for each in reach.values()) - 1
    found = Diagnosis(
        cause.verdict, cause.confidence, ranks=[job.label(one) for one in cause.ranks],
        difference=cause.difference, call=_call(waits, node),
        evidence=[*cause.evidence, how.why], would_help=cause.would_help,
        cycle=[_edge(waits, a, b) for a, b in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True)],
    )  # fmt: skip
    found.paragraph = _paragraph(waits, node, found, waiting)
    if cause.verdict.blames:
        found.others = _others(waits, index, causes, reach)
    return found, index


def _others(
    waits: Waits, main: int, causes: dict[int, Cause], reach: dict[int, set[int]]
) -> list[OtherCause]:
    """Causes that no other one explains: the dumps show them, and they blame other ranks.

    A call that waits for a call with a cause is explained by it. What a rank of another cause did
    afterwards, or left out, follows from that. Where a failed call looks like one that ended, ranks
    that gave up look idle, so that one cause alone is named.
    """
    job = waits.job
    named = set(causes[main].ranks) if main in causes else set()
    if main not in causes or job.silent:
        return []
    found = []
    # The cause that blames the fewest ranks comes first: it explains what the others wait for.
    for index in sorted(causes, key=lambda one: (
        -causes[one].weight, len(causes[one].ranks), _begin(waits, waits.nodes[one])
    )):  # fmt: skip
        cause, node = causes[index], waits.nodes[index]
        is_explained = any(one in causes and causes[one].verdict.blames
                           for one in reach[index] - {index})  # fmt: skip
        if index == main or is_explained or not cause.verdict.blames or (
            cause.weight < _LEAST_WEIGHT or named.intersection(cause.ranks)):  # fmt: skip
            continue
        named |= set(cause.ranks)
        one = Diagnosis(
            cause.verdict, cause.confidence, ranks=[job.label(rank) for rank in cause.ranks],
            difference=cause.difference, evidence=cause.evidence,
        )  # fmt: skip
        found.append(OtherCause(
            one.verdict, one.ranks, one.confidence, _call(waits, node), one.difference,
            _paragraph(waits, node, one, 0, "Independent of it, a call that is stuck"),
            one.evidence,
        ))  # fmt: skip
    return found


def _begin(waits: Waits, node: Node) -> int:
    return min(int(waits.job.calls["created"][row]) for row in node.rows.values())


def _doubtful(job: Job, found: Diagnosis) -> Diagnosis:
    """Dumps that may be of several runs show nothing together."""
    ranks = f": {ranks_text(found.ranks)}" if found.ranks else ""
    return Diagnosis(
        Verdict.undecided, 0.0, f"{job.doubts[0]} If all files are of one run, the verdict is "
        f"'{found.verdict}'{ranks}.", call=found.call, evidence=[*job.doubts[:8], *found.evidence],
        would_help=["The files of one run alone."],
    )  # fmt: skip


def _not_stuck(waits: Waits, node: Node, cause: Cause, how: How) -> Diagnosis:
    call = _call(waits, node)
    what = _what(waits, node)
    if how.is_stuck is False:
        late = [*call.absent] or [waits.job.label(one) for one in cause.ranks]
        last = f" The last to join: {ranks_text(late)}." if late else ""
        return Diagnosis(
            Verdict.slow, 0.8, f"{what} was under way when the dumps were made, but not for longer "
            f"than calls of this job take.{last}", call=call, evidence=[how.why],
        )  # fmt: skip
    suspects = ranks_text([waits.job.label(one) for one in cause.ranks]) if cause.ranks else ""
    if_stuck = f" If the job is stuck, the verdict is '{cause.verdict}': {suspects}." if (
        suspects) else ""  # fmt: skip
    return Diagnosis(
        Verdict.undecided, 0.0, f"{what} was under way when the dumps were made, and they do not "
        f"show whether it is stuck.{if_stuck}", call=call, evidence=[how.why, *cause.evidence],
        would_help=["Dumps that were made when a call timed out, with the times of their files "
                    "(cp -p, tar).", *cause.would_help],
    )  # fmt: skip


def _deadlock(waits: Waits, cycle: list[int]) -> Cause:
    """Ranks that went to another group early are named where their earlier calls show it."""
    job = waits.job
    early = set()
    everyone = set()
    for one in cycle:
        node = waits.nodes[one]
        for other, processes in node.blockers.items():
            if other not in cycle:
                continue
            everyone |= processes
            if node.slot < 0 or waits.nodes[other].slot < 0:
                continue
            early |= {
                process
                for process in processes
                if process in waits.nodes[other].rows
                and skipped(waits, process, node.group, waits.nodes[other].rows[process])
            }
    evidence = ["The calls wait for each other, so that none of them can end."]
    alone = departed(waits, sorted(everyone))
    if alone is not None:
        alone.evidence[:0] = evidence
        return alone
    ranks = sorted(early or everyone)
    if early:
        evidence.append(f"{ranks_text([job.label(one) for one in ranks])} made fewer calls of the "
                        "one group before the call of the other than in earlier rounds: in another "
                        "order, or without one of them.")  # fmt: skip
    would_help = [] if early else ["The order in which the program means the groups' calls."]
    confidence = 0.9 if early else 0.75
    return Cause(Verdict.deadlock, ranks, confidence, 3, evidence, "order", would_help)


def _edge(waits: Waits, one: int, other: int) -> str:
    node = waits.nodes[one]
    busy = ranks_text([waits.job.label(process) for process in sorted(node.blockers[other])])
    return f"{_what(waits, node)} waits for {busy}, in {_what(waits, waits.nodes[other])}."


def _what(waits: Waits, node: Node) -> str:
    kinds = sorted({waits.job.kinds[waits.job.calls["kind"][row]] for row in node.rows.values()})
    group = waits.job.groups[node.group]
    if node.slot < 0:
        ranks = ranks_text([waits.job.label(one) for one in sorted(
            {*node.rows, *node.absent, *node.unknown})])  # fmt: skip
        return f"A message ({' and '.join(kinds)}) between {ranks} in group {group.name}"
    return f"{' or '.join(kinds)}, call {node.number} of group {group.name} ({group.size} ranks)"


def _call(waits: Waits, node: Node) -> Call:
    job = waits.job
    kinds = sorted({job.kinds[job.calls["kind"][row]] for row in node.rows.values()})
    ended = [one for one, row in node.rows.items() if waits.state(row) is State.ended]

    def labels(processes: list[int]) -> list[str]:
        return [job.label(one) for one in sorted(processes)]

    return Call(job.groups[node.group].name, node.number, " or ".join(kinds), labels([*node.rows]),
                labels(node.absent), labels(node.unknown), labels(ended))  # fmt: skip


_SENTENCES = {
    Verdict.never_joined: "{who} never joined it",
    Verdict.stuck_outside: "{who} did not join it, and {is_or_are} stuck outside communication",
    Verdict.died: "{who} died, as far as the dumps show",
    Verdict.aborted: "the program aborted the group on {who}",
    Verdict.gpu_error: "{who} had an error",
    Verdict.network: "all ranks have joined it, and data to or from {who} do not arrive",
    Verdict.deadlock: "it is part of a deadlock across groups, which {who} closed",
    Verdict.undecided: "what holds it up is not in the files",
}


def _paragraph(
    waits: Waits, node: Node, found: Diagnosis, waiting: int,
    subject: str = "The first call that is stuck",
) -> str:  # fmt: skip
    who = ranks_text(found.ranks) if found.ranks else ""
    if found.verdict is Verdict.other_call:
        happened = f"{who} made a call that differs from the others' in its {found.difference}"
    else:
        is_or_are = number_of(found.ranks, "is", "are")
        happened = _SENTENCES[found.verdict].format(who=who, is_or_are=is_or_are)
    parts = [f"{subject} is {_what(waits, node)}: {happened}."]
    parts += found.evidence[:2]
    if waiting > 0:
        parts.append(f"{waiting} other call{'s' if waiting > 1 else ''} under way "
                     f"wait{'' if waiting > 1 else 's'} for it.")  # fmt: skip
    return " ".join(one[0].upper() + one[1:] for one in parts)


def _groups(job: Job, waits: Waits) -> list[GroupLine]:
    lasts: dict[int, dict[int, int]] = {}
    for (process, of), slot in waits.last.items():
        lasts.setdefault(of, {})[process] = slot
    first_open: dict[tuple[int, int], int] = {}
    for node in waits.nodes:
        for process, row in node.rows.items():
            if node.slot >= 0 and waits.state(row) is not State.ended:
                key = (process, node.group)
                first_open[key] = min(node.slot, first_open.get(key, node.slot))
    lines = []
    for index, group in enumerate(job.groups[:_SHOWN_GROUPS]):
        made = lasts.get(index, {})
        covered = [one for one, is_covered in zip(group.members, group.covered, strict=True)
                   if is_covered]  # fmt: skip
        furthest = max(made.values(), default=-1)
        ended = [min(made.get(one, -1), first_open.get((one, index), 1 << 62) - (1 << SHIFT))
                 for one in covered]  # fmt: skip
        behind = [job.label(one) for one in covered if made.get(one, -1) < furthest]
        all_ended = _number(min(ended, default=-1))
        lines.append(
            GroupLine(group.name, group.size, len(covered), all_ended, _number(furthest), behind)
        )
    return lines


def _number(slot: int) -> int:
    return int(np.maximum(slot >> SHIFT, -1))
