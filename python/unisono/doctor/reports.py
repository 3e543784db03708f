"""Judges RAS's reports, which count calls: two of them show whether a job still moves."""

from collections import Counter

from unisono.doctor.diagnosis import Diagnosis, Verdict
from unisono.doctor.job import Job, number_of, ranks_text, sentence
from unisono.doctor.parts import Part

__all__ = ["judge_reports"]

# A process: what RAS calls it, or its place in a communicator where it does not.
_Who = str


def judge_reports(job: Job) -> Diagnosis | None:
    """What the reports show; None if there are none, or they show nothing."""
    if not job.reports:
        return None
    takings = sorted({part.taken for part in job.reports})
    last = [part for part in job.reports if part.taken == takings[-1]]
    last.sort(key=lambda part: -part.claims[0].size)
    return _lost(last) or _errors(last) or _behind(job.reports, last, takings)


def _labels(parts: list[Part], part: Part, ranks: list[int]) -> list[str]:
    """Ranks of the largest communicator, where its processes are the same."""
    world = {name: rank for (_, rank), name in parts[0].names.items()}
    name = part.claims[0].name
    alone = len(parts) == 1
    return [
        f"rank {world.get(part.names.get((0, rank), ''), rank)}"
        if alone or part.names.get((0, rank)) in world
        else f"rank {rank} of {name}"
        for rank in ranks
    ]


def _lost(parts: list[Part]) -> Diagnosis | None:
    for reason, confidence in (("dead", 0.95), ("unresponsive", 0.7)):
        for part in parts:
            ranks = sorted(rank for (_, rank), why in part.missing.items() if why == reason)
            if ranks:
                return _died(parts, part, ranks, reason == "dead", confidence)
    dead = Counter(hint.text for part in parts for hint in part.hints if hint.kind == "dead")
    if dead:
        names = sorted(dead)
        evidence = [f"RAS lists {one} as dead." for one in names[:8]]
        text = f"RAS considers {', '.join(names[:8])} dead."
        return Diagnosis(Verdict.died, 0.9, text, names, evidence=evidence)
    return None


def _died(
    parts: list[Part], part: Part, ranks: list[int], is_dead: bool, confidence: float
) -> Diagnosis:
    labels = _labels(parts, part, ranks)
    said = "is considered dead" if is_dead else "does not answer"
    evidence = [
        f"RAS says that {label} ({part.names.get((0, rank), 'process unknown')}) {said}."
        for label, rank in list(zip(labels, ranks, strict=True))[:8]
    ]
    them = number_of(ranks, "it", "them")
    text = f"{ranks_text(labels)} died: RAS considers {them} dead."
    if not is_dead:
        text = (
            f"{ranks_text(labels)} died, or {number_of(labels, 'is', 'are')} stopped as a whole: "
            f"RAS cannot reach {them}."
        )
    would_help = [] if is_dead else ["A second report of RAS after a minute."]
    return Diagnosis(
        Verdict.died, confidence, text[0].upper() + text[1:], labels, evidence=evidence,
        would_help=would_help,
    )  # fmt: skip


def _errors(parts: list[Part]) -> Diagnosis | None:
    for part in parts:
        found = {hint.peer: hint.text for hint in part.hints if hint.kind == "error"}
        if found:
            ranks = sorted(found)
            labels = _labels(parts, part, ranks)
            evidence = [
                sentence(f"{label}: {found[rank]}")
                for label, rank in list(zip(labels, ranks, strict=True))[:8]
            ]
            text = f"NCCL reports an error on {ranks_text(labels)}. {evidence[0]}"
            return Diagnosis(
                Verdict.gpu_error, 0.7, text, labels, evidence=evidence,
                would_help=["The log of these ranks: NCCL_DEBUG=WARN."],
            )  # fmt: skip
    return None


def _totals(part: Part) -> dict[int, int]:
    totals: dict[int, int] = {}
    for (_, rank, _), count in part.counts.items():
        totals[rank] = totals.get(rank, 0) + count
    return totals


def _behind(every: list[Part], last: list[Part], takings: list[str]) -> Diagnosis | None:
    """Ranks that others wait for: behind in one communicator, and ahead in no other."""
    behind: dict[_Who, str] = {}
    ahead: set[_Who] = set()
    for part in last:
        totals = _totals(part)
        most = max(totals.values(), default=0)
        for rank, count in totals.items():
            [label] = _labels(last, part, [rank])
            if count < most:
                behind.setdefault(
                    label,
                    f"{label} has launched {count} collectives of communicator "
                    f"{part.claims[0].name}, the furthest rank {most}.",
                )
            elif min(totals.values()) < most:
                ahead.add(label)
    if not behind:
        return _differing(last)
    ranks = [label for label in behind if label not in ahead]
    evidence = [behind[label] for label in ranks or behind][:8]
    # RAS counts no messages: of several such ranks some may wait for one.
    suspects, ranks = ranks, ranks if len(ranks) == 1 or len(last) == 1 else []
    moved = _moved(every, takings)
    if moved:
        return Diagnosis(
            Verdict.slow, 0.8,
            f"Ranks are at different calls, but make progress: between the reports of {takings[0]} "
            f"and {takings[-1]} they have launched more.", evidence=evidence,
        )  # fmt: skip
    if not ranks:
        text = "Every rank that is behind in one communicator is ahead in another."
        if suspects:
            text = (f"{ranks_text(suspects)} {number_of(suspects, 'is', 'are')} behind; RAS does "
                    "not show which ranks wait for messages.")  # fmt: skip
        return Diagnosis(
            Verdict.undecided, 0.0, text, evidence=evidence,
            would_help=["Flight Recorder's dumps, which have the order of each rank's calls."],
        )  # fmt: skip
    who = ranks_text(ranks)
    if moved is None:
        return Diagnosis(
            Verdict.undecided, 0.0,
            f"{evidence[0]} One report does not tell a stuck job from one that moves: if {who} "
            f"{number_of(ranks, 'is', 'are')} as far behind in a second one, "
            f"{number_of(ranks, 'it', 'they')} never joined.", evidence=evidence,
            would_help=["A second report of RAS, some seconds later."],
        )  # fmt: skip
    return Diagnosis(
        Verdict.never_joined, 0.8,
        f"{evidence[0]} No count has changed between the reports of {takings[0]} and "
        f"{takings[-1]}: the other ranks wait for {who}.", ranks, evidence=evidence,
        would_help=["Flight Recorder's dumps, which say which call it is and where it was made."],
    )  # fmt: skip


def _differing(parts: list[Part]) -> Diagnosis | None:
    """Ranks that have launched as many collectives as the others, but other ones."""
    for part in parts:
        made: dict[int, Counter[str]] = {}
        for (_, rank, kind), count in part.counts.items():
            made.setdefault(rank, Counter())
            if count:
                made[rank][kind] += count
        counts = Counter(tuple(sorted(one.items())) for one in made.values()).most_common()
        if len(counts) < 2 or counts[0][1] <= sum(ranks for _, ranks in counts[1:]):
            continue
        usual = dict(counts[0][0])
        ranks = sorted(rank for rank, one in made.items() if dict(one) != usual)
        labels = _labels(parts, part, ranks)
        evidence = [
            f"{label} has launched {kind} {count} times, most ranks {usual.get(kind, 0)} times."
            for label, rank in zip(labels, ranks, strict=True)
            for kind, count in (dict.fromkeys(usual, 0) | made[rank]).items()
            if count != usual.get(kind, 0)
        ]
        return Diagnosis(
            Verdict.other_call, 0.8,
            f"{ranks_text(labels)} made another collective than the other ranks of communicator "
            f"{part.claims[0].name}. {evidence[0]}", labels, "collective", evidence=evidence[:8],
            would_help=["Flight Recorder's dumps, which say which call it is."],
        )  # fmt: skip
    return None


def _moved(parts: list[Part], takings: list[str]) -> bool | None:
    """Whether any count has grown between the first and the last report; None with one report."""
    if len(takings) < 2:
        return None
    counts: list[dict[tuple[str, int, str], int]] = [{}, {}]
    for part in parts:
        for place, taking in enumerate((takings[0], takings[-1])):
            if part.taken == taking:
                for (_, rank, kind), count in part.counts.items():
                    counts[place][part.claims[0].ident, rank, kind] = count
    return any(count != counts[0].get(at, count) for at, count in counts[1].items())
