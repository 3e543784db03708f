"""Jobs of which no call is under way: whether nothing is wrong, or the dumps do not show it."""

from unisono.doctor.causes import found_dead
from unisono.doctor.diagnosis import Diagnosis, Verdict
from unisono.doctor.differences import differed_before
from unisono.doctor.job import Job, number_of, ranks_text, sentence
from unisono.doctor.match import SHIFT
from unisono.doctor.waits import Waits

__all__ = ["judge_quiet", "missing_ranks"]

_SHOWN = 8


def missing_ranks(job: Job) -> list[str]:
    """Ranks of any group that left no dump."""
    members = {one for group in job.groups for one in group.members}
    return [job.label(one) for one in sorted(members) if not job.processes[one].files]


def judge_quiet(job: Job, waits: Waits) -> Diagnosis:
    """The verdict where every call that the dumps hold is over."""
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
    missing = missing_ranks(job)
    dead = found_dead(job)
    if dead is not None:
        label = ranks_text([job.label(one) for one in dead.ranks])
        text = (f"{dead.evidence[0]} There is no dump of {label}, and every call in the others' "
                "dumps has ended.")  # fmt: skip
        return Diagnosis(
            dead.verdict, dead.confidence, text, evidence=dead.evidence,
            ranks=[job.label(one) for one in dead.ranks], would_help=dead.would_help,
        )  # fmt: skip
    open_points = _not_shown(job, waits, lasts)
    if open_points:
        return Diagnosis(
            Verdict.undecided, 0.0, "No call in these dumps is under way, but they do not show "
            f"that nothing is wrong. {open_points[0]}", evidence=open_points,
            would_help=[f"The dumps of {ranks_text(missing)}."] if missing else
            ["The exit status and the output of the ranks."],
        )  # fmt: skip
    return Diagnosis(
        Verdict.nothing_wrong, 0.9, "Every call in these dumps has ended, and no rank waits for "
        "another.",
        evidence=[f"All {len(job.calls['group']):,} calls of "
                  f"{sum(bool(one.files) for one in job.processes)} ranks have ended."],
    )  # fmt: skip


def _not_shown(job: Job, waits: Waits, lasts: dict[int, int]) -> list[str]:
    """Why it is open whether all is well although no call is under way: a sentence each."""
    found = []

    def label(processes: list[int]) -> str:
        return ranks_text([job.label(one) for one in processes])

    if missing := missing_ranks(job):
        found.append(f"There are no dumps of {ranks_text(missing)}.")
    else:
        named = {one.key[1] for one in job.processes if one.key[0] == "world"}
        lost = sorted(set(range(max(named, default=-1))) - named)
        if lost:
            shown = ranks_text([f"rank {one}" for one in lost])
            found.append(f"There are no dumps of {shown}, if the job has them.")
    for group, furthest in lasts.items() if not job.is_live else ():
        behind = [process for process in job.groups[group].members
                  if waits.last.get((process, group), -1) < furthest
                  and job.processes[process].files]  # fmt: skip
        if behind:
            dumped, have = (("its dump was", "it has"), ("their dumps were", "they have"))[
                len(behind) > 1]  # fmt: skip
            found.append(
                f"{label(behind)} made fewer calls of group {job.groups[group].name} than others: "
                f"{dumped} made earlier, or {have} not come to call {furthest >> SHIFT}."
            )
    if job.silent:
        found.append(f"{number_of(list(job.silent), 'The dump', 'The dumps')} of "
                     f"{label(sorted(job.silent))} {number_of(list(job.silent), 'does', 'do')} not "
                     "tell calls that failed from calls that ended.")  # fmt: skip
    unsized = [one.name for one in job.groups if not one.has_size]
    if unsized:
        found.append(f"No dump says how many ranks group {unsized[0]} has.")
    if job.hidden:
        found.append(f"{label(sorted(job.hidden))} made a call since, usually a message, which the "
                     "dumps do not contain.")  # fmt: skip
    reported = [(process, hint.text) for process, hint, _ in job.hints
                if hint.kind in ("error", "accused")]  # fmt: skip
    found += [sentence(f"{label([process])} reports: {said}") for process, said in reported]
    return found[:_SHOWN]
