"""Builds and runs all tests, and ends with a line that sums them up.

Without options: format, lint and types, the C++ tests, the Python tests, the documentation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import cpp
import lint
import torch_backend
from stage import BIN, BUILD, ROOT, Lane, Log, Outcome, Suite, pytest

SANITIZERS = ("thread", "address")


def python_tests(log: Log, quick: bool, again: bool = False) -> Outcome:
    """Every pytest of the tree."""
    return pytest(log, "pytest", *(["-m", "not slow"] if quick else []), again=again)


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
    parser.add_argument("--faults", type=int, default=0, metavar="N", help="jobs to harm")
    parser.add_argument("--fuzz", type=int, default=0, metavar="SECONDS", help="for each fuzzer")
    parser.add_argument(
        "--pytorch", action="store_true", help="the quick tests of tests/pytorch, with a PyTorch"
    )
    arguments = parser.parse_args()

    suite = Suite()
    run(suite, arguments)
    return suite.close()


def run(suite: Suite, arguments: argparse.Namespace) -> None:
    """Runs the parts: compilers and analysers in the background, tests at the same time.

    Tests wait much (for deadlines, for ranks that were killed), so compilers find the processors
    idle, and being nice leave them to the tests otherwise.
    """
    builders, runners = Lane(), Lane()
    builds: dict[str, Future[Outcome]] = {}

    def build(name: str, part: Callable[[Log], Outcome]) -> None:
        builds[name] = builders.add(partial(suite.run, f"{name}, build", part, background=True))

    def run_built(
        name: str,
        part: Callable[[Log], Outcome],
        after: str | None = None,
        again: Callable[[Log], Outcome] | None = None,
    ) -> None:
        def after_build() -> Outcome:
            built = builds[after or name].result()
            return built if built.failed else suite.run(name, part, again=again)

        runners.add(after_build)

    for name, check in lint.quick_checks():
        runners.add(partial(suite.run, name, check))
    if arguments.quick:
        suite.skip("docs", "--quick")
    else:
        runners.add(partial(suite.run, "docs", documentation))

    gtest = cpp.has_gtest()
    if gtest:
        # The benches, too: nothing else of the suite compiles them.
        build("c++", lambda log: cpp.build_tests(log, "test", [], targets=("all", "benches")))
        part = partial(cpp.run_tests, name="test", label="")
        run_built("c++", part, again=partial(part, again=True))
    else:
        suite.skip("c++", "GoogleTest is missing: libgtest-dev")

    if arguments.faults <= 0:
        suite.skip("faults", "asked for by --faults N")
    elif gtest:
        part = partial(fault_injections, injections=arguments.faults)
        run_built("faults", part, after="c++")

    compiler = cpp.clang()
    fuzzed = gtest and compiler is not None and arguments.fuzz > 0
    if arguments.fuzz <= 0:
        suite.skip("fuzz", "asked for by --fuzz SECONDS")
    elif not fuzzed:
        suite.skip("fuzz", "missing: libgtest-dev, or clang with libFuzzer (libclang-rt-dev)")
    # The thread sanitizer first: its tests take longest, and should not be what is left over.
    for sanitizer in SANITIZERS:
        name = f"c++ {sanitizer} sanitizer"
        fuzzers = fuzzed and sanitizer == "address"
        if not arguments.sanitizers:
            suite.skip(name, "asked for by --sanitizers")
        elif not gtest:
            suite.skip(name, "GoogleTest is missing: libgtest-dev")
        if fuzzers or (gtest and arguments.sanitizers):
            part = partial(cpp.build_instrumented, sanitizer=sanitizer, compiler=compiler)
            build(name, partial(part, tests=arguments.sanitizers, fuzzers=fuzzers))

    if arguments.quick:
        suite.skip("clang-tidy", "--quick")
    else:
        tidy = partial(lint.clang_tidy, fix=False)
        builders.add(partial(suite.run, "clang-tidy", tidy, background=True))
    # Behind the C++ tests: it installs what was built for them.
    pytests = partial(python_tests, quick=arguments.quick)
    runners.add(partial(suite.run, "python", pytests, again=partial(pytests, again=True)))
    if arguments.pytorch:
        runners.add(partial(torch_backend.run, suite))
    else:
        suite.skip("pytorch", "asked for by --pytorch")
    if gtest and arguments.sanitizers:
        for sanitizer in SANITIZERS:
            part = partial(cpp.run_tests, name=sanitizer, label=f"[{sanitizer}] ")
            run_built(f"c++ {sanitizer} sanitizer", part, again=partial(part, again=True))
    if fuzzed:
        fuzz = partial(cpp.fuzz, seconds=arguments.fuzz)
        run_built("fuzz", fuzz, after="c++ address sanitizer")
    builders.close()
    runners.close()


if __name__ == "__main__":
    sys.exit(main())
