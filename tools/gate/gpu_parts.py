"""The parts of tools/gpu_gate."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

from builds import ROOT, Build, GateError
from parts import GATE, Context, Measured, Part, torchrun, unisono

BENCH = ROOT / "bench" / "gpu"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
# An error after a peer was killed; bench/results/faults.txt has what is usual.
LATEST_MS = 2000
# training.py has 8 layers; so many show the same overlap in less time.
LAYERS = "4"


def place_of(row: dict[str, object]) -> str:
    return ", in place" if row["in_place"] else ""


def on_devices(build: Build, context: Context, collectives: tuple[str, ...], mode: str) -> Measured:
    """`unisono bench --device cuda` of the build, compared with NCCL from two GPUs on."""
    asked = [
        *("bench", *collectives, "--device", "cuda", "-n", str(context.gpus)),
        *("--type", "bfloat16", "--mode", mode),
        *(["--in-place"] if collectives == COLLECTIVES else []),
        *("--min", "1KiB", "--max", "256MiB", "--factor", "16"),
        *(["--against", "nccl"] if context.gpus > 1 else []),
        "--json",
    ]
    rows = context.json(unisono(*asked), build)["rows"]
    for row in rows:
        if row["wrong"]:
            raise GateError(f"{row['wrong']} wrong elements: {row}")
    named = [(f"{row['collective']} {row['bytes']}{place_of(row)}", row) for row in rows]
    return Measured(
        {case: row["time_us"] for case, row in named},
        {case: row["peer_us"] for case, row in named if row["peer_us"] > 0},
    )


def through_pytorch(build: Build, context: Context, kinds: str) -> Measured:
    return context.measured(torchrun(context.gpus, GATE / "torch_calls.py", kinds), build)


def messages(build: Build, context: Context) -> Measured:
    """Messages by the library's own API, eager and in graphs, and through PyTorch."""
    found = through_pytorch(build, context, "send_recv")
    values, nccl = dict(found.values), dict(found.nccl)
    for mode in ("eager", "graph"):
        own = on_devices(build, context, ("send_recv",), mode)
        values |= {f"{case}, {mode}": time for case, time in own.values.items()}
        nccl |= {f"{case}, {mode}": time for case, time in own.nccl.items()}
    return Measured(values, nccl)


def training(build: Build, context: Context, kind: str) -> Measured:
    program = torchrun(
        context.gpus, BENCH / "training.py", "--kind", kind, "--layers", LAYERS, "--json"
    )
    steps = {row["library"]: row["step_ms"] for row in context.json(program, build)["rows"]}
    case = f"{kind} step, ms"
    return Measured({case: steps["Unisono"]}, {case: steps["NCCL"]})


def interference(build: Build, context: Context) -> Measured:
    program = torchrun(context.gpus, BENCH / "interference.py", "--size", "64MiB", "--json")
    values: dict[str, float] = {}
    nccl: dict[str, float] = {}
    for row in context.json(program, build)["rows"]:
        is_nccl = row["library"] == "NCCL"
        case = f"{row['collective']}, {'Unisono' if is_nccl else row['library']}"
        found = {
            f"{case}: GEMM": row["product_beside_us"],
            f"{case}: call": row["call_us"],
            f"{case}: overlapped call": row["call_beside_us"],
        }
        (nccl if is_nccl else values).update(found)
    return Measured(values, nccl)


def faults(build: Build, context: Context) -> Measured:
    """Fails where an error comes late or names another rank."""
    program = [str(BENCH / "faults.py"), "--turns", "3", "--json"]
    cases = context.json([sys.executable, *program], build)
    for case, found in cases.items():
        late = max(one["late_ms"] for one in found)
        if late > LATEST_MS:
            raise GateError(f"{case}: the error came {late:.0f} ms late; at most {LATEST_MS}")
        if case != "deadline" and not all("rank 1" in one["said"] for one in found):
            raise GateError(f"{case}: rank 0 does not name rank 1: {found[-1]['said']}")
    return Measured()


def build_tests(build: Build, context: Context) -> Measured:
    """Builds gpu_test in the build's folder."""
    place = str(build.folder / "tests")
    configure = ["cmake", "-S", ".", "-B", place, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    options = ["-DUNISONO_BUILD_TESTS=ON", "-DUNISONO_CUDA=ON"]
    context.run([*configure, *options], build, build.source)
    context.run(["cmake", "--build", place, "--target", "gpu_test"], build, build.source)
    return Measured()


def gpu_test(build: Build, context: Context, part: str) -> Measured:
    """A part of the build's tools/gpu_test, which is built if it is not there."""
    if not (build.folder / "tests" / "gpu_test").exists():
        build_tests(build, context)
    place = [f"BUILD={build.folder / 'tests'}", "BUILT=1"]
    program = [str(build.source / "tools" / "gpu_test"), str(build.folder / "tested"), part]
    context.run(["env", *place, *program], build, build.source)
    return Measured()


def pytorch_tests(build: Build, context: Context) -> Measured:
    """What tools/gpu_test calls pytorch-quick, on the build that is there."""
    chosen = "test_operation or bound or [ddp] or [fsdp]"
    program = [sys.executable, "-m", "pytest", "-q", "tests/pytorch/test_gpus.py", "-k", chosen]
    context.run(program, build, build.source)
    return Measured()


def test(name: str, what: str, measure: Callable[[Build, Context], Measured]) -> Part:
    return Part(name, what, measure, pairs=1, least_gpus=1, is_test=True)


PARTS = [
    test("tests-build", "the GPU tests are built", build_tests),
    test("tests-data", "the GPU tests that check data", partial(gpu_test, part="check-data")),
    test("tests-alone", "the GPU tests that run alone", partial(gpu_test, part="check-alone")),
    test("tests-pytorch", "PyTorch's operations, CUDA graphs, DDP and FSDP2", pytorch_tests),
    Part(
        "graphs",
        "collectives in CUDA graphs, in place and out of place",
        partial(on_devices, collectives=COLLECTIVES, mode="graph"),
        least_gpus=1,
    ),
    Part(
        "eager",
        "eager collectives, in place and out of place",
        partial(on_devices, collectives=COLLECTIVES, mode="eager"),
        least_gpus=1,
    ),
    Part(
        "pytorch-graphs",
        "PyTorch's collectives in CUDA graphs, in place and into tensors",
        partial(through_pytorch, kinds="graph"),
        least_gpus=1,
    ),
    Part(
        "pytorch-eager",
        "PyTorch's collectives, eager, in place and into tensors",
        partial(through_pytorch, kinds="eager"),
        least_gpus=1,
    ),
    Part("messages", "messages, eager, in CUDA graphs and through PyTorch", messages, least_gpus=2),
    Part("ddp", "a training step of DDP", partial(training, kind="ddp"), least_gpus=1),
    Part("fsdp", "a training step of FSDP2", partial(training, kind="fsdp"), least_gpus=1),
    Part(
        "interference", "GEMMs and the collectives that overlap with them", interference,
        pairs=3, least_gpus=2,
    ),
    Part("faults", "errors after a peer was killed", faults, pairs=1, least_gpus=2, is_test=True),
]  # fmt: skip


def count_gpus() -> int:
    """The GPUs of this machine: 1, 2, 4 or 8 take part."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    found = len(done.stdout.splitlines()) if done.returncode == 0 else 0
    return max((count for count in (1, 2, 4, 8) if count <= found), default=0)


def machine() -> str:
    """The GPUs, for the report."""
    names = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(names, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "no GPU"
    lines = done.stdout.strip().splitlines()
    return f"{count_gpus()} of {len(lines)} GPUs: {lines[0]}" if lines else "no GPU"
