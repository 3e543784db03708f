"""Transformers: how many parameters, operations and bytes."""

from dataclasses import dataclass
from typing import Literal

from unisono.errors import MisuseError

# What a layer's forward pass reads or writes of 16-bit activations, in bytes for each token and
# hidden unit: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
# section 4.1, without the attention's scores, which fused kernels keep on the chip.
_ACTIVATION_BYTES = 34


@dataclass(frozen=True)
class Gemm:
    """The product of a token's activations with a matrix.

    Attributes:
        inputs: The matrix's rows, which are summed over.
        outputs: Its columns.
        splits: What tensor parallelism divides: "outputs", "inputs" or nothing.
    """

    inputs: int
    outputs: int
    splits: Literal["outputs", "inputs", ""] = ""


@dataclass(frozen=True)
class Part:
    """Some of a layer, without communication inside.

    Attributes:
        parameters: The number of its weights, before any sharding.
        operations: The number of operations of its forward pass, for one token.
        activations: Bytes that its forward pass moves, for one token.
        reduces: Tensor parallelism needs an all-reduce of the activations after it.
        routes: It is the experts' part, between two all-to-alls.
        scores: Those of its operations that are attention's scores, over the whole sequence.
        gemms: The matrices that it multiplies with, before any sharding.
        chosen: Experts that a token is sent to; 0: it has one set of matrices.
    """

    name: str
    parameters: int
    operations: float
    activations: float
    reduces: bool = False
    routes: bool = False
    scores: float = 0.0
    gemms: tuple[Gemm, ...] = ()
    chosen: int = 0


@dataclass(frozen=True)
class Model:
    """A transformer: GPT-style unless its further dimensions say otherwise.

    Attributes:
        sequence: Tokens of a sample.
        element_bytes: Bytes of a parameter, gradient or activation that is sent.
        experts: The number of experts in each layer's mixture; 0: none.
        experts_per_token: How many of them a token is sent to.
        kv_heads: Heads of keys and values (grouped-query attention); 0: as many as `heads`.
        ffn: Width of the MLP; 0: four times `hidden`.
        mlp: "gelu" has two matrices, "swiglu" three.
        biases: Matrices have biases, and norms a shift.
        positions: "learned" ones have parameters, "rotary" ones have none.
        tied: The projection onto the vocabulary has the embedding's weights.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int = 2048
    vocabulary: int = 50257
    element_bytes: int = 2
    experts: int = 0
    experts_per_token: int = 2
    kv_heads: int = 0
    ffn: int = 0
    mlp: Literal["gelu", "swiglu"] = "gelu"
    biases: bool = True
    positions: Literal["learned", "rotary"] = "learned"
    tied: bool = True

    def __post_init__(self) -> None:
        """Refuses dimensions that no transformer has.

        Raises:
            MisuseError: One is below 1, or `heads` do not divide `hidden`, or `kv_heads` `heads`.
        """
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "element_bytes"):
            if getattr(self, name) < 1:
                raise MisuseError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        for name in ("experts", "kv_heads", "ffn"):
            if getattr(self, name) < 0:
                raise MisuseError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.hidden % self.heads:
            raise MisuseError(f"heads is {self.heads}; it must divide hidden, {self.hidden}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise MisuseError(f"kv_heads is {self.kv_heads}; it must divide heads, {self.heads}")

    @property
    def key_width(self) -> int:
        """The width of a token's keys, and of its values."""
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def mlp_width(self) -> int:
        """What `ffn` says, or stands for."""
        return self.ffn or 4 * self.hidden

    def parts(self) -> list[Part]:
        """A layer: attention with its two matrices, and the MLP (biases and norms too)."""
        h, width = self.hidden, self.hidden + 2 * self.key_width
        moved = _ACTIVATION_BYTES / 4 * h
        scores = 4.0 * self.sequence * h
        attention = [
            Part(
                "qkv", h * width + self._bias(width) + self._norm, 2.0 * h * width, moved,
                gemms=(Gemm(h, width, "outputs"),),
            ),
            Part(
                "proj", h * h + self._bias(h), 2.0 * h * h + scores, moved, reduces=True,
                scores=scores, gemms=(Gemm(h, h, "inputs"),),
            ),
        ]  # fmt: skip
        chosen, f = self.experts_per_token, self.mlp_width
        wide = moved * f / (4 * h)
        into = self._mlp_matrices - 1
        gemms = (Gemm(h, into * f, "outputs"), Gemm(f, h, "inputs"))
        if self.experts:
            operations = chosen * 2.0 * self._mlp_matrices * h * f
            return [
                *attention,
                Part(
                    "router",
                    h * self.experts + self._norm,
                    2.0 * h * self.experts,
                    moved,
                    gemms=(Gemm(h, self.experts),),
                ),
                Part(
                    "experts", 0, operations, chosen * wide, True, True, gemms=gemms, chosen=chosen
                ),
            ]
        names = ("gate_up", "down") if self.mlp == "swiglu" else ("fc1", "fc2")
        first = into * h * f + self._bias(into * f) + self._norm
        return [
            *attention,
            Part(names[0], first, 2.0 * into * h * f, into * wide, gemms=gemms[:1]),
            Part(names[1], h * f + self._bias(h), 2.0 * h * f, wide, reduces=True, gemms=gemms[1:]),
        ]

    @property
    def _mlp_matrices(self) -> int:
        return 3 if self.mlp == "swiglu" else 2

    @property
    def _norm(self) -> int:
        return (2 if self.biases else 1) * self.hidden

    def _bias(self, width: int) -> int:
        return width if self.biases else 0

    @property
    def expert_parameters(self) -> int:
        """The parameters of all experts of one layer."""
        h, f = self.hidden, self.mlp_width
        biases = self._bias((self._mlp_matrices - 1) * f + h)
        return self.experts * (self._mlp_matrices * h * f + biases)

    @property
    def embedding(self) -> Part:
        """Tokens and positions."""
        places = self.sequence if self.positions == "learned" else 0
        return Part("embedding", (self.vocabulary + places) * self.hidden, 0.0, 4.0)

    @property
    def head(self) -> Part:
        """The projection onto the vocabulary."""
        h, words = self.hidden, self.vocabulary
        return Part("head", words * h, 2.0 * h * words, 4.0, gemms=(Gemm(h, words, "outputs"),))

    @property
    def parameters(self) -> int:
        """The number of parameters of the whole model."""
        layer = sum(part.parameters for part in self.parts()) + self.expert_parameters
        head = 0 if self.tied else self.head.parameters
        return self.layers * layer + self.embedding.parameters + head

    @property
    def operations(self) -> float:
        """Operations of a token's forward and backward pass, nothing computed twice: MFU's."""
        layer = sum(part.operations for part in self.parts())
        return 3 * (self.layers * layer + self.head.operations)


def _gpt(name: str, layers: int, hidden: int, heads: int) -> Model:
    return Model(name, layers, hidden, heads)


def _llama(name: str, layers: int, hidden: int, heads: int, ffn: int) -> Model:
    return Model(
        name, layers, hidden, heads, sequence=8192, vocabulary=128256, kv_heads=8, ffn=ffn,
        mlp="swiglu", biases=False, positions="rotary", tied=False,
    )  # fmt: skip


# Brown et al., "Language Models are Few-Shot Learners", table 2.1; 7b, 13b as PCCL's table 1, and
# 30b, 66b as Zhang et al., "OPT", table 1; llama-3 as "The Llama 3 Herd of Models", table 3;
# mixtral as Jiang et al., "Mixtral of Experts", table 1.
MODELS = {
    model.name: model
    for model in (
        _gpt("gpt-125m", 12, 768, 12),
        _gpt("gpt-350m", 24, 1024, 16),
        _gpt("gpt-1.3b", 24, 2048, 32),
        _gpt("gpt-2.7b", 32, 2560, 32),
        _gpt("gpt-7b", 32, 4096, 32),
        _gpt("gpt-13b", 40, 5120, 40),
        _gpt("gpt-30b", 48, 7168, 56),
        _gpt("gpt-66b", 64, 9216, 72),
        _gpt("gpt-175b", 96, 12288, 96),
        _llama("llama-3-8b", 32, 4096, 32, 14336),
        _llama("llama-3-70b", 80, 8192, 64, 28672),
        _llama("llama-3-405b", 126, 16384, 128, 53248),
        Model(
            "mixtral-8x7b", 32, 4096, 32, sequence=4096, vocabulary=32000, experts=8, kv_heads=8,
            ffn=14336, mlp="swiglu", biases=False, positions="rotary", tied=False,
        ),
    )
}  # fmt: skip


def find_model(name: str) -> Model:
    """A model by its name in MODELS; "llama3-8b" is "llama-3-8b", too.

    Raises:
        MisuseError: There is none of that name.
    """
    known = {key.replace("-", ""): model for key, model in MODELS.items()}
    found = known.get(name.lower().replace("-", ""))
    if found is None:
        raise MisuseError(f"there is no model '{name}'; there are {', '.join(MODELS)}")
    return found
