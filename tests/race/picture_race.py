"""tests/race/picture_race.py: resizing by retro-eval picture against Pillow's resize, on one core.

    python picture_race.py --build build [--rounds N] [--json FILE]

Needs Pillow. Ours decodes the picture first, which is not timed, and makes planes of floats of the result, which is.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import numpy as np
import race
from PIL import Image

SIZES = (((4000, 3000), (448, 336)), ((1600, 1200), (448, 336)), ((640, 480), (448, 336)), ((336, 252), (448, 336)))
FILTERS = {"bilinear": 2, "bicubic": 3, "lanczos": 1}
TIMES = 9


def pillow(image, size, number):
    times = []
    for _ in range(TIMES):
        start = time.perf_counter()
        image.resize(size, number)
        times.append(time.perf_counter() - start)
    return sorted(times)[TIMES // 2]


def ours(build, folder, size, number):
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"width": size[0], "height": size[1]},
                 "resample": number, "do_rescale": False, "do_normalize": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    command = [f"{build}/retro-eval", "picture", "--rounds", str(TIMES), folder / "picture.png", folder]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"preparing: ([\d.]+) ms", out)[1]) / 1e3


def measure(one):
    with race.Others() as others:
        seconds = one()
    return {"rate": 1 / seconds, "others": others.cpus}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    a = parser.parse_args()
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for given, wanted in SIZES:
            pixels = np.random.default_rng(0).integers(0, 256, (given[1], given[0], 3), dtype=np.uint8)
            image = Image.fromarray(pixels)
            image.save(folder / "picture.png", compress_level=0)
            for filter_name, number in FILTERS.items():
                entries = {"retro": lambda: measure(lambda: ours(a.build, folder, wanted, number)),
                           "Pillow": lambda: measure(lambda: pillow(image, wanted, number))}
                results = race.run_rounds("picture", entries, a.rounds, a.json)
                title = f"{given[0]} x {given[1]} to {wanted[0]} x {wanted[1]}, {filter_name}"
                race.print_results(title, results, {"rate": "pictures/s"}, [("retro / Pillow", "rate", "retro", ["Pillow"])])


if __name__ == "__main__":
    main()
