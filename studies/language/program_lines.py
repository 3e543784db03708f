"""Lines of code of the library's programs, compared with MSCCLang's and hand-written CUDA.

    python studies/language/program_lines.py [--checkouts FOLDER] [-o FILE]

What the paper on MSCCLang states (ASPLOS 2023), it states of one program. The others are counted
where their authors published them: FOLDER holds git repositories, bare or not, of the names in
CHECKOUTS; without it those columns stay empty.

Counted are the functions and classes that state the algorithm: what is neither empty nor a comment,
docstring, import, preprocessor line or brace alone. Not counted are command lines, and what calls a
kernel. A kernel of NCCL's also leans on its Primitives, one of MSCCL++'s on its channels.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import time
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))

from report import finish  # noqa: E402

LIBRARY = ROOT / "examples" / "language"
CHECKOUTS = ("msccl-tools", "msccl", "mscclpp", "nccl")


@dataclass(frozen=True)
class Peer:
    """What does the same elsewhere: a program of MSCCLang's examples, and functions of CUDA."""

    mscclang: str = ""
    mscclang_stated: int | None = None
    cuda_stated: int | None = None
    # Repository, file, functions.
    cuda: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


_DEVICE = "src/device/"
_EXT = "src/ext/collectives/allreduce/"
PEERS = {
    "two_step_all_to_all": Peer(
        "alltoall_a100_two_step", 15, 70,
        (("msccl", "src/collectives/all_to_all.cc", ("msccl2DAllToAll",)),
         ("msccl", "src/collectives/device/stride_copy.cu",
          ("strideMemcpyKernel", "strideMemcpyAsync"))),
    ),
    "three_step_all_to_all": Peer("alltoall_a100_three_step"),
    "ring_all_reduce": Peer(
        "simple/allreduce_ring", cuda=(("nccl", f"{_DEVICE}all_reduce.h", ("runRing",)),)
    ),
    "all_pairs_all_reduce": Peer(
        "allreduce_a100_allpairs",
        cuda=(("mscclpp", f"{_EXT}allreduce_rsag.cu", ("allreduceRsAg",)),),
    ),
    "one_step_all_pairs_all_reduce": Peer(
        "allreduce_1step",
        cuda=(("mscclpp", f"{_EXT}allreduce_allpair_packet.cu", ("allreduceAllPairs",)),),
    ),
    "halving_doubling_all_reduce": Peer("allreduce_recursive_doubling_halving"),
    "double_binary_tree_all_reduce": Peer(
        "allreduce_binomial_tree",
        cuda=(("nccl", f"{_DEVICE}all_reduce.h", ("runTreeSplit",)),),
    ),
    "hierarchical_all_reduce": Peer("hierarchical_allreduce"),
    "all_to_next": Peer("alltonext_forward"),
    "pipeline_broadcast": Peer(cuda=(("nccl", f"{_DEVICE}broadcast.h", ("runRing",)),)),
}  # fmt: skip


def python_lines(source: str) -> int:
    """Lines of a Python file's functions and classes that do something."""
    kept: set[int] = set()
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            kept.update(range(first, (node.end_lineno or first) + 1))
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            kept.difference_update(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    with_code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in silent
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(kept & with_code)


def cuda_lines(source: str, function: str) -> int:
    """Lines of a function's definition, from its template or type on."""
    source = re.sub(r"/\*.*?\*/", lambda it: "\n" * it[0].count("\n"), source, flags=re.DOTALL)
    source = re.sub(r"//[^\n]*|^[ \t]*#[^\n]*", "", source, flags=re.MULTILINE)
    for found in re.finditer(rf"\b{function}\s*\(", source):
        body = _after(source, found.end(), "(", ")")
        if source[body:].lstrip().startswith("{"):
            break
    else:
        raise SystemExit(f"no definition of {function}")
    end = _after(source, source.index("{", body) + 1, "{", "}")
    begin = max(source.rfind(mark, 0, found.start()) for mark in ("\n\n", ";\n", "}\n", "{\n"))
    return sum(1 for line in source[begin:end].splitlines()[1:] if line.strip("{} \t"))


def _after(source: str, begin: int, opens: str, closes: str) -> int:
    """Behind the bracket that closes the one before `begin`."""
    depth = 1
    for place in range(begin, len(source)):
        depth += (source[place] == opens) - (source[place] == closes)
        if depth == 0:
            return place + 1
    raise SystemExit(f"a {opens} is not closed")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def row(path: Path, checkouts: Path | None) -> str:
    """One program's line of the table."""
    peer = PEERS[path.stem]
    mscclang = cuda = ""
    if checkouts and peer.mscclang:
        file = f"HEAD:examples/mscclang/{peer.mscclang}.py"
        mscclang = str(python_lines(git(checkouts / "msccl-tools", "show", file)))
    if checkouts and peer.cuda:
        cuda = str(
            sum(
                cuda_lines(git(checkouts / repository, "show", f"HEAD:{file}"), function)
                for repository, file, functions in peer.cuda
                for function in functions
            )
        )
    functions = ", ".join(f"`{name}`" for _, _, names in peer.cuda for name in names)
    own = python_lines(path.read_text(encoding="utf-8"))
    cells = [
        f"`{path.stem}`", own, peer.mscclang_stated or "", mscclang, peer.cuda_stated or "", cuda,
        f"{peer.cuda[0][0]}: {functions}" if functions else "",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkouts", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    lines = [f"Made by studies/language/program_lines.py, {time.strftime('%Y-%m-%d')}."]
    if arguments.checkouts:
        lines += ["", *(
            git(arguments.checkouts / name, "log", "-1", f"--format={name} %h of %cs")
            .strip()
            for name in CHECKOUTS
        )]  # fmt: skip
    lines += [
        "",
        "| program | lines | MSCCLang, paper | MSCCLang, published | CUDA, paper | CUDA, published "
        "| which |",
        "|---" * 7 + "|",
        *(row(LIBRARY / f"{name}.py", arguments.checkouts) for name in sorted(PEERS)),
    ]
    finish(lines, arguments.output)


if __name__ == "__main__":
    main()
