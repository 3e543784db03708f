"""Runs pytest over the tree's tests, by tier, on all processors."""

from __future__ import annotations

import os

from reports import junit_outcome
from stage import BIN, BUILD, Log, Outcome


def run(
    log: Log,
    name: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
    again: bool = False,
) -> Outcome:
    """Runs pytest, or again what failed in its last run; its report is build/logs/<name>.xml.

    Tests of one xdist_group share a worker, because they bind one port or hold one folder.
    """
    report = BUILD / "logs" / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [BIN / "python", "-m", "pytest", "-q", f"--junit-xml={report}", *arguments]
    command += ["-o", f"cache_dir={BUILD / 'logs' / f'{name}_cache'}"]
    if again:
        command += ["--last-failed", "--last-failed-no-failures=none"]
    else:
        command += ["-n", str(os.cpu_count() or 1), "--dist", "loadgroup"]
    ran = log.run([*command], environment)
    outcome = junit_outcome(report) if report.exists() else Outcome()
    if not ran and not outcome.failed:
        outcome.check("pytest", False)
    return outcome


def tier(log: Log, fast: bool, again: bool = False) -> Outcome:
    """The tests without the marker `slow`, or those with it; tests/pytorch is a part of its own."""
    name = "pytest" if fast else "pytest_rest"
    chosen = ("-m", "not slow" if fast else "slow")
    environment = {}
    wheels = sorted((BUILD / "wheel").glob("*.whl"))
    if wheels and not fast:
        # Its name does not begin with UNISONO_: the library warns of such that it does not know.
        environment["TEST_WHEEL"] = str(wheels[-1])
    ignored = "--ignore=tests/pytorch"
    return run(log, name, *chosen, ignored, environment=environment, again=again)


def build_wheel(log: Log) -> Outcome:
    """The wheel that tests/package looks into, of the objects that the set-up has compiled."""
    outcome = Outcome()
    outcome.check("tools/setup wheel", log.run(["tools/setup", "wheel"]))
    return outcome
