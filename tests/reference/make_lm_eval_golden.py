"""Writes tests/clients/lm_eval.json: what lm-eval's own `hf` backend answers to the tasks of tests/clients/lm_tasks.py.

    python tests/reference/make_lm_eval_golden.py

Needs lm-eval, torch, transformers and accelerate. tests/clients compares the server with it."""
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))
import lm_tasks  # noqa: E402

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "tasks").mkdir()
    model = lm_tasks.write_model(folder / "model")
    tasks = lm_tasks.write_tasks(folder / "tasks")
    # lm-eval asks a server's tokenizer for ids without the mark that begins a text; its own backend is told the same.
    arguments = {"pretrained": str(model), "dtype": "float32", "max_length": 512, "add_bos_token": False}
    found = lm_tasks.evaluate("hf", arguments, tasks, device="cpu", batch_size=1)
(ROOT / "tests/clients/lm_eval.json").write_text(json.dumps(found, indent=1) + "\n")
