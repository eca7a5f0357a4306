"""Which choices help a Retro model: small runs on equal tokens, each with one change, and a table of them.

    python tools/retro_docs/small_runs.py WORK [NAME...]

WORK holds the prepared data folders that small_runs.json names; docs/results/training.md has the commands. A run whose result is
there already is not repeated. Each run takes one thread, and as many go at once as there are CPUs.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
PARTS = ("model", "train", "neighbours")
# The environment of a run's process: one thread, and memory that is kept instead of being returned to the system.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}


def merge(base, change):
    """The configuration of a run: base with the change's values in place of its own."""
    merged = base | {key: value for key, value in change.items() if key == "data"}
    for part in PARTS:
        if part in base or part in change:
            merged[part] = base.get(part, {}) | change.get(part, {})
    return merged


def folder_of(work, name):
    return work / "runs" / name.replace(" ", "-").replace(",", "")


def train_variant(work, name, config, positions):
    """Trains, evaluates on all held-out documents, keeps result.json."""
    from retro_train.train import Ranks, Run, Trainer

    folder = folder_of(work, name)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps(config | {"data": str(work / config["data"])}))
    trainer = Trainer(Run.create(file, folder), Ranks())
    if not positions:
        words = trainer.model.embedding.word_embeddings
        trainer.model.embed_neighbours = lambda ids: words(ids)
    trainer.run_all()
    result = measure(trainer)
    (folder / "result.json").write_text(json.dumps(result))
    return name


def measure(trainer):
    """Bits of each held-out document with neighbours, without and with random ones, and the bytes of each."""
    import numpy as np
    import torch
    from retro_train.evaluate import cut_windows, random_ids, token_bits

    trainer.o.evaluate_documents = None  # all
    vocabulary, documents, found = trainer.read_validation()
    model, collection, window = trainer.model, trainer.collection, trainer.o.sequence
    windows = cut_windows(documents, window, model.config.retro_chunk_length if found is not None else 0)
    of_mode = {"off": None}
    if found is not None:
        of_mode = {"on": found, "off": None, "random": random_ids(len(found), found.shape[1], len(collection), 1)}
    size = np.zeros(len(documents))
    for w in windows:
        size[w.document] += vocabulary.bytes[w.tokens[1:]].sum()
    bits = {mode: np.zeros(len(documents)) for mode in of_mode}
    for mode, ids in of_mode.items():
        with torch.autocast("cpu", torch.bfloat16):
            for w, values in token_bits(model, windows, ids, collection, "cpu"):
                bits[mode][w.document] += values.sum()
    return {"parameters": sum(p.numel() for p in model.parameters()), "tokens": trainer.tokens, "seconds": trainer.seconds,
            "bytes": size.tolist(), "bits": {mode: values.tolist() for mode, values in bits.items()}}


def best_bits(result):
    """The bits of each document, with neighbours; a GPT has none."""
    import numpy as np

    return np.array(result["bits"].get("on", result["bits"]["off"]))


def interval(of, over):
    """Percent fewer bits, with the 95 % interval over documents."""
    import numpy as np
    from retro_train.evaluate import gain

    g = gain(np.array(of), np.array(over), 1)
    return f"{g['percent']:.2f} ({g['low']:.2f} .. {g['high']:.2f})"


def print_table(work, names):
    """Prints a row for each run that has a result. The last column compares with the run named base."""
    results = {name: json.loads((folder_of(work, name) / "result.json").read_text())
               for name in names if (folder_of(work, name) / "result.json").exists()}
    base = best_bits(results["base"]) if "base" in results else None
    print("| | parameters | on | off | random | on against off, % fewer | against base, % fewer |\n|---|---|---|---|---|---|---|")
    for name, r in results.items():
        size = sum(r["bytes"])
        of_mode = {mode: f"{sum(bits) / size:.4f}" for mode, bits in r["bits"].items()}
        retrieval = interval(r["bits"]["on"], r["bits"]["off"]) if "on" in r["bits"] else ""
        against = interval(best_bits(r), base) if base is not None and name != "base" else ""
        cells = [name, f"{r['parameters'] / 1e6:.2f} M", *(of_mode.get(mode, "") for mode in ("on", "off", "random")), retrieval, against]
        print("| " + " | ".join(cells) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=Path)
    p.add_argument("names", nargs="*", help="of variants in small_runs.json; default: all")
    a = p.parse_args()
    work, runs = a.work.resolve(), json.loads((HERE / "small_runs.json").read_text())
    unknown = sorted(set(a.names) - set(runs["variants"]))
    if unknown:
        p.error(f"no variant is named {', '.join(unknown)}; known are {', '.join(runs['variants'])}")
    names = a.names or list(runs["variants"])
    missing = [name for name in names if not (folder_of(work, name) / "result.json").exists()]
    os.environ.update(ENVIRONMENT)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = []
        for name in missing:
            change = runs["variants"][name]
            jobs.append(pool.submit(train_variant, work, name, merge(runs["base"], change), change.get("positions", True)))
        for job in jobs:
            job.result()
    print_table(work, names)


if __name__ == "__main__":
    main()
