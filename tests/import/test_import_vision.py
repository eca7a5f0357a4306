"""retro-convert on checkpoints of vision towers and LLaVA: what Megatron's vision converters write ({"model": ...} without
arguments) and what its training does, on one rank and on two; all of config.json is given."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden/vision"
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Box  # noqa: E402

make.ROWS += ("embedder.weight", "embedder.bias")
CASES = ("clip_a", "clip_b", "clip_c_siglip", "clip_d_internvit", "radio_a", "radio_b", "llava_a", "llava_b")


def convert(tmp_path, config):
    command = [BUILD / "retro-convert", "--from", tmp_path / "parts", "--out", tmp_path / "out", "--config", config]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def core_names(tensors):
    """As Transformer Engine calls the norms."""
    def core(name):
        name = name.replace(".input_layernorm.", ".self_attention.linear_qkv.layer_norm_")
        return name.replace(".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_")
    return {core(name): t for name, t in tensors.items()}


def gated(config, name):
    part = next((config[key] for start, key in (("language_model.", "language"), ("vision_model.", "vision"),
                                                ("vision_projection.", "projector")) if name.startswith(start)), config)
    return part["activation"] == "swiglu"


def same(tmp_path, case, tensors):
    done = convert(tmp_path, GOLDEN / case / "config.json")
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    assert make.plain(make.read_folder(out)) == make.plain(core_names(tensors))
    for path in GOLDEN.glob(f"{case}/*.safetensors"):
        if not path.name.startswith("model"):
            shutil.copy(path, out)
    done = subprocess.run([BUILD / "retro-eval", "parity", out], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith(" 0 failed\n"), done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_converters(tmp_path, case, ranks):
    config = json.loads((GOLDEN / case / "config.json").read_text())
    tensors = make.read_folder(GOLDEN / case)
    for r in range(ranks):
        part = {name: make.part_of(name, t, r, ranks, gated(config, name)) for name, t in tensors.items()}
        make.torch_save(tmp_path / f"parts/mp_rank_{r:02d}/model_optim_rng.pt",
                        {"model": {**part, "decoder.layers.0.mlp.linear_fc1._extra_state": None}})
    same(tmp_path, case, tensors)


@pytest.mark.parametrize("case", ["llava_b", "radio_a", "clip_a"])
def test_distributed(tmp_path, case):
    tensors = make.read_folder(GOLDEN / case)
    boxes = {f"module.{name}": (t.array.shape, [Box((0,) * t.array.ndim, t)]) for name, t in tensors.items()}
    make.write_distributed(tmp_path / "parts", boxes)
    same(tmp_path, case, tensors)


def combined(tmp_path, case, ranks=1, **args):
    """Tower, projector and language model in one file, with the arguments of the language model's run."""
    config, tensors = json.loads((GOLDEN / case / "config.json").read_text()), make.read_folder(GOLDEN / case)
    language = config["language"]
    said = dict(num_layers=language["num_layers"], num_attention_heads=language["num_attention_heads"],
                kv_channels=language["kv_channels"], group_query_attention=True,
                num_query_groups=language["num_query_groups"], position_embedding_type=language["position_embedding_type"],
                max_position_embeddings=language["max_position_embeddings"], swiglu=language["activation"] == "swiglu",
                bias_gelu_fusion=language["activation"] == "gelu_tanh", normalization=language["normalization"],
                norm_epsilon=language["layernorm_epsilon"], tensor_model_parallel_size=ranks,
                untie_embeddings_and_output_weights=not language["tie_word_embeddings"])
    for r in range(ranks):
        part = {name: make.part_of(name, t, r, ranks, gated(config, name)) for name, t in tensors.items()}
        make.torch_save(tmp_path / f"parts/mp_rank_{r:02d}/model_optim_rng.pt",
                        {"args": make.namespace(**{**said, **args}), "checkpoint_version": 3.0, "model": part})
    return config, tensors


@pytest.mark.parametrize("case,ranks", [("llava_a", 1), ("llava_b", 1), ("llava_b", 2)])
def test_combined(tmp_path, case, ranks):
    """The arguments say what --config leaves out: the language model, but for its words."""
    config, tensors = combined(tmp_path, case, ranks)
    given = tmp_path / "given.json"
    given.write_text(json.dumps({**config, "language": {"vocab_size": 250}}))
    done = convert(tmp_path, given)
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    assert make.plain(make.read_folder(out)) == make.plain(core_names(tensors))
    made = json.loads((out / "config.json").read_text())
    assert all(config["language"].get(key, value) == value for key, value in made["language"].items())
    assert {key: made[key] for key in ("vision", "projector")} == {key: config[key] for key in ("vision", "projector")}
    for path in GOLDEN.glob(f"{case}/*.safetensors"):
        if not path.name.startswith("model"):
            shutil.copy(path, out)
    done = subprocess.run([BUILD / "retro-eval", "parity", out], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith(" 0 failed\n"), done.stdout + done.stderr


@pytest.mark.parametrize("change,args,words", [
    ({"language": {}}, {}, 'of "language": vocab_size (the tokenizer'),
    ({"language": {"vocab_size": 250}}, {"num_attention_heads": None}, 'does not say of "language": num_attention_heads'),
    ({"language": {"vocab_size": 250, "num_heads": 4}}, {}, 'no key "num_heads"'),
    ({"vision": None}, {}, 'a llava has the objects "language", "vision" and "projector"; "vision" is missing'),
    ({"vision": None, "projector": None}, {}, '"vision" and "projector" are missing'),
    ({"projector": None}, {}, '; "projector" is missing')])
def test_combined_asks(tmp_path, change, args, words):
    config, _ = combined(tmp_path, "llava_b", **args)
    given = tmp_path / "given.json"
    given.write_text(json.dumps({key: value for key, value in {**config, **change}.items() if value is not None}))
    done = convert(tmp_path, given)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_config_is_asked_for(tmp_path):
    make.torch_save(tmp_path / "parts/mp_rank_00/model_optim_rng.pt", {"model": make.read_folder(GOLDEN / "llava_a")})
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"vocab_size": 250}))
    done = convert(tmp_path, given)
    assert done.returncode == 1 and "holds a vision tower, which its arguments do not describe" in done.stderr


def test_tensor_too_many(tmp_path):
    """The folder's own family names it."""
    tensors = make.read_folder(GOLDEN / "clip_a")
    more = {**tensors, "visual.proj": next(iter(tensors.values()))}
    make.torch_save(tmp_path / "parts/mp_rank_00/model_optim_rng.pt", {"model": more})
    done = convert(tmp_path, GOLDEN / "clip_a/config.json")
    assert done.returncode == 1 and "visual.proj" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
