"""Files of vision towers whose numbers, shapes or names are wrong, beside models that they go with: the start refuses such a file in
words, but for numbers that mean nothing, and never dies. tests/fuzz/fuzz_mmproj.c tries what else there is."""
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden/mmproj"
NAMES = ["gemma3_served", "gemma4_served", "llava_next_served", "mistral3_served", "qwen3_vl_served"]
# Keys that mean nothing: in all towers, and in one.
IDLE = ("projection_dim", "crop_resolution", "split_resolution")
IDLE_IN = {"gemma4_served": ("image_size",), "qwen3_vl_served": ("image_size", "layer_norm_epsilon")}
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a number, by its type
TEXT, LIST, F32 = 8, 9, 6


class File:
    """Where the numbers of keys, and the names and dimensions of tensors, lie in a GGUF file."""

    def __init__(self, data):
        self.data, self.at, self.keys, self.tensors = data, 8, {}, {}
        n_tensors, n_keys = self.number("Q"), self.number("Q")
        for _ in range(n_keys):
            name = self.text()
            self.keys[name] = self.value(self.number("I"))
        for _ in range(n_tensors):
            begin, name = self.at + 8, self.text()
            dims = self.number("I")
            self.tensors[name] = (begin, self.at, dims)
            self.at += 8 * dims + 12

    def number(self, form):
        self.at += struct.calcsize(form)
        return struct.unpack_from("<" + form, self.data, self.at - struct.calcsize(form))[0]

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        """The type and place of a number, or of the first one of a list; None: a text."""
        if kind == TEXT:
            self.text()
            return None
        if kind != LIST:
            self.at += SIZES[kind]
            return kind, self.at - SIZES[kind]
        kind, n = self.number("I"), self.number("Q")
        if kind == TEXT:
            for _ in range(n):
                self.text()
            return None
        self.at += n * SIZES[kind]
        return kind, self.at - n * SIZES[kind]

    def with_bytes(self, at, new):
        return self.data[:at] + new + self.data[at + len(new):]


def numbers_for(kind):
    if kind == F32:
        return [struct.pack("<f", v) for v in (float("inf"), float("nan"))]
    return [b"\0" * SIZES[kind], b"\xff" * SIZES[kind]]


def wrong_numbers(file, model):
    for name, place in file.keys.items():
        if place and name.startswith("clip.vision.") and not name.endswith((*IDLE, *IDLE_IN.get(model, ()))):
            for new in numbers_for(place[0]):
                yield f"{name} = {new.hex()}", file.with_bytes(place[1], new)


def wrong_tensors(file, _):
    """Of each kind of tensor one without its name and one with a huge side, of matrices one turned round."""
    for name in {name.replace(".1.", ".0."): name for name in file.tensors}.values():
        begin, dims, n = file.tensors[name]
        sides = [file.data[dims + 8 * i:dims + 8 * i + 8] for i in range(n)]
        yield f"{name} is missing", file.with_bytes(begin, b"X")
        yield f"{name} has a huge side", file.with_bytes(dims, struct.pack("<Q", 2 ** 63))
        if sides != sides[::-1]:
            yield f"{name} is turned", file.with_bytes(dims, b"".join(sides[::-1]))


def start(folder):
    command = [BUILD / "retro-server", "--check-config", "--set", f"model.path={folder / 'model.gguf'}", "--set", "server.max_context=300"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("wrong", [wrong_numbers, wrong_tensors])
@pytest.mark.parametrize("name", NAMES)
def test_wrong_files_are_refused_in_words(name, wrong, tmp_path):
    shutil.copy(GOLDEN / name / "model.gguf", tmp_path)
    file, tower = File((GOLDEN / name / "mmproj-tiny.gguf").read_bytes()), tmp_path / "mmproj-tiny.gguf"
    tower.write_bytes(file.data)
    right = start(tmp_path)
    assert right.returncode == 0, right.stderr
    for what, data in wrong(file, name):
        tower.write_bytes(data)
        done = start(tmp_path)
        assert done.returncode == 1 and ".gguf" in done.stderr, (what, done)
