"""A project outside the tree finds the installed library, builds against it, and runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.pages import run_page
from python.hosts import Hosts, finish, make_hosts
from unisono.errors import MachineError

ROOT = Path(__file__).resolve().parents[2]
RANKS = 4
RUN_SECONDS = 180

# The library is installed, and the example built, once for all tests.
pytestmark = [pytest.mark.xdist_group("installed library"), pytest.mark.slow]


def tool(name: str) -> str:
    """A build tool, from this environment if it has one."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"{name} is missing"
    return found


def run(*command: str | Path) -> None:
    """Runs a command; its output is the failure's message."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library is installed for these tests."""
    build = ROOT / "build" / "test"
    if not (build / "build.ninja").exists():
        build = ROOT / "build" / "package"
        run(tool("cmake"), "-S", ROOT, "-B", build, "-G", "Ninja", "-DUNISONO_BUILD_TESTS=OFF")
    run(
        tool("cmake"),
        "--build",
        build,
        "--target",
        "unisono",
        "unisono_nccl",
        "unisono_nccl_profiler",
    )
    folder = tmp_path_factory.mktemp("prefix")
    run(tool("cmake"), "--install", build, "--component", "cpp", "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built from a copy outside this tree."""
    folder = tmp_path_factory.mktemp("consumer")
    shutil.copytree(ROOT / "examples" / "cpp_consumer", folder, dirs_exist_ok=True)
    build = folder / "build"
    options = ["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Werror"]
    run(tool("cmake"), "-S", folder, "-B", build, *options)
    run(tool("cmake"), "--build", build)
    return build / "sum"


def test_no_nccl_of_the_system_is_hidden(prefix: Path) -> None:
    (library,) = prefix.rglob("libunisono_nccl.so")
    assert not list(library.parent.glob("libnccl.so*"))


def test_only_public_headers_are_installed(prefix: Path) -> None:
    installed = {path.relative_to(prefix / "include") for path in prefix.rglob("*.h")}
    public = {path.relative_to(ROOT / "include") for path in (ROOT / "include").rglob("*.h")}
    assert installed == public


def test_every_public_header_compiles_by_itself(prefix: Path, tmp_path: Path) -> None:
    for header in sorted((prefix / "include" / "unisono").glob("*.h")):
        source = tmp_path / f"{header.stem}.cc"
        source.write_text(f"#include <unisono/{header.name}>\n")
        options = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        run(os.environ.get("CXX", "c++"), *options, f"-I{prefix / 'include'}", source)


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="pkg-config is missing")
def test_the_example_builds_with_pkg_config(prefix: Path, tmp_path: Path) -> None:
    (description,) = prefix.rglob("unisono.pc")
    asked = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "unisono"],
        env={**os.environ, "PKG_CONFIG_PATH": str(description.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    (source,) = (ROOT / "examples" / "cpp_consumer").glob("*.cc")
    compiler = os.environ.get("CXX", "c++")
    run(compiler, "-std=c++20", source, "-o", tmp_path / "sum", *asked.stdout.split())


def test_the_example_sums_over_four_processes(program: Path, tmp_path: Path) -> None:
    secret = os.urandom(16).hex()
    processes = [
        subprocess.Popen(
            [program],
            env={
                **os.environ,
                "UNISONO_RANK": str(rank),
                "UNISONO_WORLD_SIZE": str(RANKS),
                "UNISONO_RENDEZVOUS": f"file://{tmp_path}/meet",
                "UNISONO_SECRET": secret,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    outputs = [process.communicate(timeout=RUN_SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, outputs
    assert outputs == [f"rank {rank} of {RANKS}: sum 10\n" for rank in range(RANKS)]


def test_the_page_on_cpp_shows_what_happens(prefix: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "cpp.md").read_text()
    variables = {"CMAKE_PREFIX_PATH": str(prefix), "CMAKE_GENERATOR": "Ninja"}
    assert run_page(page, tmp_path, **variables) > 0
    for name in ("CMakeLists.txt", "sum.cc"):
        example = ROOT / "examples" / "cpp_consumer" / name
        assert (tmp_path / name).read_text() == example.read_text()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts, which are network namespaces."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(make_hosts(tmp_path))
        except MachineError as error:
            pytest.skip(f"no hosts: {error}")
        yield made


def test_the_example_sums_over_two_hosts(program: Path, hosts: Hosts, tmp_path: Path) -> None:
    secret = tmp_path / "job.secret"
    secret.touch(mode=0o600)
    secret.write_text(os.urandom(16).hex())
    variables = {
        "UNISONO_SECRET_FILE": str(secret),
        "UNISONO_WORLD_SIZE": "2",
        "UNISONO_RENDEZVOUS": f"tcp://{hosts.addresses[0]}:29400",
    }
    ranks = [
        hosts.start(rank, [str(program)], **variables, UNISONO_RANK=str(rank)) for rank in range(2)
    ]
    expected = [(0, f"rank {rank} of 2: sum 3\n") for rank in range(2)]
    assert [finish(rank) for rank in ranks] == expected


def test_the_example_fails_with_a_reason_where_no_rank_is_known(program: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UNISONO_", "RANK", "WORLD_SIZE", "MASTER_"))
    }
    environment["UNISONO_RANK"] = "5"
    environment["UNISONO_WORLD_SIZE"] = "2"
    environment["UNISONO_RENDEZVOUS"] = "tcp://127.0.0.1:9"
    done = subprocess.run([program], env=environment, capture_output=True, timeout=RUN_SECONDS)
    assert done.returncode == 1
    assert b"5" in done.stderr
