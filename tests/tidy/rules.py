"""The rules on a file's text: length, words, paths, headers, settings, dependencies."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from tidy.tree import CXX_SUFFIXES, Violation, lines_of, text_files

MAX_LINES = 400
MAX_TEST_LINES = 500  # of a file below tests
CODE_SUFFIXES = CXX_SUFFIXES | {".py", ".pyi", ".cmake"}

MAX_FUNCTION_LINES = 100

# Variables that only the tests read; CONTRIBUTING.md says what they do.
TEST_VARIABLES = {"UNISONO_EMULATED_FAILS", "UNISONO_TORCH_PYTHON", "UNISONO_UPDATE_GOLDEN"}

# The patterns are such that this file does not match its own rules.
_UNFINISHED = re.compile(r"\b(T[O]DO|FIX[M]E|HAC[K]|XX[X])\b")
_MACHINE_PATH = re.compile(r"(?<![\w.*)\]}])/(work|root|home|Users|opt)/")
_REGISTRY_HOST = re.compile(r"\b(pypi|pythonhosted|npmjs|crates|anaconda|conda)\.(org|io|com)\b")
_WORDS = [
    (_UNFINISHED, "marks unfinished work: finish it or open an issue"),
    (_MACHINE_PATH, "is a path of one machine"),
    (_REGISTRY_HOST, "names a package registry"),
]
# The core's table, and those of leaves.
_SETTING_TABLES = ("src/base/settings.cc", "bindings/nccl/settings.cc")
_VARIABLE = re.compile(r"\bUNISONO_[A-Z][A-Z0-9_]*\b")
_SETTING_ROW = re.compile(r'SettingRow\{\s*Setting::(\w+),\s*"(UNISONO_\w+)"')


def length_violations(root: Path) -> list[Violation]:
    """Files that outgrew the limit."""
    found = []
    for path in text_files(root):
        name = str(path.relative_to(root))
        count = len(lines_of(path))
        limit = MAX_TEST_LINES if name.startswith("tests/") else MAX_LINES
        code = path.suffix in CODE_SUFFIXES or path.name == "CMakeLists.txt"
        if code and count > limit:
            found.append(Violation(name, limit, f"{count} lines; split it (limit {limit})"))
    return found


def function_violations(root: Path) -> list[Violation]:
    """Python functions that outgrew the limit, their decorators and signatures included."""
    found = []
    for path in text_files(root):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            count = (node.end_lineno or first) - first + 1
            if count > MAX_FUNCTION_LINES:
                complaint = f"{node.name}() has {count} lines; divide it"
                limit = f" (limit {MAX_FUNCTION_LINES})"
                found.append(Violation(str(path.relative_to(root)), first, complaint + limit))
    return found


def word_violations(root: Path) -> list[Violation]:
    """Marks of unfinished work, paths of one machine, and names of package registries."""
    found = []
    for path in text_files(root):
        name = str(path.relative_to(root))
        for number, line in enumerate(lines_of(path), start=1):
            for pattern, complaint in _WORDS:
                if match := pattern.search(line):
                    found.append(Violation(name, number, f"'{match[0]}' {complaint}"))
    return found


def header_violations(root: Path) -> list[Violation]:
    """Headers without #pragma once."""
    return [
        Violation(str(path.relative_to(root)), 1, "has no #pragma once")
        for path in text_files(root)
        if path.suffix == ".h" and "#pragma once" not in lines_of(path)
    ]


def declared_settings(root: Path) -> dict[str, str]:
    """The tables of settings: variable -> enumerator."""
    tables = [root / name for name in _SETTING_TABLES]
    text = "".join(table.read_text() for table in tables if table.exists())
    return {variable: enumerator for enumerator, variable in _SETTING_ROW.findall(text)}


def environment_violations(root: Path) -> list[Violation]:
    """Reads of the environment outside the table of settings and the system wrappers."""
    found = []
    for path in text_files(root):
        relative = path.relative_to(root)
        parts = relative.parts
        reads = re.compile(r"\b(secure_)?getenv\s*\(")
        if parts[0] not in {"src", "bindings"} or path.suffix not in CXX_SUFFIXES:
            continue
        if parts[:2] in {("src", "base"), ("src", "sys")}:
            continue
        found.extend(
            Violation(str(relative), number, "reads the environment; declare a setting instead")
            for number, line in enumerate(lines_of(path), start=1)
            if reads.search(line)
        )
    return found


def undeclared_setting_violations(root: Path) -> list[Violation]:
    """UNISONO_* names in code or text that neither the table nor the build defines."""
    declared = set(declared_settings(root)) | TEST_VARIABLES
    for path in text_files(root):
        if path.suffix == ".cmake" or path.name in {"CMakeLists.txt", "unisonoConfig.cmake.in"}:
            declared.update(_VARIABLE.findall(path.read_text()))
        elif path.suffix in CXX_SUFFIXES:
            declared.update(re.findall(r"#\s*define\s+(UNISONO_\w+)", path.read_text()))
    found = []
    for path in text_files(root):
        relative = path.relative_to(root)
        # A test may well name a setting that there is not.
        if relative.parts[0] == "tests":
            continue
        for number, line in enumerate(lines_of(path), start=1):
            for match in _VARIABLE.finditer(line):
                prefix = line[match.end() : match.end() + 1] == "*"
                if match[0] not in declared and not prefix:
                    found.append(
                        Violation(str(relative), number, f"{match[0]} is in no table of settings")
                    )
    return found


def unread_settings(root: Path) -> list[Violation]:
    """Settings that the table offers and nothing reads."""
    text = "\n".join(
        path.read_text()
        for path in text_files(root)
        if path.suffix in CXX_SUFFIXES
        and path.relative_to(root).parts[0] in {"src", "bindings"}
        and str(path.relative_to(root).with_suffix(".cc")) not in _SETTING_TABLES
    )
    return [
        Violation("src/base/settings.cc", 1, f"{variable} is declared and read nowhere")
        for variable, enumerator in declared_settings(root).items()
        if not re.search(rf"\bSetting::{enumerator}\b", text)
    ]


def undocumented_dependencies(root: Path) -> list[Violation]:
    """Packages that pyproject.toml names and docs/reference/dependencies.md does not."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    named = list(project["project"]["dependencies"]) + list(project["build-system"]["requires"])
    for extra in project["project"]["optional-dependencies"].values():
        named.extend(extra)
    page = (root / "docs" / "reference" / "dependencies.md").read_text()
    packages = {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in named}
    return [
        Violation("docs/reference/dependencies.md", 1, f"does not say why {package} is needed")
        for package in sorted(packages - {"unisono"})
        if f"`{package}`" not in page
    ]
