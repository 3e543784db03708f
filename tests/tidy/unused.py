"""The rules on what nothing uses: functions, by their names.

A function is used where its name is, outside of its own text. The rules know no types: of two
functions of one name each keeps the other. A method needs a call, `x.name(`, or `&Class::name`, so
that a variable of its name does not keep it. Left out is what is called from outside:

- C++: public headers, `extern "C"`, overrides of another library's virtual functions, and the names
  that the language, GoogleTest or a sanitizer calls (`CALLED_BY_OTHERS`);
- Python: what docs/reference/python.md shows, methods of classes with a base from elsewhere,
  functions that a decorator registers, tests, hooks of pytest and MkDocs, and `__names__`.

What only tests use is found, too, unless it is virtual: conformance tests check a whole contract.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tidy import cxx, python_names
from tidy.tree import CXX_SUFFIXES, Violation, project_files

CALLED_BY_OTHERS = {
    *("main", "PrintTo", "SetUpTestSuite", "TearDownTestSuite"),
    *("get_return_object", "initial_suspend", "final_suspend"),
    *("return_value", "return_void", "unhandled_exception"),
}

# Functions that may stay, each with the reason.
ALLOWED: dict[str, str] = {
    "addEphemeralTimeout": "PyTorch 2.14 and newer call it, and there only it is an override",
    "early": "plan::ZeroCopy tells the tests how many messages became puts, which no plan shows",
    "is_quiet": "sys::Simulation tells the tests that no wait was left behind",
}

_CXX_FOLDERS = {"bench", "bindings", "examples", "include", "src", "tests"}
_PYTHON_FOLDERS = {"bench", "python", "studies", "tests", "tools"}
_CXX_PRODUCT = ("src/", "bindings/")
_PYTHON_PRODUCT = "python/unisono/"
_USE = re.compile(r"(::\s*)?\b([A-Za-z_]\w*)\b(\s*[(<])?")
_SHOWN = re.compile(r"^::: ([\w.]+)", re.MULTILINE)
_BLOCK = re.compile(r"^ *```\w+\n(.*?)^ *```|^(?: {4}.*\n)+", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_HOOK = re.compile(r"(?:test|pytest|on)_\w+|Test\w*|__\w+__")

NOWHERE = "is used nowhere; remove it"
TESTS_ONLY = "is used by tests only; move it there, or remove it"


def _sources(root: Path, folders: set[str]) -> Iterator[tuple[str, Path]]:
    for path in project_files(root):
        name = str(path.relative_to(root))
        if name.partition("/")[0] in folders and "corpus" not in path.parts:
            yield name, path


@cache
def _cxx_of(text: str) -> tuple[str, list[cxx.Function]]:
    code = cxx.without_comments(text)
    return code, cxx.functions(code)


def _in_order(found: list[Violation]) -> list[Violation]:
    return sorted(found, key=lambda one: (one.path, one.line))


def unused_cxx_functions(root: Path) -> list[Violation]:
    """C++ and CUDA functions that nothing uses, or tests only."""
    texts, found = {}, []
    for name, path in _sources(root, _CXX_FOLDERS):
        if path.suffix in CXX_SUFFIXES:
            try:
                texts[name] = _cxx_of(path.read_text(encoding="utf-8"))
            except ValueError as error:
                found.append(Violation(name, 1, f"cannot be read: {error}"))
    declared: dict[str, list[tuple[str, cxx.Function]]] = defaultdict(list)
    for file, (_, functions) in texts.items():
        for function in functions:
            declared[function.name].append((file, function))
    used: dict[str, list[tuple[str, int, bool]]] = defaultdict(list)
    for file, (code, _) in texts.items():
        for match in _USE.finditer(code):
            if match[2] in declared:
                used[match[2]].append((file, match.start(2), bool(match[1] or match[3])))
    for name, places in declared.items():
        if name in CALLED_BY_OTHERS or any(one.is_c for _, one in places):
            continue
        is_virtual = any("virtual" in one.words for _, one in places)
        if not is_virtual and any("override" in one.words for _, one in places):
            continue
        # A member's definition in a .cc is not within the class.
        is_member = all(one.is_member or one.is_qualified for _, one in places)
        users = {
            file
            for file, position, is_call in used[name]
            if (is_call or not is_member)
            and not any(file == at and one.start <= position < one.end for at, one in places)
        }
        complaint = _complaint(users, [file for file, _ in places], is_virtual)
        if complaint and not any(file.startswith("include/") for file, _ in places):
            product = [each for each in places if each[0].startswith(_CXX_PRODUCT)]
            file, one = (product or places)[0]
            line = texts[file][0].count("\n", 0, one.at) + 1
            found.append(Violation(file, line, f"{name}() {complaint}"))
    return _in_order(found)


def _complaint(users: set[str], files: list[str], is_virtual: bool) -> str | None:
    """What is wrong with a function of these files, if anything is."""
    if not users:
        return NOWHERE
    is_product = any(file.startswith((*_CXX_PRODUCT, _PYTHON_PRODUCT)) for file in files)
    if is_product and not is_virtual and all(file.startswith("tests/") for file in users):
        return TESTS_ONLY
    return None


def _is_python(path: Path) -> bool:
    if path.suffix == "":
        with path.open("rb") as file:
            first = file.readline(80)
        return first.startswith(b"#!") and b"python" in first
    return path.suffix == ".py"


def _shown_on_the_page(root: Path, files: dict[str, python_names.Names]) -> set[str]:
    """The names that the reference shows, with the classes that these are derived from."""
    page = root / "docs" / "reference" / "python.md"
    shown: set[str] = set()
    for item in _SHOWN.findall(page.read_text() if page.exists() else ""):
        path = f"python/{item.replace('.', '/')}"
        module = files.get(f"{path}.py") or files.get(f"{path}/__init__.py")
        if module:
            own = {one.name for one in module.definitions if not one.name.startswith("_")}
            shown |= module.exported or own
        else:
            shown.add(item.rpartition(".")[2])
    bases = _all_bases(files)
    waiting = list(shown)
    while waiting:
        new = [base for base in bases.get(waiting.pop(), []) if base not in shown]
        shown |= set(new)
        waiting += new
    return shown


def _all_bases(files: dict[str, python_names.Names]) -> dict[str, list[str]]:
    bases: dict[str, list[str]] = defaultdict(list)
    for names in files.values():
        for name, above in names.bases.items():
            bases[name] += above
    return bases


def _other_words(root: Path) -> dict[str, set[str]]:
    """Names in files of other kinds, which may use Python's: by name, the files."""
    words: dict[str, set[str]] = defaultdict(set)
    for path in project_files(root):
        name = str(path.relative_to(root))
        if path.suffix in {".toml", ".jinja", ".yml"}:
            found = _WORD.findall(path.read_text(encoding="utf-8"))
        elif path.suffix in CXX_SUFFIXES:
            found = re.findall(r'"([A-Za-z_]\w*)"', path.read_text(encoding="utf-8"))
        elif path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            found = _WORD.findall("\n".join(match[0] for match in _BLOCK.finditer(text)))
        else:
            continue
        for word in found:
            words[word].add(name)
    return words


def unused_python_functions(root: Path) -> list[Violation]:
    """Python functions and classes that nothing uses, or tests only."""
    files = {
        name: python_names.names_of(path.read_text(encoding="utf-8"))
        for name, path in _sources(root, _PYTHON_FOLDERS)
        if _is_python(path)
    }
    defined: dict[str, list[tuple[str, python_names.Definition]]] = defaultdict(list)
    used: dict[str, list[tuple[str, python_names.Use]]] = defaultdict(list)
    for file, names in files.items():
        for one in names.definitions:
            defined[one.name].append((file, one))
        for use in names.uses:
            used[use.name].append((file, use))
    words = _other_words(root)
    shown = _shown_on_the_page(root, files)
    outside = python_names.called_from_outside(_all_bases(files))
    found = []
    for name, places in defined.items():
        if _HOOK.fullmatch(name) or any(
            one.is_registered
            or one.owner in outside
            or (one.owner in shown and not name.startswith("_"))
            or (not one.owner and name in shown)
            or any(name.startswith(prefix) for prefix in files[file].prefixes)
            for file, one in places
        ):
            continue
        kinds = {"Attribute", "Text"}
        if any(one.is_fixture for _, one in places):
            kinds.add("Parameter")
        if not all(one.owner for _, one in places):
            kinds.add("Name")
        users = {
            file
            for file, use in used[name]
            if use.kind in kinds
            and not any(file == at and one.line <= use.line <= one.end for at, one in places)
        }
        complaint = _complaint(users | words[name], [file for file, _ in places], False)
        if complaint:
            file, one = places[0]
            found.append(Violation(file, one.line, f"{name}() {complaint}"))
    return _in_order(found)


def without_permission(found: list[Violation]) -> list[Violation]:
    """Those that may not stay."""
    return [one for one in found if one.message.partition("()")[0] not in ALLOWED]


def needless_permissions(root: Path) -> list[Violation]:
    """Functions that may stay, and need no permission; names that others call, and nothing has."""
    found = unused_cxx_functions(root) + unused_python_functions(root)
    names = {one.message.partition("()")[0] for one in found}
    declared = {
        function.name
        for _, path in _sources(root, _CXX_FOLDERS)
        if path.suffix in CXX_SUFFIXES
        for function in _cxx_of(path.read_text(encoding="utf-8"))[1]
    }
    needless = [(name, "ALLOWED") for name in sorted(set(ALLOWED) - names)]
    needless += [(name, "CALLED_BY_OTHERS") for name in sorted(CALLED_BY_OTHERS - declared)]
    return [
        Violation("tests/tidy/unused.py", 1, f"{name} is used, or gone; take it off {which}")
        for name, which in needless
    ]
