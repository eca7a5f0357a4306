"""retro-convert at the size of NVIDIA's published Retro models: files of holes in their shapes, names and options. The
bytes that each rank holds are those of the published files less 495 to 531 bytes a tensor, which zips and pickles
take."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402

# layers, hidden size, rows of the MLP, heads, ranks; bytes and tensors of a rank, and the size of its file.
PUBLISHED = {"8b": (32, 4096, 10880, 32, 4, 4_765_483_008, 321, 4_765_648_490),
             "48b": (48, 8192, 21824, 64, 8, 12_118_786_048, 479, 12_119_023_358)}
VOCABULARY = 256_000


def shapes(layers, hidden, rows):
    """Every tensor of the model, by Megatron-Core's names."""
    cross = range(8, layers, 3)
    found = {"embedding.word_embeddings.weight": (VOCABULARY, hidden), "output_layer.weight": (VOCABULARY, hidden)}

    def norm(name, joined="."):
        found.update({f"{name}{joined}{end}": (hidden,) for end in ("weight", "bias")})

    def layer(prefix, reads, apart):
        norm(prefix + "self_attention.linear_qkv.layer_norm", "_")
        found[prefix + "self_attention.linear_qkv.weight"] = (3 * hidden, hidden)
        found[prefix + "self_attention.linear_proj.weight"] = (hidden, hidden)
        norm(prefix + "pre_mlp_layernorm.norm") if apart else norm(prefix + "mlp.linear_fc1.layer_norm", "_")
        found[prefix + "mlp.linear_fc1.weight"] = (2 * rows, hidden)
        found[prefix + "mlp.linear_fc2.weight"] = (hidden, rows)
        if reads:
            norm(prefix + "pre_cross_attn_layernorm")
            for name, out in (("linear_q", hidden), ("linear_kv", 2 * hidden), ("linear_proj", hidden)):
                found[f"{prefix}cross_attention.attn.{name}.weight"] = (out, hidden)

    for i in range(layers):
        layer(f"decoder.layers.{i}.", i in cross, False)
    for j in range(2):
        layer(f"decoder.layers.8.cross_attention.encoder.layers.{j}.", j == 0, j == 0)
    norm("decoder.final_layernorm")
    return found, set(cross)


def write(folder, name):
    layers, hidden, rows, heads, ranks = PUBLISHED[name][:5]
    found, cross = shapes(layers, hidden, rows)
    args = make.namespace(
        num_layers=layers, hidden_size=hidden, num_attention_heads=heads, ffn_hidden_size=rows, kv_channels=128,
        max_position_embeddings=4096, add_position_embedding=False, use_rotary_position_embeddings=True,
        rotary_percent=0.5, layernorm_epsilon=1e-5, apply_layernorm_1p=True, add_bias_linear=False, swiglu=True,
        bias_gelu_fusion=False, untie_embeddings_and_output_weights=True, tensor_model_parallel_size=ranks,
        pipeline_model_parallel_size=1)

    def model_of(rank, stage):
        parts = {key: make.part_of(key, Tensor("BF16", shape), rank, ranks, True) for key, shape in found.items()}
        return make.nest_legacy(parts, cross)

    return make.write_ranks(folder, ranks, model_of, args, tracker="release")


@pytest.mark.parametrize("name", PUBLISHED)
def test_inventory(tmp_path, name):
    layers, _, _, _, ranks, held, tensors, published = PUBLISHED[name]
    files = write(tmp_path / "parts", name)
    assert abs(sum(f.stat().st_size for f in files.glob("mp_rank_00/*")) - published) < 531 * tensors
    done = subprocess.run([BUILD / "retro-convert", "--inspect", tmp_path / "parts"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"each of {ranks} ranks holds {held} bytes of them" in done.stdout
    assert f"\n{tensors} tensors of " in done.stdout
    read = ", ".join(str(i) for i in range(9, layers + 1, 3))
    assert f"layers that read neighbours: {read}\n" in done.stdout
    assert "missing: retro_attention_gate (--gate 1" in done.stdout and "vocab_size" in done.stdout
    said = dict(re.findall(r"^  (\w+) +(\S+)", done.stdout, re.MULTILINE))
    assert (said["activation"], said["rotary_percent"], said["layernorm_zero_centered_gamma"]) == ("swiglu", "0.5", "true")
    assert said["retro_chunk_length"] == "64" and said["tie_word_embeddings"] == "false"


def write_wide(folder):
    """One layer, and tables of 2.1 GB each."""
    found, cross = shapes(1, 4096, 128)
    found = {name: shape for name, shape in found.items() if "cross_attention" not in name}
    args = make.namespace(num_layers=1, num_attention_heads=32, max_position_embeddings=4096, rotary_percent=0.5,
                          use_rotary_position_embeddings=True, swiglu=True, untie_embeddings_and_output_weights=True)
    parts = {name: Tensor("BF16", shape) for name, shape in found.items()}
    make.write_ranks(folder, 1, lambda *_: make.nest_legacy(parts, set()), args)
    return folder


@pytest.fixture
def disk():
    """A folder that goes at once. It lies in the build's: a file system in memory would keep what is read of holes."""
    with tempfile.TemporaryDirectory(prefix="import-", dir=BUILD) as folder:
        yield pathlib.Path(folder)


def wait_for(process, disk, pattern):
    deadline = time.monotonic() + 60
    while not list(disk.glob(pattern)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def command_of(tmp_path):
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"vocab_size": VOCABULARY}))
    command = [BUILD / "retro-convert", "--from", write_wide(tmp_path / "parts"), "--out", tmp_path / "out", "--config", given]
    return list(map(str, command))


# Linux counts the memory of the process that forks among its child's most, so a small one starts the command.
MEASURE = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)"""


def test_large_folders(disk):
    """Weights of more than 4 GB lie in several files; an interrupted run that may be resumed keeps those that are complete;
    memory is that of a few blocks, mapped pages included."""
    command = [*command_of(disk), "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(process, disk, "out.partial-*/model-00001-of-00002.safetensors")
    process.send_signal(signal.SIGINT)
    with process.stderr:
        said = process.stderr.read().decode()
    assert process.wait(60) == 130 and "the same command goes on from the files that are complete" in said, said
    partial, = disk.glob("out.partial-*")
    first = partial / "model-00001-of-00002.safetensors"
    written = first.stat().st_mtime_ns, first.stat().st_ino

    done = subprocess.run([sys.executable, "-c", MEASURE, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"goes on with {partial}" in done.stderr and " GB were there already" in done.stdout
    assert int(done.stdout.split()[-1]) < 200 << 10
    assert sorted(path.name for path in disk.iterdir()) == ["given.json", "out", "parts"]
    first = disk / "out/model-00001-of-00002.safetensors"
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == written
    out = disk / "out"
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert sorted(path.name for path in out.glob("*.safetensors")) == names
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(names)
    assert index["weight_map"]["output_layer.weight"] == names[1]
    assert index["metadata"]["total_size"] == sum(path.stat().st_size for path in out.glob("*.safetensors")) - sum(
        8 + int.from_bytes(path.open("rb").read(8), "little") for path in out.glob("*.safetensors"))


def test_interrupted(disk):
    process = subprocess.Popen(command_of(disk), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(process, disk, "out.partial-*/model-*")
    process.send_signal(signal.SIGINT)
    with process.stderr:
        said = process.stderr.read().decode()
    assert process.wait(60) == 130 and "interrupted; nothing is left of it" in said, said
    assert sorted(path.name for path in disk.iterdir()) == ["given.json", "parts"]
