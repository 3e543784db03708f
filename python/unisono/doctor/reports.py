"""Judges RAS's reports, which count calls: two of them show whether a job still moves."""

from collections import Counter

from unisono.doctor.diagnosis import Diagnosis, Verdict
from unisono.doctor.job import Job, number_of, ranks_text, sentence
from unisono.records.parts import Part

__all__ = ["judge_reports"]

# A process: what RAS calls it, or its place in a communicator where it does not.
_Who = str


def judge_reports(job: Job) -> Diagnosis | None:
    """What the reports show; None if there are none, or they show nothing."""
    if not job.reports:
        return None
    takings = _takings(job.reports)
    last = sorted(takings[-1], key=lambda part: -part.claims[0].size)
    return _lost(last) or _errors(last) or _behind(last, takings)


def _takings(parts: list[Part]) -> list[list[Part]]:
    """The reports, each of which is the parts of its communicators, in their order.

    A text does not say when it was taken: its file does. The same bytes with the same time are one.
    """
    has_stamps = all(part.taken for part in parts)
    found: dict[tuple[str, int, str], list[Part]] = {}
    for part in parts:
        key = (part.taken, 0, "") if has_stamps else (
            "", part.written_ns, str(part.checksum or part.file))  # fmt: skip
        found.setdefault(key, []).append(part)
    return [found[key] for key in sorted(found)]


def _between(takings: list[list[Part]]) -> str:
    first, last = (one[0].taken or one[0].file for one in (takings[0], takings[-1]))
    return f"between the reports {first} and {last}" if takings[0][0].taken == "" else (
        f"between the reports of {first} and {last}")  # fmt: skip


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


def _behind(last: list[Part], takings: list[list[Part]]) -> Diagnosis | None:
    """Ranks that others wait for: behind in one communicator, and ahead in no other."""
    behind: dict[_Who, str] = {}
    places: set[tuple[str, int]] = set()  # of them: the communicator, and the rank there
    ahead: set[_Who] = set()
    for part in last:
        totals = _totals(part)
        most = max(totals.values(), default=0)
        for rank, count in totals.items():
            [label] = _labels(last, part, [rank])
            if count < most:
                places.add((part.claims[0].ident, rank))
                behind.setdefault(
                    label,
                    f"{label} has launched {count} collectives of communicator "
                    f"{part.claims[0].name}, the furthest rank {most}.",
                )
            elif min(totals.values()) < most:
                ahead.add(label)
    if not behind:
        return _differing(last) or _caught_up(takings)
    ranks = [label for label in behind if label not in ahead]
    evidence = [behind[label] for label in ranks or behind][:8]
    # RAS counts no messages: of several such ranks some may wait for one.
    suspects, ranks = ranks, ranks if len(ranks) == 1 or len(last) == 1 else []
    moved = _moved(takings, places)
    if moved:
        return Diagnosis(
            Verdict.slow, 0.8,
            f"Ranks are at different calls, but those that are behind make progress: "
            f"{_between(takings)} they have launched more.", evidence=evidence,
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
        f"{evidence[0]} This has not changed {_between(takings)}: the other ranks wait for {who}.",
        ranks, evidence=evidence,
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


def _moved(takings: list[list[Part]], places: set[tuple[str, int]]) -> bool | None:
    """Whether ranks that are behind in the last report have launched more since the first one.

    None where that is not known: there is one report, or the first one does not have these ranks.
    Others may launch calls without waiting for them.
    """
    first, last = (
        {(part.claims[0].ident, rank, kind): count for part in parts
         for (_, rank, kind), count in part.counts.items()}
        for parts in (takings[0], takings[-1])
    )  # fmt: skip
    # A text has the kinds alone in which ranks differ.
    known = [at for at in first.keys() & last.keys() if at[:2] in places]
    return any(last[at] > first[at] for at in known) if known and len(takings) > 1 else None


def _caught_up(takings: list[list[Part]]) -> Diagnosis | None:
    """No rank is behind in the last report, and some were in the first."""
    late = [label for part in takings[0] for label in _labels(takings[0], part, _late(part))]
    if len(takings) < 2 or not late:
        return None
    who = ranks_text(list(dict.fromkeys(late)))
    return Diagnosis(
        Verdict.slow, 0.7,
        f"{who[0].upper()}{who[1:]} {number_of(late, 'was', 'were')} behind, and no rank is in "
        f"the last report: {_between(takings)} the job made progress.",
        evidence=[f"{who[0].upper()}{who[1:]} had launched fewer collectives than the others."],
    )  # fmt: skip


def _late(part: Part) -> list[int]:
    totals = _totals(part)
    return sorted(rank for rank, count in totals.items() if count < max(totals.values()))
