"""docs/training.md, followed literally: the blocks that need PyTorch, in order, in a folder that looks like the checkout."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- not run: [^\n]*tests/train/test_docs.py runs it -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_can_be_followed(tmp_path, build, deps):
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".git"):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "build").symlink_to(build)
    blocks = BLOCK.findall((ROOT / "docs/training.md").read_text())
    assert len(blocks) == 5
    # The environment is the one that this test runs in; the embedder's folder is named, not found by HOME.
    activate = f'export PATH="{Path(sys.executable).parent}:$PATH" PYTHONPATH="{ROOT}/tools"\n'
    script = "set -euo pipefail\n" + "".join(blocks).replace(". ~/.cache/retro-server/train-venv/bin/activate\n", activate)
    script = script.replace("$HOME/.cache/retro-server", str(deps)).replace("--documents docs", f"--documents docs --embedder {deps}/minilm")
    # One thread: on a busy machine two wait for each other at every small product.
    process = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # bash and what it runs
        output = process.communicate()[0] + "\nstill running after 400 s"
    assert process.returncode == 0, output[-3000:]
    ours = re.findall(r"^  (on|off|random) +([0-9.]+) bits/byte", output, re.MULTILINE)
    theirs = re.findall(r"([0-9.]+) \(", re.search(r"^all +\d+ .*", output, re.MULTILINE)[0])
    assert [mode for mode, _ in ours] == ["on", "off", "random"]
    for (_, value), other in zip(ours, theirs, strict=True):
        assert abs(float(value) - float(other)) < 1.5e-4
    card = (tmp_path / "small/model/README.md").read_text()
    assert "## Measured" in card and "on against off" in card
