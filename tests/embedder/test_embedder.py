"""The embedder against sentence-transformers: 200 texts, cosine at least 0.9999 (fixture: tests/reference)."""
import json
import os
import pathlib
import signal
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
MODEL = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server")) / "minilm"
GOLDEN = ROOT / "tests/golden/embedder"


def reference():
    raw = (GOLDEN / "vectors.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8:8 + size])["vectors"]
    start, end = entry["data_offsets"]
    return np.frombuffer(raw[8 + size + start:8 + size + end], dtype="<f4").reshape(entry["shape"])


def embed(lines, *options):
    done = subprocess.run([EVAL, "embed", *options, MODEL, "-"], input="".join(line + "\n" for line in lines),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.array([json.loads(line) for line in done.stdout.split("\n") if line], dtype=np.float32)


@pytest.mark.parametrize("dtype,least", [("f32", 0.9999), ("bf16", 0.999), ("f16", 0.9999)])
def test_vectors_match(dtype, least):
    lines = [line for line in (GOLDEN / "texts.jsonl").read_text(encoding="utf-8").split("\n") if line]
    want, got = reference(), embed(lines, "--set", f"retrieval.embedder_dtype={dtype}")
    assert got.shape == want.shape
    cosine = (want * got).sum(1) / np.linalg.norm(want, axis=1) / np.linalg.norm(got, axis=1)
    assert cosine.min() >= least, (cosine.min(), lines[int(cosine.argmin())][:80])


def test_pooling_beside_a_transformer_is_read(tmp_path):
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer.json"):
        if (MODEL / name).exists():
            (tmp_path / name).symlink_to(MODEL / name)
    (tmp_path / "1_Pooling").mkdir()
    done = []
    for flags in ({"pooling_mode_mean_tokens": True}, {"pooling_mode_cls_token": True}, {"pooling_mode_first": True}):
        (tmp_path / "1_Pooling/config.json").write_text(json.dumps(flags))
        done.append(subprocess.run([EVAL, "embed", tmp_path, "two words"], capture_output=True, text=True))
    assert [d.returncode for d in done] == [0, 0, 1]
    mean, cls = (np.array(json.loads(d.stdout)) for d in done[:2])
    mean, cls = (v / np.linalg.norm(v) for v in (mean, cls))
    assert (mean * cls).sum() < 0.99
    assert "pooling_mode_first is a pooling mode that is not supported" in done[2].stderr


def test_a_page_that_is_gone_is_explained():
    """As it is where a mapped file was cut while it was in use: the system sends SIGBUS."""
    command = [EVAL, "embed", MODEL, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdin.write('{"text": "a text"}\n' * 200)
        process.stdin.flush()
        assert process.stdout.readline()  # it is under way
        process.send_signal(signal.SIGBUS)
        assert process.wait(60) == 1
        assert "retro-eval: a page of memory cannot be read: " in process.stderr.read()
