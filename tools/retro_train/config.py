"""config.json of a model folder as a dataclass: the same keys, the same defaults (docs/model-format.md)."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

ACTIVATIONS = ("gelu_tanh", "gelu_erf", "swiglu", "geglu", "silu", "relu", "squared_relu", "quick_gelu")


def rule_retro_layers(num_layers):
    """Megatron's schedule: from layer 6 (9 in models deeper than 15), then every third; counted from 1."""
    return list(range(6 if num_layers <= 15 else 9, num_layers + 1, 3))


@dataclass
class ModelConfig:
    architecture: str  # "retro" or "gpt"
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    max_position_embeddings: int
    position_embedding_type: str  # "learned_absolute", "rope" or "none"
    activation: str
    num_query_groups: int | None = None
    kv_channels: int | None = None
    ffn_hidden_size: int | None = None
    padded_vocab_size: int | None = None
    rotary_percent: float = 1.0
    rotary_base: float = 10000.0
    rotary_interleaved: bool = False
    normalization: str = "LayerNorm"
    layernorm_epsilon: float = 1e-5
    layernorm_zero_centered_gamma: bool = False
    add_bias_linear: bool = True
    tie_word_embeddings: bool = True
    final_norm: bool = True  # what we train has one; a checkpoint is the authority on whether it does
    eod_token_id: int | None = None
    retro_layers: list[int] | None = None
    retro_encoder_num_layers: int = 2
    retro_chunk_length: int | None = None
    retro_num_neighbors: int = 2
    retro_retrieved_length: int | None = None
    encoder_residual: str = "normed"
    retro_attention_gate: float = 1.0

    def __post_init__(self):
        self.num_query_groups = self.num_query_groups or self.num_attention_heads
        self.kv_channels = self.kv_channels or self.hidden_size // self.num_attention_heads
        self.ffn_hidden_size = self.ffn_hidden_size or 4 * self.hidden_size
        self.padded_vocab_size = self.padded_vocab_size or self.vocab_size
        if self.architecture == "retro":
            if not self.retro_chunk_length:
                raise ValueError("config: a retro model needs retro_chunk_length")
            self.retro_layers = self.retro_layers or rule_retro_layers(self.num_layers)
            self.retro_retrieved_length = self.retro_retrieved_length or 2 * self.retro_chunk_length
        else:
            self.retro_layers = []
        self.check()

    def check(self):
        def choice(key, *known):
            if getattr(self, key) not in known:
                raise ValueError(f'config: {key} is "{getattr(self, key)}", known are {", ".join(known)}')

        choice("architecture", "retro", "gpt")
        choice("position_embedding_type", "learned_absolute", "rope", "none")
        choice("normalization", "LayerNorm", "RMSNorm")
        choice("encoder_residual", "normed", "raw")
        choice("activation", *ACTIVATIONS)
        if self.num_attention_heads % self.num_query_groups:
            raise ValueError(f"config: {self.num_attention_heads} heads cannot share {self.num_query_groups} query groups")
        if self.architecture == "retro":
            bad = [i for i in self.retro_layers if not 1 <= i <= self.num_layers]
            if bad or not self.retro_layers:
                raise ValueError(f"config: retro_layers {self.retro_layers} in a model of {self.num_layers} layers")
            learned = self.position_embedding_type == "learned_absolute"
            if learned and self.retro_retrieved_length > self.max_position_embeddings:
                raise ValueError("config: retro_retrieved_length exceeds max_position_embeddings")

    @property
    def gated(self):
        return self.activation in ("swiglu", "geglu")

    @property
    def rotated(self):
        """Rotary dimensions of a head, 0 without RoPE."""
        if self.position_embedding_type != "rope":
            return 0
        return self.kv_channels if self.rotary_percent >= 1 else int(self.kv_channels * self.rotary_percent)

    @classmethod
    def from_dict(cls, values):
        """Keys that are not ours are ignored, as the server does: config.json may carry notes."""
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    @classmethod
    def load(cls, folder):
        return cls.from_dict(json.loads((Path(folder) / "config.json").read_text()))

    def to_dict(self):
        """The contents of config.json: without the retrieval keys for a plain GPT, and without absent ones."""
        values = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        if self.architecture == "gpt":
            values = {key: v for key, v in values.items() if not key.startswith(("retro_", "encoder_"))}
        return values
