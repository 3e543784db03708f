"""Any arguments of any public function give a result or an error of unisono's, never another one.

What is public is found in the packages themselves, so that a new function is tried, too.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unisono
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from python.tiers import quick
from unisono import draw, exchange, lang, plans, simulate, synthesize
from unisono.testing import run_ranks

# A fixed seed: a failure must come back.
THOROUGH = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # to shrink a slow example takes minutes
)
PACKAGES = ["", ".plans", ".lang", ".exchange", ".simulate", ".synthesize", ".draw", ".report",
            ".netbed"]  # fmt: skip
# They wait for other ranks, end all jobs, or change this process for good.
LEFT_OUT = {
    "unisono.init": "joins a job: test_joining_with_any_arguments",
    "unisono.CallOptions": "a dictionary",
    "unisono.Communicator": "made by init: test_any_call",
    "unisono.Group": "made by a communicator",
    "unisono.Work": "made by a communicator",
    "unisono.lang.Build": "made for a program: test_any_program_is_answered",
    "unisono.netbed.Netbed": "needs root",
    "unisono.netbed.remove_stale": "takes no arguments, needs root",
    "unisono.plans.explain": "time grows with the ranks of the placement",
}


class Odd:
    """An object that is wrong wherever something can be asked of it."""

    def __bool__(self) -> bool:
        raise RuntimeError("neither")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


def public() -> Iterator[tuple[str, Any]]:
    """Functions and classes, by the name that a user writes."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(f"unisono{package}")
        for name in module.__all__:
            offered = getattr(module, name)
            if callable(offered) and id(offered) not in seen:
                seen.add(id(offered))
                yield f"unisono{package}.{name}", offered


PUBLIC = {
    name: offered
    for name, offered in public()
    if name not in LEFT_OUT
    and not (isinstance(offered, type) and issubclass(offered, BaseException))
}

CLUSTER = simulate.load_cluster("dgx_h100")
PLACEMENT = plans.Placement(4, 2)
PLAN = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(3))
LINKS = synthesize.load_links("dgx_1")


@lang.program("all_gather", in_place=True)
def gather(p):
    for rank in range(p.ranks):
        for to in range(p.ranks):
            if to != rank:
                p.chunk(rank, "output", rank).copy(to)


NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 3, -1, 64, 2**31, 2**40, 2**63, 2**64, 10**30, -(2**70)]),
    st.sampled_from([0.0, 1.5, -1.0, 1e300, float("nan"), float("inf"), True, 1j]),
    st.sampled_from([np.int64(3), np.float32(0.5), np.uint8(200)]),
)
TEXTS = st.one_of(
    st.sampled_from(["", "ring", "all_reduce", "ring_all_reduce", "simple", "float32", "loggops",
                     "sum", "rccl", "4x2", "1mbit", "\udcff", "\0", "dgx_h100", "dgx_1", "nodes",
                     "L=1us,o=1us,g=1ns,G=1ns", "<algo/>", "{}", "plan"]),
    st.text(max_size=8),
)  # fmt: skip
ARRAYS = st.sampled_from([
    np.ones(4), np.ones((2, 3)), np.ones(0), np.ones(()), np.ones(8)[::2], np.ones(3, ">f4"),
    np.array([object()]), np.array(["text"]), np.ones(3, complex), np.ones(2, bool),
    np.ones((4, 4)).T, np.broadcast_to(np.ones(1), 5), np.datetime64("now"), b"1234", bytearray(8),
    memoryview(b"12"), [1, 2],
])  # fmt: skip
THINGS = st.sampled_from([CLUSTER, PLACEMENT, PLAN, LINKS, gather, CLUSTER.file, object(),
                          int, print, len, lambda *_: 1 / 0, NotImplemented, ..., Path("/dev/null"),
                          Path("absent"), Path("/"), range(3), {1, 2}, PLAN.verify()])  # fmt: skip
SIMPLE = st.one_of(st.none(), st.builds(Odd), NUMBERS, TEXTS, THINGS, ARRAYS, st.binary(max_size=6))
ANYTHING = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(TEXTS, st.integers(-1, 3)), inner, max_size=2),
    ),
    max_leaves=5,
)
FITTING = {
    "Cluster": CLUSTER, "Placement": PLACEMENT, "Plan": PLAN, "LinkGraph": LINKS,
    "Program": gather, "ClusterFile": CLUSTER.file,
}  # fmt: skip


def likely(name: str, hint: str) -> st.SearchStrategy[Any]:
    """Values that fit a parameter more often than chance would have it."""
    fitting = [thing for kind, thing in FITTING.items() if kind in hint]
    choices: list[st.SearchStrategy[Any]] = [ANYTHING]
    if fitting:
        choices.append(st.sampled_from(fitting))
    if "int" in hint:
        choices.append(st.integers(-1, 8))
    if "float" in hint:
        choices.append(st.floats(0, 8))
    if "str" in hint:
        choices.append(TEXTS)
    if "bool" in hint:
        choices.append(st.booleans())
    return st.one_of(choices)


@st.composite
def arguments(draw: Any, function: Any) -> tuple[list[Any], dict[str, Any]]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # of the native core
        return draw(st.lists(ANYTHING, max_size=4)), {}
    values, named = [], {}
    for one in parameters:
        hint = str(one.annotation)
        if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) or one.name == "self":
            continue
        needed = one.default is one.empty
        if draw(st.integers(0, 9)) < (9 if needed else 3):
            value = draw(likely(one.name, hint))
            if one.kind is one.KEYWORD_ONLY or (named and one.kind is not one.POSITIONAL_ONLY):
                named[one.name] = value
            elif needed:
                values.append(value)
            else:
                named[one.name] = value
    if draw(st.integers(0, 20)) == 0:
        named["no_such_argument"] = 1
    return values, named


def answer(function: Any, *values: Any, **named: Any) -> Any:
    """Calls it; an error of unisono's is an answer, unless it says that unisono is wrong."""
    try:
        return function(*values, **named)
    except unisono.BugError:
        raise
    except (unisono.Error, MemoryError):
        return None


@pytest.mark.parametrize("name", quick(PUBLIC, kept=list(PUBLIC)[::5]))
def test_any_arguments_are_answered(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = PUBLIC[name]

    @THOROUGH
    @given(arguments(function))
    def check(drawn):
        made = answer(function, *drawn[0], **drawn[1])
        if isinstance(made, types.GeneratorType):
            answer(list, made)

    check()


METHODS = {
    f"{type(thing).__name__}.{name}": (thing, name)
    for thing in (
        PLAN, PLACEMENT, CLUSTER, LINKS, gather, plans.find_algorithm("tree_all_reduce"),
        PLAN.schedule(), CLUSTER.machine,
    )
    for name in dir(type(thing))
    if not name.startswith("_") and callable(getattr(thing, name))
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_any_arguments_of_methods_are_answered(name):
    thing, method = METHODS[name]

    @THOROUGH
    @given(arguments(getattr(thing, method)))
    def check(drawn):
        answer(getattr(thing, method), *drawn[0], **drawn[1])

    check()


CALLS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
         "all_to_all", "all_to_all_v", "barrier", "send", "recv", "group", "split", "shrink",
         "explain", "node_of", "register", "run", "register_memory"]  # fmt: skip
OPTIONS = ["out", "async_op", "algorithm", "protocol", "channels", "timeout", "dtype", "stream",
           "policy", "max_sms", "multiplier", "op", "root", "key", "sizes"]  # fmt: skip


@st.composite
def calls(draw: Any) -> tuple[str, list[Any], dict[str, Any]]:
    name = draw(st.sampled_from(CALLS))
    values = [draw(st.one_of(ARRAYS, ANYTHING))] if draw(st.integers(0, 9)) else []
    values += draw(st.lists(ANYTHING, max_size=3))
    return name, values, draw(st.dictionaries(st.sampled_from(OPTIONS), ANYTHING, max_size=3))


def test_any_call_is_answered():
    """On one rank, so that no call waits for another rank's."""

    def check(comm):
        @settings(THOROUGH, max_examples=400)
        @given(calls())
        def one(drawn):
            name, values, named = drawn
            made = answer(getattr(comm, name), *values, **named)
            if isinstance(made, unisono.Work):
                answer(made.wait)
            if isinstance(made, unisono.Group):
                with pytest.raises(unisono.MisuseError):
                    _ = made.work
            if isinstance(made, unisono.Communicator):
                made.destroy()

        one()
        np.testing.assert_array_equal(comm.all_reduce(np.ones(3)), np.ones(3))

    run_ranks(1, check)


def test_any_message_is_answered():
    def check(comm):
        @settings(THOROUGH, max_examples=200)
        @given(ANYTHING, ANYTHING, ANYTHING, st.one_of(st.none(), ANYTHING), st.booleans())
        def one(array, peer, dtype, stream, is_send):
            group = answer(comm.group, stream=stream, async_op=False, timeout=5)
            answer(group.send if is_send else group.recv, array, peer, dtype=dtype)

        one()

    run_ranks(1, check)


JOINING = {
    name: likely(name, str(one.annotation))
    for name, one in inspect.signature(unisono.init).parameters.items()
    if name not in ("rank", "world_size", "bootstrap_timeout", "rendezvous")
}


@settings(THOROUGH, max_examples=150)
@given(
    st.fixed_dictionaries({}, optional=JOINING), ANYTHING, ANYTHING,
    st.one_of(ANYTHING, st.sampled_from(["tcp://127.0.0.1:1", "file:///no/such", "tcp://x:y"])),
)  # fmt: skip
def test_joining_with_any_arguments(named, rank, size, rendezvous):
    made = answer(unisono.init, rank, size, rendezvous=rendezvous, bootstrap_timeout=0.05, **named)
    if made is not None:
        made.destroy()


SETTING = st.sampled_from([row.variable for row in unisono.settings()])


@settings(THOROUGH, max_examples=150)
@given(
    st.one_of(
        ANYTHING,
        st.dictionaries(st.one_of(TEXTS, st.integers(-1, 3), SETTING), ANYTHING, max_size=3),
    )
)
def test_any_setting_is_answered(values):
    made = answer(unisono.init, 0, 1, settings=values)
    if made is not None:
        made.destroy()


CHUNKS = st.lists(
    st.tuples(st.sampled_from(["chunk", "copy", "reduce", "put", "read_reduce", "signal", "wait",
                               "scratch", "channel", "thread_block", "chunks", "parallelize"]),
              st.lists(ANYTHING, max_size=4)),
    max_size=4,
)  # fmt: skip


@settings(THOROUGH, max_examples=200)
@given(CHUNKS)
def test_any_program_is_answered(steps):
    def body(p):
        chunk = p.chunk(0, "input", 0)
        for name, values in steps:
            made = getattr(p if hasattr(p, name) else chunk, name)(*values)
            chunk = made if isinstance(made, lang.Chunk) else chunk

    answer(lang.program("all_gather")(body).compile, 3)
    assert draw.traffic(PLAN)
    assert exchange.targets()
