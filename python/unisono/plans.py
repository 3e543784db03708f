"""Plans: list, make, read, verify, time and choose them, without a communicator.

plan = find_algorithm("ring_all_reduce").plan(Placement(8, nodes=2))
print(plan.to_text(rank=0))
assert plan.verify().ok
"""

from unisono._unisono import (
    Algorithm,
    Arrow,
    Candidate,
    Cost,
    Explanation,
    Failure,
    Location,
    Placement,
    Plan,
    PlanCandidate,
    PlanDistance,
    Report,
    Schedule,
    SelectionRow,
    Step,
    ThreadBlock,
    TimedStep,
    algorithms,
    candidates,
    choose,
    explain,
    explain_device,
    find_algorithm,
    selection_table,
)

__all__ = [
    "Algorithm",
    "Arrow",
    "Candidate",
    "Cost",
    "Explanation",
    "Failure",
    "Location",
    "Placement",
    "Plan",
    "PlanCandidate",
    "PlanDistance",
    "Report",
    "Schedule",
    "SelectionRow",
    "Step",
    "ThreadBlock",
    "TimedStep",
    "algorithms",
    "candidates",
    "choose",
    "explain",
    "explain_device",
    "find_algorithm",
    "selection_table",
]
