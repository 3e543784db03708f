"""Files that describe machines: YAML of a schema, with a bound and plain errors."""

import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from unisono.errors import MisuseError

_MAX_BYTES = 1 << 20
_FOLDER = "clusters"
# No schema here nests deeper than 16.
_MAX_DEPTH = 64


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


def read(path: Path) -> str:
    """A file's text; "-" is what is pasted to standard input.

    Raises:
        MisuseError: There is no such file, or it is not text.
    """
    try:
        return _pasted() if path == Path("-") else path.read_text(encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MisuseError(f"{path} is not text") from None


@cache
def _pasted() -> str:
    """It can be read once only."""
    return sys.stdin.read()


def folder() -> Path:
    """The package's own files: next to it where it is installed, else at the checkout's root."""
    installed = Path(str(resources.files("unisono"))) / _FOLDER
    if installed.is_dir():
        return installed
    return Path(__file__).resolve().parents[3] / _FOLDER


class _Loader(yaml.SafeLoader):
    """Plain YAML: no aliases, which can grow without bound or hold themselves, no name twice."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"an alias (*{event.anchor}) is not allowed", event.start_mark
            )
        if self.depth == _MAX_DEPTH:
            raise yaml.constructor.ConstructorError(
                None, None, "nested too deep", self.peek_event().start_mark
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        for name in names:
            if not isinstance(name, str) or names.count(name) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{name}' occurs twice, or is not a name", node.start_mark
                )
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
