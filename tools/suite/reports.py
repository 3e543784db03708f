"""Reads the reports of GoogleTest and pytest."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from stage import Outcome


def seconds_of(text: str) -> float:
    """The seconds that GoogleTest writes as "1.5s"."""
    return float(text.removesuffix("s"))


def gtest_outcome(folder: Path, label: str) -> Outcome:
    """The sum of GoogleTest's JSON reports in a folder, and each program's seconds."""
    outcome = Outcome()
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text())
        if not report["testsuites"]:
            outcome.check(f"{label}{path.stem}: a filter that no test matches", False)
        outcome.programs[f"{label}{path.stem}"] = seconds_of(report.get("time", "0s"))
        for suite in report["testsuites"]:
            for case in suite["testsuite"]:
                name = f"{label}{case['classname']}.{case['name']}"
                if case["status"] == "NOTRUN" or case["result"] == "SKIPPED":
                    outcome.skipped.append(name)
                else:
                    outcome.check(name, "failures" not in case)
    return outcome


def junit_outcome(path: Path) -> Outcome:
    """The sum of a JUnit report, and the seconds of each file of tests."""
    outcome = Outcome()
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        seconds[str(case.get("classname"))] += float(case.get("time", 0))
        skipped = case.find("skipped")
        if skipped is not None:
            outcome.skipped.append(f"{name}: {skipped.get('message')}")
        else:
            failed = case.find("failure") is not None or case.find("error") is not None
            outcome.check(name, not failed)
    outcome.programs.update(seconds)
    return outcome
