"""What is wrong with one call that is under way, as far as its own ranks show it."""

from collections import Counter
from dataclasses import replace

import numpy as np

from unisono.doctor.diagnosis import Cause, Verdict
from unisono.doctor.differences import departed, differed_before, other_call, unusual
from unisono.doctor.job import Job, number_of, ranks_text, sentence
from unisono.doctor.left_behind import left_behind
from unisono.doctor.match import SHIFT
from unisono.doctor.waits import Node, Waits
from unisono.records.parts import SILENCES, Hint, State

__all__ = ["cause_of", "found_dead", "skipped"]

# Where more of the job's ranks than this part left no dumps, none of them is named for it.
_MOST_SUSPECTS = 0.25
# Earlier intervals between calls that say how many calls a rank makes between them.
_LEAST_INTERVALS = 2
_MOST_INTERVALS = 8

# And their confidence.
_VERDICTS_OF_SILENCE = {
    "dead": (Verdict.died, 0.9), "stopped": (Verdict.stuck_outside, 0.9),
    "absent": (Verdict.never_joined, 0.7), "unresponsive": (Verdict.stuck_outside, 0.6),
}  # fmt: skip


def cause_of(waits: Waits, index: int) -> Cause | None:
    """The cause that lies in a call's own ranks; None if it waits for other calls, or for nothing
    that is known."""
    node = waits.nodes[index]
    return (
        other_call(waits, node)
        or differed_before(waits, node.group, node.slot)
        or _aborted(waits.job, node)
        or _left(waits.job, node.group)
        or _error(waits.job, node)
        or _silent(waits.job, node)
        or _idle(waits, node)
        or (None if node.blockers else _unseen(waits, node) or _joined(waits, node))
    )


def _joined(waits: Waits, node: Node) -> Cause | None:
    """All ranks have made the call: what they wait for says more than who is past it."""
    found = _network(waits, node)
    if found is None or found.verdict.blames:
        return found
    return left_behind(waits, node) or found


def _aborted(job: Job, node: Node) -> Cause | None:
    """The program gave the group up, by a call of abort on one rank."""
    accused = _accused(job, "aborted", node.group)
    if not accused:
        return None
    label = ranks_text([job.label(one) for one in accused])
    return Cause(
        Verdict.aborted, accused, 0.95, 5,
        [f"The program aborted the group on {label}, as the other ranks' records say."],
    )  # fmt: skip


def _left(job: Job, group: int | None = None) -> Cause | None:
    """The program left the group on one rank, in order, while others still needed that rank."""
    accused = _accused(job, "left", group)
    if not accused:
        return None
    label = ranks_text([job.label(one) for one in accused])
    return Cause(
        Verdict.never_joined, accused, 0.9, 5,
        [f"The ranks have found that {label} destroyed its communicator, or that its process "
         "exited in order, while they still needed it."],
        would_help=[f"The output of {label}: an exception there ends its process in order."],
    )  # fmt: skip


def _accused(job: Job, kind: str, group: int | None = None) -> list[int]:
    """The process that most ranks, of a group or of the job, have found at fault so; or none."""
    votes = Counter(
        job.groups[of].members[hint.peer]
        for _, hint, of in job.hints
        if hint.kind == "accused" and kind in (hint.fault, hint.reason) and group in (None, of)
    )
    return [process for process, _ in votes.most_common(1)]


def found_dead(job: Job) -> Cause | None:
    """A process that left no dump, and that others have found gone, or to have left."""
    if (left := _left(job)) is not None:
        return left
    gone = [process for process in _accused(job, "peer") if not job.processes[process].files]
    if not gone:
        return None
    label = ranks_text([job.label(process) for process in gone])
    return Cause(
        Verdict.died, gone, 0.85, 3,
        [f"The others found that the process of {label} had ended, or lost their connections to "
         "it."],
        would_help=[f"The exit status or the kernel log of {label}."],
    )  # fmt: skip


def _error(job: Job, node: Node) -> Cause | None:
    processes = {*node.rows, *node.absent, *node.unknown}
    found: dict[int, list[str]] = {}
    for process, hint, group in job.hints:
        if hint.kind == "error" and process in processes and group in (-1, node.group):
            found.setdefault(process, []).append(
                sentence(f"{job.label(process)} reports: {hint.text}")
            )
    if not found:
        return None
    evidence = [text for texts in found.values() for text in texts]
    return Cause(Verdict.gpu_error, sorted(found), 0.9, 6, evidence[:8], is_lasting=True)


def _silent(job: Job, node: Node) -> Cause | None:
    """Ranks that gave no answer when the running job was asked."""
    found = {process: hint for process, hint, _ in job.hints
             if hint.kind in SILENCES and process in node.unknown}  # fmt: skip
    for kind in SILENCES:
        ranks = sorted(process for process, hint in found.items() if hint.kind == kind)
        if ranks:
            verdict, confidence = _VERDICTS_OF_SILENCE[kind]
            evidence = [f"{job.label(one)} {found[one].text}." for one in ranks[:8]]
            return Cause(verdict, ranks, confidence, 6, evidence,
                         is_lasting=kind in ("dead", "stopped"))  # fmt: skip
    return None


def _idle(waits: Waits, node: Node) -> Cause | None:
    """Ranks that have not made the call, or whose GPU has not begun it, and are busy with none."""
    job = waits.job
    idle = [one for one in node.absent if waits.first_open(one) is None]
    if not idle:
        return _not_begun(waits, node)
    if job.hidden.intersection(idle):
        return _hidden(waits, node, idle)
    for process in idle[:8]:
        for group in {int(job.calls["group"][row]) for row in waits.rows(process)[-8:]}:
            differed = differed_before(waits, group, waits.last[process, group] + 1)
            if differed is not None:
                return differed
        if (unlike := unusual(waits, process)) is not None:
            return unlike
    if (lost := _lost_partner(waits, idle)) is not None:
        return lost
    evidence, later = [], []
    for process in idle[:8]:
        last = waits.last.get((process, node.group), -1)
        made = f"its last was {last >> SHIFT}" if last >= 0 else "it has made none in this group"
        what = f"call {node.number}" if node.slot >= 0 else "its side of the message"
        evidence.append(f"{job.label(process)} has not made {what} ({made}), and has no other call "
                        "under way.")  # fmt: skip
        if _went_on(waits, node, process):
            later.append(process)
            evidence.append("It has made calls of other groups since the others made this one.")
        for one, hint, _ in job.hints:
            if one == process and hint.kind == "stack":
                evidence.append(f"{job.label(process)} made its last call at {hint.text}.")
    verdict = Verdict.never_joined if later else Verdict.stuck_outside
    return Cause(
        verdict, idle, 0.9 if len(idle) <= max(1, len(node.rows)) else 0.7, 4, evidence,
        would_help=["A stack of " + ranks_text([job.label(one) for one in idle]) + " (py-spy dump, "
                    "gdb) would show the line of code."],
    )  # fmt: skip


def _hidden(waits: Waits, node: Node, idle: list[int]) -> Cause:
    """Ranks are in calls that their dumps do not hold."""
    label = ranks_text([waits.job.label(one) for one in sorted(waits.job.hidden & set(idle))])
    return departed(waits, sorted({*node.rows, *idle})) or Cause(
        Verdict.undecided, [], 0.0, 1,
        [f"{label} made a call since, usually a message, which the dumps do not contain."],
        would_help=[f"A stack of {label} (py-spy dump)."],
    )  # fmt: skip


def _lost_partner(waits: Waits, idle: list[int]) -> Cause | None:
    """The one process without a dump, where those that make no further call share a group with it.

    Their last calls may have ended with an error, which some formats do not tell from success.
    """
    job = waits.job
    lost = [place for place, one in enumerate(job.processes) if not one.files]
    if len(lost) != 1:
        return None
    known = [set(group.members) for group in job.groups if lost[0] in group.members]
    if known and not all(any(process in members for members in known) for process in idle):
        return None
    label, others = job.label(lost[0]), ranks_text([job.label(one) for one in idle])
    return Cause(
        Verdict.died, lost, 0.6, 3,
        [f"{others} made no further call, and {label} left no dump."],
        would_help=[f"The exit status of {label}."],
    )  # fmt: skip


def _went_on(waits: Waits, node: Node, process: int) -> bool:
    """Whether a rank made other calls with ranks that had made this one before."""
    calls, job = waits.job.calls, waits.job
    mine = waits.rows(process)
    for other, row in node.rows.items():
        theirs = waits.rows(other)
        theirs = theirs[theirs > row]
        if not len(theirs):
            continue
        common = {(int(calls["group"][one]), int(waits.slots[one])) for one in theirs}
        if any((int(calls["group"][one]), int(waits.slots[one])) in common for one in mine):
            return True
    return skipped(waits, process, node.group, int(mine[-1])) if len(mine) and (
        job.calls["group"][mine[-1]] != node.group) else False  # fmt: skip


def skipped(waits: Waits, process: int, group: int, row: int) -> bool:
    """Whether a rank made fewer calls of a group before this call than before earlier ones like it.

    What it usually makes is counted between calls of the other group.
    """
    calls = waits.job.calls
    mine = waits.rows(process)
    other = int(calls["group"][row])
    ends = mine[(calls["group"][mine] == other) & (mine <= row)][-_MOST_INTERVALS - 1 :]
    if len(ends) < _LEAST_INTERVALS + 2:
        return False
    places = mine[calls["group"][mine] == group]
    counts = np.diff(np.searchsorted(places, ends))
    usual = Counter(counts[:-1].tolist()).most_common(1)[0][0]
    return bool(counts[-1] < usual)


def _not_begun(waits: Waits, node: Node) -> Cause | None:
    """Where some ranks' kernels run and those of others wait, with nothing before them."""
    states = {one: waits.state(row) for one, row in node.rows.items()}
    waiting = [one for one, state in states.items() if state is State.scheduled]
    running = [one for one, state in states.items() if state is State.started]
    idle = [one for one in waiting if waits.open[one][0][0] == node.rows[one]]
    started = waits.job.calls["started"]
    idle = [one for one in idle if (started[waits.all_rows(one)] > 0).any()]
    if not idle or not running or node.absent or node.unknown or len(idle) >= len(running):
        return None
    label = ranks_text([waits.job.label(one) for one in idle])
    return Cause(
        Verdict.stuck_outside, sorted(idle), 0.7, 3,
        [f"{label} made the call, but {number_of(idle, 'its GPU has', 'their GPUs have')} not "
         "begun it; on the other ranks it runs. Earlier work in the stream holds it up."],
        would_help=[f"The kernels that run on the GPU of {label} (cuda-gdb)."],
    )  # fmt: skip


def _unseen(waits: Waits, node: Node) -> Cause | None:
    """Ranks without dumps: missing files are evidence where most others have left theirs."""
    job, group = waits.job, waits.job.groups[node.group]
    if not node.unknown:
        return None
    awaited = {group.members[hint.peer] for process, hint, of in job.hints
               if hint.kind == "waiting" and of == node.group and hint.peer >= 0
               and process in node.rows}  # fmt: skip
    named = sorted(awaited & set(node.unknown))
    suspects = named or sorted(node.unknown)
    everyone = {one for of in job.groups for one in of.members}
    lost = sum(not job.processes[one].files for one in everyone)
    if not named and lost > max(1, _MOST_SUSPECTS * len(everyone)):
        labels = ranks_text([job.label(one) for one in node.unknown])
        what = "dump" if job.has_dumps else "log line"
        return Cause(
            Verdict.undecided, [], 0.0, 1,
            [f"There is no {what} of {labels}, of {group.size} ranks."],
            would_help=[f"The {what}s of {labels}."],
        )  # fmt: skip
    label = ranks_text([job.label(one) for one in suspects])
    if not job.has_dumps:
        return Cause(
            Verdict.never_joined, suspects, 0.6, 2,
            [f"{len(node.rows)} of the group's {group.size} ranks report that the call timed out, "
             f"and no line of the logs is about a call of {label}."],
            would_help=[f"The exit status of {label}, or, if it lives, a stack (py-spy dump).",
                        "Flight Recorder's dumps of all ranks (TORCH_NCCL_TRACE_BUFFER_SIZE)."],
        )  # fmt: skip
    evidence = [f"There is no dump of {label}; {len(node.rows)} of the group's {group.size} ranks "
                "have made the call and left theirs."]  # fmt: skip
    if named:
        evidence.append(f"The others' calls wait for {label}.")
    if set(suspects) & set(_accused(job, "timeout")):
        evidence.append(f"The others asked {number_of(suspects, 'it', 'them')}, and found no sign "
                        "of an ended process: it is stopped, or cannot run the thread that "
                        "writes dumps.")  # fmt: skip
        would_help = [f"The state of the process of {label} (ps, py-spy dump)."]
        return Cause(Verdict.stuck_outside, suspects, 0.8, 3, evidence, would_help=would_help)
    dead = found_dead(job)
    if dead is not None and set(dead.ranks) <= set(suspects):
        return replace(dead, evidence=[*evidence, *dead.evidence])
    if group.dumps_when_idle:
        evidence.append("A live process writes its dump even if its program is stuck.")
        return Cause(Verdict.died, suspects, 0.75, 2, evidence,
                     would_help=[f"The exit status or the kernel log of {label}."])  # fmt: skip
    evidence.append("Ranks of this job write no dump while they make no call: a rank without one "
                    "did not make this call, was stopped, or died.")  # fmt: skip
    return Cause(
        Verdict.never_joined, suspects, 0.8 if named else 0.6, 2, evidence,
        would_help=[f"The exit status of {label}, or, if it lives, a stack (py-spy dump)."],
    )  # fmt: skip


def _link(waits: Waits, node: Node, found: list[tuple[int, Hint]]) -> Cause:
    """Of one message that does not arrive, either end may be at fault."""
    job, members = waits.job, waits.job.groups[node.group].members
    [(process, hint)] = [one for one in found if one[1].kind == "waiting"]
    peer = members[hint.peer]
    ends = sorted({process, peer})
    return Cause(
        Verdict.network, ends, 0.5, 2, [f"{job.label(process)} waits for a {hint.text}."],
        would_help=["Counters of the network cards of "
                    f"{ranks_text([job.label(one) for one in ends])}."],
    )  # fmt: skip


def _network(waits: Waits, node: Node) -> Cause | None:
    """All ranks are in the call: what was sent and not acknowledged, or who is waited for."""
    job, group = waits.job, waits.job.groups[node.group]
    if node.absent or node.unknown:
        return None
    found = [(one, hint) for one, hint, of in job.hints
             if of == node.group and one in node.rows and hint.peer >= 0
             and hint.kind in ("network", "waiting")]  # fmt: skip
    puts = [(one, hint) for one, hint in found if hint.kind == "network"]
    if puts:
        senders = Counter(one for one, _ in puts)
        receivers = Counter(group.members[hint.peer] for _, hint in puts)
        (sender, sent), (receiver, received) = (
            senders.most_common(1)[0], receivers.most_common(1)[0])  # fmt: skip
        ranks = [sender] if sent > received else [receiver] if received > sent else [
            sender, receiver]  # fmt: skip
        evidence = [f"{job.label(one)} has not had the acknowledgement of its {hint.text}."
                    for one, hint in puts[:6]]  # fmt: skip
        return Cause(
            Verdict.network,
            ranks,
            0.85 if len(ranks) == 1 else 0.7,
            3,
            evidence,
            would_help=["Counters of the network card and the switch at these ranks."],
        )
    ends = sorted({group.members[hint.peer] for _, hint, of in job.hints
                   if hint.kind == "broken" and of == node.group})  # fmt: skip
    if len(ends) == 2:
        labels = ranks_text([job.label(one) for one in ends])
        return Cause(
            Verdict.network, ends, 0.7, 3,
            [f"The ranks have found that the connection between {labels} is broken, though both "
             "answer."],
            would_help=[f"Counters of the network cards of {labels}."],
        )  # fmt: skip
    awaited = Counter(group.members[hint.peer] for _, hint in found if hint.kind == "waiting")
    ranked = awaited.most_common(2)
    if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]):
        process, votes = ranked[0]
        if votes == 1 and len(awaited) == 1:
            return _link(waits, node, found)
        evidence = [f"{job.label(one)} waits for a {hint.text}." for one, hint in found
                    if group.members[hint.peer] == process][:6]  # fmt: skip
        return Cause(Verdict.network, [process], 0.6 if votes > 1 else 0.5, 2, evidence,
                     would_help=[f"A stack of {job.label(process)}, and counters of its network "
                                 "card."])  # fmt: skip
    accused = _accused(job, "peer", node.group) or _accused(job, "timeout", node.group)
    if accused and set(accused) <= set(node.rows):
        label = job.label(accused[0])
        return Cause(Verdict.network, accused, 0.6, 2,
                     [f"All ranks have made the call, and have found {label} at fault."],
                     would_help=[f"Counters of the network card of {label}."])  # fmt: skip
    return departed(waits, sorted(node.rows)) or Cause(
        Verdict.undecided, [], 0.0, 1,
        [f"No rank is known to be missing, and no {'dump' if job.has_dumps else 'line'} says what "
         "its rank waits for."],
        would_help=["What the network or the GPUs wait for: a dump of NCCL or NCCLX, or logs of "
                    "the GPUs."],
    )  # fmt: skip
