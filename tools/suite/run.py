"""Builds and runs all tests, and ends with a line that sums them up.

Without options: format, lint and types, the C++ tests, the Python tests, the documentation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import cpp
import lint
from stage import BIN, BUILD, Lane, Log, Outcome, Suite, junit_outcome


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
    run(suite, arguments)
    return suite.close()


def run(suite: Suite, arguments: argparse.Namespace) -> None:
    """Runs the parts: compilers and analysers in the background, beside them what was built.

    Tests wait much (for deadlines, for ranks that were killed), so compilers find the processors
    idle, and being nice leave them to the tests otherwise.
    """
    builders, runners = Lane(), Lane()
    builds: dict[str, Future[Outcome]] = {}

    def build(name: str, part: Callable[[Log], Outcome]) -> None:
        builds[name] = builders.add(partial(suite.run, f"{name}, build", part, background=True))

    def run_built(name: str, part: Callable[[Log], Outcome]) -> None:
        def after_build() -> Outcome:
            built = builds[name].result()
            return built if built.failed else suite.run(name, part)

        runners.add(after_build)

    for name, check in lint.quick_checks():
        runners.add(partial(suite.run, name, check))
    if arguments.quick:
        suite.skip("docs", "--quick")
    else:
        runners.add(partial(suite.run, "docs", documentation))

    gtest = cpp.has_gtest()
    if gtest:
        build("c++", lambda log: cpp.build_tests(log, "test", []))
        run_built("c++", lambda log: cpp.run_tests(log, "test", label=""))
    else:
        suite.skip("c++", "GoogleTest is missing: libgtest-dev")

    # The thread sanitizer first: its tests take longest, and should not be what is left over.
    for sanitizer in ("thread", "address"):
        name = f"c++ {sanitizer} sanitizer"
        if not arguments.sanitizers:
            suite.skip(name, "asked for by --sanitizers")
        elif not gtest:
            suite.skip(name, "GoogleTest is missing: libgtest-dev")
        else:
            definitions = [f"UNISONO_SANITIZE={sanitizer}"]
            build(name, partial(cpp.build_tests, name=sanitizer, definitions=definitions))

    compiler = cpp.clang()
    if arguments.fuzz <= 0:
        suite.skip("fuzz", "asked for by --fuzz SECONDS")
    elif compiler is None:
        suite.skip("fuzz", "clang with libFuzzer is missing: clang, libclang-rt-dev")
    else:
        build("fuzz", partial(cpp.build_fuzzers, compiler=compiler))

    if arguments.quick:
        suite.skip("clang-tidy", "--quick")
    else:
        tidy = partial(lint.clang_tidy, fix=False)
        builders.add(partial(suite.run, "clang-tidy", tidy, background=True))
    # Behind the C++ tests: it installs what was built for them.
    runners.add(partial(suite.run, "python", lambda log: python_tests(log, arguments.quick)))
    for sanitizer in ("thread", "address"):
        name = f"c++ {sanitizer} sanitizer"
        if name in builds:
            run_built(name, partial(cpp.run_tests, name=sanitizer, label=f"[{sanitizer}] "))
    if "fuzz" in builds:
        run_built("fuzz", lambda log: cpp.fuzz(log, arguments.fuzz))
    builders.close()
    runners.close()


if __name__ == "__main__":
    sys.exit(main())
