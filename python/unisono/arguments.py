"""Arguments of a type that cannot be: one place that says so, for the whole public API.

Functions check values and not types, which would cost every call what only a mistake needs. Where
one fails with an exception other than an `Error`, its arguments are held against its annotations,
and an `ArgumentTypeError` names the one that does not fit. If all fit, the exception stays what it
is: a callback of the caller's raised it, or Unisono has a bug.
"""

import collections.abc
import contextlib
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from unisono.errors import ArgumentTypeError, Error

__all__ = ["guard", "refusal"]

_SHOWN_LENGTH = 60
# From this on, and below zero, a number may not fit the core's integers.
_LARGE = 2**31


def guard(namespace: MutableMapping[str, Any], without: Collection[str] = ()) -> None:
    """Guards what a module offers in `__all__`: functions, and the methods of classes.

    The native core's are guarded by the core, which calls `refusal`.

    Args:
        namespace: The module's globals.
        without: Names that are left as they are.
    """
    for name in set(namespace["__all__"]) - set(without):
        offered = namespace[name]
        if isinstance(offered, types.FunctionType):
            namespace[name] = _guarded(offered)
        elif isinstance(offered, type):
            for kind in offered.__mro__:
                if kind.__module__.startswith("unisono."):
                    _guard_methods(kind)


def refusal(
    function: Any, error: Exception, values: Sequence[Any], named: Mapping[str, Any]
) -> Exception:
    """What to raise where a function of the native core failed with a TypeError.

    Args:
        function: A function, method or class of nanobind's.
        error: What it raised.
        values: Its arguments.
        named: Those by name.
    """
    name = _name(function)
    if isinstance(function, type):
        return ArgumentTypeError(f"{name} has no constructor; functions of unisono return it")
    if isinstance(error, Error) or "(): incompatible function arguments" not in str(error):
        return error
    signature = _native_signature(function.__nb_signature__[0][0])
    hints = signature.hints
    if hints.pop("self", None):
        values = values[1:]  # of a constructor, which is not to be looked at yet
    got = ", ".join(_shown(value) for value in (*values, *named.values())) or "nothing"
    if len(function.__nb_signature__) > 1:
        return ArgumentTypeError(f"{name} cannot be called with {got}")
    by_place = [one for one in hints if one not in signature.only_named]
    given = dict(zip(by_place, values, strict=False)) | dict(named)
    unknown = sorted(named.keys() - hints.keys())
    missing = [one for one in hints if one not in given and one not in signature.optional]
    wrong = None
    if len(values) > len(by_place):
        why = f"it got {len(values)} without a name, and takes {len(by_place)} so: {got}"
    elif unknown:
        why = f"it has no {' and no '.join(unknown)}"
    elif missing:
        why = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    else:
        why = f"it got {got}"
        wrong = _misfit(name, given, hints) or _out_of_range(name, given)
    return wrong or ArgumentTypeError(f"{name} takes {', '.join(hints)}; {why}")


def _guard_methods(kind: type) -> None:
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        if isinstance(member, types.FunctionType):
            setattr(kind, name, _guarded(member))
        elif isinstance(member, classmethod | staticmethod):
            setattr(kind, name, type(member)(_guarded(member.__func__)))


def _guarded(function: Any) -> Any:
    if hasattr(function, "is_guarded"):
        return function

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except Exception as error:
            # What the core refused is named as the caller has called it, if that is known here.
            if isinstance(error, Error) and not isinstance(error, ArgumentTypeError):
                raise
            wrong = _wrong(function, error, values, named)
            if wrong is None:
                raise
            raise wrong from None

    call.is_guarded = True  # type: ignore[attr-defined]
    return call


def _wrong(
    function: Callable[..., Any], error: Exception, values: Sequence[Any], named: Mapping[str, Any]
) -> Error | None:
    """What is wrong with the arguments of a function that raised an exception; None if nothing."""
    name = _name_of_method(function, values)
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*values, **named)
    except TypeError as unbound:
        return ArgumentTypeError(f"{name}: {unbound}")
    hints = typing.get_type_hints(function)
    given: dict[str, Any] = {}
    for one, value in bound.arguments.items():
        kind = signature.parameters[one].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
            if typing.get_origin(hints.get(one)) is typing.Unpack:
                hints |= typing.get_type_hints(typing.get_args(hints[one])[0])
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            given.update({f"{one}[{i}]": each for i, each in enumerate(value)})
            hints |= {f"{one}[{i}]": hints.get(one, Any) for i in range(len(value))}
        else:
            given[one] = value
    wrong = _misfit(name, given, hints)
    if wrong is None and (suspects := getattr(error, "suspects", ())):
        return _out_of_range(name, given, suspects)
    if wrong is None and isinstance(error, OverflowError | UnicodeError):
        return _out_of_range(name, given)
    return wrong


def _misfit(name: str, given: Mapping[str, Any], hints: Mapping[str, Any]) -> Error | None:
    for one, value in given.items():
        if not _fits(value, hints.get(one, Any)):
            return ArgumentTypeError(
                f"{one} of {name} is {_shown(value)}, of type {type(value).__qualname__}; it must "
                f"be {_text(hints[one])}"
            )
    return None


def _out_of_range(
    name: str, given: Mapping[str, Any], among: Sequence[int | str] = ()
) -> Error | None:
    """Names what the core's integers and texts cannot hold; of `among`, if that is not empty."""
    suspects = {
        one: part
        for one, value in given.items()
        for part in (value if isinstance(value, list | tuple) else (value,))
        if _is_out_of_range(part) and (not among or part in among)
    }
    for one, part in suspects.items():
        if isinstance(part, str):
            why = "is no UTF-8"
        else:
            why = "is too small" if part < 0 else "is too large"
        text = f"{one} of {name} is {_shown(given[one])}, which {why}"
        return ArgumentTypeError(text, list(suspects.values()))
    return None


def _is_out_of_range(part: Any) -> bool:
    if isinstance(part, str):
        return not _gives(str.encode, part)
    return isinstance(part, int) and not 0 <= part < _LARGE


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, as far as its value shows."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is typing.Annotated:
        return _fits(value, inner[0])
    if origin is typing.Literal:
        return any(value is one or (type(value) is type(one) and value == one) for one in inner)
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is int:
        return not isinstance(value, bool) and _gives(operator.index, value)
    if hint is float:
        return not isinstance(value, str | bytes | bytearray) and _gives(float, value)
    kind = origin or hint
    if not isinstance(kind, type) or not _gives(lambda one: isinstance(one, kind), value):
        return True  # a type that cannot be looked for: Any, a protocol, a TypedDict
    return isinstance(value, kind) and _contents_fit(value, kind, inner)


def _contents_fit(value: Any, kind: type, inner: Sequence[Any]) -> bool:
    if issubclass(kind, str) or not inner:
        return True
    if issubclass(kind, tuple) and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if issubclass(kind, collections.abc.Mapping):
        return all(_fits(a, inner[0]) and _fits(b, inner[1]) for a, b in value.items())
    # What can be gone through only once is gone by now.
    if issubclass(kind, collections.abc.Collection):
        # A text is a sequence of texts; where those are wanted, one text is a mistake.
        return not isinstance(value, str) and all(_fits(one, inner[0]) for one in value)
    return True


def _gives(convert: Callable[[Any], Any], value: Any) -> bool:
    with contextlib.suppress(Exception):
        convert(value)
        return True
    return False


@dataclass(frozen=True)
class _Signature:
    """A native function's arguments: their types by name, which may be left out, and which are
    given by name alone."""

    hints: dict[str, Any]
    optional: set[str]
    only_named: set[str]


def _native_signature(text: str) -> _Signature:
    """The signature of "def f(self, rank: int, *, timeout: float = \\0) -> None"."""
    inside = text[text.index("(") + 1 : text.rindex(")")]
    found = _Signature({}, set(), set())
    only_named = False
    for part in re.split(r", (?=\w+(?::|$| =))", inside):
        name, _, rest = part.removesuffix(", *").partition(":")
        hint, is_optional, _ = rest.partition("=")
        name = name.strip()
        found.hints[name] = _type_named(hint.strip())
        if is_optional:
            found.optional.add(name)
        if only_named:
            found.only_named.add(name)
        only_named = only_named or part.endswith(", *")
    return found


def _type_named(text: str) -> Any:
    """The type that nanobind writes so; Any for one that is not Python's or of this module."""
    from unisono import _unisono as native

    unisono = types.SimpleNamespace(_unisono=native)
    names = {"collections": collections, "unisono": unisono, "object": Any}
    with contextlib.suppress(Exception):
        return eval(text, names)  # the core's own text
    return Any


def _name(function: Any) -> str:
    # Trace is what programs are called with: p.chunk is chunk.
    return str(function.__qualname__).removesuffix(".__init__").removeprefix("Trace.")


def _name_of_method(function: Any, values: Sequence[Any]) -> str:
    """The function's name; of a method, by the class of its object, not a base of that class."""
    name = _name(function)
    owner, _, method = name.rpartition(".")
    bases = [base.__name__ for base in type(values[0]).__mro__] if values else []
    return f"{bases[0]}.{method}" if owner in bases else name


def _text(hint: Any) -> str:
    written = (
        hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    )
    return re.sub(r"\b(?:[a-z_]\w*\.)+", "", written)


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:
        shown = f"<{type(value).__qualname__}>"
    shown = shown.encode("ascii", "backslashreplace").decode() if not shown.isprintable() else shown
    return shown if len(shown) <= _SHOWN_LENGTH else shown[: _SHOWN_LENGTH - 3] + "..."
