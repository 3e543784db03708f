"""What logs say, together with what the dumps show."""

from unisono.doctor.diagnosis import Diagnosis, OtherCause, Verdict
from unisono.doctor.job import Job, ranks_text
from unisono.doctor.log_causes import LogCause, causes_in_logs
from unisono.records.logs.events import What

__all__ = ["with_logs"]

# From this confidence on, a verdict of dumps is named before one of logs.
_SURE = 0.8
_SHOWN = 6


def with_logs(job: Job, found: Diagnosis) -> Diagnosis:
    """The verdict of dumps, or of the calls that logs name, with the causes that logs name.

    A cause that explains everything else, such as a process that was killed, is the verdict where
    no dump surely shows another one. Where they name other ranks, both are told.
    """
    if not job.logs:
        return found
    causes = causes_in_logs([event for part in job.logs for event in part.events], job.log_ranks)
    if not causes:
        return found if found.verdict.blames or job.has_dumps else _nothing_said(job, found)
    cause = causes[0]
    agrees = bool(set(cause.ranks) & set(found.ranks))
    if found.verdict.blames and not agrees and job.has_dumps and (
        found.confidence >= _SURE or not cause.is_root):  # fmt: skip
        found.others.append(OtherCause(cause.verdict, cause.ranks, cause.confidence, None,
                                       cause.difference, _text(cause), cause.evidence))  # fmt: skip
        return found
    if found.verdict.blames and not cause.is_root:
        found.evidence += cause.evidence
        if agrees:
            found.confidence = max(found.confidence, cause.confidence)
        return found
    return _by_log(cause, found, agrees)


def _by_log(cause: LogCause, found: Diagnosis, agrees: bool) -> Diagnosis:
    call = found.call
    text = _text(cause)
    if call is not None and call.kind:
        number = f", call {call.number}" if call.number >= 0 else ""
        text += f" Other ranks wait in {call.kind}{number} of group {call.group}."
    others = [] if agrees or not found.verdict.blames or call is None else [
        OtherCause(found.verdict, found.ranks, found.confidence, call, found.difference,
                   found.paragraph, found.evidence)]  # fmt: skip
    return Diagnosis(
        cause.verdict, max(cause.confidence, found.confidence if agrees else 0.0), text,
        cause.ranks, cause.difference, call, [*cause.evidence, *found.evidence],
        [*cause.would_help, *(found.would_help if not cause.is_root else [])],
        others=others + found.others,
    )  # fmt: skip


_SENTENCES = {
    Verdict.died: "{who} died first",
    Verdict.gpu_error: "{who} had an error of the GPU",
    Verdict.never_joined: "{who} never joined the call that others wait in",
    Verdict.stuck_outside: "{who} is stuck outside communication",
    Verdict.other_call: "{who} made a call that differs from the others' in its {difference}",
    Verdict.network: "data to or from {who} do not arrive",
    Verdict.aborted: "the program aborted the group on {who}",
}


def _text(cause: LogCause) -> str:
    who = ranks_text(cause.ranks)
    said = _SENTENCES[cause.verdict].format(who=who, difference=cause.difference)
    return " ".join(one[0].upper() + one[1:] for one in (f"{said}, as the logs say.",
                                                         *cause.evidence[:2]))  # fmt: skip


def _nothing_said(job: Job, found: Diagnosis) -> Diagnosis:
    """The logs have lines of ranks, and none that names a cause."""
    if found.call is not None:
        return found
    said = [event for part in job.logs for event in part.events
            if event.what not in (What.place, What.address)]  # fmt: skip
    text = "The logs do not say which rank failed first." if said else (
        "The logs say which ranks there are, and of no failure.")  # fmt: skip
    return Diagnosis(
        Verdict.undecided, 0.0, text, evidence=[f"“{event.text}”" for event in said[:_SHOWN]],
        would_help=["The logs of all ranks, the launcher's output, and the kernels' logs.",
                    "Dumps of the ranks (UNISONO_DUMP_DIRECTORY, Flight Recorder, ncclras)."],
        groups=found.groups,
    )  # fmt: skip
