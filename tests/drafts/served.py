"""The models of differences.py, each with the requests that suit it: prompts of which much is repeated."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
sys.path[:0] = [str(ROOT / "tools/copyist"), str(ROOT / "tests")]

import numpy as np  # noqa: E402

import downloaded  # noqa: E402
import make_copyist  # noqa: E402
import q4_k  # noqa: E402
import state_models  # noqa: E402
import tasks  # noqa: E402
from words import BEGIN, Vocabulary  # noqa: E402

TEXTS = [path.read_text() for path in sorted((ROOT / "tests/texts").glob("*.md"))]


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")


class Writer:
    """A model: `config` for the server, and prompts."""

    def __init__(self, config):
        self.config = {**config, "server": {"port": 0, "max_context": 1024, "max_sequences": 16, "max_queue": 256}}

    def prompt(self, draw):
        """The beginning of a text; half of them begin again."""
        begin = draw.choice(TEXTS)[draw.randrange(200):][:draw.randrange(40, 400)]
        return begin if draw.random() < 0.5 else begin + "\n" + begin[:draw.randrange(1, 80)]

    def stop(self, draw):
        return draw.choice([["file", "\n\n"], ["e "], ["the", "is a"]])

    def bias(self, draw):
        return {str(draw.randrange(40)): draw.choice([-100, -3.5, 2.5, 4]) for _ in range(6)}

    grammar = 'root ::= line+\nline ::= [A-Za-z ,.]{1,40} "\\n"'
    regex = "[A-Za-z ,.\\n]{1,200}"


class Quoter(Writer):
    """A copyist: prompts are documents to be changed, texts to be cited from, and texts that quote nothing."""

    def __init__(self, config, folder, shape):
        super().__init__(config)
        self.copyist = tasks.Copyist(folder)
        self.vocabulary = Vocabulary(shape.vocab, 1)

    def task(self, draw):
        make, arguments = draw.choice([(self.copyist.edited, (draw.randrange(60, 160),)), (self.copyist.cited, (2,)),
                                       (self.copyist.free, (draw.randrange(20, 100), 60))])
        return tasks.first_of(make, draw.random(), *arguments)

    def prompt(self, draw):
        """Token ids, or a text of words whose beginning comes again."""
        if draw.random() < 0.7:
            return [self.task(draw).prompt]
        words = self.copyist.text(draw.randrange(20, 120), draw)
        place = draw.randrange(len(words) - 4)
        return self.vocabulary.text_of(words + words[place:place + 4])

    def stop(self, draw):
        """The end of a frequent word and the beginning of another: it lies across two tokens."""
        first, second = self.vocabulary.text_of(self.copyist.text(2, draw)).split()
        return [f"{first[-1]} {second[:1]}" if draw.random() < 0.5 else first]

    def bias(self, draw):
        return {str(word): draw.choice([-100, -30, -5, 8]) for word in self.copyist.text(30, draw)}

    grammar = 'root ::= (" " [a-z]+){1,200}'
    regex = "( [a-z]+){1,100}"


def make_quoter(folder, name, kind):
    """A copyist in a type of weights."""
    shape = make_copyist.SHAPES["moe" if name == "moe" else "small"]
    source = folder / name
    if not source.exists():
        make_copyist.make_copyist(source, shape)
    path = source if kind == "bf16" else folder / f"{name}-{kind}"
    if kind == "q4_k":
        if not path.exists():
            run(BUILD / "retro-convert", source, path, "--to", "gguf")
            (path / "model.gguf").rename(path / "wide.gguf")
            q4_k.convert(path / "wide.gguf", path / "model.gguf")
        path /= "model.gguf"
    elif not path.exists():
        run(BUILD / "retro-convert", source, path, "--to", kind)
    return Quoter({"model": {"path": str(path)}}, source, shape)


def make_retro(folder):
    config = {"model": {"path": str(ROOT / "models/retro-docs")},
              "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm")}}
    path = folder / "retro.json"
    path.write_text(json.dumps(config))
    if not (folder / "collection").exists():
        run(BUILD / "retro-index", "build", "--out", folder / "collection", "--config", path,
            *sorted((ROOT / "tests/texts").glob("*.md")))
    return Writer(config)


def make_t5(folder):
    """A random T5 whose words are those of the texts: its answers repeat themselves."""
    import sentencepiece

    path = folder / "t5"
    if not path.exists():
        path.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(ROOT / "tests/golden/hf/t5_v1_1" / name, path / name)
        (path / "text").write_text("\n".join(TEXTS))
        sentencepiece.SentencePieceTrainer.train(
            input=str(path / "text"), model_prefix=str(path / "spiece"), vocab_size=150, pad_id=0, eos_id=1, unk_id=2,
            bos_id=-1, character_coverage=0.99, hard_vocab_limit=False, minloglevel=2)
        (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 100}))
    return Writer({"model": {"path": str(path), "dtype": "f32"}})


def delta_tensors(config):
    """Random weights of Qwen3.5's text part, with delta nets in all layers but every second."""
    draw, d = np.random.default_rng(7), config["hidden_size"]
    heads, groups, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]

    def matrix(rows, columns):
        return draw.standard_normal((rows, columns)) / np.sqrt(columns)

    yield "model.embed_tokens.weight", matrix(config["vocab_size"], d) * 4
    yield "lm_head.weight", matrix(config["vocab_size"], d) * 3
    yield "model.norm.weight", np.zeros(d)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", np.zeros(d)
        for name, rows, columns in (("gate_proj", 64, d), ("up_proj", 64, d), ("down_proj", d, 64)):
            yield f"{layer}mlp.{name}.weight", matrix(rows, columns)
        if i % 2:
            for name, rows in (("q_proj", 2 * heads * size), ("k_proj", groups * size), ("v_proj", groups * size)):
                yield f"{layer}self_attn.{name}.weight", matrix(rows, d)
            yield f"{layer}self_attn.o_proj.weight", matrix(d, heads * size)
            yield f"{layer}self_attn.q_norm.weight", np.zeros(size)
            yield f"{layer}self_attn.k_norm.weight", np.zeros(size)
            continue
        linear = layer + "linear_attn."
        for name, rows in (("qkv", 2 * keys + values), ("z", values), ("a", config["linear_num_value_heads"]),
                           ("b", config["linear_num_value_heads"])):
            yield f"{linear}in_proj_{name}.weight", matrix(rows, d)
        yield linear + "conv1d.weight", draw.standard_normal((2 * keys + values, 1, 4)) / 2
        yield linear + "A_log", draw.standard_normal(config["linear_num_value_heads"]) - 2
        yield linear + "dt_bias", draw.standard_normal(config["linear_num_value_heads"])
        yield linear + "norm.weight", np.ones(config["linear_value_head_dim"])
        yield linear + "out_proj.weight", matrix(d, values)


def write_random(path, config, tensors):
    """A random model, which keeps states or latents: its answers repeat themselves."""
    if not path.exists():
        downloaded.write_folder(path, {})
        for shard in path.glob("model*"):
            shard.unlink()
        downloaded.write_safetensors(path / "model.safetensors", tensors)
        (path / "config.json").write_text(json.dumps({**config, "vocab_size": downloaded.VOCAB}))
    return Writer({"model": {"path": str(path)}})


def make_delta(folder):
    config = {"model_type": "qwen3_5_text", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "vocab_size": downloaded.VOCAB,
              "max_position_embeddings": 2048, "full_attention_interval": 2, "linear_num_key_heads": 2,
              "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4}
    return write_random(folder / "delta", config, dict(delta_tensors(config)))


def make_convolution(folder):
    return write_random(folder / "convolution", state_models.CONVOLUTION, state_models.convolution_tensors(downloaded.VOCAB))


def make_space(folder):
    return write_random(folder / "space", state_models.SPACE, state_models.space_tensors(downloaded.VOCAB))


def latent_tensors(config):
    """Random weights of DeepSeek-V3's kind, without experts."""
    draw, d = np.random.default_rng(8), config["hidden_size"]
    heads, rank, turned = config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]

    def matrix(rows, columns):
        return draw.standard_normal((rows, columns)) / np.sqrt(columns)

    yield "model.embed_tokens.weight", matrix(config["vocab_size"], d) * 4
    yield "lm_head.weight", matrix(config["vocab_size"], d) * 3
    yield "model.norm.weight", np.ones(d)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, rows, columns in (("q_proj", heads * (plain + turned), d), ("kv_a_proj_with_mqa", rank + turned, d),
                                    ("kv_b_proj", heads * (plain + value), rank), ("o_proj", d, heads * value)):
            yield f"{layer}self_attn.{name}.weight", matrix(rows, columns)
        yield layer + "self_attn.kv_a_layernorm.weight", np.ones(rank)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", np.ones(d)
        for name, rows, columns in (("gate_proj", 64, d), ("up_proj", 64, d), ("down_proj", d, 64)):
            yield f"{layer}mlp.{name}.weight", matrix(rows, columns)


def make_latent(folder):
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 3, "first_k_dense_replace": 3, "hidden_size": 64, "num_attention_heads": 4,
              "intermediate_size": 64, "vocab_size": downloaded.VOCAB, "max_position_embeddings": 2048, "q_lora_rank": None,
              "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24}
    return write_random(folder / "latent", config, dict(latent_tensors(config)))


BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
MODELS = {
    "retro": make_retro,
    "llama": lambda folder: make_quoter(folder, "llama", "bf16"),
    "llama-int8": lambda folder: make_quoter(folder, "llama", "int8"),
    "llama-int4": lambda folder: make_quoter(folder, "llama", "int4"),
    "llama-q4_k": lambda folder: make_quoter(folder, "llama", "q4_k"),
    "moe": lambda folder: make_quoter(folder, "moe", "bf16"),
    "t5": make_t5,
    "delta": make_delta,
    "convolution": make_convolution,
    "space": make_space,
    "latent": make_latent,
}
