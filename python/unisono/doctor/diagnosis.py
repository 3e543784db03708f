"""What the doctor found."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Bar", "Call", "Cause", "Diagnosis", "GroupLine", "OtherCause", "Verdict"]


class Verdict(StrEnum):
    """What is wrong."""

    nothing_wrong = "nothing wrong"
    slow = "slow, not stuck"
    never_joined = "never joined"
    other_call = "other call"
    died = "died"
    aborted = "aborted"
    stuck_outside = "stuck outside communication"
    gpu_error = "GPU error"
    network = "network"
    deadlock = "deadlock across groups"
    undecided = "undecided"

    @property
    def blames(self) -> bool:
        """Whether ranks are to blame."""
        return self not in (Verdict.nothing_wrong, Verdict.slow, Verdict.undecided)


@dataclass(frozen=True)
class Call:
    """A call of a group.

    Attributes:
        number: The call's number among the group's collectives; -1 for a message.
        joined: Ranks that made it; absent: that did not, as their dumps say; unknown: whose dumps
            are missing; ended: of those that joined, the ones that are through with it.
    """

    group: str
    number: int
    kind: str
    joined: list[str]
    absent: list[str]
    unknown: list[str]
    ended: list[str]


@dataclass(frozen=True)
class GroupLine:
    """How far a group came.

    Attributes:
        last_ended: The last call that all dumps of the group have ended, -1 if none.
        furthest: The last call that any rank made, -1 if none.
        behind: Ranks that have made fewer calls.
    """

    name: str
    ranks: int
    dumps: int
    last_ended: int
    furthest: int
    behind: list[str]


@dataclass(frozen=True)
class Bar:
    """A call on the time line, in nanoseconds of its rank's clock; `end` is 0 while it runs."""

    rank: str
    group: str
    label: str
    begin: int
    end: int
    is_stuck: bool


@dataclass(frozen=True)
class OtherCause:
    """A cause that is independent of the one that the verdict names.

    Attributes:
        text: The answer in words.
    """

    verdict: Verdict
    ranks: list[str]
    confidence: float
    call: Call | None
    difference: str
    text: str
    evidence: list[str]


# The weight of what ranks did or reported themselves.
_CERTAIN = 5


@dataclass
class Cause:
    """Why a call is stuck.

    Attributes:
        weight: Of several causes, that with the larger one is named.
        is_lasting: The call will not end, however short it has been under way.
    """

    verdict: Verdict
    ranks: list[int]
    confidence: float
    weight: int
    evidence: list[str]
    difference: str = ""
    would_help: list[str] = field(default_factory=list)
    is_lasting: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether the dumps show it, rather than what follows from it."""
        return self.weight >= _CERTAIN


@dataclass
class Diagnosis:
    """The verdict, and why.

    Attributes:
        ranks: Whom to blame; empty where nobody is.
        confidence: Between 0 and 1.
        difference: For another call, what differs: collective, size, type, root or order.
        evidence: What speaks for it, a sentence each.
        would_help: What would raise the confidence.
        cycle: Who waits for whom in a deadlock, a sentence each.
        missing: Ranks without dumps.
        others: Causes that are independent of this one.
    """

    verdict: Verdict
    confidence: float
    paragraph: str = ""
    ranks: list[str] = field(default_factory=list)
    difference: str = ""
    call: Call | None = None
    evidence: list[str] = field(default_factory=list)
    would_help: list[str] = field(default_factory=list)
    cycle: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    groups: list[GroupLine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    others: list[OtherCause] = field(default_factory=list)
    timeline: list[Bar] = field(default_factory=list)

    @property
    def headline(self) -> str:
        """The verdict and its first sentence, on one line."""
        confidence = f" (confidence {self.confidence:.2f})" if self.confidence else ""
        return f"{self.verdict.capitalize()}{confidence}: {self.paragraph.split('. ')[0]}".rstrip(
            ".") + "."  # fmt: skip

    @property
    def exit_status(self) -> int:
        """What the command ends with; 1 and 2 are failures of the command itself."""
        statuses = {Verdict.nothing_wrong: 0, Verdict.undecided: 4}
        return statuses.get(self.verdict, 3)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        head = {"format": "unisono-diagnosis", "version": 1, "exit_status": self.exit_status}
        return head | asdict(self)
