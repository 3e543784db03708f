"""Transformers and the devices that train them: how many parameters, operations and bytes."""

from dataclasses import dataclass

# What a layer's forward pass reads or writes of 16-bit activations, in bytes for each token and
# hidden unit: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
# section 4.1, without the attention's scores, which fused kernels keep on the chip.
_ACTIVATION_BYTES = 34


@dataclass(frozen=True)
class Device:
    """What computes, as a roofline.

    Attributes:
        tflops: 10^12 operations a second that large matrix products reach.
        memory_gb_s: 10^9 bytes a second of its memory; 0: no limit.
    """

    tflops: float
    memory_gb_s: float = 0.0

    def time_ns(self, operations: float, moved_bytes: float = 0.0) -> float:
        """The longer of computing and moving bytes."""
        compute = operations / self.tflops / 1e3
        return max(compute, moved_bytes / self.memory_gb_s if self.memory_gb_s > 0 else 0.0)


@dataclass(frozen=True)
class Part:
    """Some of a layer, without communication inside.

    Attributes:
        parameters: Of its weights, before any sharding.
        operations: Of its forward pass, for one token.
        activations: Bytes that its forward pass moves, for one token.
        reduces: Tensor parallelism needs an all-reduce of the activations after it.
        routes: It is the experts' part, between two all-to-alls.
    """

    name: str
    parameters: int
    operations: float
    activations: float
    reduces: bool = False
    routes: bool = False


@dataclass(frozen=True)
class Model:
    """A GPT-style transformer.

    Attributes:
        sequence: Tokens of a sample.
        element_bytes: Of a parameter, gradient or activation that is sent.
        experts: Of each layer's mixture; 0: none.
        experts_per_token: How many of them a token is sent to.
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

    def parts(self) -> list[Part]:
        """A layer: attention with its two matrices, and the MLP's two (biases and norms too)."""
        h = self.hidden
        moved = _ACTIVATION_BYTES / 4 * h
        scores = 4.0 * self.sequence * h
        attention = [
            Part("qkv", 3 * h * h + 5 * h, 6.0 * h * h, moved),
            Part("proj", h * h + h, 2.0 * h * h + scores, moved, reduces=True),
        ]
        if self.experts:
            chosen = self.experts_per_token
            return [
                *attention,
                Part("router", h * self.experts + 2 * h, 2.0 * h * self.experts, moved),
                Part("experts", 0, chosen * 16.0 * h * h, chosen * moved, True, True),
            ]
        return [
            *attention,
            Part("fc1", 4 * h * h + 6 * h, 8.0 * h * h, moved),
            Part("fc2", 4 * h * h + h, 8.0 * h * h, moved, reduces=True),
        ]

    @property
    def expert_parameters(self) -> int:
        """Of all experts of one layer."""
        return self.experts * (8 * self.hidden * self.hidden + 5 * self.hidden)

    @property
    def embedding(self) -> Part:
        """Tokens and positions."""
        return Part("embedding", (self.vocabulary + self.sequence) * self.hidden, 0.0, 4.0)

    @property
    def head(self) -> Part:
        """The projection onto the vocabulary; its weights are the embedding's."""
        return Part("head", self.vocabulary * self.hidden, 2.0 * self.hidden * self.vocabulary, 4.0)

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        layer = sum(part.parameters for part in self.parts()) + self.expert_parameters
        return self.layers * layer + self.embedding.parameters


def _gpt(name: str, layers: int, hidden: int, heads: int) -> Model:
    return Model(name, layers, hidden, heads)


# Brown et al., "Language Models are Few-Shot Learners", table 2.1; 7b, 13b as PCCL's table 1, and
# 30b, 66b as Zhang et al., "OPT", table 1.
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
    )
}
