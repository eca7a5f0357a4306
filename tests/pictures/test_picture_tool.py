"""retro-eval picture: the lines that it prints, and the pixels that it writes. tests/unit/test_pictures.c checks every file."""
import array
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
DECODED = [line.split() for line in (HERE / "decoded.txt").read_text().splitlines()]
PREPARED = [line.split(" ", 5) for line in (HERE / "prepared.txt").read_text().splitlines()]


def picture(*arguments):
    return subprocess.run([PROGRAM, "picture", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


@pytest.mark.parametrize("name, width, height, checksum", [DECODED[0], DECODED[18], DECODED[-1]])
def test_rows_are_written(tmp_path, name, width, height, checksum):
    done = picture("--out", tmp_path / "rows", HERE / name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f", {width} x {height} pixels\n")
    assert fnv((tmp_path / "rows").read_bytes()) == checksum


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("line", [PREPARED[0], PREPARED[53], PREPARED[-1]])
def test_input_is_written(tmp_path, line, folder):
    name, tiles, height, width, checksum, processor = line
    (tmp_path / "preprocessor_config.json").write_text(processor)
    model = tmp_path if folder else tmp_path / "preprocessor_config.json"
    done = picture("--out", tmp_path / "input", HERE / name, model)
    assert done.returncode == 0, done.stderr
    assert f"input: {tiles} x 3 x {height} x {width}" in done.stdout
    assert fnv((tmp_path / "input").read_bytes()) == checksum


def test_processor_of_a_newer_folder(tmp_path):
    """Where preprocessor_config.json is missing, processor_config.json has the processor as a part."""
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": json.loads(PREPARED[0][5])}))
    done = picture("--out", tmp_path / "input", HERE / PREPARED[0][0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert fnv((tmp_path / "input").read_bytes()) == PREPARED[0][4]


def test_values_without_scaling_are_levels(tmp_path):
    """Planes, not rows of RGB: the first third of the input is red."""
    keys = {"image_processor_type": "ViTImageProcessor", "do_resize": False, "do_rescale": False, "do_normalize": False}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(keys))
    assert picture("--out", tmp_path / "rows", HERE / "color.png").returncode == 0
    assert picture("--out", tmp_path / "input", HERE / "color.png", tmp_path).returncode == 0
    rows, values = (tmp_path / "rows").read_bytes(), array.array("f", (tmp_path / "input").read_bytes())
    assert list(values) == [*rows[0::3], *rows[1::3], *rows[2::3]]


def test_medians_are_printed():
    done = picture("--rounds", 3, HERE / "color.png")
    assert done.returncode == 0 and "decoding: " in done.stdout and "preparing" not in done.stdout


@pytest.mark.parametrize("arguments, words", [
    (["nowhere.png"], "nowhere.png"),
    ([HERE / "decoded.txt"], "JPEG, PNG, WebP or GIF"),
    ([HERE / "color.png", HERE], "preprocessor_config.json is missing"),
    ([HERE / "color.png", "a", "b"], "expected PICTURE"),
    (["--out", "/nowhere/rows", HERE / "color.png"], "/nowhere/rows"),
])
def test_refusals(arguments, words):
    done = picture(*arguments)
    assert done.returncode == 1 and words in done.stderr, done.stderr
