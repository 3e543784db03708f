"""A small GPT: bytes in, the next byte out."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256


@dataclass(frozen=True)
class Size:
    """How large the model is; the width is divided among the heads."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 128


class Attention(nn.Module):
    """Causal self-attention; tensor parallelism splits it by heads."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.head_width = size.width // size.heads
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key = nn.Linear(size.width, size.width, bias=False)
        self.value = nn.Linear(size.width, size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of (batch, length, width)."""
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            # Of this rank: all of them, or its part.
            return projected.view(batch, length, -1, self.head_width).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """Attention, then a layer of four times the width, each added to what came in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(size.width)
        self.attention = Attention(size)
        self.before_wide = nn.LayerNorm(size.width)
        self.widen = nn.Linear(size.width, 4 * size.width)
        self.narrow = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """Of (batch, length, width)."""
        x = x + self.attention(self.before_attention(x))
        return x + self.narrow(functional.gelu(self.widen(self.before_wide(x))))


class Gpt(nn.Module):
    """Logits of the next byte at each place."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.logits = nn.Linear(size.width, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, length, bytes) of tokens (batch, length)."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def loss_of(logits: Tensor, following: Tensor) -> Tensor:
    """Mean cross entropy, in nats a byte."""
    return functional.cross_entropy(logits.flatten(0, 1), following.flatten())
