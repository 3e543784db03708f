"""Nothing in this tree is unused, and small trees show what the rules find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tidy import unused, unused_files
from tidy.tree import ROOT, Violation, report

Rule = Callable[[Path], list[Violation]]

FUNCTIONS: list[Rule] = [unused.unused_cxx_functions, unused.unused_python_functions]


def add(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("rule", FUNCTIONS, ids=lambda rule: rule.__name__)
def test_each_function_of_this_tree_is_used(rule: Rule) -> None:
    violations = unused.without_permission(rule(ROOT))
    assert not violations, report(violations)


@pytest.mark.slow
def test_each_file_of_this_tree_is_used() -> None:
    violations = unused_files.unused_files(ROOT)
    assert not violations, report(violations)


@pytest.mark.slow
def test_permissions_are_needed() -> None:
    violations = unused.needless_permissions(ROOT)
    assert not violations, report(violations)


def test_a_needless_permission_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "src/base/tea.h", "int pour();\nint brew() { return 1; }\nint x = brew();\n")
    monkeypatch.setattr(unused, "ALLOWED", {"pour": "once", "brew": "once", "gone": "once"})
    monkeypatch.setattr(unused, "CALLED_BY_OTHERS", {"spill"})
    assert [one.message.partition(" ")[0] for one in unused.needless_permissions(tmp_path)] == [
        "brew",
        "gone",
        "spill",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "int pour(int cups);\n",
        "int pour(int cups) { return cups > 0 ? pour(cups - 1) : 0; }\n",
        "// pour() it\nstatic int pour() { return 1; }\n",
        'const char* said = "we pour tea";\nint pour();\n',
        "namespace tea {\ntemplate <class T, int n>\nstd::vector<T> pour(T (&cups)[n]);\n}\n",
        "class Pot {\n public:\n  bool pour() const { return true; }\n};\nint pour = 1;\n",
        "class Pot {\n  [[nodiscard]] virtual const Tea& pour() = 0;\n};\n",
        "struct Pot {\n  Pot() : a_{1}, b_(2) {}\n  void pour();\n};\nvoid Pot::pour() {}\n",
        "void pour(std::function<void(int)> then = {}) {}\n",
        "class Pot {\n  static int pour();\n  int a = 20'000;\n};\nint cups = a.pour;\n",
        "#define UNUSED\n__global__ void pour(int* cups) {}\n",
    ],
)
def test_an_unused_cxx_function_is_found(text: str, tmp_path: Path) -> None:
    add(tmp_path, "src/base/tea.h", text)
    (one,) = unused.unused_cxx_functions(tmp_path)
    assert (one.path, one.message) == ("src/base/tea.h", f"pour() {unused.NOWHERE}")
    assert "pour" in text.splitlines()[one.line - 1]


@pytest.mark.parametrize(
    "text",
    [
        "int pour();\nint cups = pour();\n",
        "int pour();\nauto call = pour;\n",
        "struct Pot {\n  int pour();\n};\nauto call = &Pot::pour;\n",
        "struct Pot {\n  int pour();\n};\nint cups = pot.pour<3>();\n",
        "#define POUR pour()\nint pour();\n",
        'int pour();\nauto call = find("pour");\n',
        'extern "C" {\nint pour();\n}\n',
        'extern "C" int pour() { return 1; }\n',
        "struct Pot : c10::Pot {\n  int pour() override;\n};\n",
        "struct Pot {\n  Pot(int cups);\n  ~Pot();\n  explicit operator bool() const;\n};\n",
        "auto pour = [](int cups) { return cups; };\nint cups(pour(1));\n",
        "using Pour = int (*)(int cups);\n",
        "int main() { return 0; }\n",
    ],
)
def test_a_cxx_function_that_is_used_or_called_from_outside_passes(
    text: str, tmp_path: Path
) -> None:
    add(tmp_path, "src/base/tea.h", text)
    assert unused.unused_cxx_functions(tmp_path) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    add(tmp_path, "src/base/tea.h", "namespace tea {\nint pour();\n")
    (one,) = unused.unused_cxx_functions(tmp_path)
    assert str(one) == "src/base/tea.h:1: cannot be read: brackets do not match"


def test_a_public_function_passes(tmp_path: Path) -> None:
    add(tmp_path, "include/unisono/tea.h", "int pour();\n")
    add(tmp_path, "src/base/tea.cc", "int pour() { return 1; }\n")
    assert unused.unused_cxx_functions(tmp_path) == []


@pytest.mark.parametrize(("folder", "found"), [("tests/base", 1), ("bench", 0), ("src/plan", 0)])
def test_a_function_that_only_tests_use_is_found(folder: str, found: int, tmp_path: Path) -> None:
    add(tmp_path, "src/base/tea.h", "int pour();\nstruct Pot {\n  virtual int fill();\n};\n")
    add(tmp_path, "src/base/tea.cc", "int pour() { return 1; }\nint Pot::fill() { return 1; }\n")
    add(tmp_path, f"{folder}/a.cc", "static int cups = pour() + pot.fill();\n")
    complaints = [one.message for one in unused.unused_cxx_functions(tmp_path)]
    assert complaints == [f"pour() {unused.TESTS_ONLY}"] * found


@pytest.mark.parametrize(
    "text",
    [
        "def pour():\n    return pour()\n",
        "class pour:\n    pass\n",
        "class Pot:\n    def pour(self): ...\nPot()\npour = 1\nprint(pour)\n",
        "class Pot:\n    @property\n    def pour(self): ...\nPot()\n",
        "from functools import cache\n@cache\ndef pour(): ...\n",
        "__all__ = ['pour']\ndef pour(): ...\n",
        "def pour(): ...\ndef f(pour): ...\nf('we pour tea', pour=1)\n",
    ],
)
def test_an_unused_python_function_is_found(text: str, tmp_path: Path) -> None:
    add(tmp_path, "python/unisono/tea.py", text)
    (one,) = unused.unused_python_functions(tmp_path)
    assert one.message == f"pour() {unused.NOWHERE}"


@pytest.mark.parametrize(
    "text",
    [
        "def pour(): ...\npour()\n",
        "class Pot:\n    def pour(self): ...\nPot().pour()\n",
        "def pour(): ...\nCALLS = ['pour']\n",
        "def pour(): ...\ngetattr(tea, f'po{rest}')\n",
        "class pour: ...\ndef f(x: 'list[pour]'): ...\nf(1)\n",
        "@app.command()\ndef pour(): ...\n",
        "class Pot(Handler):\n    def pour(self): ...\nPot()\n",
        "class Part:\n    def pour(self): ...\nclass Pot(Part, other.Pot): ...\nPot()\n",
        "def __getattr__(name): ...\n",
    ],
)
def test_a_python_function_that_is_used_or_called_from_outside_passes(
    text: str, tmp_path: Path
) -> None:
    add(tmp_path, "python/unisono/tea.py", text)
    assert unused.unused_python_functions(tmp_path) == []


def test_what_the_reference_shows_passes(tmp_path: Path) -> None:
    add(tmp_path, "docs/reference/python.md", "::: unisono.tea\n\n::: unisono.pot.Pot\n")
    add(tmp_path, "python/unisono/tea.py", "__all__ = ['pour']\ndef pour(): ...\n")
    text = "class Lid:\n    def lift(self): ...\nclass Pot(Lid):\n    def _hide(self): ...\n"
    add(tmp_path, "python/unisono/pot.py", text)
    (one,) = unused.unused_python_functions(tmp_path)
    assert one.message == f"_hide() {unused.NOWHERE}"


def test_a_fixture_is_used_as_a_parameter(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.fixture\ndef pot(): ...\n"
    add(tmp_path, "tests/test_tea.py", text)
    assert len(unused.unused_python_functions(tmp_path)) == 1
    add(tmp_path, "tests/test_tea.py", f"{text}def test_tea(pot): ...\n")
    assert unused.unused_python_functions(tmp_path) == []


def test_a_python_function_that_only_tests_use_is_found(tmp_path: Path) -> None:
    add(tmp_path, "python/unisono/tea.py", "def pour(): ...\n")
    add(tmp_path, "tests/test_tea.py", "def test_tea(): tea.pour()\n")
    (one,) = unused.unused_python_functions(tmp_path)
    assert one.message == f"pour() {unused.TESTS_ONLY}"


@pytest.mark.parametrize(
    ("name", "user", "text"),
    [
        ("src/base/tea.h", "src/base/pot.cc", '#include "base/tea.h"\n'),
        ("src/base/tea.h", "tools/brew", "#!/bin/sh\ncp src/base/tea.h .\n"),
        ("tests/cuda/tea.h", "cmake/A.cmake", "f(a SYSTEM\n  ${ROOT}/tests/cuda)\ninclude(A)\n"),
        ("python/unisono/tea.py", "python/unisono/__init__.py", "from unisono import tea\n"),
        ("python/unisono/tea.py", "python/unisono/__init__.py", "import_module('unisono.tea')\n"),
        ("bench/tea.py", "docs/how-to/brew.md", "Run `bench/tea.py`.\n"),
        ("bench/cpu/tea_bench.cc", "docs/how-to/brew.md", "Run `tea_bench`.\n"),
        ("tools/tea", "docs/how-to/brew.md", "Run `tools/tea`.\n"),
        ("cmake/Tea.cmake", "CMakeLists.txt", "include(Tea)\n"),
    ],
)
def test_an_unused_file_is_found(name: str, user: str, text: str, tmp_path: Path) -> None:
    add(tmp_path, name, "# tea.h tea.py\n")
    found = unused_files.unused_files(tmp_path)
    assert [one.path for one in found] == [name]
    add(tmp_path, user, text)
    assert name not in [one.path for one in unused_files.unused_files(tmp_path)]


def test_files_that_are_found_by_their_names_pass(tmp_path: Path) -> None:
    for name in ("test_tea", "conftest", "sitecustomize", "__init__"):
        add(tmp_path, f"tests/{name}.py", "x = 1\n")
    assert unused_files.unused_files(tmp_path) == []
