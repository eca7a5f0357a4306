"""Model folders: what retro-server opens. Reading, writing, and the model card from the run's own numbers."""

import datetime
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .config import ModelConfig
from .files import read_json, replace_file, write_json, write_text
from .model import Retro

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def load_tensors(folder):
    """One file, or the shards that an index names."""
    folder = Path(folder)
    index = folder / "model.safetensors.index.json"
    names = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    tensors = {}
    for name in names:
        tensors |= load_file(folder / name)
    return tensors


def load_model(folder):
    """A model folder in float32. Encoder depth and the final norm are told by the tensors, as the server does it."""
    tensors = {name: t.float() for name, t in load_tensors(folder).items() if not name.endswith("._extra_state")}
    values = read_json(Path(folder) / "config.json")
    values["final_norm"] = "decoder.final_layernorm.weight" in tensors
    if values["architecture"] == "retro":
        depth = {name.split(".encoder.layers.")[1].split(".")[0] for name in tensors if ".encoder.layers." in name}
        values["retro_encoder_num_layers"] = len(depth)
    model = Retro(ModelConfig.from_dict(values))
    model.load_state_dict(tensors, strict=True)
    return model.eval()


def write_model(folder, model, tokenizer, dtype="f32"):
    """config.json, model.safetensors, tokenizer.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().to("cpu", DTYPES[dtype]).contiguous() for name, t in model.state_dict().items()}
    replace_file(folder / "model.safetensors", lambda p: save_file(tensors, p))
    names = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
    write_json(folder / "config.json", model.config.to_dict() | {"torch_dtype": names[dtype]})
    if tokenizer is not None and Path(tokenizer).resolve() != (folder / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, folder / "tokenizer.json")


def table(rows, header):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def describe_model(model, dtype):
    c = model.config
    rows = [("kind", c.architecture), ("parameters", f"{sum(p.numel() for p in model.parameters()):,} in {dtype}"),
            ("decoder", f"{c.num_layers} layers, hidden {c.hidden_size}, {c.num_attention_heads} heads of {c.kv_channels}, "
                        f"MLP {c.ffn_hidden_size} {c.activation}, {c.normalization}"),
            ("positions", f"{c.position_embedding_type}, {c.max_position_embeddings}"), ("vocabulary", c.vocab_size)]
    if c.architecture == "retro":
        rows += [("retrieval", f"layers {', '.join(map(str, c.retro_layers))}; encoder of {c.retro_encoder_num_layers} layers"),
                 ("chunks", f"m = {c.retro_chunk_length}, k = {c.retro_num_neighbors}, r = {c.retro_retrieved_length}")]
    return table(rows, ("", ""))


def describe_corpus(corpus):
    rows = [(part, corpus[part]["documents"], f'{corpus[part]["bytes"]:,}') for part in ("train", "valid")]
    held, shown = corpus["held_out"], 50
    dropped = ", ".join(f"{n} {why}" for why, n in sorted(corpus["dropped"].items())) or "none"
    listed = "\n".join(f"* {name}" for name in held[:shown])
    more = f"\n* and {len(held) - shown} more; all are in `corpus.json`" if len(held) > shown else ""
    return (table(rows, ("documents", "number", "bytes")) + f"\n\nDropped: {dropped}.\n\nHeld out: {corpus['held_out_rule']}. "
            f"These are the documents:\n\n{listed}{more}")


def describe_evaluation(result):
    rows = [(mode, f"{v['bits_per_byte']:.4f}", f"{v['low']:.4f} .. {v['high']:.4f}")
            for mode, v in result["modes"].items()]
    return (f"{result['documents']} held-out documents, {result['bytes']:,} scored bytes, windows of {result['window']} tokens, "
            f"k = {result['k']}, {result['chunks']:,} chunks in the collection. 95 % intervals by bootstrap over documents.\n\n"
            + table(rows, ("mode", "bits/byte", "95 % interval"))
            + "".join(f"\n\n{pair}: **{v['percent']:+.2f} %** fewer bits ({v['low']:+.2f} .. {v['high']:+.2f})."
                      for pair, v in result["gains"].items()))


def model_card(model, dtype, corpus, run, evaluation, command):
    name = run["name"] if run else "model"
    parts = [f"# {name}", describe_model(model, dtype)]
    if evaluation:
        parts += ["## Measured", describe_evaluation(evaluation)]
    if run:
        rows = [("steps", run["step"]), ("tokens seen", f"{run['tokens']:,}"), ("minutes", f"{run['seconds'] / 60:.1f}"),
                ("last training loss", f"{run['loss']:.4f} nats/token"), ("device", run["device"]), ("seed", run["seed"]),
                ("optimizer", run["optimizer"]), ("initialisation", run["init"])]
        parts += ["## Training", table(rows, ("", "")), "The curves are in `curves.jsonl` and `curves.png`; the whole "
                  "configuration is in `run.json`."]
    if corpus:
        parts += ["## Text", describe_corpus(corpus)]
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    parts.append(f"Written {date} by `{command}`.")
    return "\n\n".join(parts) + "\n"


def export_run(run_folder, out, dtype, evaluation, command):
    """The checkpoint of a run as a model folder with its card."""
    from .train import Run  # the run knows its files

    run = Run.open(run_folder)
    checkpoint = torch.load(run.checkpoint, map_location="cpu", weights_only=True)
    model = Retro(run.model_config)
    model.load_state_dict(checkpoint["model"])
    out = Path(out)
    write_model(out, model, run.data / "model/tokenizer.json", dtype)
    for name in ("curves.jsonl", "curves.png"):
        if (run.folder / name).exists():
            shutil.copyfile(run.folder / name, out / name)
    # Paths of the machine that trained it are of no use elsewhere.
    write_json(out / "run.json", run.config | {key: Path(run.config[key]).name for key in ("data", "start", "from") if key in run.config})
    corpus = read_json(run.data / "corpus.json") if (run.data / "corpus.json").exists() else None
    if corpus:
        shutil.copyfile(run.data / "corpus.json", out / "corpus.json")
    if evaluation:
        evaluation = json.loads(Path(evaluation).read_text())
    write_text(out / "README.md", model_card(model, dtype, corpus, checkpoint["summary"], evaluation, command))
