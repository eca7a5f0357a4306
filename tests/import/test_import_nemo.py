"""retro-convert on NeMo's files: .nemo archives with distributed checkpoints and with files of ranks, folders of training
and of NeMo 2. NeMo itself does not run here: the files are written by hand, after its own code (names, YAML, tar)."""
import gzip
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import types

import numpy as np
import pytest
import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Box, Tensor  # noqa: E402

CASE = ROOT / "tests/golden/retro/case_b"
YAML = """\
# NeMo's configuration
mcore_gpt: true
micro_batch_size: 4
encoder_seq_length: 64   # positions
num_layers: 12
hidden_size: 32
ffn_hidden_size: 64
num_attention_heads: 4
kv_channels: 8
num_query_groups: null
normalization: 'layernorm'
layernorm_epsilon: 1.0e-05
activation: fast-swiglu
bias: false
bias_activation_fusion: True
share_embeddings_and_output_weights: false
position_embedding_type: rope
rotary_percentage: 0.5
retro:
  retro_num_neighbors: 3
  retro_num_retrieved_chunks: 2
tokenizer:
  library: megatron
  merge_file:
  model: nemo:abc_tokenizer.model
data:
  data_prefix:
  - 1.0
  - /some/where
  retro_data:
    retro_chunk_length: 4
optim: {name: distributed_fused_adam}
"""


def convert(tmp_path, checkpoint, *options, **keys):
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"vocab_size": 250, **keys}))
    command = [BUILD / "retro-convert", "--from", checkpoint, "--out", tmp_path / "out", "--config", given, *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def imported(tmp_path, checkpoint, **keys):
    done = convert(tmp_path, checkpoint, **keys)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "out"


def same(folder, tensors):
    assert make.plain(make.read_folder(folder)) == make.plain(tensors)
    want, made = (json.loads((f / "config.json").read_text()) for f in (CASE, folder))
    for key in ("torch_dtype", "vocab_size"):
        made.pop(key)
    assert made == {key: want[key] for key in made}


def write_weights(folder, prefix, tensors):
    named = {prefix + name: (t.array.shape, [Box((0,) * t.array.ndim, t)]) for name, t in tensors.items()}
    make.write_distributed(folder, named, {f"{prefix}decoder.layers.0.mlp._extra_state/shard_0_1": [1]})
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    make.torch_save(folder / "common.pt", {"optimizer": {"param_groups": 1}, "state_dict": {}})


def pack(tmp_path, folder, **options):
    archive = tmp_path / "model.nemo"
    with tarfile.open(archive, "w", **options) as tar:
        tar.add(folder, arcname=".")
    return archive


@pytest.fixture
def tensors():
    return make.read_folder(CASE)


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_archive(tmp_path, tensors, format):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    (tmp_path / "parts" / ("a" * 150)).write_text("a long name")
    same(imported(tmp_path, pack(tmp_path, tmp_path / "parts", format=format)), tensors)


@pytest.mark.parametrize("members", [1, 3])
def test_compressed(tmp_path, tensors, members):
    """gzip, as NeMo wrote until 1.7: in one member, or in several behind one another. Nothing unpacked is left."""
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    archive = pack(tmp_path, tmp_path / "parts")
    raw = archive.read_bytes()
    cuts = [len(raw) * i // members for i in range(members + 1)]
    archive.write_bytes(b"".join(gzip.compress(raw[a:b]) for a, b in zip(cuts, cuts[1:])))
    same(imported(tmp_path, archive), tensors)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.json", "model.nemo", "out", "parts"]
    done = subprocess.run([BUILD / "retro-convert", "--inspect", archive], capture_output=True, text=True,
                          env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0 and "retro_chunk_length" in done.stdout, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.json", "model.nemo", "out", "parts"]


def sentencepiece_of(pieces):
    model = io.BytesIO()
    lines = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}word{i}" for i in range(500)]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=pieces,
                                             model_type="bpe", minloglevel=2)
    return model.getvalue()


def test_tokenizer_within(tmp_path, tensors):
    """The file that the configuration names, among others; it says the size of the vocabulary and the end of text."""
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    (tmp_path / "parts/other.model").write_bytes(b"none")
    (tmp_path / "parts/abc_tokenizer.model").write_bytes(sentencepiece_of(250))
    archive = pack(tmp_path, tmp_path / "parts")
    out = tmp_path / "out"
    done = subprocess.run([BUILD / "retro-convert", "--from", archive, "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (out / "tokenizer.model").read_bytes() == (tmp_path / "parts/abc_tokenizer.model").read_bytes()
    made = json.loads((out / "config.json").read_text())
    assert (made["vocab_size"], made["eod_token_id"]) == (250, 2)
    assert not (out / "other.model").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.nemo", "out", "parts"]
    given = tmp_path / "given.model"
    given.write_bytes(sentencepiece_of(248))
    done = subprocess.run([BUILD / "retro-convert", "--inspect", archive, "--tokenizer", given], capture_output=True, text=True)
    assert re.search(r"vocab_size +248", done.stdout), done.stderr


def test_scores_that_are_no_numbers(tmp_path, tensors):
    """A piece of SentencePiece whose score is NaN: no order of such pieces is one."""
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    raw = sentencepiece_of(250)
    score = np.float32(-100).tobytes()
    assert raw.count(score) == 1
    (tmp_path / "parts/abc_tokenizer.model").write_bytes(raw.replace(score, np.float32("nan").tobytes()))
    done = convert(tmp_path, pack(tmp_path, tmp_path / "parts"))
    assert done.returncode == 1 and "is no finite number" in done.stderr, done.stderr


def test_damaged_tokenizer_within(tmp_path, tensors):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    (tmp_path / "parts/abc_tokenizer.model").write_bytes(b"no tokenizer")
    done = convert(tmp_path, pack(tmp_path, tmp_path / "parts"))
    assert done.returncode == 1 and "the tokenizer within" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.json", "model.nemo", "parts"]


def test_unpacked(tmp_path, tensors):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    same(imported(tmp_path, tmp_path / "parts"), tensors)


@pytest.mark.parametrize("ranks,name", [(1, "."), (2, "mp_rank_{:02d}"), (2, "tp_rank_{:02d}_pp_rank_000")])
def test_rank_files(tmp_path, tensors, ranks, name):
    for r in range(ranks):
        part = {f"model.module.{key}": make.part_of(key, t, r, ranks, True) for key, t in tensors.items()}
        make.torch_save(tmp_path / "parts" / name.format(r) / "model_weights.ckpt", part)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    same(imported(tmp_path, pack(tmp_path, tmp_path / "parts")), tensors)


def test_training_folder(tmp_path, tensors):
    """Configuration below cfg, weights beside it."""
    write_weights(tmp_path / "parts", "model.", tensors)
    (tmp_path / "parts/hparams.yaml").write_text("cfg:\n" + "".join(f"  {line}\n" for line in YAML.splitlines()))
    same(imported(tmp_path, tmp_path / "parts"), tensors)


TRAINED = "megatron_gpt--val_loss=2.51-step=100-consumed_samples=6400.0"


DictConfig = make.fake_class("omegaconf.dictconfig", "DictConfig")
AnyNode = make.fake_class("omegaconf.nodes", "AnyNode")


def plain_config():
    """The YAML above as dicts."""
    root, inner = {}, None
    for line in YAML.replace("optim: {name: distributed_fused_adam}\n", "").splitlines():
        name, _, value = line.split("#")[0].strip().partition(":")
        depth, value = len(line) - len(line.lstrip()), value.strip(" '")
        if not name or name.startswith("-") or depth > 2:
            continue
        constants = {"true": True, "True": True, "false": False, "null": None, "1.0e-05": 1e-5, "0.5": 0.5}
        value = int(value) if value.isdigit() else constants.get(value, value)
        if depth == 0:
            inner = root[name] = value if value != "" else {}
        elif isinstance(inner, dict):
            inner[name] = value
    root["data"] = {"retro_data": {"retro_chunk_length": 4}}
    return root


def omega_config(value):
    """The same as OmegaConf pickles it: maps and nodes that know their parents."""
    made = DictConfig() if isinstance(value, dict) else AnyNode()
    made.__dict__.update({"_metadata": None, "_parent": None, "_flags_cache": None})
    if isinstance(value, dict):
        made._content = {key: omega_config(item) for key, item in value.items()}
        for item in made._content.values():
            item._parent = made
    else:
        made._val = value
    return made


def write_trained(folder, tensors, common):
    """A checkpoint of NeMo's training, without a configuration beside it."""
    write_weights(folder, "model.", tensors)
    modules = {"omegaconf": types.ModuleType("omegaconf")}
    for made in (DictConfig, AnyNode):
        modules[made.__module__] = types.ModuleType(made.__module__)
        setattr(modules[made.__module__], made.__name__, made)
    sys.modules.update(modules)
    make.torch_save(folder / "common.pt", {"pytorch-lightning_version": "2.2", "state_dict": {}, **common})
    for name in modules:
        del sys.modules[name]
    return folder


@pytest.mark.parametrize("kind", ["plain", "omegaconf"])
@pytest.mark.parametrize("given", ["checkpoint", "checkpoints", "run"])
def test_training_run(tmp_path, tensors, kind, given):
    """NAME/checkpoints/NAME--val_loss=.../common.pt has the configuration below hyper_parameters.cfg; one checkpoint is
    no question, whichever folder is given."""
    config = plain_config() if kind == "plain" else omega_config(plain_config())
    folder = write_trained(tmp_path / "run/checkpoints" / TRAINED, tensors, {"hyper_parameters": {"cfg": config}})
    same(imported(tmp_path, {"checkpoint": folder, "checkpoints": folder.parent, "run": folder.parents[1]}[given]), tensors)


@pytest.mark.parametrize("place", ["run", "run/checkpoints"])
def test_configuration_above(tmp_path, tensors, place):
    """What stands for another value says nothing."""
    folder = write_trained(tmp_path / "run/checkpoints" / TRAINED, tensors, {})
    text = YAML.replace("ffn_hidden_size: 64", "ffn_hidden_size: ${multiply:2, ${.hidden_size}}")
    (tmp_path / place / "hparams.yaml").write_text("cfg:\n" + "".join(f"  {line}\n" for line in text.splitlines()))
    done = convert(tmp_path, folder)
    assert done.returncode == 0 and "hparams.yaml is taken as the configuration" in done.stderr, done.stderr
    same(tmp_path / "out", tensors)


def test_several_checkpoints(tmp_path, tensors):
    folders = [write_trained(tmp_path / "run/checkpoints" / (TRAINED + end), tensors,
                             {"hyper_parameters": {"cfg": plain_config()}}) for end in ("", "-last")]
    done = convert(tmp_path, tmp_path / "run/checkpoints")
    assert done.returncode == 1 and "holds several checkpoints and no latest_checkpointed_iteration.txt" in done.stderr
    assert f"give one of {folders[0]}, {folders[1]}\n" in done.stderr, done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_training_files_of_ranks(tmp_path, tensors, ranks):
    """Lightning's files, one for each rank, called after the step."""
    for r in range(ranks):
        part = {f"model.module.{key}": make.part_of(key, t, r, ranks, True) for key, t in tensors.items()}
        make.torch_save(tmp_path / f"parts/mp_rank_{r:02d}/{TRAINED}.ckpt",
                        {"state_dict": part, "hyper_parameters": {"cfg": plain_config()}, "epoch": 0})
    same(imported(tmp_path, tmp_path / "parts"), tensors)
    shutil.copy(tmp_path / f"parts/mp_rank_00/{TRAINED}.ckpt", tmp_path / f"parts/mp_rank_00/{TRAINED}-last.ckpt")
    shutil.rmtree(tmp_path / "out")
    done = convert(tmp_path, tmp_path / "parts")
    assert done.returncode == 1 and "two checkpoints of one rank" in done.stderr, done.stderr


@pytest.mark.parametrize("line", ["scale_positional_embedding: true", "apply_embedding_scaling: true",
                                  "transformer_block_type: post_ln"])
def test_networks_that_nobody_computes(tmp_path, tensors, line):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML + line + "\n")
    done = convert(tmp_path, tmp_path / "parts")
    assert done.returncode == 1 and "which no family here computes" in done.stderr, done.stderr


def test_nemo_2(tmp_path, tensors):
    write_weights(tmp_path / "parts/weights", "module.", tensors)
    (tmp_path / "parts/context").mkdir()
    lines = ["_target_: nemo.collections.llm.gpt.model.base.GPTModel", "config:",
             *(f"  {line}" for line in YAML.splitlines())]
    (tmp_path / "parts/context/model.yaml").write_text("\n".join(lines))
    tokenizer = tmp_path / "parts/context/nemo_tokenizer"
    tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tokenizer / name).write_text("{}")
    words = {f"w{i}": i for i in range(250)}
    (tokenizer / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {
        "type": "WordPiece", "unk_token": "w0", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
        "vocab": words}}))
    same(imported(tmp_path, tmp_path / "parts"), tensors)
    assert (tmp_path / "out/tokenizer.json").read_bytes() == (tokenizer / "tokenizer.json").read_bytes()
    assert (tmp_path / "out/tokenizer_config.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["geglu", "fast-geglu"])
def test_norm_and_activation(tmp_path, tensors, name):
    write_weights(tmp_path / "parts", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(
        YAML.replace("'layernorm'", "layernorm1p").replace("fast-swiglu", name))
    made = json.loads((imported(tmp_path, tmp_path / "parts") / "config.json").read_text())
    assert made["layernorm_zero_centered_gamma"] is True and made["activation"] == "geglu_erf"


def test_old_retro_is_another_network(tmp_path):
    weights = {"model.pre_decoder.layers.0.weight": Tensor("F32", np.zeros((4, 4), "<f4"))}
    make.torch_save(tmp_path / "parts/model_weights.ckpt", weights)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    done = convert(tmp_path, pack(tmp_path, tmp_path / "parts"))
    assert done.returncode == 1 and "is the Retro of NeMo before 2.0, which is another network" in done.stderr


# Hostile archives.

def hostile(tmp_path, **member):
    archive = tmp_path / "model.nemo"
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo(member.pop("name", "./model_config.yaml"))
        for key, value in member.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(b""))
    return archive


@pytest.mark.parametrize("member,words", [
    ({"name": "../outside"}, "the tar's file ../outside lies outside of it"),
    ({"name": "/etc/passwd"}, "lies outside of it"), ({"name": "a/../../b"}, "lies outside of it"),
    ({"name": "a" * 120 + "/.."}, "lies outside of it"),
    ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link or a device"),
    ({"type": tarfile.LNKTYPE, "linkname": "x"}, "is a link or a device"),
    ({"type": tarfile.CHRTYPE}, "is a link or a device"), ({"type": tarfile.FIFOTYPE}, "is a link or a device")])
def test_hostile_members(tmp_path, member, words):
    done = convert(tmp_path, hostile(tmp_path, **member))
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


OBJECTS = ("!!python/object/apply:os.system ['touch was-here']", "!!python/object:evil.Run {}",
           "!!python/object/new:evil.Run []", "!!python/name:os.system ''", "!!python/module:os ''",
           "!<tag:yaml.org,2002:python/object/apply:os.system> [x]")


@pytest.mark.parametrize("line", [
    *(f"optim_more: {tag}" for tag in OBJECTS), *(f"more:\n  - {tag}" for tag in OBJECTS[:2]), f"a: [1, {OBJECTS[1]}]",
    f"? {OBJECTS[0]}"])
def test_objects_in_yaml(tmp_path, tensors, line):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML + line + "\n")
    done = convert(tmp_path, tmp_path / "parts")
    words = f"model_config.yaml: line {len((YAML + line).splitlines())} has a tag that makes an object of Python's: refused"
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (tmp_path / "was-here").exists()


BOMBS = ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", "a: &a\n- x\nb: &b\n- *a\n- *a\n",
         "a: &a\n  - x\nb: &b\n  c:\n    - *a\n", "a: &a {x: 1}\nb: &b\n  <<: *a\n")


@pytest.mark.parametrize("text", BOMBS)
def test_yaml_that_grows(tmp_path, tensors, text):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML + text)
    done = convert(tmp_path, tmp_path / "parts")
    assert done.returncode == 1 and "by which such files grow without bound: refused" in done.stderr, done.stderr


@pytest.mark.parametrize("text,words", [("a: " + 70 * "[" + 70 * "]", "lies in more than 64 maps and lists"),
                                        ("a: 'no end", "is no YAML: found unexpected end of stream")])
def test_yaml_that_is_none(tmp_path, tensors, text, words):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML + text)
    done = convert(tmp_path, tmp_path / "parts")
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_harmless_yaml(tmp_path, tensors):
    """References to plain things, tuples, and texts that look like more."""
    more = ("betas: !!python/tuple\n- 0.9\n- 0.98\nfirst: &id001\n- 1\nsecond: *id001\nthird: *id001\n"
            "path: '/data/*all & !!python/object'\nmath: 2 * 3 & 4 ! 5 # *a &b !!python/object\n")
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML + more)
    same(imported(tmp_path, tmp_path / "parts"), tensors)


def test_damaged_archives(tmp_path, tensors):
    write_weights(tmp_path / "parts/model_weights", "model.", tensors)
    (tmp_path / "parts/model_config.yaml").write_text(YAML)
    archive = pack(tmp_path, tmp_path / "parts")
    raw = archive.read_bytes()
    for size in (0, 100, 511, 512, len(raw) // 3, len(raw) // 2):
        archive.write_bytes(raw[:size])
        done = convert(tmp_path, archive)
        assert done.returncode == 1 and "retro-convert: " in done.stderr, (size, done.stderr)
    archive.write_bytes(raw[:124] + b"77777777777\0" + raw[136:])
    done = convert(tmp_path, archive)
    assert done.returncode == 1 and "no tar" in done.stderr
    archive.write_bytes(b"\x1f\x8b" + raw)
    done = convert(tmp_path, archive)
    assert done.returncode == 1 and "damaged gzip" in done.stderr
    stored = bytearray(gzip.compress(raw, 0))
    stored[len(stored) // 2] ^= 1  # of a weight: nothing but the check sum tells
    archive.write_bytes(stored)
    done = convert(tmp_path, archive)
    assert done.returncode == 1 and "damaged gzip" in done.stderr, done.stderr
    packed = gzip.compress(raw)
    for size in (3, 18, len(packed) // 2, len(packed) - 1):
        archive.write_bytes(packed[:size])
        done = convert(tmp_path, archive)
        assert done.returncode == 1 and "the gzip is cut off" in done.stderr, (size, done.stderr)
    archive.write_bytes(gzip.compress(bytes(64 << 20)))
    done = convert(tmp_path, archive)
    assert done.returncode == 1 and re.search(r"bytes of gzip grow to more than \d+: refused", done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.json", "model.nemo", "parts"]
    shutil.rmtree(tmp_path / "parts")
