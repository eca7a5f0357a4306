"""retro-convert on Megatron's "torch" checkpoints: a file for each rank. What is imported has the bytes of the folder
that the checkpoint was made of, whatever its ranks, stages, names and version; what does not fit is refused."""
import collections
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden/retro"
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402
from forward import Retro, write_cases  # noqa: E402

# Names of 2023-04: what the authors' runs had.
OLD_NAMES = ("num_layers", "hidden_size", "num_attention_heads", "kv_channels", "ffn_hidden_size", "layernorm_epsilon",
             "max_position_embeddings", "add_position_embedding", "use_rotary_position_embeddings", "rotary_percent",
             "apply_layernorm_1p", "add_bias_linear", "swiglu", "bias_gelu_fusion", "squared_relu",
             "untie_embeddings_and_output_weights", "tensor_model_parallel_size", "pipeline_model_parallel_size")
NEW_NAMES = OLD_NAMES + ("position_embedding_type", "normalization", "norm_epsilon", "group_query_attention",
                         "num_query_groups", "rotary_base")


def convert(*arguments):
    return subprocess.run([BUILD / "retro-convert", *map(str, arguments)], capture_output=True, text=True)


def read_case(name):
    return json.loads((GOLDEN / name / "config.json").read_text()), make.read_folder(GOLDEN / name)


def arguments_of(config, names, ranks=1, stages=1, **more):
    rope = config["position_embedding_type"] == "rope"
    values = {**{key: config.get(key) for key in config if key in names},
              "norm_epsilon": config["layernorm_epsilon"],
              "add_position_embedding": config["position_embedding_type"] == "learned_absolute",
              "use_rotary_position_embeddings": rope, "swiglu": config["activation"] == "swiglu", "squared_relu": False,
              "apply_layernorm_1p": config["layernorm_zero_centered_gamma"],
              "bias_gelu_fusion": config["activation"] == "gelu_tanh", "group_query_attention": False,
              "untie_embeddings_and_output_weights": not config["tie_word_embeddings"],
              "tensor_model_parallel_size": ranks, "pipeline_model_parallel_size": stages}
    return make.namespace(**{key: value for key, value in values.items() if key in names}, **more)


RETRO_MORE = ("retro_chunk_length", "retro_num_neighbors", "retro_num_retrieved_chunks")


def retro_arguments(config):
    chunk = config["retro_chunk_length"]
    return dict(zip(RETRO_MORE, (chunk, config["retro_num_neighbors"], config["retro_retrieved_length"] // chunk)))


# Sequences of the small models are too short for the chunks of large ones.
SMALL = {"retro_chunk_length": 8, "retro_retrieved_length": 16}


def given(tmp_path, **keys):
    path = tmp_path / "given.json"
    path.write_text(json.dumps(keys))
    return path


def imported(tmp_path, checkpoint, *options, **keys):
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    done = convert("--from", checkpoint, "--out", out, "--config", given(tmp_path, vocab_size=250, **keys), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def refused(tmp_path, checkpoint, words, *options, **keys):
    out = tmp_path / "out"
    done = convert("--from", checkpoint, "--out", out, "--config", given(tmp_path, vocab_size=250, **keys), *options)
    assert done.returncode == 1 and words in done.stderr, done.stdout + done.stderr
    assert not out.exists() and not list(tmp_path.glob("out.partial*"))


def same_tensors(folder, tensors):
    assert make.plain(make.read_folder(folder)) == make.plain(tensors)


def same_config(folder, config, *unsaid):
    made = json.loads((folder / "config.json").read_text())
    assert made.pop("torch_dtype") in ("float32", "bfloat16")
    for key in ("vocab_size", *unsaid):
        made.pop(key, None)
    assert made == {key: config[key] for key in made}


def parity(folder, case, tolerance=1e-4):
    for name in ("cases.safetensors", "generation.safetensors"):
        if (GOLDEN / case / name).exists():
            shutil.copy(GOLDEN / case / name, folder)
    done = subprocess.run([BUILD / "retro-eval", "parity", "--tolerance", str(tolerance), folder], capture_output=True,
                          text=True)
    assert done.returncode == 0 and done.stdout.endswith(" 0 failed\n"), done.stdout + done.stderr


def write_core(folder, config, tensors, ranks, stages=(0,), **more):
    """Megatron-Core's names; stages are the layers that they begin with."""
    gated, tied = config["activation"] in ("swiglu", "geglu_tanh"), config["tie_word_embeddings"]
    ends = [*stages[1:], config["num_layers"]]

    def model_of(rank, stage):
        here = make.stage_part(tensors, stages[stage], ends[stage], stage, len(stages), tied)
        return {name: make.part_of(name, t, rank, ranks, gated) for name, t in here.items()}

    args = arguments_of(config, NEW_NAMES, ranks, len(stages), **retro_arguments(config))
    make.write_ranks(folder, ranks, model_of, args, stages=len(stages), **more)
    return folder


def write_legacy(folder, config, tensors, ranks, names=OLD_NAMES, args=None, change=None, **more):
    """Megatron-LM's names before Megatron-Core, nested in dicts."""
    cross = {layer - 1 for layer in config["retro_layers"]}
    gated = config["activation"] == "swiglu"

    def model_of(rank, stage):
        parts = {name: make.part_of(name, t, rank, ranks, gated) for name, t in tensors.items()}
        model = make.nest_legacy(parts, cross)
        return change(model) if change else model

    make.write_ranks(folder, ranks, model_of, arguments_of(config, names, ranks, 1, **(args or {})),
                     **{"tracker": "release", **more})
    return folder


def test_real_ranks(tmp_path):
    """The files of two ranks that Megatron-Core wrote itself."""
    config, tensors = read_case("case_b")
    out = imported(tmp_path, GOLDEN / "case_b_tp2", eod_token_id=249)
    same_tensors(out, tensors)
    same_config(out, config, "eod_token_id")
    parity(out, "case_b")


@pytest.mark.parametrize("case,ranks,stages", [
    ("case_b", 4, (0, 6)), ("case_b", 1, (0, 4, 8)), ("case_b", 2, (0, 1, 2, 11)), ("case_a", 2, (0, 3)), ("case_c", 1, (0,))])
def test_stages(tmp_path, case, ranks, stages):
    config, tensors = read_case(case)
    out = imported(tmp_path, write_core(tmp_path / "parts", config, tensors, ranks, stages))
    same_tensors(out, tensors)
    same_config(out, config)


def test_interleaved_stages(tmp_path):
    """Two stages of two runs each: stage 0 has layers 0 to 2 and 6 to 8."""
    config, tensors = read_case("case_b")

    def model_of(rank, stage):
        runs = [make.stage_part(tensors, first, first + 3, 2 * run + stage, 4, False)
                for run, first in enumerate((3 * stage, 6 + 3 * stage))]
        return {f"model{i}": {name: make.part_of(name, t, rank, 2, True) for name, t in run.items()}
                for i, run in enumerate(runs)}

    args = arguments_of(config, NEW_NAMES, 2, 2, **retro_arguments(config))
    make.write_ranks(tmp_path / "parts", 2, model_of, args, stages=2)
    same_tensors(imported(tmp_path, tmp_path / "parts"), tensors)


@pytest.mark.parametrize("case,ranks,names,gate", [
    ("case_e_legacy_raw", 2, OLD_NAMES, None), ("case_e_legacy_raw", 4, OLD_NAMES, None),
    ("case_e_legacy_raw_gate", 2, NEW_NAMES, 0.5)])
def test_legacy(tmp_path, case, ranks, names, gate):
    """The layout of the published checkpoints, with what an ordinary run leaves in it."""
    config, tensors = read_case(case)
    args = {} if gate is None else {"retro_attention_gate": gate}
    extra = {"rng_state": [{"torch_rng_state": Tensor("U8", np.zeros(16, "u1")), "np_rng_state": ("MT19937", [1, 2])}],
             "optimizer": {"state": {0: {"exp_avg": Tensor("F32", np.ones(4, "<f4"))}}}}
    folder = write_legacy(tmp_path / "parts", config, tensors, ranks, names, args, extra=extra)
    retro = tmp_path / "args.json"
    retro.write_text(json.dumps({"retro_gpt_chunk_length": config["retro_chunk_length"], "num_layers": 77}))
    gated = () if gate is not None else ("--gate", 1)
    out = imported(tmp_path, folder, "--retro-args", retro, *gated)
    same_tensors(out, tensors)
    same_config(out, config)
    parity(out, case)


def test_legacy_asks_for_the_gate(tmp_path):
    config, tensors = read_case("case_e_legacy_raw")
    folder = write_legacy(tmp_path / "parts", config, tensors, 1)
    refused(tmp_path, folder, "does not say retro_attention_gate (--gate 1 for a model that reads neighbours")
    out = imported(tmp_path, folder, "--gate", 1, **SMALL)
    made = json.loads((out / "config.json").read_text())
    assert made["retro_num_neighbors"] == 2 and made["retro_chunk_length"] == 8
    card = (out / "README.md").read_text()
    assert "| `retro_num_neighbors` | assumed" in card and "| `retro_chunk_length` | --config |" in card


def test_legacy_spellings(tmp_path):
    """Names of early 2023: transformer, attention, layernorm, and the retriever at a second place."""
    config, tensors = read_case("case_e_legacy_raw")

    def change(model):
        inner = model["language_model"]
        old = collections.OrderedDict()
        for name, tensor in inner.pop("encoder").items():
            if name.startswith("layers.5.retriever."):
                old[name.replace("layers.5.retriever.", "retriever.")] = tensor
            old[re.sub(r"(\w+)_norm\.", r"\1_layernorm.", name).replace(".self_attention.", ".attention.")] = tensor
        inner["transformer"] = old
        return model

    folder = write_legacy(tmp_path / "parts", config, tensors, 2, change=change)
    same_tensors(imported(tmp_path, folder, "--gate", 1, **SMALL), tensors)


def published(tmp_path, ranks=4, kind="BF16"):
    """Exactly the options of the published files, in miniature: LayerNorm-1p, RoPE 0.5, swiglu, untied, no biases."""
    config, tensors = read_case("case_b")
    config = {**config, "retro_layers": [9, 12], "layernorm_zero_centered_gamma": True}
    rename = {"5.cross_attention.encoder": "8.cross_attention.encoder"}
    kept = {}
    for name, t in tensors.items():
        if name.startswith(("decoder.layers.5.cross_attention.attn", "decoder.layers.5.pre_cross")):
            continue
        for old, new in rename.items():
            name = name.replace(f"decoder.layers.{old}", f"decoder.layers.{new}")
        norm = "norm" in name.split(".")[-2] or "layer_norm_" in name
        kept[name] = Tensor("F32", t.array - 1) if norm and name.endswith("weight") else t
    for name in ("weight", "bias"):
        kept[f"decoder.final_layernorm.{name}"] = Tensor("F32", np.linspace(-0.25, 0.25, 32, dtype="<f4"))
    tensors = make.as_bf16(kept) if kind == "BF16" else kept
    return config, tensors, write_legacy(tmp_path / f"parts{ranks}", config, tensors, ranks)


def forward_cases(folder, tensors, gate, neighbors=True):
    """The published model's logits, computed independently, as reference cases of a folder."""
    random = np.random.default_rng(7)
    cases, model = {}, Retro(tensors, 12, 4, [8, 11], 8, gate)
    for n in (24, 20, 5):
        chunks = -(-n // 8)
        tokens, near = random.integers(0, 250, n, "i4"), random.integers(0, 250, (chunks, 2, 16), "i4")
        cases[f"n{n}.tokens"] = tokens[None]
        if neighbors:
            cases[f"n{n}.neighbors"] = near[None]
        cases[f"n{n}.logits"] = model.logits(tokens, near)[None].astype("<f4")
    write_cases(folder / "cases.safetensors", cases)


def computes_alike(folder):
    done = subprocess.run([BUILD / "retro-eval", "parity", "--tolerance", "1e-4", folder], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("3 passed, 0 failed\n"), done.stdout + done.stderr


@pytest.mark.parametrize("gate", [1, 0, 0.5])
def test_published_model_computes(tmp_path, gate):
    """The whole way: four ranks of old names become a folder, which computes what NumPy computes of the tensors."""
    config, tensors, folder = published(tmp_path, kind="F32")
    out = imported(tmp_path, folder, "--gate", gate, **SMALL)
    forward_cases(out, tensors, gate)
    computes_alike(out)


def test_gpt_computes_what_its_retro_does(tmp_path):
    config, tensors, folder = published(tmp_path, kind="F32")
    out = imported(tmp_path, folder, "--gate", 0, "--as", "gpt")
    forward_cases(out, tensors, 0, neighbors=False)
    computes_alike(out)


def test_published_options(tmp_path):
    config, tensors, folder = published(tmp_path)
    out = imported(tmp_path, folder, "--gate", 1)
    same_tensors(out, tensors)
    made = json.loads((out / "config.json").read_text())
    wanted = {"layernorm_zero_centered_gamma": True, "rotary_percent": 0.5, "rotary_base": 10000, "activation": "swiglu",
              "tie_word_embeddings": False, "add_bias_linear": False, "torch_dtype": "bfloat16", "encoder_residual": "raw",
              "retro_chunk_length": 64, "retro_num_neighbors": 2, "retro_retrieved_length": 128, "retro_layers": [9, 12]}
    assert wanted == {key: made[key] for key in wanted}


def test_gate_zero_is_a_gpt(tmp_path):
    """Without what it does not use, and the instruct models' prompt; refused where the gate lets something through."""
    config, tensors, folder = published(tmp_path)
    retro = imported(tmp_path, folder, "--gate", 0)
    shutil.move(retro, tmp_path / "retro")
    out = imported(tmp_path, folder, "--gate", 0, "--as", "gpt")
    kept = {name: t for name, t in tensors.items() if ".cross_attention." not in name and ".pre_cross" not in name}
    same_tensors(out, kept)
    made = json.loads((out / "config.json").read_text())
    assert made["architecture"] == "gpt" and not [key for key in made if key.startswith("retro_")]
    template = (out / "chat_template.jinja").read_text()
    assert "System: " in template and (tmp_path / "retro/chat_template.jinja").read_text() == template


def test_gate_that_counts_is_no_gpt(tmp_path):
    config, tensors, folder = published(tmp_path)
    refused(tmp_path, folder, "--as gpt: the gate is 1", "--as", "gpt", "--gate", 1)


@pytest.mark.parametrize("version", [None, 0, 1.0])
def test_old_versions(tmp_path, version):
    """Rows of queries, keys and values lay otherwise before version 2."""
    config, tensors = read_case("case_e_legacy_raw")
    h, order = config["kv_channels"], {}
    for name, t in tensors.items():
        parts = 3 if "linear_qkv.weight" in name or "linear_qkv.bias" in name else 2 if "linear_kv." in name else 0
        rest = t.array.shape[1:]
        array = t.array
        if parts:
            ours = array.reshape(2, -1, parts, h, *rest)  # of two ranks
            theirs = ours.swapaxes(1, 2) if version != 1.0 else ours.swapaxes(2, 3)
            array = theirs.reshape(array.shape)
        order[name] = Tensor(t.kind, array)
    folder = write_legacy(tmp_path / "parts", config, order, 2, version=version)
    same_tensors(imported(tmp_path, folder, "--gate", 1, **SMALL), tensors)


@pytest.mark.parametrize("case,options", [
    ("case_b", ["--to", "int8"]), ("case_b", ["--to", "int4", "--keep", "output_layer.*", "--keep", "*.linear_proj.weight"]),
    ("case_b", ["--to", "f16"]), ("case_a", ["--to", "int4"])])
def test_types_at_once(tmp_path, case, options):
    """Rows that are converted as they are joined are those of a folder that is converted after it was imported."""
    config, tensors = read_case(case)
    folder = write_core(tmp_path / "parts", config, tensors, 2)
    apart = shutil.move(imported(tmp_path, folder), tmp_path / "apart")
    done = convert(apart, tmp_path / "converted", *options)
    assert done.returncode == 0, done.stderr
    out = imported(tmp_path, folder, *options)
    same_tensors(out, make.read_folder(tmp_path / "converted"))
    for name in ("config.json", "README.md"):
        assert (out / name).read_text() == (tmp_path / "converted" / name).read_text()
    assert not list(tmp_path.glob("out.partial*"))


def test_types_that_do_not_fit(tmp_path):
    config, tensors = read_case("case_b")
    name = "decoder.layers.7.mlp.linear_fc2.weight"
    large = {**tensors, name: Tensor("F32", np.full((32, 64), 1e6, "<f4"))}
    folder = write_core(tmp_path / "parts", config, large, 2)
    refused(tmp_path, folder, f"tensor {name}: row ", "--to", "f16")
    refused(tmp_path, folder, "--keep nothing.*: no tensor has such a name", "--to", "int8", "--keep", "nothing.*")


def test_tokenizer_beside_it(tmp_path):
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 2)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(195))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    out = tmp_path / "out"
    done = convert("--from", folder, "--out", out)
    assert done.returncode == 0, done.stderr
    made = json.loads((out / "config.json").read_text())
    assert made["vocab_size"] == 200 and made["eod_token_id"] == 3 and (out / "vocab.txt").exists()
    (folder / "vocab.txt").write_text("\n".join([*words, *(f"more{i}" for i in range(100))]) + "\n")
    done = convert("--from", folder, "--out", tmp_path / "more")
    assert done.returncode == 1 and "the tokenizer has 300 ids and the word table 256 rows" in done.stderr


# Refusals.

def test_missing_rank(tmp_path):
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 2)
    shutil.rmtree(folder / "iter_0000001/mp_rank_00")
    refused(tmp_path, folder, "holds the ranks 1 of stage 0; its arguments say 2 tensor parallel ranks of 1 pipeline")


def test_missing_iteration(tmp_path):
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 1)
    (folder / "latest_checkpointed_iteration.txt").write_text("7\n")
    refused(tmp_path, folder, "iter_0000007, which is not there")
    (folder / "latest_checkpointed_iteration.txt").write_text("latest")
    refused(tmp_path, folder, 'says "latest"; expected a number of an iteration or "release"')


def test_iterations_without_tracker(tmp_path):
    """One is no question; of several the folders are listed."""
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 1)
    (folder / "latest_checkpointed_iteration.txt").unlink()
    same_tensors(imported(tmp_path, folder), tensors)
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(folder / "iter_0000001", folder / "iter_0000020")
    refused(tmp_path, folder, f"give one of {folder}/iter_0000001, {folder}/iter_0000020\n")
    same_tensors(imported(tmp_path, folder / "iter_0000020"), tensors)


def test_ranks_of_two_models(tmp_path):
    """Tensors that all ranks share differ: these parts do not belong together."""
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 2)
    other = write_core(tmp_path / "other", config, {n: Tensor(t.kind, 2 * t.array) for n, t in tensors.items()}, 2)
    shutil.copy(other / "iter_0000001/mp_rank_01/model_optim_rng.pt", folder / "iter_0000001/mp_rank_01")
    refused(tmp_path, folder, "differs between its copies by up to")


def rounded_otherwise(tmp_path, kind, steps, change=lambda name, array: array):
    """Two ranks, of which the second's norms are so many units in the last place away."""
    config, tensors = read_case("case_b")
    tensors = {name: Tensor("F32", change(name, t.array).astype("<f4")) for name, t in tensors.items()}
    if kind == "BF16":
        tensors = make.as_bf16(tensors)
    if kind == "F16":
        tensors = {name: Tensor("F16", t.array.astype("<f2")) for name, t in tensors.items()}
    near = {}
    for name, t in tensors.items():
        bits = t.array.view("<u4" if kind == "F32" else "<u2") + steps
        near[name] = Tensor(kind, bits.view(t.array.dtype)) if "norm" in name else t
    folder = write_core(tmp_path / "parts", config, tensors, 2)
    other = write_core(tmp_path / "other", config, near, 2)
    shutil.copy(other / "iter_0000001/mp_rank_01/model_optim_rng.pt", folder / "iter_0000001/mp_rank_01")
    return folder, tensors


@pytest.mark.parametrize("kind,steps", [("F32", 1), ("F32", 1000), ("F16", 1), ("F16", 8), ("BF16", 1), ("BF16", 4)])
def test_ranks_that_rounded_otherwise(tmp_path, kind, steps):
    """Rank 0 counts; the tensor and the largest difference are said."""
    folder, tensors = rounded_otherwise(tmp_path, kind, steps)
    out = tmp_path / "out"
    done = convert("--from", folder, "--out", out, "--config", given(tmp_path, vocab_size=250))
    assert done.returncode == 0, done.stderr
    same_tensors(out, tensors)
    name = "decoder.layers.0.mlp.linear_fc1.layer_norm_weight"
    assert re.search(rf"{name} differs between its copies by up to \S+; the first is taken", done.stderr), done.stderr


@pytest.mark.parametrize("kind,steps", [("F32", 1 << 18), ("F16", 1 << 6), ("BF16", 1 << 4)])
def test_ranks_that_differ_by_more(tmp_path, kind, steps):
    folder, _ = rounded_otherwise(tmp_path, kind, steps)
    refused(tmp_path, folder, "differs between its copies by up to")
    done = convert("--from", folder, "--out", tmp_path / "out", "--config", given(tmp_path, vocab_size=250))
    assert re.search(r"by up to \S+, allowed is \S+: these files do not belong to one model", done.stderr), done.stderr


def test_zeros_that_rounded_otherwise(tmp_path):
    """What is left of a sum of zeros."""
    folder, tensors = rounded_otherwise(tmp_path, "F32", 5, lambda name, a: a * 0 if name.endswith("norm_bias") else a)
    same_tensors(imported(tmp_path, folder), tensors)


def test_ranks_that_spell_norms_otherwise(tmp_path):
    """Rank 0 has input_norm, rank 1 input_layernorm: one tensor, said once."""
    config, tensors = read_case("case_e_legacy_raw")
    respelled = lambda model: {**model, "language_model": {**model["language_model"], "encoder": {  # noqa: E731
        re.sub(r"(\w+)_norm\.", r"\1_layernorm.", name): t for name, t in model["language_model"]["encoder"].items()}}}
    folder = write_legacy(tmp_path / "parts", config, tensors, 2)
    other = write_legacy(tmp_path / "other", config, tensors, 2, change=respelled)
    shutil.copy(other / "release/mp_rank_01/model_optim_rng.pt", folder / "release/mp_rank_01")
    out = tmp_path / "out"
    done = convert("--from", folder, "--out", out, "--config", given(tmp_path, vocab_size=250, **SMALL), "--gate", 1)
    assert done.returncode == 0, done.stderr
    same_tensors(out, tensors)
    assert done.stderr.count("rank 0 counts, for its other norms too") == 1 and "final_layernorm" in done.stderr


def test_tied_copy_that_is_none(tmp_path):
    config, tensors = read_case("case_a")
    folder = write_core(tmp_path / "parts", config, tensors, 1, (0, 3))
    word = tensors["embedding.word_embeddings.weight"]
    changed = {**tensors, "embedding.word_embeddings.weight": Tensor("F32", word.array + 1)}
    other = write_core(tmp_path / "other", config, changed, 1, (0, 3))
    last = "iter_0000001/mp_rank_00_001/model_optim_rng.pt"
    shutil.copy(other / last, folder / last)
    refused(tmp_path, folder, "embedding.word_embeddings.weight differs between its copies")


def renamed(tmp_path, old, new):
    config, tensors = read_case("case_b")
    tensors = {name.replace(old, new): t for name, t in tensors.items()}
    return write_core(tmp_path / "parts", config, tensors, 1)


def test_misnamed_tensor(tmp_path):
    folder = renamed(tmp_path, "decoder.layers.3.self_attention.linear_proj.weight",
                     "decoder.layers.3.self_attention.linear_prj.weight")
    refused(tmp_path, folder, "decoder.layers.3.self_attention.linear_proj.weight is missing; of those that the model "
            "does not have the nearest is decoder.layers.3.self_attention.linear_prj.weight")


def test_tensor_too_many(tmp_path):
    config, tensors = read_case("case_b")
    more = {**tensors, "decoder.layers.2.self_attention.linear_qkv.bias": Tensor("F32", np.zeros(96, "<f4"))}
    folder = write_core(tmp_path / "parts", config, more, 1)
    refused(tmp_path, folder, "the model has no tensor decoder.layers.2.self_attention.linear_qkv.bias; the nearest that "
            "it has is decoder.layers.2.self_attention.linear_qkv.")


def test_wrong_shape(tmp_path):
    config, tensors = read_case("case_b")
    name = "decoder.layers.7.mlp.linear_fc2.weight"
    folder = write_core(tmp_path / "parts", config, {**tensors, name: Tensor("F32", np.zeros((32, 60), "<f4"))}, 1)
    refused(tmp_path, folder, f"{name} has the shape [32, 60]; the configuration wants [32, 64] of each rank")


def test_type_that_no_model_has(tmp_path):
    config, tensors = read_case("case_b")
    name = "decoder.layers.7.mlp.linear_fc2.weight"
    folder = write_core(tmp_path / "parts", config, {**tensors, name: Tensor("U8", np.zeros((32, 64), "u1"))}, 1)
    refused(tmp_path, folder, f"the tensor {name} has the type torch.ByteStorage")


def test_layers_by_arguments(tmp_path):
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", {**config, "num_layers": 12}, tensors, 1)
    args = arguments_of({**config, "num_layers": 11}, NEW_NAMES, **retro_arguments(config))
    make.write_ranks(folder, 1, lambda *_: tensors, args)
    refused(tmp_path, folder, "1 stages hold 12 layers; the checkpoint's arguments say 11")


@pytest.mark.parametrize("name,value,words", [
    ("apply_residual_connection_post_layernorm", True, "apply_residual_connection_post_layernorm"),
    ("num_experts", 8, "num_experts"), ("qk_layernorm", True, "qk_layernorm")])
def test_networks_that_nobody_computes(tmp_path, name, value, words):
    config, tensors = read_case("case_b")
    args = arguments_of(config, NEW_NAMES, **retro_arguments(config), **{name: value})
    make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, args)
    refused(tmp_path, tmp_path / "parts", f"was trained with {words}")


def test_given_keys(tmp_path):
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 1)
    refused(tmp_path, folder, 'no key "rotary_bse"; did you mean "rotary_base"?', rotary_bse=1)
    refused(tmp_path, folder, "--gate high: expected a number", "--gate", "high")
    done = convert("--from", GOLDEN / "case_b", "--out", tmp_path / "o", "--gate", 1)
    assert done.returncode == 1 and "is no checkpoint of Megatron's" in done.stderr
    assert convert("--from", folder, "--out", tmp_path / "o").stderr.count("vocab_size (the tokenizer's") == 1


def test_interrupted(tmp_path):
    """Nothing is left of an import that was stopped, and an output folder that is not empty stays."""
    config, tensors = read_case("case_b")
    folder = write_core(tmp_path / "parts", config, tensors, 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("")
    done = convert("--from", folder, "--out", tmp_path / "out", "--config", given(tmp_path, vocab_size=250))
    assert done.returncode == 1 and "is not an empty folder" in done.stderr and (tmp_path / "out/mine").exists()


def small_files():
    """Writing fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))


def stopped(tmp_path, config, tensors):
    """A command that was to be resumed and failed in the middle, and the folder that it left."""
    folder = write_core(tmp_path / "parts", config, tensors, 1)
    command = [BUILD / "retro-convert", "--from", folder, "--out", tmp_path / "out", "--config",
               given(tmp_path, vocab_size=250), "--resume"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_files)
    assert done.returncode == 1 and "File too large" in done.stderr, done.stderr
    left, = tmp_path.glob("out.partial-*")
    return command, left


def test_resumed(tmp_path):
    """A run that fails keeps its folder for the same import, with the files that are complete."""
    config, tensors = read_case("case_b")
    command, left = stopped(tmp_path, config, tensors)
    shutil.copy(GOLDEN / "case_b/model.safetensors", left)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and f"goes on with {left}" in done.stderr, done.stderr
    assert "GB were there already" in done.stdout and not left.exists()
    same_tensors(tmp_path / "out", tensors)
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize("change", ["types", "checkpoint", "no identity"])
def test_resumed_as_another(tmp_path, change):
    """Other types, another checkpoint at the same place, and folders that nothing is known of begin anew."""
    config, tensors = read_case("case_b")
    command, left = stopped(tmp_path, config, tensors)
    (left / "model.safetensors").write_bytes(b"of another import")
    if change == "types":
        command += ["--to", "f16"]
    elif change == "checkpoint":
        os.utime(next((tmp_path / "parts").glob("*/mp_rank_00/*")), (1, 1))
    else:
        (left / ".retro-convert-identity").unlink()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and f"{left} was left by a run that was ended, and is removed" in done.stderr, done.stderr
    assert make.read_folder(tmp_path / "out").keys() == tensors.keys() and not left.exists()


# Other families.

@pytest.mark.parametrize("ranks", [1, 2])
def test_legacy_gpt(tmp_path, ranks):
    config, tensors = read_case("case_b")
    kept = {name: t for name, t in tensors.items() if ".cross_attention." not in name and ".pre_cross" not in name}
    folder = write_legacy(tmp_path / "parts", {**config, "retro_layers": []}, kept, ranks)
    out = imported(tmp_path, folder)
    same_tensors(out, kept)
    made = json.loads((out / "config.json").read_text())
    assert made["architecture"] == "gpt" and made["position_embedding_type"] == "rope"


def legacy_t5(tensors):
    """Names of both stacks; the decoder's layers read the encoder."""
    model = {"language_model": {"embedding": {}, "encoder": {}, "decoder": {}}, "lm_head": {}}
    inner = model["language_model"]
    for name, t in tensors.items():
        parts = name.split(".")
        if name.endswith("final_layernorm.weight") or name.endswith("final_layernorm.bias"):
            inner[parts[0]][f"final_norm.{parts[-1]}"] = t
        elif parts[1] == "layers":
            tail = name.split(".", 3)[3].replace("cross_attention.linear", "cross_attention.attn.linear")
            inner[parts[0]][f"layers.{parts[2]}.{make.legacy_tail(tail, parts[0] == 'decoder')}"] = t
        elif parts[0] == "embedding":
            inner["embedding"][parts[1]] = {"weight": t}
        elif name == "lm_head.output_layer.bias":
            model["lm_head"]["bias"] = t
        elif name == "lm_head.output_layer.weight":
            model["word_embeddings_for_head"] = {"weight": t}
    return model


@pytest.mark.parametrize("ranks,legacy", [(1, True), (2, True), (2, False)])
def test_t5(tmp_path, ranks, legacy):
    """Learned positions, biases, a tied output with a bias; what Megatron-Core registers twice is compared."""
    case = ROOT / "tests/golden/t5/case_a"
    config, whole = json.loads((case / "config.json").read_text()), make.read_folder(case)
    twice = set(config["alias_keys"])
    tensors = {name: t for name, t in whole.items() if name not in twice}

    def model_of(rank, stage):
        kept = tensors if legacy else whole
        parts = {name: make.part_of(name, t, rank, ranks, False) for name, t in kept.items()}
        return legacy_t5(parts) if legacy else parts

    names = [name for name in (OLD_NAMES if legacy else NEW_NAMES) if name != "num_layers"]
    make.write_ranks(tmp_path / "parts", ranks, model_of, arguments_of(config, names, ranks))
    out = imported(tmp_path, tmp_path / "parts", bos_token_id=config["bos_token_id"])
    same_tensors(out, tensors)
    same_config(out, config)
    for name in ("cases.safetensors", "generation.safetensors"):
        shutil.copy(case / name, out)
    done = subprocess.run([BUILD / "retro-eval", "parity", out], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith(" 0 failed\n"), done.stdout + done.stderr


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(195))]


@pytest.mark.parametrize("words,args,wanted,assumed", [
    (WORDS, {}, {"bos_token_id": 2, "vocab_size": 200, "eod_token_id": 3, "pad_token_id": 0},
     ["bos_token_id 2 is assumed: the tokenizer has no BOS, and Megatron takes its [CLS]", "vocab_size 200 is assumed"]),
    ([*WORDS, "[BOS]"], {}, {"bos_token_id": 200, "vocab_size": 201}, ["vocab_size 201 is assumed"]),
    (WORDS, {"tokenizer_type": "BertWordPieceCase", "vocab_extra_ids": 20},
     {"bos_token_id": 200, "eod_token_id": 201, "vocab_size": 222},
     ["bos_token_id 200 is assumed: Megatron puts [BOS] behind the tokenizer's last id", "eod_token_id 201 is assumed"])])
def test_first_token_of_t5(tmp_path, words, args, wanted, assumed):
    """Megatron's BOS, else CLS; what is assumed is said, and no question."""
    case = ROOT / "tests/golden/t5/case_a"
    config, tensors = json.loads((case / "config.json").read_text()), make.read_folder(case)
    names = [name for name in NEW_NAMES if name != "num_layers"]
    make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, arguments_of(config, names, **args))
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    done = convert("--from", tmp_path / "parts", "--out", tmp_path / "out", "--tokenizer", tmp_path / "vocab.txt")
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "out/config.json").read_text())
    assert {key: made[key] for key in wanted} == wanted
    assert all(words in done.stderr for words in assumed), done.stderr


def t5_stage(tensors, stage):
    """Of two stages of the encoder and two of the decoder: the tables are in the first of each, the word table once more
    in the last."""
    first = (("encoder", 0, 2), ("encoder", 2, 3), ("decoder", 0, 1), ("decoder", 1, 2))
    stack, begin, end = first[stage]
    here = {}
    for name, t in tensors.items():
        of, layer = make.layer_of(name)
        if of == stack and begin <= layer < end:
            here[name.replace(f".{layer}.", f".{layer - begin}.", 1)] = t
        ends = name.startswith(f"{stack}.final_layernorm.") and stage % 2 == 1
        table = name.startswith("embedding.") and stage % 2 == 0
        if ends or table or (name.startswith("lm_head.") and stage == 3):
            here[name] = t
    if stage == 3:
        here["lm_head.output_layer.weight"] = tensors["embedding.word_embeddings.weight"]
    return here


@pytest.mark.parametrize("ranks,legacy,split", [(1, True, False), (2, False, False), (2, False, True)])
def test_stages_of_t5(tmp_path, ranks, legacy, split):
    """Megatron-Core from 0.9 to 0.12 counts the encoder's stages apart (`split`)."""
    case = ROOT / "tests/golden/t5/case_a"
    config, whole = json.loads((case / "config.json").read_text()), make.read_folder(case)
    tensors = {name: t for name, t in whole.items() if name not in config["alias_keys"]}

    def model_of(rank, stage):
        here = t5_stage(tensors, stage)
        parts = {name: make.part_of(name, t, rank, ranks, False) for name, t in here.items()}
        return legacy_t5(parts) if legacy else parts

    names = [name for name in (OLD_NAMES if legacy else NEW_NAMES) if name != "num_layers"]
    args = arguments_of(config, names, ranks, 2 if split else 4, **(
        {"encoder_pipeline_model_parallel_size": 2, "encoder_tensor_model_parallel_size": 0} if split else {}))
    make.write_ranks(tmp_path / "parts", ranks, model_of, args, stages=4)
    out = imported(tmp_path, tmp_path / "parts", bos_token_id=config["bos_token_id"])
    same_tensors(out, tensors)
    same_config(out, config)


def test_encoder_on_other_ranks(tmp_path):
    case = ROOT / "tests/golden/t5/case_a"
    config, tensors = json.loads((case / "config.json").read_text()), make.read_folder(case)
    args = arguments_of(config, NEW_NAMES, 2, encoder_tensor_model_parallel_size=1)
    make.write_ranks(tmp_path / "parts", 2, lambda *_: tensors, args)
    refused(tmp_path, tmp_path / "parts", "the encoder was split over 1 ranks and the decoder over 2")
