"""Builds and runs the C++ tests, plain and under the sanitizers, and the fuzzers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reports import gtest_outcome
from stage import BIN, BUILD, ROOT, Log, MissingError, Outcome

JOBS = str(os.cpu_count() or 1)
# Tests wait much, for deadlines and for each other.
TEST_JOBS = str(2 * (os.cpu_count() or 1))

# A report ends the program with a code of its own, and a data race is one, not a line in a log.
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # A forked child of the tests starts the thread that tells of its own communicators.
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
}


def configure(log: Log, build: Path, definitions: Sequence[str]) -> bool:
    """Configures a build folder; a folder that is already configured is brought up to date."""
    return log.run(
        [BIN / "cmake", "-S", ROOT, "-B", build, "-G", "Ninja"]
        + [f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}"]
        + [f"-D{definition}" for definition in definitions]
    )


def has_gtest() -> bool:
    """Whether the compiler finds GoogleTest."""
    probe = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    text = "#include <gtest/gtest.h>\n"
    return subprocess.run(probe, input=text, text=True, capture_output=True).returncode == 0


def build(
    log: Log, name: str, definitions: Sequence[str] = (), targets: Sequence[str] = ()
) -> Outcome:
    """Configures build/<name> and builds what is named there, or all."""
    outcome = Outcome()
    folder = BUILD / name
    if outcome.check(f"{name}: configure", configure(log, folder, definitions)):
        command = [BIN / "cmake", "--build", folder, "-j", JOBS]
        if targets:
            command += ["--target", *targets]
        # All errors at once: a run that ends at the first shows one a time.
        command += ["--", "-k", "0"]
        outcome.check(f"{name}: build", log.run(command))
    return outcome


def build_tests(
    log: Log, name: str, definitions: list[str], targets: Sequence[str] = ()
) -> Outcome:
    """Builds all C++ tests in build/<name>, or the targets that are named."""
    if not has_gtest():
        raise MissingError("GoogleTest is missing: libgtest-dev")
    common = ["UNISONO_BUILD_TESTS=ON", "UNISONO_WERROR=ON"]
    return build(log, name, [*common, *definitions], targets)


def build_instrumented(log: Log, sanitizer: str, fuzzers: bool) -> Outcome:
    """Builds tests, and fuzzers, under a sanitizer: by clang, if there is one: it is quicker."""
    definitions = [f"UNISONO_SANITIZE={sanitizer}"]
    compiler = clang()
    if compiler is not None:
        definitions.append(f"CMAKE_CXX_COMPILER={compiler}")
    if compiler is not None and fuzzers:
        definitions.append("UNISONO_BUILD_FUZZERS=ON")
    return build_tests(log, sanitizer, definitions)


def run_tests(
    log: Log, name: str, label: str, chosen: Sequence[str] = (), again: bool = False
) -> Outcome:
    """Runs the C++ tests of build/<name>, or again the programs that failed in its last run.

    `chosen` is how ctest is told which; their reports are in build/<name>/results/<log's name>.
    """
    folder = BUILD / name
    results = folder / "results" / log.path.stem
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    ctest = [BIN / "ctest", "--test-dir", folder, "-j", "1" if again else TEST_JOBS, *chosen]
    if again:
        ctest.append("--rerun-failed")
    ran = log.run(
        [*ctest, "--output-on-failure", "--no-tests=error"],
        environment={**SANITIZER_ENVIRONMENT, "GTEST_OUTPUT": f"json:{results}/"},
    )
    outcome = gtest_outcome(results, label)
    # A program that crashed, hung or leaked has no failed test in its report, if it wrote one.
    said = log.path.read_text(errors="replace")
    if not ran and (not outcome.failed or _FOUND.search(said)):
        outcome.check(f"{name}: {failed_programs(folder)}{last_words(said)}", False)
        outcome.has_crashed = True
    return outcome


_BEGUN = re.compile(r"^\[ RUN      \] (.*)$", re.MULTILINE)
_FOUND = re.compile(r"^SUMMARY: (.*)$", re.MULTILINE)


def last_words(output: str) -> str:
    """Names the last test that began and what a sanitizer found, from what ctest shows."""
    words = [*_BEGUN.findall(output)[-1:], *_FOUND.findall(output)[:1]]
    return "".join(f"; {each}" for each in words)


def failed_programs(folder: Path) -> str:
    """The programs that ctest found to fail in its last run."""
    failed = folder / "Testing" / "Temporary" / "LastTestsFailed.log"
    lines = failed.read_text().splitlines() if failed.exists() else []
    return ", ".join(line.partition(":")[2] for line in lines) or "ctest"


def clang() -> str | None:
    """The newest clang++ of this machine that can link a fuzzer."""
    found = subprocess.run([ROOT / "tools" / "find-clang"], capture_output=True, text=True)
    if found.returncode != 0:
        return None
    compiler = found.stdout.strip()
    probe = [compiler, "-fsanitize=fuzzer,address", "-x", "c++", "-o", os.devnull, "-"]
    text = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long){return 0;}'
    ok = subprocess.run(probe, input=text, text=True, capture_output=True).returncode == 0
    return compiler if ok else None


def fuzzer_names() -> list[str]:
    """The fuzzers' names, without _fuzz."""
    sources = (ROOT / "tests" / "fuzz").glob("*_fuzz.cc")
    return sorted(source.stem.removesuffix("_fuzz") for source in sources)


_RAN = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
_COVERED = re.compile(r"\bcov: (\d+)")


def fuzz_table(reports: dict[str, str], findings: dict[str, int]) -> str:
    """What fuzzers have done, from what each wrote and the number of its inputs that failed."""
    lines = [f"{'fuzzer':<22} {'runs':>12} {'seconds':>8} {'edges':>7} {'findings':>8}"]
    total_runs = total_seconds = 0
    for name, report in sorted(reports.items()):
        found = _RAN.search(report)
        runs, seconds = (int(found[1]), int(found[2])) if found else (0, 0)
        edges = int((_COVERED.findall(report) or ["0"])[-1])
        lines.append(f"{name:<22} {runs:12,} {seconds:8,} {edges:7,} {findings.get(name, 0):8}")
        total_runs, total_seconds = total_runs + runs, total_seconds + seconds
    lines.append(
        f"{'all':<22} {total_runs:12,} {total_seconds:8,} {'':7} {sum(findings.values()):8}"
    )
    return "\n".join(lines) + "\n"


def fuzz(log: Log, seconds: int) -> Outcome:
    """Runs each fuzzer for so many seconds from its corpus, one on each processor at a time.

    The table of what they did is build/fuzz.txt.
    """
    if clang() is None:
        raise MissingError("clang with libFuzzer (libclang-rt-dev)")
    outcome = Outcome()
    folder = BUILD / "address"
    reports: dict[str, str] = {}

    def run(name: str) -> tuple[str, bool, Log]:
        # New inputs go to the build folder; the seeds in the repository stay as they are.
        grown = folder / "corpus" / name
        grown.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "tests" / "fuzz" / "corpus" / name
        command: list[str | Path] = [folder / f"{name}_fuzz", grown]
        if seeds.is_dir():
            command.append(seeds)
        command += [
            f"-max_total_time={seconds}",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={folder}/crash-{name}-",
        ]
        own = Log(f"fuzz/{name}")
        ok = own.run(command, environment=SANITIZER_ENVIRONMENT, timeout_seconds=seconds + 120)
        return name, ok, own

    with ThreadPoolExecutor(int(JOBS)) as pool:
        for name, ok, own in pool.map(run, fuzzer_names()):
            outcome.check(f"fuzz {name}", ok)
            log.cpu_seconds += own.cpu_seconds
            reports[name] = own.path.read_text(errors="replace")
            if not ok:
                log.append(own)
    findings = {name: len(list(folder.glob(f"crash-{name}-*"))) for name in reports}
    (BUILD / "fuzz.txt").write_text(fuzz_table(reports, findings))
    return outcome
