"""Real text that is on every machine: Python's own documentation, and the system's licences.

The documents of one Python version are the same everywhere; the licences are those that are there.
Every rank of a job on one machine reads the same text.
"""

import ast
import functools
from pathlib import Path

import torch

MOST_BYTES = 1 << 20
_TESTED_SHARE = 0.05


@functools.cache
def read_corpus() -> bytes:
    """The language reference as `help()` shows it, licences, and the library's docstrings."""
    text = "\n\n".join([*_topics(), *_licences()])
    if len(text) < MOST_BYTES:
        text += "\n\n".join(_docstrings(MOST_BYTES - len(text)))
    return text.encode()[:MOST_BYTES]


class Batches:
    """Pieces of a text in an order that depends on nothing but the step.

    So a resumed run goes on with what it would have read, and every backend reads the same.
    """

    def __init__(self, text: bytes, context: int, batch: int) -> None:
        tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        tested = int(len(tokens) * _TESTED_SHARE)
        self._training, self._tested = tokens[:-tested], tokens[-tested:]
        self._context, self._batch = context, batch

    def training(self, step: int, part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One of the equal parts of a step's batch: tokens, and those that follow each."""
        generator = torch.Generator().manual_seed(step)
        last = len(self._training) - self._context - 1
        starts = torch.randint(last, (self._batch,), generator=generator)
        return self._pieces(self._training, starts[part::parts])

    def tested(self, part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The same pieces whenever it is called, of text that is not trained on."""
        last = len(self._tested) - self._context - 1
        starts = torch.linspace(0, last, self._batch).long()
        return self._pieces(self._tested, starts[part::parts])

    def _pieces(self, tokens: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = starts[:, None] + torch.arange(self._context + 1)
        pieces = tokens[rows].long()
        return pieces[:, :-1], pieces[:, 1:]


def _topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return [topics[name] for name in sorted(topics)]


def _licences() -> list[str]:
    folder = Path("/usr/share/common-licenses")
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [file.read_text(errors="replace") for file in files if not file.is_symlink()]


def _docstrings(room: int) -> list[str]:
    """Of the standard library's modules and what is in them, as far as there is room."""
    found: list[str] = []
    for file in sorted(Path(ast.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.append(ast.get_docstring(node) or "")
        if sum(map(len, found)) > room:
            break
    return found
