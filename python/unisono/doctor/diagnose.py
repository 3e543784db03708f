"""From a job to its diagnosis: the first call that is stuck, and why."""

import numpy as np

from unisono.doctor.causes import cause_of, found_dead, skipped
from unisono.doctor.diagnosis import Call, Cause, Diagnosis, GroupLine, Verdict
from unisono.doctor.differences import departed, differed_before
from unisono.doctor.job import Job, number_of, ranks_text
from unisono.doctor.match import SHIFT
from unisono.doctor.parts import State
from unisono.doctor.reports import judge_reports
from unisono.doctor.stuck import How, how_stuck
from unisono.doctor.timeline import timeline_of
from unisono.doctor.waits import Node, Waits

__all__ = ["diagnose"]

_SHOWN_GROUPS = 1000


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
    found.missing = _missing(job)
    found.groups = _groups(job, waits)
    found.problems, found.notes = job.problems, job.notes
    found.timeline = timeline_of(waits, stuck)
    found.evidence = [one[0].upper() + one[1:] for one in found.evidence]
    return found


def _judge(job: Job, waits: Waits, how: How) -> tuple[Diagnosis, int | None]:
    if not waits.nodes:
        return _nothing(job, waits), None
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
    return found, index


def _missing(job: Job) -> list[str]:
    """Ranks of any group that left no dump."""
    members = {one for group in job.groups for one in group.members}
    return [job.label(one) for one in sorted(members) if not job.processes[one].files]


def _begin(waits: Waits, node: Node) -> int:
    return min(int(waits.job.calls["created"][row]) for row in node.rows.values())


def _nothing(job: Job, waits: Waits) -> Diagnosis:
    missing = _missing(job)
    if not len(job.calls["group"]):
        text = "The files hold no calls, so that nothing can be said of the job."
        return Diagnosis(Verdict.undecided, 0.0, text,
                         would_help=["Dumps that record calls."])  # fmt: skip
    lasts: dict[int, int] = {}
    for (_, group), slot in waits.last.items():
        lasts[group] = max(slot, lasts.get(group, -1))
    for group in range(len(job.groups)):
        cause = differed_before(waits, group, lasts.get(group, -1) + 1)
        if cause is not None:
            text = f"Every call in these dumps has ended. {cause.evidence[0]} {cause.evidence[1]}"
            return Diagnosis(
                cause.verdict, cause.confidence, text, difference=cause.difference,
                ranks=[job.label(one) for one in cause.ranks], evidence=cause.evidence,
            )  # fmt: skip
    dead = found_dead(job)
    if dead is not None:
        label = ranks_text([job.label(one) for one in dead.ranks])
        text = (f"{dead.evidence[0]} There is no dump of {label}, and every call in the others' "
                "dumps has ended.")  # fmt: skip
        return Diagnosis(
            dead.verdict, dead.confidence, text, evidence=dead.evidence,
            ranks=[job.label(one) for one in dead.ranks], would_help=dead.would_help,
        )  # fmt: skip
    text = "Every call in these dumps has ended, and no rank waits for another."
    if missing:
        text += f" There are no dumps of {ranks_text(missing)}."
        return Diagnosis(Verdict.undecided, 0.0, text,
                         would_help=[f"The dumps of {ranks_text(missing)}."])  # fmt: skip
    return Diagnosis(
        Verdict.nothing_wrong, 0.9, text,
        evidence=[f"All {len(job.calls['group']):,} calls of "
                  f"{sum(bool(one.files) for one in job.processes)} ranks have ended."],
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
    Verdict.undecided: "what holds it up is not in the dumps",
}


def _paragraph(waits: Waits, node: Node, found: Diagnosis, waiting: int) -> str:
    who = ranks_text(found.ranks) if found.ranks else ""
    if found.verdict is Verdict.other_call:
        happened = f"{who} made a call that differs from the others' in its {found.difference}"
    else:
        is_or_are = number_of(found.ranks, "is", "are")
        happened = _SENTENCES[found.verdict].format(who=who, is_or_are=is_or_are)
    parts = [f"The first call that is stuck is {_what(waits, node)}: {happened}."]
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
