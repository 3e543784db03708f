"""Builds and runs the C++ tests, plain and under the sanitizers, and the fuzzers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from stage import BIN, BUILD, ROOT, Log, Outcome, gtest_outcome

JOBS = str(os.cpu_count() or 1)

# A report ends the program with a code of its own, and a data race is one, not a line in a log.
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def configure(log: Log, build: Path, definitions: list[str]) -> bool:
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


def build_and_run(log: Log, name: str, definitions: list[str], label: str) -> Outcome:
    """Builds all C++ tests in build/<name> and runs them."""
    outcome = Outcome()
    build = BUILD / name
    definitions = ["UNISONO_BUILD_TESTS=ON", "UNISONO_WERROR=ON", *definitions]
    if not outcome.check(f"{name}: configure", configure(log, build, definitions)):
        return outcome
    if not outcome.check(f"{name}: build", log.run([BIN / "cmake", "--build", build, "-j", JOBS])):
        return outcome
    results = build / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    ran = log.run(
        [BIN / "ctest", "--test-dir", build, "-j", JOBS, "--output-on-failure", "--no-tests=error"],
        environment={**SANITIZER_ENVIRONMENT, "GTEST_OUTPUT": f"json:{results}/"},
    )
    found = gtest_outcome(results, label)
    outcome.add(found)
    # A program that crashed or hung wrote no report; it must not pass for that.
    if not ran and not found.failed:
        outcome.check(f"{name}: ctest", False)
    return outcome


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


def fuzz(log: Log, compiler: str, seconds: int) -> Outcome:
    """Builds every fuzzer and runs each for so many seconds from its corpus."""
    outcome = Outcome()
    build = BUILD / "fuzz"
    definitions = [
        f"CMAKE_CXX_COMPILER={compiler}",
        "UNISONO_BUILD_FUZZERS=ON",
        "UNISONO_BUILD_TESTS=OFF",
    ]
    if not outcome.check("fuzz: configure", configure(log, build, definitions)):
        return outcome
    if not outcome.check("fuzz: build", log.run([BIN / "cmake", "--build", build, "-j", JOBS])):
        return outcome
    for source in sorted((ROOT / "tests" / "fuzz").glob("*_fuzz.cc")):
        name = source.stem.removesuffix("_fuzz")
        # New inputs go to the build folder; the seeds in the repository stay as they are.
        grown = build / "corpus" / name
        grown.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "tests" / "fuzz" / "corpus" / name
        command: list[str | Path] = [build / f"{name}_fuzz", grown]
        if seeds.is_dir():
            command.append(seeds)
        command += [
            f"-max_total_time={seconds}",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={build}/crash-{name}-",
        ]
        ok = log.run(command, environment=SANITIZER_ENVIRONMENT, timeout_seconds=seconds + 120)
        outcome.check(f"fuzz {name}", ok)
    return outcome
