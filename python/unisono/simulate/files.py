"""Files that describe machines: YAML of a schema, with a bound and plain errors."""

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from unisono.errors import MisuseError
from unisono.files import read_text

_MAX_BYTES = 1 << 20
# Logs of nccl-tests and tables of a bench.
_MAX_TABLE_BYTES = 64 << 20
_FOLDER = "clusters"
# No schema here nests deeper than 16.
_MAX_DEPTH = 64
# A cluster has some 200. 1 MB of a workload of many steps has some 40,000.
_MAX_NODES = 50_000
# YAML reads 1:1:1:... as a number to the base of 60, which takes long. Dates count as numbers.
_MAX_NUMBER_CHARACTERS = 64
_TEXT = "tag:yaml.org,2002:str"
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*[\[\]{"])')
_FORMAT = re.compile(r"^format:[ \t]*(\d{1,4})\s*(?:#.*)?$", re.MULTILINE)


class Part(BaseModel):
    """A mapping of such a file, with no other members than those it lists."""

    model_config = ConfigDict(extra="forbid")


Document = TypeVar("Document", bound=BaseModel)


def parse(schema: type[Document], text: str, where: str) -> Document:
    """What a YAML text holds.

    Raises:
        MisuseError: It does not fit the schema; the message names the member and what would be
            right.
    """
    if len(text) > _MAX_BYTES:
        raise MisuseError(f"{where}: more than {_MAX_BYTES} characters")
    try:
        document = yaml.load(text, Loader=_Loader)
    # A ValueError: YAML takes 2024-13-45 for a date, and 5,000 digits for a number.
    except (yaml.YAMLError, ValueError) as error:
        raise MisuseError(f"{where}: {error}") from None
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5]
        ]
        raise MisuseError(f"{where}: {'; '.join(faults)}") from None


def starts_json(contents: bytes) -> bool:
    """Whether they begin as JSON's objects and lists do; protobuf can have the same first byte."""
    return _JSON.match(contents) is not None


def format_of(text: str) -> int:
    """The `format` that a YAML text states at its outermost level; 0: it states none."""
    found = _FORMAT.search(text)
    return int(found[1]) if found else 0


def read(path: Path) -> str:
    """A file's text.

    Raises:
        MisuseError: There is no such file, it is not text, or too large.
    """
    return read_text(path, _MAX_BYTES)


def read_table(path: Path) -> str:
    """The text of measurements; "-" is what is pasted to standard input.

    Raises:
        MisuseError: As `read`.
    """
    return _pasted() if path == Path("-") else read_text(path, _MAX_TABLE_BYTES)


@cache
def _pasted() -> str:
    """It can be read once only."""
    return read_text("/dev/stdin", _MAX_TABLE_BYTES)


def folder() -> Path:
    """The package's own files: next to it where it is installed, else at the checkout's root."""
    installed = Path(str(resources.files("unisono"))) / _FOLDER
    if installed.is_dir():
        return installed
    return Path(__file__).resolve().parents[3] / _FOLDER


class _Loader(yaml.SafeLoader):
    """Plain YAML: no aliases, which can grow without bound or hold themselves, no name twice."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"an alias (*{event.anchor}) is not allowed", event.start_mark
            )
        self.nodes += 1
        if self.depth == _MAX_DEPTH:
            self._refuse("nested too deep")
        if self.nodes > _MAX_NODES:
            self._refuse(f"more than {_MAX_NODES} values")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _refuse(self, why: str) -> NoReturn:
        raise yaml.constructor.ConstructorError(None, None, why, self.peek_event().start_mark)

    def compose_scalar_node(self, anchor: Any) -> Any:
        node = super().compose_scalar_node(anchor)
        if node.tag != _TEXT and len(node.value) > _MAX_NUMBER_CHARACTERS:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number of {len(node.value)} characters", node.start_mark
            )
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key.value, str) or key.value in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' occurs twice, or is not a name", node.start_mark
                )
            names.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
