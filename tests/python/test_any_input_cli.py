"""Any command line and any file gives a result or one sentence, with the documented exit status.

Every option of every command is found in the application itself, so that a new one is tried too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from python.answered import answer
from unisono import plans
from unisono.cli.app import app
from unisono.simulate import builtin_clusters, load_cluster, to_yaml
from unisono.synthesize import builtin_links

# A fixed seed: a failure must come back.
THOROUGH = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # to shrink a slow example takes minutes
)
# These start as many processes as they are told to: they have tests of their own.
STARTERS = {"run", "bench", "netbed run", "chaos"}
# These go on until Ctrl-C, or run what reaches another host: tests/python/live and metrics.
SERVERS = {"metrics", "watch", "ras"}


def commands(prefix: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, one in command.commands.items():
            yield from commands(f"{prefix} {name}".strip(), one)
    else:
        yield prefix, command


COMMANDS = dict(commands("", typer.main.get_command(app)))

PLAN = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(3))
GOAL = "num_ranks 2\nrank 0 {\nl1: send 10b to 1 tag 0\n}\nrank 1 {\nl1: recv 10b from 0 tag 0\n}\n"
WORKLOAD = """\
format: 1
name: two
ranks: 2
communicators: {world: {size: 2}}
programs:
  - ranks: all
    steps:
      - compute: {time: 5 us, name: work}
      - all_reduce: {size: 1 MiB, over: world, after: [work]}
"""
PROGRAM = """\
from unisono.lang import program

@program("all_gather", in_place=True)
def gather(p):
    for rank in range(p.ranks):
        for to in range(p.ranks):
            if to != rank:
                p.chunk(rank, "output", rank).copy(to)
"""
RIGHT_FILES = {
    "plan.txt": PLAN.to_text(),
    "plan.json": PLAN.to_json(),
    "cluster.yaml": to_yaml(load_cluster("dgx_h100").file),
    "workload.yaml": WORKLOAD,
    "messages.goal": GOAL,
    "program.py": PROGRAM,
    "measured.json": '{"rows": [{"collective": "all_reduce", "ranks": 2, "time_us": 1.0}]}',
    "record/0.json": '{"format": "unisono-record", "version": 2, "collectives": []}',
    "flight/0.json": '{"version": "2.5", "pg_config": {"0": {"name": "0", "ranks": "[0]"}}, '
    '"entries": [{"process_group": ["0", "0"], "profiling_name": "nccl:all_reduce", '
    '"time_created_ns": 1, "input_sizes": [[4]], "output_sizes": [[4]], "duration_ms": 1.0}]}',
}
WRONG_FILES = {
    "empty.yaml": b"",
    "empty.txt": b"",
    "no_utf8.txt": b"plan \xff\xfe\x80",
    "no_utf8.yaml": b"format: \xff",
    "no_utf8.goal": b"num_ranks \xff",
    "zeros.bin": b"\0" * 64,
    "deep.json": b"[" * 100_000,
    "deep_object.json": b'{"a":' * 100_000,
    "deep.yaml": b"[" * 20_000,
    "deep.xml": b"<a>" * 20_000,
    "number.yaml": b"format: " + b"9" * 5000,
    "date.yaml": b"format: 2024-13-45",
    "infinite.yaml": b"format: .inf\nname: .nan",
    "null.json": b"null",
    "number.json": b'{"version": 1' + b"0" * 5000 + b"}",
    "nan.json": b'{"version": NaN, "rows": Infinity}',
    "raises.py": b"raise KeyError('x')",
    "exits.py": b"import sys; sys.exit(3)",
    "nothing.py": b"",
    "no_utf8.py": b"\xff",
    "zeros.py": b"\0",
    "flight2/0.json": b'{"entries": 5, "pg_config": 7}',
    "record2/0.json": b'{"unisono-record": 5}',
    "chakra/0.et": b"\xff" * 40,
    "chakra2/a.json": b"{}",
    "no_utf8/0.json": b"\xff",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("files")
    for name, contents in WRONG_FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(contents)
    for name, text in RIGHT_FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "hollow").mkdir()
    (root / "folder.yaml").mkdir()
    (root / "loop.json").symlink_to(root / "loop.json")
    unreadable = root / "unreadable.json"
    unreadable.write_text("{}")
    unreadable.chmod(0)
    return root


def mutated(draw, folder: Path) -> Path:
    """A right file with some bytes changed."""
    name = draw(st.sampled_from(sorted(RIGHT_FILES)))
    contents = bytearray(RIGHT_FILES[name].encode())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(contents) - 1))
        new = draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from([b"-1", b"1e999", b"nan", b"9" * 30, b"null", b"[]", b"{}", b'"']),
            )
        )
        contents[at : at + draw(st.integers(0, 8))] = new
        contents = contents or bytearray(b"x")
    path = folder / "mutated" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    return path.parent if "/" in name else path


NUMBERS = ["0", "1", "2", "3", "-1", "1.5", "1e3", "nan", "inf", "-inf", "2147483648",
           "9223372036854775808", "1" + "0" * 400, "0x10", "", " 1", "१"]  # fmt: skip
SIZES = ["8", "64KiB", "1MiB", "0", "-1", "1TB", "1000GB", "9EiB", "18446744073709551616",
         "1e400", "nan", "KiB", "1.5", "8,16", ",", ""]  # fmt: skip
WORDS = ["", " ", ",", "[/bold]", "[red", "%s", "\udcff", "☃", "-", "--", "x" * 5000, "..", "2..",
         "4..2", "2..4", "1,2", "4x2", "1ms", "200mbit", "L=1us", "L=1us,o=1e999s"]  # fmt: skip
NAMES = ["ring", "tree", "all", "auto", "all_reduce", "all_to_all", "broadcast", "simple", "ll",
         "ring_all_reduce", "dgx_h100", "float32", "float9", "sum", "flows", "loggops", "nccl",
         "rccl", "mscclpp", "msccl-xml", "json", "solve", "protocols.ll.launch",
         "nodes"]  # fmt: skip


@st.composite
def values(draw, folder: Path) -> str:
    kind = draw(st.sampled_from(["number", "size", "word", "name", "file", "right", "text"]))
    if kind == "file":
        others = ["hollow", "folder.yaml", "loop.json", "unreadable.json", "absent.yaml", "record",
                  "flight", "chakra", "chakra2", "record2", "flight2", "no_utf8"]  # fmt: skip
        name = draw(st.sampled_from([*WRONG_FILES, *others, "/dev/null", "/proc/self/mem"]))
        return name if name.startswith("/") else str(folder / name)
    if kind == "right":
        return str(mutated(draw, folder))
    if kind == "text":
        return draw(st.text(st.characters(codec=None, exclude_characters="\0"), max_size=12))
    pools = {"number": NUMBERS, "size": SIZES, "word": WORDS, "name": NAMES}
    return draw(st.sampled_from(pools[kind]))


@st.composite
def likely(draw, parameter: Any, folder: Path) -> str:
    """A value that fits the parameter more often than chance would have it."""
    if draw(st.integers(0, 3)) == 0:
        return draw(values(folder))
    name = parameter.name or ""
    kind = parameter.bare_type()
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return draw(st.sampled_from([one.value for one in kind]))
    if name == "cluster":
        return draw(st.sampled_from([*builtin_clusters(), str(folder / "cluster.yaml")]))
    if name == "links":
        return draw(st.sampled_from([*builtin_links(), *builtin_clusters()]))
    if name in ("html", "timeline", "output", "goal"):
        return str(folder / "out" / draw(st.sampled_from(["a.html", "a.goal", "a.bin", "a.yaml"])))
    if kind in (int, float):
        return draw(st.sampled_from(NUMBERS))
    if "size" in name or name in ("smallest", "largest"):
        return draw(st.sampled_from(SIZES))
    if kind is Path or name in ("name", "names", "file", "files"):
        return str(mutated(draw, folder))
    return draw(st.sampled_from(NAMES))


@st.composite
def lines(draw, command: str, folder: Path) -> list[str]:
    words = command.split()
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "argument":
            wanted = draw(st.integers(0, 2)) if parameter.nargs == -1 else draw(st.integers(0, 8))
            for _ in range(wanted if parameter.nargs == -1 else min(wanted, 1)):
                words.append(draw(likely(parameter, folder)))
        elif draw(st.integers(0, 3)) == 0:
            option = draw(st.sampled_from(parameter.opts))
            words.append(option)
            if not getattr(parameter, "is_flag", False):
                words.append(draw(likely(parameter, folder)))
    return words


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - STARTERS - SERVERS))
def test_any_command_line_is_answered(folder, monkeypatch, command):
    monkeypatch.chdir(folder)

    @THOROUGH
    @given(st.data())
    def check(data):
        words = data.draw(lines(command, folder))
        code, errors = answer(words)
        # The doctor's verdicts are 3 and 4.
        most = 4 if words[:1] == ["doctor"] else 2
        assert 0 <= code <= most, (words, code)
        assert "Traceback" not in errors
        assert "bug in unisono" not in errors, (words, errors)
        if code == 2 and len(words) > len(command.split()):
            assert errors, words

    check()


FEW = ["0", "1", "2", "-1", "1.5", "nan", "", "9223372036854775808"]
# What ranks are to run, which of them fails or not.
PROGRAMS = [["true"], ["false"], ["sh", "-c", "kill -9 $$"], ["-c", "import unisono"], ["absent"],
            ["-m", "absent"], ["/dev/null"], ["/"], ["absent.py"], ["\udcff"], []]  # fmt: skip
# With these a netbed is not made.
SHAPES = [
    "",
    "4",
    "x",
    "0x1",
    "1x0",
    "-1x2",
    "1.5x2",
    "4x2x2",
    "99999999x2",
    "2x99999999",
    "\udcff",
]


def check_started(words: list[str], codes: set[int]) -> None:
    code, errors = answer(words)
    assert code in codes, (words, code)
    assert "bug in unisono" not in errors, (words, errors)


@settings(THOROUGH, max_examples=25)
@given(
    st.lists(st.sampled_from([*(f"--ranks={few}" for few in FEW), "--nodes=2", "--nodes=0",
                              "--label", "--keep-going", "--no-such"]), max_size=3),
    st.sampled_from(PROGRAMS),
)  # fmt: skip
def test_any_run_is_answered(options, program):
    check_started(["run", *options, *program], {0, 1, 2, 126, 127, 137})


@settings(THOROUGH, max_examples=20)
@given(st.sampled_from(SHAPES), st.sampled_from(["", *SIZES, "200mbit"]), st.sampled_from(FEW))
def test_any_netbed_is_answered(shape, rate, rails):
    check_started(["netbed", "run", f"--rate={rate}", f"--rails={rails}", shape, "true"], {1, 2})
    check_started(["bench", f"--netbed={shape or 'x'}", f"--rate={rate}"], {1, 2})


@pytest.mark.parametrize("examples", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_any_bench_is_answered(folder, monkeypatch, examples):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(globals(), "NUMBERS", FEW)

    @settings(THOROUGH, max_examples=examples)
    @given(st.data())
    def check(data):
        words = [word for word in data.draw(lines("bench", folder)) if "netbed" not in word]
        # Those that would run take no time.
        check_started([*words, "--min=8", "--max=8", "--iterations=1", "--seconds=0"], {0, 1, 2})

    check()
