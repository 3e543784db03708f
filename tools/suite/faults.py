"""Runs jobs that are harmed, and judges what became of each kind."""

from __future__ import annotations

import json

from stage import BIN, BUILD, ROOT, Log, Outcome


def fault_injections(log: Log, injections: int) -> Outcome:
    """Jobs that are harmed; what needs root is left out without it."""
    found = BUILD / "logs" / "fault_soak.json"
    found.unlink(missing_ok=True)
    soak = [BIN / "python", ROOT / "tools" / "fault_soak", "--out", found]
    # The same jobs in every run; other seeds are for longer ones.
    log.run([*soak, "--injections", str(injections), "--seed", "1"])
    outcome = Outcome()
    if not outcome.check("fault_soak ran to its end", found.exists()):
        return outcome
    for row in json.loads(found.read_text())["kinds"]:
        name = f"fault_soak: {row['kind']}"
        if "left_out" in row:
            outcome.skipped.append(f"{name}: {row['left_out']}")
        else:
            outcome.check(name, row["as_it_should"] == row["injections"])
    return outcome
