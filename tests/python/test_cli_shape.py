"""The command line's shape: widths, JSON, names, options of other programs, and its start."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import unisono
from rich.console import Console
from rich.text import Text
from unisono import hardware, plans
from unisono.bench.cases import Case
from unisono.bench.rows import Row
from unisono.bench.tables import comparison_table, table_of
from unisono.tables import Table, label, number, prose

WIDTH = 80


def unisono_at(width: int, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a shell would, in a terminal of so many columns."""
    return subprocess.run(
        [sys.executable, "-m", "unisono", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": str(width), **more},
    )


def printed(table: Table, width: int = WIDTH) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table, crop=False)
    return capture.get()


def row(collective: str, algorithm: str, size: int, library: str = "unisono") -> Row:
    case = Case(collective, max(1, size // 4), "float32", 4)
    return Row.of(case, 1, algorithm, "simple", 12345.678, 0, library)


def quick_first(*cases: tuple) -> list:
    """The cases of a table; all but the first are left to tools/test --rest."""
    first, *others = cases
    slow = (pytest.param(*one, marks=pytest.mark.slow) for one in others)
    return [pytest.param(*first), *slow]


@pytest.mark.parametrize(
    "words",
    quick_first(*((words,) for words in [
        ("explain", "all_reduce", "1MiB", "-n", "64", "--nodes", "8"),
        ("info",),
        ("explain", "reduce_scatter", "1MiB"),
        ("plan", "list"),
        ("plan", "verify", "ring_all_reduce", "--ranks", "4"),
        ("bench", "all_reduce", "--algorithm", "ring,hierarchical_recursive_direct", "-np", "2",
         "-b", "8", "-e", "4KiB", "-f", "16", "--iters", "2"),
        ("simulate", "--clusters"),
        ("simulate", "all_gather", "--size", "1MiB,8MiB"),
        ("simulate", "--sources"),
    ])),
    ids=lambda words: " ".join(words[:2]),
)  # fmt: skip
def test_at_80_columns_nothing_is_cut_and_nothing_is_wider(words: tuple[str, ...]) -> None:
    done = unisono_at(WIDTH, *words)
    assert done.returncode == 0, done.stderr
    wide = [line for line in done.stdout.splitlines() if len(line.rstrip()) > WIDTH]
    assert wide == []
    assert "…" not in done.stdout


def test_a_table_cuts_no_name_however_narrow_the_terminal() -> None:
    names = [entry.name for entry in plans.algorithms("all_reduce")]
    places = [
        (of, name, size) for name in names for of, size in (("reduce", 8), ("scatter", 1 << 30))
    ]
    table = table_of([row(*place) for place in places])
    for width in (20, 40, WIDTH):
        text = printed(table, width)
        for name in (*names, "12346"):
            assert re.search(rf"(?<!\S){re.escape(name)}(?!\S)", text), (width, name)


def test_what_is_constant_goes_into_the_heading() -> None:
    text = printed(table_of([row("all_reduce", "ring", 8), row("all_reduce", "tree", 8)]))
    heading, *lines = text.splitlines()
    assert heading == "collective all_reduce, protocol simple, type float32"
    assert "all_reduce" not in "".join(lines)
    one = table_of([row("all_reduce", "ring", 8)])
    assert printed(one, 120).splitlines()[-1].startswith("all_reduce")
    # Where a single row does not fit, it does so, too.
    assert printed(one, 60).startswith("collective all_reduce, ")


def test_a_table_that_is_too_wide_becomes_several_that_name_their_rows() -> None:
    libraries = ["unisono", "openmpi", "mpich", "gloo", "nccl", "mscclpp"]
    rows = [row(one, "", size, library) for one in ("all_reduce", "broadcast") for size in (8, 64)
            for library in libraries]  # fmt: skip
    text = printed(comparison_table(rows))
    assert max(map(len, text.splitlines())) <= WIDTH
    parts = text.split("\n\n")
    assert len(parts) > 1
    assert all(part.count("broadcast") == 2 for part in parts)
    for library in libraries[1:]:
        assert text.count(library) >= 2


def test_sentences_are_broken_and_markup_is_shown_as_it_is() -> None:
    table = Table([label("name"), number("count"), prose("why")])
    table.add_row("[bold]", 3, "word " * 60)
    table.add_row("x", Text("4", "red"), "")
    text = printed(table)
    assert "[bold]" in text
    assert text.count("word") == 60
    assert max(map(len, text.splitlines())) <= WIDTH
    assert table.cells("count") == ["3", "4"]
    with pytest.raises(ValueError, match="2 cells for 3 columns"):
        table.add_row("a", "b")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("info",),
        ("explain", "all_reduce", "8"),
        ("plan", "list", "broadcast"),
        ("plan", "verify", "ring_all_reduce", "--ranks", "3"),
        ("simulate", "--clusters"),
        ("simulate", "all_gather"),
        ("bench", "barrier", "-n", "2", "--iters", "2"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_json_goes_to_a_file_beside_the_tables_or_to_standard_output(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    target = tmp_path / "new" / "found.json"
    to_file = unisono_at(WIDTH, *words, "--json", str(target))
    assert to_file.returncode == 0, to_file.stderr
    assert to_file.stdout.strip()
    assert not to_file.stdout.startswith(("{", "["))
    alone = unisono_at(WIDTH, *words, "--json", "-")
    assert alone.returncode == 0, alone.stderr
    assert type(json.loads(alone.stdout)) is type(json.loads(target.read_text()))


@pytest.mark.slow
def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for option in ("--json", "--html"):
        for target, why in ((tmp_path, "is a folder"), (tmp_path / "file" / "x", "no folder")):
            done = unisono_at(
                WIDTH, "bench", "all_reduce", "--seconds", "1000", option, str(target)
            )
            assert done.returncode == 1, done.stderr
            assert why in done.stderr, done.stderr


def test_missing_devices_are_said_before_ranks_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from unisono.bench.device_rows import DeviceRequest
    from unisono.cli import bench_device

    monkeypatch.setattr(bench_device.native, "cuda_device_count", lambda: 1)
    monkeypatch.setattr(bench_device, "run_on_devices", lambda *_: pytest.fail("started"))
    request = DeviceRequest(["all_reduce"], [8], ["float32"], ["eager"], [False])
    with pytest.raises(unisono.MachineError, match="4 ranks need a CUDA device each; .* has 1"):
        bench_device.bench_device(request, [1, 4])


@pytest.mark.slow
def test_info_has_numbers_as_numbers() -> None:
    told = json.loads(unisono_at(WIDTH, "info", "--json", "-", UNISONO_TIMEOUT="7s").stdout)
    assert told["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert told["machine"]["memory_bytes"] > 1 << 20
    assert told["settings"]["UNISONO_TIMEOUT"] == 7.0
    assert told["settings"]["UNISONO_LL_SLOT_BYTES"] == 32768
    assert told["settings"]["UNISONO_INSECURE"] is False
    assert told["settings"]["UNISONO_RENDEZVOUS"] is None
    assert isinstance(told["gpus"]["kernels_compiled"], bool)
    assert "lo" in [one["name"] for one in told["interfaces"]]
    assert told["limits"]["memlock_bytes"] in (
        None, resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    )  # fmt: skip
    assert "0 TCP streams" not in json.dumps(told)


def test_gpus_are_as_nvidia_smi_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'case $1 in nvlink) printf "GPU 0: NVIDIA H200 (UUID: x)\\n\\t Link 0: 26.562 GB/s\\n'
        '\\t Link 1: 26.562 GB/s\\n\\t Link 2: <inactive>\\nGPU 1: NVIDIA H200\\n" ;;\n'
        '*) echo "0, NVIDIA H200, 143771, 9.0, 00000000:19:00.0, 570.1"\n'
        'echo "1, NVIDIA H200, [N/A], 9.0, 00000000:3B:00.0, 570.1" ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = hardware.gpus()
    assert found["driver"] == "570.1"
    first, second = found["devices"]
    assert (first["memory_bytes"], first["nvlinks"], first["nvlink_gb_s"]) == (
        143771 << 20,
        2,
        53.1,
    )
    assert (second["memory_bytes"], second["nvlinks"]) == (None, 0)
    program.write_text("#!/bin/sh\nexit 9\n")
    assert hardware.gpus() == {
        "driver": None,
        "why_none": "nvidia-smi does not answer",
        "devices": [],
    }


@pytest.mark.parametrize(
    ("words", "hint"),
    quick_first(
        (("bench", "all_reduce", "--algorithm", "rnig"), "did you mean ring?"),
        (("bench", "all_reduce", "--op", "smu"), "did you mean sum"),
        (("bench", "all_reduce", "--datatype", "flaot32"), "did you mean float32"),
        (("simulate", "all_gather", "--cluster", "dgx_h10"), "did you mean dgx_h100"),
        (("simulate", "all_gather", "--model", "flow"), "did you mean flows"),
        (("plan", "synthesize", "--cluster", "dgx1"), "dgx_1"),
        (("plan", "show", "ring_all_reduce", "--format", "mscclpp-json", "--target", "mscclp"),
         "did you mean mscclpp or msccl"),
        (("bnch",), "Did you mean 'bench'?"),
    ),
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_near_names_are_told_once_each(words: tuple[str, ...], hint: str) -> None:
    done = unisono_at(200, *words)
    assert done.returncode == 2
    assert hint in done.stderr


@pytest.mark.slow
def test_a_misspelt_setting_is_warned_of_once_in_a_job(tmp_path: Path) -> None:
    wrong = "UNISONO_" + "TIMOUT"
    done = unisono_at(WIDTH, "explain", "barrier", "8", **{wrong: "3s"})
    assert (
        done.stderr.replace("\n", " ").count(f"{wrong} is set, and there is no such setting") == 1
    )
    assert "did you mean UNISONO_TIMEOUT" in done.stderr.replace("\n", " ")
    program = tmp_path / "program.py"
    program.write_text("import unisono\nfor _ in range(2): unisono.init().destroy()\n")
    of_job = unisono_at(WIDTH, "run", "-n", "3", str(program), **{wrong: "3s"})
    assert of_job.returncode == 0, of_job.stderr
    assert of_job.stderr.count(wrong) == 1
    assert "[rank 0]" in of_job.stderr
    assert unisono_at(WIDTH, "explain", "barrier", "8", UNISONO_TIMEOUT="3s").stderr == ""


@pytest.mark.slow
def test_options_of_mpirun_torchrun_and_nccl_tests_are_understood(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(os.environ['UNISONO_WORLD_SIZE'])\n")
    for option in (("-np", "3"), ("--nproc-per-node", "3"), ("--nproc-per-node=3",), ("-n3",)):
        done = unisono_at(WIDTH, "run", *option, str(program))
        # Ranks write at the same time: a line's end may follow another's line.
        assert done.stdout.replace("\n", "") == "333", done.stderr
    sizes = ("-b", "8", "-e", "64", "-f", "2")
    rest = ("-d", "int32", "-o", "max", "-r", "1", "--iters", "3", "--json", "-")
    done = unisono_at(WIDTH, "bench", "all_reduce", "-g", "2", *sizes, *rest)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["bytes"] for one in document["rows"]] == [8, 16, 32, 64]
    asked = document["request"]
    assert (asked["ranks"], asked["type"], asked["operation"], asked["root"]) == (
        2,
        "int32",
        "max",
        1,
    )
    assert asked["iterations"] == 3


@pytest.mark.slow
def test_every_command_has_the_same_default_number_of_ranks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(os.environ['UNISONO_WORLD_SIZE'])\n")
    assert unisono_at(WIDTH, "run", str(program)).stdout.replace("\n", "") == "8" * 8
    assert " on 8 ranks" in unisono_at(WIDTH, "explain", "barrier", "8").stdout
    assert "ranks 8" in unisono_at(WIDTH, "plan", "show", "ring_all_reduce").stdout
    simulated = json.loads(unisono_at(WIDTH, "simulate", "all_gather", "--json", "-").stdout)
    assert {one["ranks"] for one in simulated["results"]} == {8}


def test_the_version_is_told() -> None:
    done = unisono_at(WIDTH, "--version")
    assert (done.returncode, done.stdout) == (0, f"unisono {unisono.__version__}\n")


def test_help_is_there_at_once() -> None:
    """It loads no command, and nothing that takes as long as numpy."""
    loads = (
        "import sys; sys.argv = ['unisono', '--help']\n"
        "from unisono.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["Usage:"])
    loaded = set(done.stderr.split())
    assert "unisono.cli.app" in loaded
    assert sorted(name for name in loaded if name.startswith("unisono.")) == [
        "unisono._native_core",
        "unisono._unisono",
        "unisono.cli",
        "unisono.cli.app",
        "unisono.cli.deferred",
        "unisono.cli.help_text",
        "unisono.cli.output",
        "unisono.endings",
        "unisono.environment",
        "unisono.errors",
        "unisono.extras",
        "unisono.files",
        "unisono.plans",
    ]
    slow = {
        "numpy",
        "rich",
        "matplotlib",
        "jinja2",
        "prometheus_client",
        "asyncio",
        "torch",
        "yaml",
    }
    assert not slow & loaded


def test_help_lists_each_command_as_the_command_describes_itself() -> None:
    from unisono.cli.app import _COMMANDS
    from unisono.cli.deferred import _Deferred
    from unisono.cli.plan_commands import COMMANDS

    for name, place in (*_COMMANDS.items(), *COMMANDS.items()):
        described: Any = _Deferred(name, place).load()
        assert place.summary == (described.help or "").strip().split("\n")[0], name


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [(".png", b"\x89PNG"), pytest.param(".pdf", b"%PDF", marks=pytest.mark.slow)],
)
def test_a_picture_is_what_its_name_says(suffix: str, begins: bytes, tmp_path: Path) -> None:
    pytest.importorskip("cairosvg", reason="CairoSVG is not installed: pip install unisono[draw]")
    target = tmp_path / f"ring{suffix}"
    done = unisono_at(WIDTH, "plan", "draw", "ring_all_reduce", "-o", str(target), "-n", "3")
    assert done.returncode == 0, done.stderr
    assert target.read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_made_is_refused_before_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unisono.cli import pictures

    done = unisono_at(200, "plan", "draw", "ring_all_reduce", "-o", str(tmp_path / "ring.jpg"))
    assert done.returncode == 2
    assert ".svg, .png, .pdf, .html" in done.stderr
    monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(unisono.MachineError, match=r"unisono\[draw\]"):
        pictures.check_picture(tmp_path / "ring.png")
