"""make_weights_corpus.py BUILD OUT: the seeds of tests/fuzz/fuzz_safetensors.c that are whole models: its config.json with
random weights as f32, and what retro-convert makes of them. Needs numpy."""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {
    "embedding.word_embeddings.weight": [8, 32],
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight": [32],
    "decoder.layers.0.self_attention.linear_qkv.weight": [96, 32],
    "decoder.layers.0.self_attention.linear_proj.weight": [32, 32],
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight": [32],
    "decoder.layers.0.mlp.linear_fc1.weight": [64, 32],
    "decoder.layers.0.mlp.linear_fc2.weight": [32, 32],
}


def main(build, out):
    source = (ROOT / "tests/fuzz/fuzz_safetensors.c").read_text()
    literal = re.search(r"config\[\] =\n(.*?);\n", source, re.S)[1]
    config = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literal)).replace('\\"', '"')
    rng, header, data = np.random.default_rng(1), {}, b""
    for name, shape in SHAPES.items():
        raw = rng.standard_normal(shape, dtype=np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "f32"
        model.mkdir()
        (model / "config.json").write_text(config)
        text = json.dumps(header).encode()
        (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        for to, source in (("int8", "f32"), ("int4", "f32"), ("packed", "int4")):
            target = pathlib.Path(folder) / to
            subprocess.run([build / "retro-convert", model.parent / source, target, "--to", to], check=True)
            written = target / ("model.packed" if to == "packed" else "model.safetensors")
            (out / f"model_{to}").write_bytes(written.read_bytes())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
