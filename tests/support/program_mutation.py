"""Random edits of programs of the language, and what becomes of them.

A wrong program must never give a plan. An edit that the compiler lets pass is run on random
data and held against NumPy, which knows nothing of the compiler or the verifier.
"""

from __future__ import annotations

import ast
import copy
import itertools
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from unisono import lang, plans
from unisono.cli.programs import wrong_ranks
from unisono.errors import BugError, MisuseError

OUTCOMES = ("refused", "no program", "endless", "same plan", "right", "bug", "HOLE")
SECONDS = 5  # for an edited program to be compiled; one without end takes longer


@dataclass(frozen=True)
class Edit:
    """One change: its kind, the line, and the program's text after it."""

    kind: str
    line: int
    source: str


@dataclass(frozen=True)
class Verdict:
    """What became of an edit: one of OUTCOMES, and what was said."""

    outcome: str
    text: str = ""


_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitXor: ast.BitOr,
    ast.Pow: ast.Mult,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def edits(source: str) -> list[Edit]:
    """Every edit of a program's text, in the order of its functions."""
    return [_edit(source, number) for number in range(_count(source))]


def sample(source: str, count: int, seed: int) -> list[Edit]:
    """So many of a program's edits, drawn at random; all of them if there are fewer."""
    every = range(_count(source))
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    return [_edit(source, number) for number in chosen]


def _count(source: str) -> int:
    return sum(1 for _ in _sites(ast.parse(source)))


def _edit(source: str, number: int) -> Edit:
    tree = ast.parse(source)
    kind, line, apply = next(itertools.islice(_sites(tree), number, None))
    apply()
    return Edit(kind, line, ast.unparse(ast.fix_missing_locations(tree)))


_Site = tuple[str, int, Callable[[], object]]


def _sites(tree: ast.Module) -> Iterator[_Site]:
    conditions = set(_conditions(tree))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function in conditions:
            continue
        names = sorted(
            {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
            | {node.id for node in ast.walk(function) if _is_stored(node)}
        )
        for node in ast.walk(function):
            if node not in conditions:
                yield from _expression_sites(node, names)
                yield from _statement_sites(node)


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _conditions(tree: ast.Module) -> Iterator[ast.AST]:
    """What says what a custom collective is to do: not edited, or right would be something else."""
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    stated = [one.value for one in keywords if one.arg in ("given", "wanted")]
    names = {one.id for one in stated if isinstance(one, ast.Name)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for part in (*stated, *(one for one in functions if one.name in names)):
        yield from ast.walk(part)


def _expression_sites(node: ast.AST, names: list[str]) -> Iterator[_Site]:
    match node:
        case ast.Constant(value=bool()):
            yield "flag", node.lineno, lambda: setattr(node, "value", not node.value)
        case ast.Constant(value=int()):
            for by in (-1, 1):
                yield "number", node.lineno, lambda by=by: setattr(node, "value", node.value + by)
        case ast.Constant(value="input" | "output"):
            other = "output" if node.value == "input" else "input"
            yield "buffer", node.lineno, lambda: setattr(node, "value", other)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            operator = _OPERATORS[type(node.op)]
            yield "operator", node.lineno, lambda: setattr(node, "op", operator())
        case ast.Compare() if type(node.ops[0]) in _COMPARISONS:
            comparison = _COMPARISONS[type(node.ops[0])]
            yield "comparison", node.lineno, lambda: setattr(node, "ops", [comparison()])
        case ast.Name(ctx=ast.Load()) if node.id in names and node.id != "p":
            for name in names:
                if name not in (node.id, "p"):
                    yield "name", node.lineno, lambda name=name: setattr(node, "id", name)
        case ast.Call():
            for i in range(len(node.args) - 1):
                yield "arguments", node.lineno, lambda i=i: _swap(node.args, i)
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("copy", "reduce"):
                yield "step dropped", node.lineno, lambda: _become(node, node.func.value)


def _statement_sites(node: ast.AST) -> Iterator[_Site]:
    for field in ("body", "orelse"):
        body = getattr(node, field, None)
        if not isinstance(body, list):
            continue
        for i, statement in enumerate(body):
            line = statement.lineno
            yield "statement deleted", line, lambda i=i, body=body: body.__setitem__(i, ast.Pass())
            if i + 1 < len(body):
                yield "statements swapped", line, lambda i=i, body=body: _swap(body, i)
            if isinstance(statement, ast.Expr | ast.Assign):
                yield (
                    "statement doubled",
                    line,
                    lambda i=i, body=body: body.insert(i, copy.deepcopy(body[i])),
                )


def _swap(values: list, i: int) -> None:
    values[i], values[i + 1] = values[i + 1], values[i]


def _become(call: ast.Call, value: ast.expr) -> None:
    """A call turns into what it was called on: the field that holds it cannot be reached."""
    call.func, call.args, call.keywords = ast.Name("_same", ast.Load()), [value], []


def judge(source: str, name: str, shapes: list[tuple[int, int]], original: str) -> Verdict:
    """What the compiler makes of an edited program, on each of the shapes until one says more than
    that the plan is the same; `original` is the program as it was."""
    verdict = Verdict("same plan")
    for shape in shapes:
        outcome = _judge(source, name, shape, original)
        if outcome.outcome == "HOLE" or verdict.outcome == "same plan":
            verdict = outcome
    return verdict


def _judge(source: str, name: str, shape: tuple[int, int], original: str) -> Verdict:
    try:
        with _limit():
            plan = _compile(source, name, shape)
    except _TooLong:
        return Verdict("endless")
    except BugError as error:
        return Verdict("bug", str(error))
    except MisuseError as error:
        # Whatever Python says of such a text is the cause.
        return Verdict("refused" if error.__cause__ is None else "no program", str(error))
    except Exception as error:  # of the file, before there is a program
        return Verdict("no program", f"{type(error).__name__}: {error}")
    try:
        if plan == _compile(original, name, shape):
            return Verdict("same plan")
    except MisuseError:
        pass  # not a shape of the original: one number more or less may well be
    wrong = _wrong_ranks(plan, name)
    if wrong:
        return Verdict("HOLE", f"ranks {wrong} of {shape[0]} end with something else")
    return Verdict("right")


def _compile(source: str, name: str, shape: tuple[int, int]) -> plans.Plan:
    space: dict[str, object] = {"__name__": name, "_same": lambda value: value}
    exec(compile(source, f"{name}.py", "exec"), space)
    program = space[name]
    assert isinstance(program, lang.Program)
    return program.compile(*shape).plan


class _TooLong(BaseException):
    """Not an exception that the language would take for a mistake in the program."""


@contextmanager
def _limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _wrong_ranks(plan: plans.Plan, name: str) -> list[int]:
    rng = np.random.default_rng(11)
    inputs = [rng.integers(-999, 999, plan.input_blocks(rank) * 13) for rank in range(plan.ranks)]
    outputs = lang.run(plan, inputs)
    wanted = expected(plan.collective, name, inputs, plan.root)
    return wrong_ranks(outputs, wanted)


def expected(
    collective: str, name: str, inputs: list[np.ndarray], root: int = 0
) -> list[np.ndarray | None]:
    """What each rank must have in its output; None where anything may be."""
    ranks = len(inputs)
    if name == "all_to_next":
        return [None, *inputs[:-1]]
    if name == "fused_all_to_alls":
        return list(inputs)
    if collective == "all_reduce":
        return [sum(inputs)] * ranks
    if collective == "all_gather":
        return [np.concatenate(inputs)] * ranks
    if collective == "broadcast":
        return [inputs[root]] * ranks
    blocks = [np.split(one, ranks) for one in inputs]
    return [np.concatenate([one[rank] for one in blocks]) for rank in range(ranks)]
