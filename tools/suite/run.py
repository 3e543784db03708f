"""Builds and runs all tests, and ends with a line that sums them up.

Without options: format, lint and types, the C++ tests, the Python tests, the documentation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial

import cpp
import lint
from stage import BIN, BUILD, ROOT, Log, Outcome, Suite, junit_outcome


def python_tests(log: Log, quick: bool) -> Outcome:
    """Every pytest of the tree."""
    report = BUILD / "logs" / "pytest.xml"
    report.unlink(missing_ok=True)
    selection = ["-m", "not slow"] if quick else []
    command = [BIN / "python", "-m", "pytest", "-q", f"--junit-xml={report}", *selection]
    ran = log.run([*command])
    if not report.exists():
        outcome = Outcome()
        outcome.check("pytest", False)
        return outcome
    outcome = junit_outcome(report)
    if not ran and not outcome.failed:
        outcome.check("pytest", False)
    return outcome


def sanitized_tests(sanitizer: str, log: Log) -> Outcome:
    """All C++ tests, instrumented."""
    definitions = [f"UNISONO_SANITIZE={sanitizer}"]
    return cpp.build_and_run(log, sanitizer, definitions, label=f"[{sanitizer}] ")


def documentation(log: Log) -> Outcome:
    """The site, in which a broken link or reference is an error."""
    outcome = Outcome()
    command = [BIN / "mkdocs", "build", "--strict", "--site-dir", BUILD / "site"]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    outcome.check("mkdocs build --strict", log.run([*command], environment=quiet))
    return outcome


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="tools/test", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what is slow")
    parser.add_argument(
        "--sanitizers",
        action="store_true",
        help="all C++ tests again under ASan and UBSan, and under TSan",
    )
    parser.add_argument("--fuzz", type=int, default=0, metavar="SECONDS", help="for each fuzzer")
    arguments = parser.parse_args()

    suite = Suite()

    def stage(name: str, part: Callable[[Log], Outcome]) -> None:
        started = time.monotonic()
        log = Log(name)
        suite.stage(name, part(log), log, time.monotonic() - started)

    lint.run(suite, with_tidy_tests=False, quick=arguments.quick)
    if arguments.quick:
        suite.skip("clang-tidy", "--quick")

    gtest = cpp.has_gtest()
    if gtest:
        stage("c++", lambda log: cpp.build_and_run(log, "test", [], label=""))
    else:
        suite.skip("c++", "GoogleTest is missing: libgtest-dev")
    stage("python", lambda log: python_tests(log, arguments.quick))
    if (ROOT / "mkdocs.yml").exists() and not arguments.quick:
        stage("docs", documentation)
    else:
        suite.skip("docs", "--quick")

    for sanitizer in ("address", "thread"):
        name = f"c++ {sanitizer} sanitizer"
        if not arguments.sanitizers:
            suite.skip(name, "asked for by --sanitizers")
        elif not gtest:
            suite.skip(name, "GoogleTest is missing: libgtest-dev")
        else:
            stage(name, partial(sanitized_tests, sanitizer))

    compiler = cpp.clang()
    if arguments.fuzz <= 0:
        suite.skip("fuzz", "asked for by --fuzz SECONDS")
    elif compiler is None:
        suite.skip("fuzz", "clang with libFuzzer is missing: clang, libclang-rt-dev")
    else:
        stage("fuzz", lambda log: cpp.fuzz(log, compiler, arguments.fuzz))
    return suite.close()


if __name__ == "__main__":
    sys.exit(main())
