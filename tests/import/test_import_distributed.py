"""retro-convert on Megatron's distributed checkpoints: files that Megatron-Core wrote (make_import_fixtures.py), and files
like them, with what other versions write or a hostile one could."""
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
HERE = ROOT / "tests/import"
sys.path.insert(0, str(HERE))
import checkpoints as make  # noqa: E402
from checkpoints import Box, Tensor  # noqa: E402

IDS = {"eod_token_id": 249, "vocab_size": 250}


def convert(tmp_path, checkpoint, *options, **keys):
    given = tmp_path / "given.json"
    given.write_text(json.dumps({**IDS, **keys}))
    command = [BUILD / "retro-convert", "--from", checkpoint, "--out", tmp_path / "out", "--config", given, *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def imported(tmp_path, checkpoint, *options, **keys):
    done = convert(tmp_path, checkpoint, *options, **keys)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "out"


def same_tensors(folder, tensors):
    assert make.plain(make.read_folder(folder)) == make.plain(tensors)


def small_gpt():
    """The model of the fixtures of GPT."""
    tensors = make.read_folder(ROOT / "tests/golden/retro/case_b")
    kept = {name: t for name, t in tensors.items()
            if "layers." not in name or name.startswith(("decoder.layers.0.", "decoder.layers.1."))}
    for name in ("weight", "bias"):
        kept[f"decoder.final_layernorm.{name}"] = Tensor("F32", np.float32(0.5) + np.arange(32, dtype="<f4") / np.float32(32))
    return kept


def parity(folder, case):
    for name in ("cases.safetensors", "generation.safetensors"):
        if (case / name).exists():
            shutil.copy(case / name, folder)
    done = subprocess.run([BUILD / "retro-eval", "parity", "--tolerance", "1e-4", folder], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith(" 0 failed\n"), done.stdout + done.stderr


def test_retro(tmp_path):
    """Layers by number, on two ranks."""
    case = ROOT / "tests/golden/retro/case_a"
    out = imported(tmp_path, HERE / "dist_retro_tp2")
    same_tensors(out, make.read_folder(case))
    want, made = (json.loads((f / "config.json").read_text()) for f in (case, out))
    for key in ("torch_dtype", *IDS):
        made.pop(key)
    assert made == {key: want[key] for key in made}
    parity(out, case)


def test_t5(tmp_path):
    """Stacked layers, gated matrices in two parts, relative positions; the activation is in no argument."""
    case = ROOT / "tests/golden/t5/case_d"
    want = json.loads((case / "config.json").read_text())
    ids = {"vocab_size": want["vocab_size"], "eod_token_id": 1, "bos_token_id": want["bos_token_id"]}
    out = imported(tmp_path, HERE / "dist_t5", **ids)
    same_tensors(out, make.read_folder(case))
    made = json.loads((out / "config.json").read_text())
    for key in ("torch_dtype", *ids):
        made.pop(key)
    assert made == {key: want[key] for key in made}
    parity(out, case)


@pytest.mark.parametrize("fixture", ["dist_gpt_tp2", "dcp_gpt"])
def test_gpt(tmp_path, fixture):
    out = imported(tmp_path, HERE / fixture)
    same_tensors(out, small_gpt())
    made = json.loads((out / "config.json").read_text())
    assert (made["architecture"], made["activation"], made["rotary_percent"]) == ("gpt", "swiglu", 0.5)


# Files by hand.

def arguments():
    return make.namespace(num_layers=2, num_attention_heads=4, kv_channels=8, swiglu=True, normalization="LayerNorm",
                          position_embedding_type="rope", rotary_percent=0.5, max_position_embeddings=64,
                          norm_epsilon=1e-5, untie_embeddings_and_output_weights=True)


def whole(tensors):
    return {name: (t.array.shape, [Box((0,) * t.array.ndim, t)]) for name, t in tensors.items()}


def write(tmp_path, tensors=None, change=None, common=True):
    objects = {"common_state/shard_0_1": [{"args": arguments()}], "rng_state/shard_0.0_1.1": [{"a": 1}],
               "decoder.layers.mlp._extra_state/shard_0_2": [1]} if common else {}
    folder = tmp_path / "parts"
    make.write_distributed(folder, tensors or whole(small_gpt()), objects, change)
    return folder


def test_common_state(tmp_path):
    """Newer Megatrons store the arguments as an object among the tensors."""
    same_tensors(imported(tmp_path, write(tmp_path)), small_gpt())


def test_halves(tmp_path):
    """Gated matrices may be two tensors."""
    tensors = {}
    for name, t in small_gpt().items():
        if "linear_fc1.weight" in name:
            for end, half in zip("wv", np.split(t.array, 2)):
                tensors[f"{name}_{end}"] = Tensor("F32", half)
        else:
            tensors[name] = t
    same_tensors(imported(tmp_path, write(tmp_path, whole(tensors))), small_gpt())
    del tensors["decoder.layers.1.mlp.linear_fc1.weight_v"]
    shutil.rmtree(tmp_path / "parts")
    shutil.rmtree(tmp_path / "out")
    done = convert(tmp_path, write(tmp_path, whole(tensors)))
    assert done.returncode == 1 and "linear_fc1.weight_w has no second half" in done.stderr, done.stderr


def test_bfloat16(tmp_path):
    tensors = make.as_bf16(small_gpt())
    same_tensors(imported(tmp_path, write(tmp_path, whole(tensors))), tensors)


def test_optimizer_is_passed_over(tmp_path):
    tensors = small_gpt()
    more = {**tensors, "optimizer.state.exp_avg.decoder.x": Tensor("F32", np.zeros((4, 4), "<f4")),
            "chained_0.optimizer": Tensor("U8", np.zeros(4, "u1"))}
    same_tensors(imported(tmp_path, write(tmp_path, whole(more))), tensors)


@pytest.mark.parametrize("name", ["evil.module.Run", "torchevil.Run", "megatronic.Run"])
def test_unknown_class_in_metadata(tmp_path, monkeypatch, name):
    """A list of tensors names classes of torch and Megatron alone."""
    import types
    module, kind = name.rsplit(".", 1)
    made = make.fake_class(module, kind)
    for i in range(1, module.count(".") + 2):
        monkeypatch.setitem(sys.modules, ".".join(module.split(".")[:i]), types.ModuleType(module))
    setattr(sys.modules[module], kind, made)

    def change(metadata):
        metadata.planner_data = made()

    done = convert(tmp_path, write(tmp_path, change=change))
    assert done.returncode == 1 and f"names the class {name}, which is none of torch's or Megatron's" in done.stderr


def boxes(*list_):
    """The word table in boxes of these rows."""
    word = small_gpt()["embedding.word_embeddings.weight"].array
    tensors = whole(small_gpt())
    tensors["embedding.word_embeddings.weight"] = (word.shape, [Box((a, 0), Tensor("F32", word[a:b])) for a, b in list_])
    return tensors


def refused(tmp_path, words, *arguments, **named):
    done = convert(tmp_path, write(tmp_path, *arguments, **named))
    assert done.returncode == 1 and words in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("out.partial*"))


def test_boxes_in_any_order(tmp_path):
    same_tensors(imported(tmp_path, write(tmp_path, boxes((100, 256), (0, 3), (3, 100)))), small_gpt())


@pytest.mark.parametrize("list_,words", [
    (((0, 100), (101, 256)), "has parts that leave gaps"), (((0, 129), (128, 256)), "has parts that overlap"),
    (((0, 128),), "has parts that leave gaps")])
def test_boxes_that_do_not_tile(tmp_path, list_, words):
    refused(tmp_path, f"embedding.word_embeddings.weight {words}", boxes(*list_))


NAME = "embedding.word_embeddings.weight"


def item_of(metadata):
    return next(v for k, v in metadata.storage_data.items() if k.fqn == NAME)


CHANGES = {
    "lies in a file that is not in the folder": [lambda m: item_of(m).__dict__.update(relative_path="../secret"),
                                                 lambda m: item_of(m).__dict__.update(relative_path="/etc/passwd"),
                                                 lambda m: item_of(m).__dict__.update(relative_path=".metadata")],
    "reaches beyond the end of its file": [lambda m: item_of(m).__dict__.update(length=1 << 40),
                                           lambda m: item_of(m).__dict__.update(offset=-1),
                                           lambda m: item_of(m).__dict__.update(offset=(1 << 63) - 1)],
    "is stored compressed": [lambda m: item_of(m).__dict__.update(transform_descriptors=["zstd"])],
    "lies nowhere": [lambda m: item_of(m).__dict__.update(offset=None)],
    "has not as many stored parts as boxes": [lambda m: m.storage_data.pop(next(k for k in m.storage_data if k.fqn == NAME))],
    "has a part of another type or shape than its box": [
        lambda m: m.state_dict_metadata[NAME].chunks[0].__dict__.update(sizes=(256, 31))],
    "has a box that lies outside it": [
        lambda m: m.state_dict_metadata[NAME].chunks[0].__dict__.update(sizes=(257, 32)),
        lambda m: m.state_dict_metadata[NAME].chunks[0].__dict__.update(sizes=((1 << 62), 32))],
    "has no shape": [lambda m: m.state_dict_metadata[NAME].__dict__.update(size=(-1, 32))],
}


@pytest.mark.parametrize("words,change", [(w, c) for w, list_ in CHANGES.items() for c in list_],
                         ids=[f"{w}-{i}" for w, list_ in CHANGES.items() for i in range(len(list_))])
def test_lies_of_the_metadata(tmp_path, words, change):
    refused(tmp_path, words, None, change)


def test_metadata_runs_nothing(tmp_path):
    folder = write(tmp_path)

    class Call:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/was-here",)

    (folder / ".metadata").write_bytes(pickle.dumps({"state_dict_metadata": Call()}, 4))
    done = convert(tmp_path, folder)
    assert done.returncode == 1 and "names the function posix.system" in done.stderr
    assert not (tmp_path / "was-here").exists()


def test_no_arguments(tmp_path):
    refused(tmp_path, "does not say num_attention_heads, position_embedding_type (learned_absolute, rope or none), "
            "max_position_embeddings, activation (swiglu, geglu_tanh or geglu_erf)", None, None, common=False)


# zarr, by hand: JSON and raw chunks.

def write_zarr(folder, tensors, cuts, **described):
    """`cuts` is into how many chunks the first two axes are cut."""
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr", "sharded_backend_version": 1}))
    make.torch_save(folder / "common.pt", {"args": arguments()})
    dtypes = {"F32": "<f4", "BF16": "bfloat16"}
    for name, t in tensors.items():
        array, here = t.array, folder / name
        counts = [cut if size % cut == 0 else 1 for size, cut in zip(array.shape, cuts + (1,) * array.ndim)]
        chunk = [size // count for size, count in zip(array.shape, counts)]
        here.mkdir()
        array_of = {"zarr_format": 2, "shape": array.shape, "chunks": chunk, "dtype": dtypes[t.kind], "order": "C",
                    "compressor": None, "fill_value": None, "filters": None, **described}
        (here / ".zarray").write_text(json.dumps(array_of))
        for index in np.ndindex(*counts):
            part = array[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk))]
            (here / ".".join(map(str, index))).write_bytes(np.ascontiguousarray(part).tobytes())
    return folder


def stacked(tensors):
    """Both layers in one tensor."""
    found = {}
    for name, t in tensors.items():
        if name.startswith("decoder.layers.0."):
            both = [t.array, tensors[name.replace("layers.0.", "layers.1.")].array]
            found[name.replace("layers.0.", "layers.")] = Tensor(t.kind, np.stack(both))
        elif "layers." not in name:
            found[name] = t
    return found


@pytest.mark.parametrize("kind,cuts", [("F32", (2, 1)), ("F32", (1, 2)), ("BF16", (4, 2))])
@pytest.mark.parametrize("stack", [False, True])
def test_zarr(tmp_path, kind, cuts, stack):
    tensors = small_gpt() if kind == "F32" else make.as_bf16(small_gpt())
    more = {**(stacked(tensors) if stack else tensors), "optimizer.state.exp_avg": Tensor(kind, tensors[NAME].array)}
    same_tensors(imported(tmp_path, write_zarr(tmp_path / "parts", more, cuts)), tensors)


@pytest.mark.parametrize("described,words", [
    ({"compressor": {"id": "blosc"}}, "is compressed, filtered or in another order"), ({"order": "F"}, "another order"),
    ({"dtype": "<i8"}, "has the type <i8"), ({"shape": [0]}, "has no shape and chunks"),
    ({"chunks": [1 << 30, 1 << 30]}, "has"), ({"shape": [1 << 30, 1 << 30], "chunks": [1, 1]}, "has")])
def test_zarr_that_is_not_read(tmp_path, described, words):
    done = convert(tmp_path, write_zarr(tmp_path / "parts", small_gpt(), (1, 1), **described))
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_zarr_with_holes(tmp_path):
    folder = write_zarr(tmp_path / "parts", small_gpt(), (2, 1))
    (folder / NAME / "1.0").unlink()
    done = convert(tmp_path, folder)
    assert done.returncode == 1 and f"holds no {NAME}/1.0" in done.stderr, done.stderr
