"""Runs Unisono over verbs without a network card: soft-RoCE in a user-mode Linux kernel."""

from __future__ import annotations

import shutil
import sys

from reports import gtest_outcome
from stage import BUILD, ROOT, Log, MissingError, Outcome

RUN = ROOT / "tests" / "verbs" / "run"
# What RUN ends with where this machine lacks something; its last line says what.
MISSING = 77
CONFORMANCE = BUILD / "test" / "conformance_test"
# An end that takes memory back waits for a second in which nothing of it moves. Threads that poll
# can keep the guest's one processor for longer, so these tests would depend on the machine's speed.
WAITING_FOR_MOVEMENT = (
    "Exposed.NothingLandsAfterWithdrawal", "Exposed.MemoryMayBeFreedAfterAbort",
    "Exposed.NoneOfManyPutsLandsAfterAbort", "Get.ReadsNothingAfterWithdrawal",
    "Get.MemoryMayBeFreedAfterItsOwnersAbort", "Get.NothingLandsAfterTheGettersAbort",
)  # fmt: skip
# Of verbs alone, and the check that it is there.
FILTER = "*/ofi_verbs:*OfiProviders.*-" + ":".join(f"All/{name}/*" for name in WAITING_FOR_MOVEMENT)
# libfabric asks for more completions than the card has.
TOO_MANY_PEERS = "FI_UNIVERSE_SIZE=256"
# Alone on two processors they take one minute and half a minute; other work makes them slower.
CONFORMANCE_SECONDS, JOB_SECONDS = 900, 500


def _run(log: Log, *words: str) -> bool:
    # A kernel takes minutes to build, so the suite uses one that is there and builds none.
    ok = log.run([sys.executable, RUN, "--cached", *words])
    said = log.path.read_text(errors="replace").splitlines()
    if not ok and said[-1] == f"ended with code {MISSING}":
        raise MissingError(said[-2])
    return ok


def _conformance(log: Log, filters: str, variable: str = "") -> Outcome:
    """Runs conformance tests in a guest, with a variable of the environment."""
    results = BUILD / "soft_roce"
    shutil.rmtree(results, ignore_errors=True)
    report = f"GTEST_OUTPUT=json:/job/results/{CONFORMANCE.name}.json"
    settings = [word for pair in (report, variable) if pair for word in ("--env", pair)]
    ran = _run(
        log, "--seconds", str(CONFORMANCE_SECONDS), "--results", str(results), *settings,
        "--", str(CONFORMANCE), f"--gtest_filter={filters}",
    )  # fmt: skip
    outcome = gtest_outcome(results, "[soft-RoCE] ")
    if not ran and not outcome.failed:
        outcome.check("soft-RoCE: conformance_test ran to its end", False)
        outcome.has_crashed = True
    return outcome


def _lacks_verbs(outcome: Outcome) -> bool:
    return any("OfiProviders" in name for name in outcome.skipped)


def run_tests(log: Log, again: bool = False) -> Outcome:
    """Runs the conformance tests of verbs and a job of two nodes, each in a guest of its own."""
    if not CONFORMANCE.exists():
        raise MissingError("build/test/conformance_test, which `tools/test c++` builds")
    outcome = _conformance(log, FILTER)
    # Without verbs there is no test of it, either; the log says why.
    outcome.check("soft-RoCE: libfabric has verbs", not _lacks_verbs(outcome))
    refused = _conformance(log, "*OfiProviders.*", TOO_MANY_PEERS)
    is_told = _lacks_verbs(refused) and not refused.failed
    outcome.check("soft-RoCE: a card that refuses the queue is an error", is_told)
    job = [sys.executable, str(ROOT / "tests" / "verbs" / "job.py")]
    ok = _run(log, "--seconds", str(JOB_SECONDS), "--", *job)
    outcome.check("soft-RoCE: a job of two nodes", ok)
    return outcome
