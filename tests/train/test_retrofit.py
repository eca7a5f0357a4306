"""Retro-fit of tiny Hugging Face checkpoints: the base's logits before and after training, and the server's own programs on
the result. The reference logits are those of transformers (tests/golden/hf)."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import standin
import torch
from retro_train import export, retrofit, tokenizer
from retro_train.evaluate import evaluate
from retro_train.model import Neighbours
from retro_train.neighbours import Collection, read_neighbours
from retro_train.train import train
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).resolve().parents[1] / "golden/hf"
RETRIEVAL = {"retro_layers": [2, 3], "retro_chunk_length": 8, "retro_num_neighbors": 2}
# Reference logits are in float32; in qwen2_bf16 only the weights were rounded.
BASES = ["llama", "gpt2", "qwen2_bf16", "gpt_neox"]


def retrieval_of(base):
    return RETRIEVAL | ({"retro_layers": [2]} if base == "qwen2_bf16" else {})


def with_eod(tmp_path, base):
    """The checkpoint, with an end-of-document id inside of its 250 words where config.json names none or a larger one."""
    folder = tmp_path / "base"
    shutil.copytree(GOLDEN / base, folder)
    config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def reference(base):
    cases = load_file(GOLDEN / base / "cases.safetensors")
    return cases["b2.input_ids"].long(), cases["b2.logits"], cases.get("b2.attention_mask")


@pytest.mark.parametrize("base", BASES)
@torch.no_grad()
def test_before_training_the_model_is_its_base(tmp_path, base):
    model = retrofit.convert(with_eod(tmp_path, base), retrieval_of(base))
    ids, logits, mask = reference(base)
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    l = -(-ids.shape[1] // 8)
    found = Neighbours(torch.randint(0, 250, (2, l, 2, 16)), torch.full((2,), ids.shape[1] % 8 or 8))
    for neighbours in (None, found):
        ours = model.logits(model.hidden(ids, neighbours))
        assert (ours - logits)[real].abs().max() < 1e-4


def test_what_the_server_cannot_compute_is_refused(tmp_path):
    folder = with_eod(tmp_path, "gpt_neox")
    config = json.loads((folder / "config.json").read_text())

    def refused(changes, why):
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ValueError, match=why):
            retrofit.convert(folder, RETRIEVAL)

    refused({"use_parallel_residual": True}, "parallel residual")
    refused({"rope_parameters": {"rope_type": "yarn", "factor": 4}}, "scaled RoPE")
    refused({"model_type": "bloom"}, "known are llama")
    refused({"eos_token_id": None}, "eos_token_id")
    with pytest.raises(ValueError, match="not"):
        retrofit.parse_retrieval('{"hidden_size": 3}')


def widen(folder, rows):
    """More rows of the word tables, so that byte-level BPE fits: 250 ids cannot hold 256 bytes."""
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": rows}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = export.load_tensors(folder)
    for name, t in tensors.items():
        if t.dim() == 2 and t.shape[0] == 250:
            tensors[name] = torch.cat([t, 0.02 * torch.randn(rows - 250, t.shape[1])])
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("base", ["llama", "gpt2", "gpt_neox"])
def test_retrofit_end_to_end(tmp_path, build, base):
    torch.manual_seed(0)
    folder = with_eod(tmp_path, base)
    widen(folder, 300)
    tokenizer.train((text for _, text in standin.documents(30)), 300).save(str(folder / "tokenizer.json"))
    model = retrofit.retrofit(folder, tmp_path / "start", RETRIEVAL)
    standin.data_folder(tmp_path / "data", model.config)  # trains the same tokenizer: same text, same size
    (tmp_path / "data/model/tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    options = {"sequence": 32, "batch": 8, "steps": 60, "warmup_steps": 5, "learning_rate": 1e-2, "evaluate_every": 0, "freeze_base": True}
    (tmp_path / "run.json").write_text(json.dumps({"start": "start", "data": "data", "train": options}))
    train(tmp_path / "run.json", tmp_path / "run")
    export.export_run(tmp_path / "run", tmp_path / "model", "f32", None, "x")
    after = export.load_model(tmp_path / "model")
    ids = torch.randint(0, 300, (1, 20))
    with torch.no_grad():
        assert torch.equal(model.hidden(ids), after.hidden(ids))  # off: the base, bit for bit
    vocabulary = tokenizer.Vocabulary(folder / "tokenizer.json")
    collection = Collection(tmp_path / "data/collection")
    documents = [vocabulary.encode(p.read_text()) for p in sorted((tmp_path / "data/documents/valid").glob("*.txt"))]
    found = read_neighbours(tmp_path / "data/valid.neighbours").ids
    modes = evaluate(after, documents, vocabulary, 32, found, collection)["modes"]
    assert modes["on"]["bits_per_byte"] < modes["off"]["bits_per_byte"] - 0.1  # a random base has much to gain
    check_in_c(tmp_path / "model", after, build)


@torch.no_grad()
def check_in_c(folder, model, build):
    """retro-eval parity loads the folder as the server does and compares with the logits of PyTorch."""
    ids, found = torch.randint(0, 300, (1, 20)), torch.randint(0, 300, (1, 3, 2, 16))
    logits = model.logits(model.hidden(ids, Neighbours(found, torch.tensor([4]))))
    save_file({"n20_b1.tokens": ids.int(), "n20_b1.neighbors": found.int(), "n20_b1.logits": logits}, folder / "cases.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"cases": [{"name": "n20_b1", "n": 20, "b": 1, "l": 3}]}
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run([build / "retro-eval", "parity", "--tolerance", "1e-4", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, build, deps):
    """A retro-fitted base as it starts, the same with cross attention that does something, and a collection for both."""
    folder = tmp_path_factory.mktemp("fitted")
    base = with_eod(folder, "llama")
    widen(base, 300)
    docs = standin.documents(30)
    tokenizer.train((text for _, text in docs), 300).save(str(base / "tokenizer.json"))
    model = retrofit.retrofit(base, folder / "start", RETRIEVAL)
    torch.manual_seed(0)
    with torch.no_grad():
        for number in model.config.retro_layers:
            weight = model.decoder.layers[number - 1].cross_attention.attn.linear_proj.weight
            weight += 0.3 * torch.randn_like(weight)
    export.write_model(folder / "moved", model, base / "tokenizer.json")
    (folder / "docs").mkdir()
    for name, text in docs[:25]:
        (folder / "docs" / name).write_text(text)
    for name, text in docs[25:]:
        (folder / name).write_text(text)
    for model_name in ("start", "moved"):
        (folder / f"{model_name}.json").write_text(json.dumps({
            "model": {"path": str(folder / model_name)}, "server": {"port": 0, "max_context": 512},
            "retrieval": {"collection": str(folder / "collection"), "embedder": str(deps / "minilm"), "prompt_tokens": 300}}))
    subprocess.run([build / "retro-index", "build", "--chunks", "grid", "--out", folder / "collection", "--config", folder / "start.json",
                    folder / "docs"], check=True, capture_output=True)
    return folder


def bits_by_mode(folder, model, build):
    """Bits per byte of each column by retrieval.mode."""
    bits = {}
    for mode in ("attention", "prompt", "both"):
        done = subprocess.run([build / "retro-eval", "ppl", "--config", folder / f"{model}.json", "--set", f"retrieval.mode={mode}",
                               "--window", "128", "--json", *sorted(folder.glob("page*.txt"))], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        bits[mode] = {name: v["bits_per_byte"] for name, v in json.loads(done.stdout)["subsets"]["all"]["modes"].items()}
    return bits


def test_modes_are_compared_on_one_model(fitted, build):
    """As it starts, cross attention adds nothing: the base with passages, or without. Then it does, in both modes that have it."""
    start, moved = (bits_by_mode(fitted, model, build) for model in ("start", "moved"))
    assert start["attention"]["on"] == start["attention"]["off"] and start["both"]["on"] == start["prompt"]["on"]
    assert len({bits[mode]["off"] for bits in (start, moved) for mode in bits}) == 1
    assert moved["prompt"] == start["prompt"] != start["attention"]
    assert moved["attention"]["on"] != start["attention"]["on"] and moved["both"]["on"] not in (moved["prompt"]["on"], moved["attention"]["on"])


def serve(config, build, mode, log):
    with log.open("w") as out:
        server = subprocess.Popen([build / "retro-server", "--config", config, "--set", f"retrieval.mode={mode}"], stdout=out, stderr=out)
    while not (port := re.search(r"listening on http://127.0.0.1:(\d+)", log.read_text())):
        assert server.poll() is None, log.read_text()
        time.sleep(0.05)
    return server, int(port[1])


@pytest.mark.parametrize("mode", ["attention", "prompt", "both"])
def test_a_retrofitted_model_is_served(fitted, build, tmp_path, mode):
    server, port = serve(fitted / "moved.json", build, mode, tmp_path / "log")
    body = {"prompt": "The fork() call returns the open descriptor", "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = json.load(reply)
    server.terminate()
    assert server.wait(30) == 0 and answer["usage"]["completion_tokens"] == 24
    in_prompt = [entry for entry in answer["retrieval"] if any("number" in n for n in entry["neighbors"])]
    by_attention = [entry for entry in answer["retrieval"] if entry["neighbors"] and "number" not in entry["neighbors"][0]]
    assert bool(in_prompt) == (mode != "attention") and bool(by_attention) == (mode != "prompt")
