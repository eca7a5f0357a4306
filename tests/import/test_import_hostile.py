"""retro-convert on files that were made to do harm, or damaged: each is refused by what is wrong with it, nothing of it
runs, and nothing is left."""
import io
import os
import pathlib
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402

MEMORY = 2 << 30


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def refused(tmp_path, words, data=None):
    """The bytes as the only file of a checkpoint."""
    folder = tmp_path / "parts/release/mp_rank_00"
    if data is not None:
        folder.mkdir(parents=True)
        (tmp_path / "parts/latest_checkpointed_iteration.txt").write_text("release\n")
        (folder / "model_optim_rng.pt").write_bytes(data)
    sanitized = "asan" in str(BUILD) or "san" in str(BUILD.name)
    command = [BUILD / "retro-convert", "--from", tmp_path / "parts", "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60,
                          preexec_fn=None if sanitized else limit)
    assert done.returncode == 1 and words in done.stderr, (done.returncode, done.stderr)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["parts"]


def zipped(pickled, *files):
    """A file of torch.save around a pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/data.pkl", pickled)
        for name, data in files:
            z.writestr(name, data)
    return out.getvalue()


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


FUNCTIONS = ("posix.system", "os.system", "builtins.eval", "__builtin__.exec", "builtins.__import__", "subprocess.Popen",
             "commands.getoutput", "importlib.import_module", "runpy.run_path", "shutil.rmtree", "pickle.loads",
             "operator.attrgetter", "torch.hub.load", "socket.create_connection")


def named(name):
    """A pickle that names a function by its text, whatever its module is here."""
    module, function = name.rsplit(".", 1)
    return b"\x80\x02c" + f"{module}\n{function}\n".encode() + b"X\x0e\0\0\0touch was-here\x85R."


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_by_name(tmp_path, name):
    refused(tmp_path, f"names the function {name}, which no checkpoint has a use for: refused", zipped(named(name)))


def test_a_pickle_that_runs_in_python(tmp_path):
    """The same as Python writes it: loading it there makes the file."""
    pickled = pickle.dumps({"model": {}, "args": Call(os.system, f"touch {tmp_path}/was-here")}, 2)
    refused(tmp_path, "names the function posix.system", zipped(pickled))
    pickle.loads(pickled)
    assert (tmp_path / "was-here").exists()


def test_protocol_4_names(tmp_path):
    pickled = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0etouch was-here\x85R."
    refused(tmp_path, "names the function os.system", zipped(pickled))


def test_nested_calls(tmp_path):
    """A call within the arguments of another, within a tensor's."""
    inner = Call(os.popen, "touch was-here")
    refused(tmp_path, "names the function os.popen", zipped(pickle.dumps({"model": {"a": Call(list, (inner,))}}, 2)))


def test_unknown_classes_do_nothing(tmp_path):
    """A class of no known module is a value without behaviour; here it is the whole model."""
    pickled = b"\x80\x02}(X\x05\0\0\0modelcevil.module\nRun\n)Ru."
    refused(tmp_path, 'holds no "model"', zipped(pickled))


def test_dicts_without_end(tmp_path):
    """A dict that holds itself."""
    pickled = b"\x80\x02}q\0X\x05\0\0\0modelh\0s."
    refused(tmp_path, "dicts lie too deep", zipped(pickled))


def test_dicts_that_multiply(tmp_path):
    """Ten levels of a hundred names for one dict each: 10^20 entries in a few kilobytes."""
    value = {"x": 1}
    for _ in range(10):
        value = {f"n{i}": value for i in range(100)}
    refused(tmp_path, "holds more than", zipped(pickle.dumps({"model": value}, 2)))


@pytest.mark.parametrize("pickled,words", ids=range(14), argvalues=[
    (b"\x80\x02X\xff\xff\xff\x7fabc.", "a value is longer than the file"),
    (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.", "a frame is longer than the file"),
    (b"\x80\x02}r\xff\xff\xff\xff.", "numbers a value beyond what the file can hold"),
    (b"\x80\x02h\x07.", "recalls a value that was never numbered"),
    (b"\x80\x02}", "the file ends before it does"),
    (b"\x80\x02.", "from an empty stack"),
    (b"\x80\x02u.", "ends a list that has no beginning"),
    (b"\x80\x09}.", "a protocol that is not known"),
    (b"(i__main__\nX\n.", "opcode 0x69 is not read"),
    (b"\x80\x02\x82\x01.", "opcode 0x82 is not read"),
    (b"\x80\x02c" + b"a" * 1000 + b"\nx\n.", "a name has no end"),
    (b"\x80\x02" + b"(" * (5 << 20), "too many lists are open"),
    (b"\x80\x02}" + b"2" * (5 << 20), "the stack grows too high"),
    (b"\x80\x02" + b"]0" * (6 << 20) + b"].", "takes more than 512 MB of memory")])
def test_broken_pickles(tmp_path, pickled, words):
    refused(tmp_path, words, zipped(pickled))


def checkpoint(tmp_path, change=None, **tensors):
    """A checkpoint whose zip is changed after it was written."""
    args = make.namespace(num_layers=1, tensor_model_parallel_size=1, pipeline_model_parallel_size=1)
    tensors = tensors or {"embedding.word_embeddings.weight": Tensor("F32", np.zeros((4, 4), "<f4"))}
    inner = make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, args)
    path = inner / "mp_rank_00/model_optim_rng.pt"
    if change:
        path.write_bytes(change(path.read_bytes()))


def test_storage_that_is_too_short(tmp_path):
    def change(raw):
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name)[:20] if "/data/" in name else old.read(name))
        return out.getvalue()

    checkpoint(tmp_path, change)
    refused(tmp_path, "reaches beyond the end of its storage")


@pytest.mark.parametrize("old,new,words", ids=["longer", "turned", "repeated", "empty", "wordless"], argvalues=[
    (b"K\x04K\x04\x86", b"K\x05K\x04\x86", "reaches beyond the end of its storage"),
    (b"K\x04K\x01\x86", b"K\x01K\x04\x86", "has strides that leave gaps or turn it"),
    (b"K\x04K\x01\x86", b"K\x00K\x00\x86", "has strides that leave gaps or turn it"),
    (b"K\x04K\x04\x86", b"K\x00K\x04\x86", "has an axis that is empty or no number"),
    (b"K\x04K\x04\x86", b"NK\x04\x860", "has no shape that is read")])
def test_lying_shapes(tmp_path, old, new, words):
    def change(raw):
        assert raw.count(old) >= 1 and len(old) == len(new)
        return raw.replace(old, new)

    checkpoint(tmp_path, change)
    refused(tmp_path, words)


def rewritten(old, new):
    """Changes the pickle of a file, whose length may change."""
    def change(raw):
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(raw)) as before, zipfile.ZipFile(out, "w") as after:
            for name in before.namelist():
                data = before.read(name)
                assert not name.endswith("data.pkl") or old in data
                after.writestr(name, data.replace(old, new, 1) if name.endswith("data.pkl") else data)
        return out.getvalue()
    return change


@pytest.mark.parametrize("count,words", ids=["nan", "real", "none", "negative", "text", "huge", "too many"], argvalues=[
    (b"G\x7f\xf8" + bytes(6), "whose number of elements is no whole number"),
    (b"G" + struct.pack(">d", 16.0), "whose number of elements is no whole number"),
    (b"N", "whose number of elements is no whole number"),
    (b"J\xff\xff\xff\xff", "whose number of elements is no whole number"),
    (b"X\x02\0\0\x0016", "whose number of elements is no whole number"),
    (b"\x8a\x09" + b"\xff" * 8 + b"\0", "whose number of elements is no whole number"),
    (b"K\x11", "lies in a storage of fewer elements than it says")])
def test_lying_counts(tmp_path, count, words):
    """The number of elements of a storage, which torch writes beside its name."""
    checkpoint(tmp_path, rewritten(b"K\x10t", count + b"t"))
    refused(tmp_path, words)


@pytest.mark.parametrize("at,words", ids=["negative", "huge", "nan"], argvalues=[
    (b"J\xff\xff\xff\xff", "reaches beyond the end of its storage"),
    (b"\x8a\x08" + b"\xff" * 7 + b"\x7f", "reaches beyond the end of its storage"),
    (b"G\x7f\xf8" + bytes(6), "names no storage")])
def test_lying_offsets(tmp_path, at, words):
    checkpoint(tmp_path, rewritten(b"QK\0", b"Q" + at))
    refused(tmp_path, words)


@pytest.mark.parametrize("size,words", ids=["negative", "product", "nan", "stride"], argvalues=[
    (b"J\xff\xff\xff\xffK\x04\x86", "has an axis that is empty or no number"),
    (b"\x8a\x08" + b"\0" * 7 + b"\x40\x8a\x08" + b"\0" * 7 + b"\x40\x86", "is larger than any memory"),
    (b"G\x7f\xf8" + bytes(6) + b"K\x04\x86", "has an axis that is empty or no number"),
    (b"K\x04K\x04\x86J\xfc\xff\xff\xffJ\xff\xff\xff\xff\x86q\x61", "strides")])
def test_lying_sizes(tmp_path, size, words):
    checkpoint(tmp_path, rewritten(b"K\x04K\x04\x86", size))
    refused(tmp_path, words)


def two_tensors(key, at):
    """The second of two tensors lies in the storage `key`, from element `at` on."""
    def change(raw):
        assert raw.count(b"X\1\0\0\x001") == 1 and raw.count(b"QK\0") == 2
        first, second = raw.split(b"QK\0", 1)
        raw = first + b"QK\0" + second.replace(b"QK\0", b"QK" + bytes([at]), 1)
        return raw.replace(b"X\1\0\0\x001", b"X\1\0\0\0" + key, 1)
    return change


def test_halves_of_two_weights(tmp_path):
    """One tensor is a part of another's bytes."""
    zeros = Tensor("F32", np.zeros((6, 4), "<f4")), Tensor("F32", np.zeros((4, 4), "<f4"))
    checkpoint(tmp_path, two_tensors(b"0", 4), **dict(zip(("a", "b"), zeros)))
    refused(tmp_path, "a and b share a part of their bytes, as no two weights do")


def test_tied_weights_are_no_halves(tmp_path):
    """All of another's bytes are: the same weight under two names."""
    zeros = Tensor("F32", np.zeros((4, 4), "<f4"))
    checkpoint(tmp_path, two_tensors(b"0", 0), a=zeros, b=zeros)
    refused(tmp_path, "holds no layers")


@pytest.mark.parametrize("name", ["norm_epsilon", "rotary_base"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_arguments_that_are_no_numbers(tmp_path, name, value):
    layer = {f"decoder.layers.0.{name}": Tensor("F32", np.zeros((4, 4), "<f4"))
             for name in ("mlp.linear_fc1.weight", "mlp.linear_fc2.weight")}
    tensors = {"embedding.word_embeddings.weight": Tensor("F32", np.zeros((4, 4), "<f4")), **layer}
    args = make.namespace(num_layers=1, num_attention_heads=1, position_embedding_type="rope", **{name: value})
    make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, args)
    refused(tmp_path, f"the argument {name} is {value:g}, which is no number of a model's")


def test_compressed_bomb(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", bytes(1 << 24))
    refused(tmp_path, "is compressed (16320 bytes for 16777216); torch.save stores its files as they are".split(" (")[0],
            out.getvalue())


def test_overlapping_files(tmp_path):
    """Two entries over one file's bytes."""
    raw = bytearray(zipped(b"\x80\x02}.", ("archive/data/0", b"0123456789")))
    first = raw.index(b"PK\1\2")
    second = raw.index(b"PK\1\2", first + 1)
    raw[second + 42:second + 46] = raw[first + 42:first + 46]
    raw[second + 20:second + 28] = raw[first + 20:first + 28]
    refused(tmp_path, "two files of the zip lie over one another", bytes(raw))


def test_zip_of_lies(tmp_path):
    raw = bytearray(zipped(b"\x80\x02}."))
    end = raw.rindex(b"PK\5\6")
    raw[end + 10:end + 12] = struct.pack("<H", 9)
    refused(tmp_path, "the zip's directory is shorter than its end record says", bytes(raw))


@pytest.mark.parametrize("data,words", [
    (b"", "no zip, and so no file of torch.save"), (b"PK not really", "too short for a zip"),
    (b"PK" + bytes(100), "the zip has no end record"), (pickle.dumps({}, 2), "PyTorch before 1.6 wrote it")])
def test_no_zip(tmp_path, data, words):
    refused(tmp_path, words, data)


def test_big_endian(tmp_path):
    refused(tmp_path, "was written on a big-endian machine", zipped(b"\x80\x02}.", ("archive/byteorder", b"big")))


def test_two_pickles(tmp_path):
    refused(tmp_path, "holds two pickles", zipped(b"\x80\x02}.", ("other/data.pkl", b"\x80\x02}.")))


def test_every_cut(tmp_path):
    """A file that was cut off anywhere is refused, whatever is left of it."""
    checkpoint(tmp_path)
    path = tmp_path / "parts/iter_0000001/mp_rank_00/model_optim_rng.pt"
    raw = path.read_bytes()
    for size in range(0, len(raw), max(1, len(raw) // 20)):
        path.write_bytes(raw[:size])
        refused(tmp_path, "retro-convert: ")
    shutil.rmtree(tmp_path / "parts")
