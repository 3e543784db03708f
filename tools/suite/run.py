"""Builds and runs the tests of a tier, and ends with a line that sums them up.

tools/test runs the fast tier: layout, lint and types, the C++ and Python tests that are quick.
tools/test --rest runs what that leaves out, and .ci/run both. Parts can be named instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import changed
import compiler_cache
import cpp
import lint
import python_tests
import slow
import soft_roce
import torch_backend
from faults import fault_injections
from stage import BIN, BUILD, Lane, Log, Outcome, Suite

FAST, REST = "fast", "rest"
Work = Callable[[Log], Outcome]


@dataclass(frozen=True)
class Part:
    """One part of the suite.

    Builds and analysers run in the background, in the order of the list. Tests run at the same
    time, each after the build that it needs. `again` runs only what failed.
    """

    name: str
    tier: str
    work: Work
    is_build: bool = False
    after: str | None = None
    again: Work | None = None


def documentation(log: Log) -> Outcome:
    """The site, in which a broken link or reference is an error."""
    outcome = Outcome()
    command = [BIN / "mkdocs", "build", "--strict", "--site-dir", BUILD / "site"]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    outcome.check("mkdocs build --strict", log.run([*command], environment=quiet))
    return outcome


def parts(injections: int, fuzz_seconds: int, since: str | None = None) -> list[Part]:
    """All parts, in the order in which they start.

    The thread sanitizer's build is before the other one's: its tests take longest. With a commit in
    `since`, the sanitizers run only the programs that can notice what has changed since then.
    """

    def build(name: str, tier: str, work: Work) -> Part:
        return Part(f"{name}, build", tier, work, is_build=True)

    def tests(name: str, tier: str, work: Callable[..., Outcome], after: str | None = None) -> Part:
        needed = None if after is None else f"{after}, build"
        return Part(name, tier, work, after=needed, again=partial(work, again=True))

    sanitized_programs = changed.chosen_since(since)

    def sanitized(name: str, fuzzers: bool) -> list[Part]:
        title = f"c++ {name} sanitizer"
        run = partial(cpp.run_tests, name=name, label=f"[{name}] ", chosen=sanitized_programs)
        make = partial(cpp.build_instrumented, sanitizer=name, fuzzers=fuzzers)
        return [build(title, REST, make), tests(title, REST, run, after=title)]

    plain = partial(cpp.run_tests, name="test", label="")
    pytests = python_tests.tier
    return [
        *[Part(name, FAST, check) for name, check in lint.quick_checks()],
        build("c++", FAST, partial(cpp.build_tests, name="test", definitions=[])),
        tests("python", FAST, partial(pytests, fast=True)),
        tests("c++", FAST, partial(plain, chosen=("-LE", REST)), after="c++"),
        Part("docs", REST, documentation),
        build("wheel", REST, python_tests.build_wheel),
        tests("c++, rest", REST, partial(plain, chosen=("-L", REST)), after="c++"),
        build("pytorch", REST, torch_backend.build),
        tests("python, rest", REST, partial(pytests, fast=False), after="wheel"),
        # Nothing else of the suite compiles the benches.
        build("benches", REST, partial(cpp.build, name="test", targets=("benches",))),
        tests("pytorch", REST, torch_backend.run_tests, after="pytorch"),
        Part("faults", REST, partial(fault_injections, injections=injections), after="c++, build"),
        *sanitized("thread", fuzzers=False),
        *sanitized("address", fuzzers=True),
        Part(
            "fuzz",
            REST,
            partial(cpp.fuzz, seconds=fuzz_seconds),
            after="c++ address sanitizer, build",
        ),
        tests("soft-roce", REST, soft_roce.run_tests, after="c++"),
        Part(
            "clang-tidy",
            REST,
            partial(lint.clang_tidy, fix=False),
            is_build=True,
            after="c++, build",
        ),
    ]


def with_needed(chosen: Iterable[Part], every: list[Part]) -> list[Part]:
    """The chosen parts and the builds that they need, in the order of the list."""
    names = {part.name for part in chosen}
    names |= {part.after for part in every if part.name in names and part.after}
    return [part for part in every if part.name in names]


def run(suite: Suite, chosen: list[Part]) -> None:
    """Runs parts: compilers and analysers in the background, tests at the same time.

    Tests wait much (for deadlines, for ranks that were killed), so compilers find the processors
    idle, and being nice leave them to the tests otherwise.
    """
    builders, runners = Lane(), Lane()
    begun: dict[str, Future[Outcome]] = {}

    def ended(part: Part) -> Outcome:
        if part.after is not None:
            built = begun[part.after].result()
            if built.missing:
                suite.skip(part.name, built.missing)
            if built.failed or built.missing:
                return built
        return suite.run(part.name, part.work, background=part.is_build, again=part.again)

    for part in chosen:
        lane = builders if part.is_build else runners
        begun[part.name] = lane.add(partial(ended, part))
    builders.close()
    runners.close()


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="tools/test", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these, as --list names them")
    parser.add_argument("--rest", action="store_true", help="what the fast tier leaves out")
    parser.add_argument("--list", action="store_true", help="the parts of both tiers")
    parser.add_argument("--faults", type=int, default=200, metavar="N", help="jobs to harm")
    parser.add_argument(
        "--fuzz", type=int, default=10, metavar="SECONDS", help="the time of each fuzzer"
    )
    parser.add_argument(
        "--since", metavar="COMMIT", help="sanitize only what can notice the changes since then"
    )
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    every = parts(arguments.faults, arguments.fuzz, arguments.since)
    if arguments.list:
        for part in every:
            print(f"{part.tier}  {part.name}")
        return 0
    unknown = set(arguments.parts) - {part.name for part in every}
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; --list names them")
    tier = REST if arguments.rest else FAST
    wanted = [
        part
        for part in every
        if (part.name in arguments.parts if arguments.parts else part.tier == tier)
    ]
    name = ", ".join(arguments.parts) or f"{tier} tier"
    suite = Suite(name, arguments.started)
    run(suite, with_needed(wanted, every))
    sums = BUILD / "tiers"
    reports = sorted((BUILD / "logs").glob("*.xml"))
    notes = [*slow.report(BUILD / "test" / "results", reports, slow.read_list())]
    notes.append(compiler_cache.summary())
    if arguments.rest:
        notes += [f"{path.stem} tier: {path.read_text()}" for path in sums.glob(f"{FAST}.txt")]
    status = suite.close(notes)
    if not arguments.parts:
        sums.mkdir(exist_ok=True)
        (sums / f"{tier}.txt").write_text(suite.sum())
    return status


if __name__ == "__main__":
    sys.exit(main())
