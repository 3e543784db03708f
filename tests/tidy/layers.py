"""The layer rule: a folder includes folders with a smaller number, itself, and include/unisono.

Folders of one number never include each other. Bindings are leaves: nothing includes them. Python
modules follow the same rule with the table below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import CXX_SUFFIXES, Violation, lines_of, project_files

CXX_LAYERS = {
    "base": 0,
    "trace": 1,
    "plan": 1,
    "topo": 1,
    "sys": 1,
    "algorithm": 2,
    "verify": 2,
    "compile": 3,
    "simulate": 3,
    "device": 3,
    "transport": 3,
    "engine": 4,
    "synthesize": 4,
    "comm": 5,
    "chaos": 6,
}

# A layer of several rooms: each may include those with a smaller number; "" is what is right in it.
CXX_ROOMS = {
    "comm": {
        "blame": 1,
        "control": 2,
        "join": 3,
        "job": 4,
        "observe": 5,
        "select": 6,
        "run": 7,
        "device": 8,
        "windows": 9,
        "": 10,
    }
}

# What is right under python/unisono; "" is the package itself, its __init__.py.
PYTHON_LAYERS = {
    "endings": -1,
    "_native_core": 0,
    "_unisono": 0,
    "_bench": 1,
    "errors": 0,
    "_through_store": 2,
    "_torch_backend": 2,
    "guardian": 0,
    "memory": 0,
    "job_folder": 0,
    "relay": 0,
    "processes": 1,
    "arguments": 1,
    "environment": 1,
    "extras": 1,
    "names": 1,
    "operations": 2,
    "tables": 1,
    "apart": 1,
    "files": 1,
    "http_server": 1,
    "hardware": 1,
    "arrays": 2,
    "pickled": 2,
    "plans": 2,
    "records": 2,
    "streams": 3,
    "work": 4,
    "draw": 3,
    "lang": 3,
    "exchange": 3,
    "calls": 5,
    "chained": 6,
    "neighbours": 6,
    "persistent": 6,
    "programs": 6,
    "fold_calls": 7,
    "inspection": 7,
    "collective_calls": 8,
    "message_calls": 9,
    "object_exchange": 10,
    "object_calls": 11,
    "uneven_calls": 12,
    "scan_calls": 13,
    "windows": 14,
    "one_sided_calls": 15,
    "communicator": 16,
    "join": 17,
    "": 18,
    "launcher": 19,
    "netbed": 19,
    "torch": 19,
    "testing": 20,
    "bench": 20,
    "devices": 21,
    "doctor": 21,
    "simulate": 21,
    "levels": 22,
    "live": 22,
    "profile": 22,
    "synthesize": 22,
    "metrics": 23,
    "report": 23,
    "cli": 24,
    "__main__": 25,
    "demo": 25,
}

# Bindings see the public headers only. Python's shows the layers too; NCCL's plugins write the
# record beside another library, and take no more than that needs.
LAYERS_THAT_BINDINGS_SEE = {
    "python": frozenset(CXX_LAYERS),
    "nccl_plugins": frozenset({"base", "trace", "sys"}),
}

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes_of(path: Path) -> Iterator[tuple[int, bool, str]]:
    """Each include of a file: line number, whether it is quoted, and the name."""
    for number, line in enumerate(lines_of(path), start=1):
        if match := _INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def _public_header_fault(root: Path, quoted: bool, name: str) -> str | None:
    if quoted:
        return (
            f'a public header includes "{name}"; it may include <unisono/...> and the standard only'
        )
    if (root / "src" / name).is_file():
        return f"a public header includes <{name}>, which is not installed"
    return None


def _layer_fault(root: Path, layer: str, quoted: bool, name: str) -> str | None:
    folder = name.split("/")[0]
    if not quoted:
        # <sys/stat.h> is the system's, although we have a layer of that name.
        if (root / "src" / name).is_file():
            return f'write #include "{name}" for a header of this project\'s own layers'
        return None
    if folder not in CXX_LAYERS or "/" not in name:
        return f'"{name}" does not start with a layer; write "layer/header.h" or <unisono/header.h>'
    own, other = CXX_LAYERS[layer], CXX_LAYERS[folder]
    if folder != layer and other >= own:
        return f'{layer} (layer {own}) includes "{name}" of {folder} (layer {other})'
    return None


def _room_fault(inside: tuple[str, ...], layer: str, name: str) -> str | None:
    """What is wrong with including `name` from a file of a layer with rooms.

    `inside` are the file's parts after the layer's, its own name last.
    """
    rooms = CXX_ROOMS.get(layer, {})
    parts = name.split("/")
    if not rooms or parts[0] != layer:
        return None
    own, other = ("" if len(path) < 2 else path[0] for path in (inside, tuple(parts[1:])))
    for room in (own, other):
        if room not in rooms:
            return f"{layer}/{room} is not in the list of rooms"
    if own == other or rooms[other] < rooms[own]:
        return None
    return f'{layer}/{own} (room {rooms[own]}) includes "{name}" (room {rooms[other]})'


def _binding_fault(binding: str, quoted: bool, name: str) -> str | None:
    folder = name.split("/")[0]
    seen = LAYERS_THAT_BINDINGS_SEE.get(binding, frozenset())
    if quoted and "/" in name and folder in CXX_LAYERS and folder not in seen:
        allowed = " and ".join(["include/unisono", *sorted(f"src/{one}" for one in seen)])
        return f'bindings/{binding} includes "{name}"; it may see {allowed} only'
    return None


def cxx_violations(root: Path) -> list[Violation]:
    """Every include in the tree that points upward, sideways, or into a leaf."""
    found = []
    for path in project_files(root):
        relative = path.relative_to(root)
        if path.suffix not in CXX_SUFFIXES or len(relative.parts) < 3:
            continue
        area, folder = relative.parts[:2]
        if area == "src" and folder not in CXX_LAYERS:
            found.append(Violation(str(relative), 1, f"src/{folder} is not in the list of layers"))
            continue
        for line, quoted, name in includes_of(path):
            fault = None
            if area == "include":
                fault = _public_header_fault(root, quoted, name)
            elif area == "src":
                fault = _layer_fault(root, folder, quoted, name)
                if quoted and not fault:
                    fault = _room_fault(relative.parts[2:], folder, name)
            elif area == "bindings":
                fault = _binding_fault(folder, quoted, name)
            if fault:
                found.append(Violation(str(relative), line, fault))
    return found


def imports_of(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """Each module that a Python file imports, by its absolute name; `package` is the file's own."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield node.lineno, base
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def python_violations(root: Path, layers: dict[str, int]) -> list[Violation]:
    """Every import among the package's modules that points upward or sideways.

    `layers` gives the number of each module right under unisono ("cli": 4); the package itself,
    its __init__.py, is "". A module that the table lacks is a violation too.
    """
    found = []
    source = root / "python" / "unisono"
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        own = "" if relative.parts[0] == "__init__.py" else relative.parts[0].removesuffix(".py")
        package = ".".join(["unisono", *relative.parent.parts])
        shown = str(path.relative_to(root))
        if own not in layers:
            found.append(Violation(shown, 1, f"unisono.{own} is not in the table of Python layers"))
            continue
        for line, name in imports_of(path, package):
            parts = name.split(".")
            if parts[0] != "unisono" or len(parts) < 2:
                continue
            # A name that is no module is something the package itself offers.
            other = parts[1] if parts[1] in layers else ""
            if other != own and layers[other] >= layers[own]:
                label = f"unisono.{other}" if other else "unisono"
                found.append(
                    Violation(
                        shown,
                        line,
                        f"{own or 'unisono'} (layer {layers[own]}) imports {label} "
                        f"(layer {layers[other]})",
                    )
                )
    return list(dict.fromkeys(found))
