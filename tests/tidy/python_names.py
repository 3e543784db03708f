"""Finds the functions and classes that a Python file defines, and the names that it uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

# Decorators that leave a function to be called by its name; any other registers it somewhere.
_PLAIN_DECORATORS = re.compile(
    r"(?:\w+\.)*(?:abstractmethod|cache|cached_property|classmethod|contextmanager|dataclass"
    r"|final|fixture|lru_cache|mark\.\w+|overload|override|property|runtime_checkable|setter"
    r"|staticmethod|total_ordering|wraps)"
)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)*")
_WORD = re.compile(r"[A-Za-z_]\w*")

# Bases from outside of the project that call no method by its name.
_PASSIVE_BASES = {"ABC", "BaseModel", "Enum", "Generic", "IntEnum", "NamedTuple", "Protocol"}


@dataclass(frozen=True)
class Definition:
    """A function, a method or a class; `line` and `end` are its first and last lines."""

    name: str
    line: int
    end: int
    owner: str = ""  # the class of a method
    is_registered: bool = False
    is_fixture: bool = False


@dataclass(frozen=True)
class Use:
    """A name that a line uses; `kind` is Name, Attribute, Text or Parameter."""

    name: str
    line: int
    kind: str


@dataclass
class Names:
    """What a file defines and uses."""

    definitions: list[Definition] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    bases: dict[str, list[str]] = field(default_factory=dict)  # by class
    prefixes: set[str] = field(default_factory=set)  # of names that getattr() is given
    exported: set[str] = field(default_factory=set)  # `__all__`
    modules: set[str] = field(default_factory=set)  # last words of what it imports


@cache
def names_of(text: str) -> Names:
    """Reads a file's text once."""
    names = Names()
    _visit(ast.parse(text), "", names)
    return names


def _visit(parent: ast.AST, owner: str, names: Names) -> None:
    for node in ast.iter_child_nodes(parent):
        inner = ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.definitions.append(_definition(node, owner))
            if isinstance(node, ast.ClassDef):
                inner = node.name
                names.bases[node.name] = [_base(base, node.name) for base in node.bases]
        elif isinstance(node, ast.If | ast.Try):
            inner = owner
        elif isinstance(node, ast.Assign) and _last_word(node.targets[0]) == "__all__":
            names.exported |= set(_texts(node.value))
            continue  # which passes names on, and uses none
        else:
            names.uses += _uses(node)
            names.prefixes |= set(_prefixes(node))
            names.modules |= set(_modules(node))
        _visit(node, inner, names)


def _definition(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, owner: str
) -> Definition:
    decorators = [
        ast.unparse(each.func if isinstance(each, ast.Call) else each)
        for each in node.decorator_list
    ]
    return Definition(
        node.name,
        min([node.lineno, *(each.lineno for each in node.decorator_list)]),
        node.end_lineno or node.lineno,
        owner,
        any(not _PLAIN_DECORATORS.fullmatch(each) for each in decorators),
        "pytest.fixture" in decorators,
    )


def _last_word(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_word(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _base(node: ast.expr, derived: str) -> str:
    """The last word of a base; all of it, if the derived class has the name, too."""
    word = _last_word(node)
    return ast.unparse(node) if word == derived else word


def _texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _uses(node: ast.AST) -> Iterator[Use]:
    if isinstance(node, ast.Name):
        yield Use(node.id, node.lineno, "Name")
    elif isinstance(node, ast.Attribute):
        yield Use(node.attr, node.end_lineno or node.lineno, "Attribute")
    elif isinstance(node, ast.arg):
        yield Use(node.arg, node.lineno, "Parameter")
    elif isinstance(node, ast.ImportFrom):
        # A name that is imported under another is used here; else a later line uses it.
        yield from (Use(each.name, node.lineno, "Name") for each in node.names if each.asname)
    elif isinstance(node, ast.Constant) and _DOTTED.fullmatch(str(node.value)):
        words = re.split("[.:]", str(node.value))
        yield from (Use(word, node.lineno, "Text") for word in words)
    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    if isinstance(annotation, ast.expr):
        for text in _texts(annotation):
            yield from (Use(word, node.lineno, "Text") for word in _WORD.findall(text))


def _prefixes(node: ast.AST) -> Iterator[str]:
    """What begins the names that getattr() is given as f"visit_{name}"."""
    if isinstance(node, ast.Call) and _last_word(node.func) == "getattr" and len(node.args) > 1:
        text = node.args[1]
        if isinstance(text, ast.JoinedStr) and isinstance(text.values[0], ast.Constant):
            yield str(text.values[0].value)


def _modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name.rpartition(".")[2] for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield (node.module or "").rpartition(".")[2]
        yield from (each.name for each in node.names)


def called_from_outside(bases: dict[str, list[str]]) -> set[str]:
    """Classes whose methods something outside of the project may call.

    They are derived from a class that is not the project's, or are a part of one that is.
    """

    def ancestors(name: str) -> set[str]:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            for base in bases.get(waiting.pop(), []):
                if base not in found:
                    found.add(base)
                    waiting.append(base)
        return found

    called: set[str] = set()
    for name in bases:
        above = ancestors(name)
        if any(base not in bases and base not in _PASSIVE_BASES for base in above):
            called |= {name, *above}
    return called
