"""Pictures of any size: server.max_picture_patches, and processors that do not fit the tower of Qwen2.5-VL."""
import base64
import json
import shutil
import struct
import subprocess
import zlib

import openai
import pytest
from conftest import BUILD, ROOT, Server

FOLDER = ROOT / "tests/golden/qwen_vl_served"  # patches of 4 pixels, four of which are a token
LLAVA = ROOT / "tests/golden/llava_served"
PATCHES = 64


def png(width, height):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    lines = (b"\0" + b"\x40\x80\xc0" * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def count(server, *sizes):
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(*size)).decode()}}
             for size in sizes]
    reply = server.client().chat.completions.create(
        model="seer", messages=[{"role": "user", "content": [*parts, {"type": "text", "text": "?"}]}], max_tokens=1)
    return reply.usage.prompt_tokens


def test_large_pictures_are_made_smaller(tmp_path):
    config = tmp_path / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(FOLDER), "name": "seer", "dtype": "f32"},
                                  "server": {"port": 0, "max_context": 400, "max_picture_patches": PATCHES}}))
    server = Server(config, tmp_path)
    try:
        log = server.log.read_text()
        assert "in at most 64 rows" in log and "more than 1024 pixels are made smaller by server.max_picture_patches" in log
        text = count(server)
        around = count(server, (16, 16)) - text - 4
        for width, height, rows in [(32, 32, 16), (40, 40, 16), (300, 200, 12), (20, 200, 12), (3, 2, 6)]:
            assert count(server, (width, height)) == text + around + rows, (width, height)
        with pytest.raises(openai.BadRequestError, match="208 rows of the tower; the limit is 64 .server.max_picture_patches"):
            count(server, (1400, 8))
        with pytest.raises(openai.BadRequestError, match="more than 200 times as long"):
            count(server, (1400, 6))
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("model, processor, keys, words", [
    (FOLDER, FOLDER, {"patch_size": 7}, "\"patch_size\" 7, \"merge_size\" 2 and \"temporal_patch_size\" 2, the model's tower 4, 2 and 2"),
    (FOLDER, FOLDER, {"merge_size": 1}, "\"merge_size\" 1"),
    (FOLDER, FOLDER, {"temporal_patch_size": 1}, "\"temporal_patch_size\" 1"),
    (FOLDER, LLAVA, {}, "does not make what the model reads: pictures of any shape as Qwen2-VL's or Gemma 4's"),
    (LLAVA, FOLDER, {}, "does not make what the model reads: whole pictures"),
])
def test_processors_that_do_not_fit_are_refused(tmp_path, model, processor, keys, words):
    folder = shutil.copytree(model, tmp_path / "model")
    file = json.loads((processor / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(file | keys))
    command = [BUILD / "retro-server", "--set", f"model.path={folder}", "--set", "server.port=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and words in done.stderr, done.stderr
