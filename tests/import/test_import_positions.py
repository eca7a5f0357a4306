"""Which positions an imported model has, by what its checkpoint says of them: position_embedding_type, which wins where it
is said; the two older flags; and the tables among its tensors."""
import itertools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402

TYPES = ("learned_absolute", "rope", "relative", "none", None)
FLAGS = (True, False, None)
TABLE = {"embedding.position_embeddings.weight": (16, 8)}
RELATIVE = {f"{stack}_relative_pos_emb.relative_attention_bias.weight": (8, 2) for stack in ("encoder", "decoder")}
ASKED = "does not say position_embedding_type"


def layer(prefix, cross):
    shapes = {"self_attention.linear_qkv.layer_norm_weight": (8,), "self_attention.linear_qkv.weight": (24, 8),
              "self_attention.linear_proj.weight": (8, 8), "mlp.linear_fc1.layer_norm_weight": (8,),
              "mlp.linear_fc1.weight": (16, 8), "mlp.linear_fc2.weight": (8, 16)}
    if cross:
        shapes |= {"pre_cross_attn_layernorm.weight": (8,), "cross_attention.linear_q.weight": (8, 8),
                   "cross_attention.linear_kv.weight": (16, 8), "cross_attention.linear_proj.weight": (8, 8)}
    return {prefix + name: shape for name, shape in shapes.items()}


def shapes_of(family):
    outer = {"embedding.word_embeddings.weight": (16, 8), "decoder.final_layernorm.weight": (8,)}
    if family == "gpt":
        return outer | layer("decoder.layers.0.", False)
    return (outer | layer("encoder.layers.0.", False) | layer("decoder.layers.0.", True) |
            {"encoder.final_layernorm.weight": (8,), "lm_head.output_layer.bias": (16,)})


def write(tmp_path, family, tables, **said):
    args = {"num_attention_heads": 2, "max_position_embeddings": 16, "bias_gelu_fusion": False,
            "untie_embeddings_and_output_weights": False, **{key: value for key, value in said.items() if value is not None}}
    tensors = {name: Tensor("F32", np.full(shape, 0.5, "<f4")) for name, shape in (shapes_of(family) | tables).items()}
    make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, make.namespace(**args))
    return tmp_path / "parts"


def convert(tmp_path, folder, **keys):
    given = {"vocab_size": 16, "eod_token_id": 1, **keys}
    (tmp_path / "given.json").write_text(json.dumps(given))
    command = [BUILD / "retro-convert", "--from", folder, "--out", tmp_path / "out", "--config", tmp_path / "given.json"]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def expect(tmp_path, done, wanted):
    """A type, or words of a refusal."""
    if wanted in TYPES:
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "out/config.json").read_text())["position_embedding_type"] == wanted
        return
    words = (wanted,) if isinstance(wanted, str) else wanted
    assert done.returncode == 1 and all(word in done.stderr for word in words), done.stdout + done.stderr


def refusal(*keys):
    """Names the keys, and the flag that decides."""
    return ("position_embedding_type", *keys, "--config")


def wanted_of(family, kind, added, rotary, tables):
    """The rule, written again: the type; else rotary; else tables; else that no positions are added."""
    if kind in ("learned_absolute", "relative", "none") and rotary:
        return refusal("use_rotary_position_embeddings")
    if kind == "relative" and (family == "gpt" or tables != RELATIVE):
        return refusal()
    if kind == "learned_absolute" and tables != TABLE:
        return refusal("add_position_embedding") if added is False else refusal()
    if kind in ("rope", "none") and tables:
        return refusal()
    if kind:
        return kind
    if rotary:
        return refusal("use_rotary_position_embeddings") if tables else "rope"
    if tables:
        return refusal("add_position_embedding") if added is False and tables == TABLE else \
            {str(TABLE): "learned_absolute", str(RELATIVE): "relative"}[str(tables)]
    return "none" if added is False else ASKED


COMBINATIONS = list(itertools.product(TYPES, FLAGS, FLAGS))


@pytest.mark.parametrize("kind,added,rotary", COMBINATIONS)
def test_gpt(tmp_path, kind, added, rotary):
    for i, tables in enumerate(({}, TABLE)):
        here = tmp_path / str(i)
        here.mkdir()
        done = convert(here, write(here, "gpt", tables, position_embedding_type=kind, add_position_embedding=added,
                                   use_rotary_position_embeddings=rotary))
        expect(here, done, wanted_of("gpt", kind, added, rotary, tables))


@pytest.mark.parametrize("kind,added,rotary", COMBINATIONS)
def test_t5(tmp_path, kind, added, rotary):
    for i, tables in enumerate(({}, TABLE, RELATIVE)):
        here = tmp_path / str(i)
        here.mkdir()
        done = convert(here, write(here, "t5", tables, position_embedding_type=kind, add_position_embedding=added,
                                   use_rotary_position_embeddings=rotary), bos_token_id=0)
        expect(here, done, wanted_of("t5", kind, added, rotary, tables))


@pytest.mark.parametrize("kind", ["mrope", "yarn", "alibi"])
def test_types_that_no_family_has(tmp_path, kind):
    folder = write(tmp_path, "gpt", {}, position_embedding_type=kind)
    expect(tmp_path, convert(tmp_path, folder), (f'position_embedding_type is "{kind}"', "--config"))
    expect(tmp_path, convert(tmp_path, folder, position_embedding_type="rope"), "rope")


def test_given_type_wins(tmp_path):
    folder = write(tmp_path, "gpt", {}, position_embedding_type="none", use_rotary_position_embeddings=True)
    expect(tmp_path, convert(tmp_path, folder, position_embedding_type="rope"), "rope")


class Kind:
    """An enumeration's value, as forks of Megatron have it."""

    def __reduce__(self):
        import enum
        return enum.Enum, ("rotary",)


def test_type_of_an_enumeration(tmp_path):
    """What is no text is not passed over: without it the flags would say that there are no positions."""
    folder = write(tmp_path, "gpt", {}, position_embedding_type=Kind(), add_position_embedding=False)
    expect(tmp_path, convert(tmp_path, folder), ('position_embedding_type is "enum.Enum(rotary)"', "--config"))
