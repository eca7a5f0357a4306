"""Embedders of every kind against sentence-transformers: tests/reference/make_embedder_goldens.py."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from stored_tensors import read_file, write_file  # noqa: E402

BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
EVAL = BUILD / "retro-eval"
GOLDEN = ROOT / "tests/golden/embedder"
KINDS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.safetensors"))
TEXTS = json.loads((GOLDEN / "texts.json").read_text(encoding="utf-8"))


def read_tensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return {name: np.frombuffer(raw[8 + size:][slice(*t["data_offsets"])], {"F32": "<f4", "I32": "<i4"}[t["dtype"]])
            .reshape(t["shape"]) for name, t in header.items()}


def expected(kind):
    return read_tensors(GOLDEN / kind / "expected.safetensors")


def run(folder, *options, texts=TEXTS):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    return subprocess.run([EVAL, "embed", *options, folder, "-"], input=lines, capture_output=True, text=True)


def embed(folder, *options, texts=TEXTS):
    done = run(folder, *options, texts=texts)
    assert done.returncode == 0, done.stderr
    return np.array([json.loads(line) for line in done.stdout.splitlines()], dtype=np.float32)


def ends_in_normalize(kind):
    return json.loads((GOLDEN / kind / "modules.json").read_text())[-1]["type"].endswith("Normalize")


def check(got, want, unit=True):
    """Directions, and lengths: 1 where the folder ends in Normalize, else those of the reference."""
    assert got.shape == want.shape
    lengths = np.linalg.norm(want, axis=1)
    assert np.abs(np.linalg.norm(got, axis=1) / (1 if unit else lengths) - 1).max() < (1e-5 if unit else 1e-3)
    cosine = (got * want).sum(1) / lengths / np.linalg.norm(got, axis=1)
    assert cosine.min() >= 0.9999, (cosine.min(), TEXTS[int(cosine.argmin())][:80])


def copied(kind, tmp_path):
    return pathlib.Path(shutil.copytree(GOLDEN / kind, tmp_path / kind))


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_match(kind):
    want, unit = expected(kind), ends_in_normalize(kind)
    check(embed(GOLDEN / kind), want["plain"], unit)
    check(embed(GOLDEN / kind, "--query"), want["query"], unit)
    check(embed(GOLDEN / kind, "--document"), want["document"], unit)


def rename_tensors(folder, rename, **more):
    """The tensors of a folder under other names, and zeros of the shapes in `more` behind them."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    header.pop("__metadata__", None)
    header = {rename(name): t for name, t in header.items()}
    for name, shape in more.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * math.prod(shape)]}
        data += bytes(4 * math.prod(shape))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return header


def test_names_of_tensorflow(tmp_path):
    """bert-base and its kin are published with LayerNorm.gamma and .beta, in a model for another task."""
    folder = copied("bert_cls", tmp_path)
    header = rename_tensors(folder, lambda name: "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"))
    assert sum(name.endswith((".gamma", ".beta")) for name in header) == 10
    check(embed(folder), expected("bert_cls")["plain"])


def test_the_head_of_modernbert(tmp_path):
    """ModernBERT-base is published as a model that fills gaps."""
    folder = copied("modernbert_cls", tmp_path)
    rename_tensors(folder, lambda name: "model." + name, **{"decoder.bias": [50], "head.dense.weight": [32, 32], "head.norm.weight": [32]})
    check(embed(folder), expected("modernbert_cls")["plain"])


@pytest.mark.parametrize("kind", ["bert_cls", "mpnet_mean"])
def test_an_absent_activation_is_gelu(kind, tmp_path):
    folder = copied(kind, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("hidden_act") == "gelu"
    (folder / "config.json").write_text(json.dumps(config))
    check(embed(folder), expected(kind)["plain"])


def test_kinds_of_both_lengths():
    lengths = {kind: np.linalg.norm(expected(kind)["plain"], axis=1) for kind in KINDS}
    free = {kind for kind in KINDS if not ends_in_normalize(kind)}
    assert {"bert_modes", "distilbert_old", "llama_weighted"} <= free < set(KINDS)
    assert all(np.abs(length - 1).max() > 0.1 for kind, length in lengths.items() if kind in free)


@pytest.mark.parametrize("modules", [2, 3, 4])
def test_normalize_counts_where_it_is_last(tmp_path, modules):
    """bert_dense is pooled, a Dense, a Normalize, a Dense, a Normalize: cut after each. The reference is our own vectors of
    unit length, and the Dense modules by NumPy."""
    folder = copied("bert_dense", tmp_path)
    listed = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(listed[:2]))
    x = embed(folder)
    for module in listed[2:1 + modules]:
        if module["type"].endswith("Normalize"):
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
            continue
        tensors = read_tensors(folder / module["path"] / "model.safetensors")
        activation = json.loads((folder / module["path"] / "config.json").read_text())["activation_function"]
        x = x @ tensors["linear.weight"].T + tensors.get("linear.bias", 0)
        x = {"Tanh": np.tanh, "Identity": lambda x: x, "GELU": gelu}[activation.rsplit(".")[-1]](x)
    (folder / "modules.json").write_text(json.dumps(listed[:1 + modules]))
    check(embed(folder), x, unit=listed[modules]["type"].endswith("Normalize"))


def gelu(x):
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.flat]).reshape(x.shape)


def test_a_folder_without_modules_is_not_normalised(tmp_path):
    """sentence-transformers makes a transformer and its rows' mean of it."""
    folder = copied("bert_old", tmp_path)
    listed = embed(folder)
    (folder / "modules.json").unlink()
    got = embed(folder)
    assert np.abs(np.linalg.norm(got, axis=1) - 1).max() > 0.1 and got.shape == listed.shape


def test_fewer_dimensions_stay_as_they_are():
    whole = embed(GOLDEN / "bert_modes")
    assert (embed(GOLDEN / "bert_modes", "--set", "retrieval.embedder_dimensions=8") == whole[:, :8]).all()


@pytest.mark.parametrize("kind", ["bert_modes", "mpnet_mean", "qwen2_last"])
def test_a_vector_does_not_depend_on_the_batch(kind):
    together = embed(GOLDEN / kind)
    for i in (0, 16, 10):
        assert (embed(GOLDEN / kind, texts=TEXTS[i:i + 1])[0] == together[i]).all()


def test_longrope_goes_by_the_length_of_each_text(tmp_path):
    """transformers takes the long factors for a text of more tokens than the original length. Models that have one list twice
    tell which one was taken, whatever is embedded beside a text."""
    short, long = [1.0, 1.1, 1.3, 2.0], [1.5, 2.5, 4.0, 9.0]
    texts = ["a b", "many words " * 20, "c", "others " * 30, "d e f"]

    def vectors(name, usual, far):
        folder = copied("llama_weighted", tmp_path / name)
        change(folder / "config.json", original_max_position_embeddings=12, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": usual, "long_factor": far})
        return embed(folder, texts=texts)

    both, shorts, longs = vectors("both", short, long), vectors("short", short, short), vectors("long", long, long)
    assert (both[::2] == shorts[::2]).all() and (both[1::2] == longs[1::2]).all()
    assert all((shorts[i] != longs[i]).any() for i in range(len(texts)))


def test_dimensions_are_the_first_ones():
    want = expected("qwen2_last")["plain"][:, :8]
    check(embed(GOLDEN / "qwen2_last", "--set", "retrieval.embedder_dimensions=8"), want)
    done = run(GOLDEN / "qwen2_last", "--set", "retrieval.embedder_dimensions=33")
    assert done.returncode == 1 and "embedder_dimensions is 33, the vectors of" in done.stderr


def test_prompts_of_the_configuration_go_before_the_folders():
    want = embed(GOLDEN / "roberta_mean", texts=["query: " + text for text in TEXTS])
    check(embed(GOLDEN / "roberta_mean", "--query", "--set", "retrieval.query_prompt=query: "), want)
    check(embed(GOLDEN / "roberta_mean", "--document", "--set", "retrieval.query_prompt=query: "), expected("roberta_mean")["plain"])


def test_a_default_prompt_is_put_before_all_texts(tmp_path):
    folder = copied("xlm_mean", tmp_path)
    change(folder / "config_sentence_transformers.json", default_prompt_name="query")
    check(embed(folder), expected("xlm_mean")["query"])
    change(folder / "config_sentence_transformers.json", default_prompt_name="ask")
    done = run(folder)
    assert done.returncode == 1 and '"prompts" lacks "ask"' in done.stderr


def test_fewer_tokens_can_be_read():
    few = ["--set", "retrieval.embedder_tokens=6"]
    long, other = (embed(GOLDEN / "bert_old", *few, texts=[text])[0] for text in ("file words then", "file words that"))
    whole = embed(GOLDEN / "bert_old", texts=["file words then"])[0]
    assert (long == other).all() and not (long == whole).all()
    done = run(GOLDEN / "bert_old", "--set", "retrieval.embedder_tokens=25")
    assert done.returncode == 1 and "retrieval.embedder_tokens is 25" in done.stderr and "reads 24 tokens" in done.stderr


def refuse_pooling(folder):
    change(folder / "1_Pooling/config.json", pooling_mode="attention")


def refuse_flag(folder):
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_attention": true}')


def refuse_module(folder):
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.LSTM"
    (folder / "modules.json").write_text(json.dumps(modules))


def refuse_code(folder):
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))


def refuse_activation(folder):
    change(folder / "2_Dense/config.json", activation_function="torch.nn.modules.activation.Mish")


def refuse_size(folder):
    change(folder / "2_Dense/config.json", in_features=31)


def refuse_residual(folder):
    change(folder / "2_Dense/config.json", use_residual=True)


def refuse_positions(folder):
    change(folder / "config.json", position_embedding_type="relative_key")


def refuse_family(folder):
    change(folder / "config.json", model_type="eurobert")


def refuse_chat(folder):
    change(folder / "sentence_bert_config.json", modality_config={"text": {}, "message": {}})


def refuse_limit(folder):
    change(folder / "sentence_bert_config.json", max_seq_length=41)


def refuse_side(folder):
    change(folder / "tokenizer_config.json", truncation_side="left")


def refuse_case(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    change(folder / "sentence_bert_config.json", do_lower_case=True)


def refuse_reranker(folder):
    change(folder / "config_sentence_transformers.json", model_type="CrossEncoder")


REFUSALS = [(refuse_pooling, '"pooling_mode" is "attention"'), (refuse_flag, "pooling_mode_attention"),
            (refuse_module, "sentence_transformers.models.LSTM"), (refuse_code, "custom_st.Transformer"),
            (refuse_activation, "activation.Mish"), (refuse_size, "in_features is 31"), (refuse_residual, "use_residual"),
            (refuse_positions, "relative_key"), (refuse_family, "eurobert"), (refuse_chat, '"message"'),
            (refuse_limit, "max_seq_length is 41, the model has 40 positions"), (refuse_side, "truncation_side"),
            (refuse_case, "do_lower_case"), (refuse_reranker, "CrossEncoder")]


@pytest.mark.parametrize("spoil,words", REFUSALS, ids=[spoil.__name__ for spoil, _ in REFUSALS])
def test_what_is_not_supported_is_refused_by_name(spoil, words, tmp_path):
    folder = copied("bert_dense", tmp_path)
    spoil(folder)
    done = run(folder, texts=["x"])
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert str(folder) in done.stderr


def test_a_decoder_without_modules_is_refused(tmp_path):
    folder = copied("llama_weighted", tmp_path)
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    done = run(folder, texts=["x"])
    assert done.returncode == 1 and "a llama model has a decoder, and no modules.json says" in done.stderr


def test_nomic_by_its_authors_names(tmp_path):
    folder = copied("nomic_mean", tmp_path)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    names = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
             "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon"}
    published = {new: config[old] for old, new in names.items()} | {
        "model_type": "nomic_bert", "vocab_size": config["vocab_size"], "type_vocab_size": 2, "activation_function": "swiglu",
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_scaling_factor": None,
        "prenorm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "use_rms_norm": False,
        "causal": False, "parallel_block": False, "auto_map": {"AutoModel": "x--y.Z"}}
    path.write_text(json.dumps(published))
    check(embed(folder), expected("nomic_mean")["plain"])
    path.write_text(json.dumps({**published, "rotary_scaling_factor": 2}))
    done = run(folder, texts=["x"])
    assert done.returncode == 1 and "rotary_scaling_factor" in done.stderr


@pytest.mark.parametrize("kind", ["gemma_dense", "qwen2_two_sided"])
def test_a_decoder_that_sees_both_sides_does_not_write(kind):
    server = subprocess.run([BUILD / "retro-server", "--set", f"model.path={GOLDEN / kind}", "--check-config"],
                            capture_output=True, text=True)
    assert server.returncode != 0 and "does not write text" in server.stderr


def test_embedding_gemma_2_with_towers(tmp_path):
    """The whole model has the text's keys in text_config; its towers are not read."""
    folder = copied("gemma2_mean", tmp_path)
    path, weights = folder / "config.json", folder / "model.safetensors"
    path.write_text(json.dumps({"model_type": "embedding_gemma2", "text_config": json.loads(path.read_text()), "vision_config": {}}))
    header, data = read_file(weights)
    header.pop("__metadata__", None)
    named = {f"language_model.{name}": tensor for name, tensor in header.items()}
    assert "language_model.embedding_projection.weight" in named
    end = len(data)
    named["vision_tower.patch_embedder.input_proj.weight"] = {"dtype": "F32", "shape": [1, 1], "data_offsets": [end, end + 4]}
    write_file(weights, named, data + bytes(4))
    check(embed(folder), expected("gemma2_mean")["plain"])


def test_a_product_behind_the_rows_needs_a_linear_pooling(tmp_path):
    folder = copied("gemma2_mean", tmp_path)
    change(folder / "1_Pooling/config.json", pooling_mode="max")
    done = run(folder, texts=["x"])
    assert done.returncode == 1 and "one pooling, which is not the maximum" in done.stderr


def test_absent_keys_of_embedding_gemma_2(tmp_path):
    """The heads of layers without a window by the key of all such layers."""
    folder = copied("gemma2_mean", tmp_path)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["per_layer_config"]
    path.write_text(json.dumps(config | {"global_head_dim": 32}))
    check(embed(folder), expected("gemma2_mean")["plain"])
