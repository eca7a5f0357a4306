"""deepseek2 as older files have it, made here of the file in tests/golden/gguf: keys and values of all heads in one tensor, which may
be quantised, and sizes of heads as they are made of latents; and keys that newer files have."""
import json
import shutil
import struct

import numpy as np
import pytest
from test_gguf import GOLDEN, converted, parity, run
from test_gguf_gpt_oss import F32, write_gguf

Q8_0 = 8
KEYS = "attn_k_b.weight", "attn_v_b.weight"


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def number(self, form):
        out = struct.unpack_from("<" + form, self.raw, self.at)[0]
        self.at += struct.calcsize(form)
        return out

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.raw[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(n)]
        return self.number({4: "I", 5: "i", 6: "f", 7: "?"}[kind])


def read_gguf(path):
    """The keys, and the tensors as f32."""
    reader = Reader(path.read_bytes())
    assert reader.number("I") == 0x46554747 and reader.number("I") == 3
    n_tensors, n_keys = reader.number("Q"), reader.number("Q")
    keys = {reader.text(): reader.value(reader.number("I")) for _ in range(n_keys)}
    heads = []
    for _ in range(n_tensors):
        name, dims = reader.text(), reader.number("I")
        shape = [reader.number("Q") for _ in range(dims)][::-1]
        assert reader.number("I") == F32
        heads.append((name, shape, reader.number("Q")))
    start = -(-reader.at // 32) * 32
    return keys, {name: np.frombuffer(reader.raw, "<f4", int(np.prod(shape)), start + at).reshape(shape) for name, shape, at in heads}


def blocks(t):
    """Q8_0."""
    rows = t.reshape(-1, 32)
    scales = (np.abs(rows).max(1) / 127).astype("<f2")
    whole = np.rint(rows / np.maximum(scales.astype("<f4"), 1e-20)[:, None]).astype("i1")
    return b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, whole))


def older(keys, tensors):
    """Latents that no block fits are kept as floats."""
    own = {key.removeprefix("deepseek2."): v for key, v in keys.items() if key.startswith("deepseek2.")}
    own |= {"attention.key_length": own.pop("attention.key_length_mla"), "attention.value_length": own.pop("attention.value_length_mla"),
            "attention.head_count_kv": own["attention.head_count"]}
    out = {name: t for name, t in tensors.items() if not name.endswith(KEYS)}
    for name, t in tensors.items():
        if name.endswith(KEYS[0]):
            block = name.removesuffix(KEYS[0])
            both = np.concatenate([t.swapaxes(1, 2), tensors[block + KEYS[1]]], 1)
            out[block + "attn_kv_b.weight"] = both.reshape(-1, both.shape[-1])
    return {key: v for key, v in keys.items() if not key.startswith("deepseek2.")} | {f"deepseek2.{key}": v for key, v in own.items()}, out


def write(folder, keys, tensors, quantised=False):
    folder.mkdir()
    shapes = {name: list(t.shape) for name, t in tensors.items()}
    data = {name: (F32, shapes[name], np.ascontiguousarray(t, "<f4").tobytes()) for name, t in tensors.items()}
    if quantised:
        data |= {name: (Q8_0, shapes[name], blocks(t)) for name, t in tensors.items() if name.endswith("attn_kv_b.weight")}
    write_gguf(folder / "model.gguf", keys, data)
    shutil.copy(GOLDEN / "deepseek2_lite/cases.safetensors", folder)
    return folder


@pytest.fixture(scope="module")
def files():
    return older(*read_gguf(GOLDEN / "deepseek2_lite/model.gguf"))


def test_one_tensor_of_all_heads(files, tmp_path):
    keys, tensors = files
    assert any(name.endswith("attn_kv_b.weight") for name in tensors) and not any(name.endswith(KEYS) for name in tensors)
    parity(write(tmp_path / "older", keys, tensors), "1e-4")


def test_blocks_of_all_heads(files, tmp_path):
    """Rounded to blocks: measured 0.11, where a wrong order differs by whole logits."""
    keys, tensors = files
    parity(write(tmp_path / "blocks", keys, tensors, True), "0.5")


def test_keys_of_sampling(files, tmp_path):
    """Newer files have them: what requests get that do not say, and a file of the folder that is made."""
    keys, tensors = files
    folder = write(tmp_path / "sampling", keys | {"general.sampling.temp": 0.5, "general.sampling.top_k": 20}, tensors)
    shown = run("retro-server", "--set", f"model.path={folder}/model.gguf", "--print-config").stderr
    assert f"get temperature 0.5, top_k 20, from {folder}/model.gguf: general.sampling" in shown
    made = converted(folder, tmp_path / "folder", "f32")
    assert json.loads((made / "generation_config.json").read_text()) == {"temperature": 0.5, "top_k": 20}
    assert not (converted(GOLDEN / "qwen3", tmp_path / "without", "f32") / "generation_config.json").exists()
