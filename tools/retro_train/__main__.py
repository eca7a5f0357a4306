"""python -m retro_train COMMAND: prepare, search, train, evaluate, export, pack, retrofit, widen, average, plot-curve.
docs/training.md shows them in use."""

import argparse
import dataclasses
import json
import shlex
import sys
from pathlib import Path

import torch

from . import corpus, export, pack, retrofit
from .average import average_models
from .config import ModelConfig
from .evaluate import default_window, evaluate, print_result
from .files import read_json, write_json
from .neighbours import Collection, chunk_queries, query_collection, read_neighbours
from .positions import widen_context
from .prepare import QuestionLimit, prepare
from .search import search
from .tokenizer import Vocabulary
from .train import Run, train


def run_prepare(a):
    run = Run(Path("."), json.loads(a.config.read_text()), a.config.resolve().parent)
    filters = corpus.Filters(**{f.name: getattr(a, f.name) for f in dataclasses.fields(corpus.Filters)})
    retrieval = {"embedder": a.embedder, "embedder_dtype": a.embedder_dtype}
    limit = corpus.FileLimit(a.max_files, corpus.read_folder_names(a.max_files_of) if a.max_files_of else ())
    questions = QuestionLimit(a.questions, str(a.questions_except or ""))
    prepare(run, a.documents, a.retro_index, retrieval, filters, limit, questions, a.searched_by == "torch")


def run_search(a):
    search(a.data, a.embedder, a.k or ModelConfig.load(a.data / "model").retro_num_neighbors, a.device)


def run_train(a):
    train(a.config, a.out)


def find_evaluated(a, k, queries):
    """Neighbour ids [queries, k]: the data folder's own where it has so many, and else searched once."""
    own, searched = a.data / "valid.neighbours", a.data / f"evaluate-k{k}.neighbours"
    if a.neighbours or (own.exists() and read_neighbours(own).ids.shape[1] >= k):
        return read_neighbours(a.neighbours or own).ids[:, :k]
    query_collection(a.retro_index, a.data / "index.json", a.data / "collection", k, queries, searched)
    return read_neighbours(searched).ids


def run_evaluate(a):
    model = export.load_model(a.model).to(a.device)
    vocabulary, c = Vocabulary(a.model / "tokenizer.json"), model.config
    texts = corpus.prepared_documents(a.data, "valid")
    named = {corpus.file_name(name) for name in read_json(a.only)["held_out"]} if a.only else {name for name, _ in texts}
    found, collection, k = None, None, a.k or c.retro_num_neighbors
    if c.architecture == "retro":
        collection = Collection(a.data / "collection")
        queries, documents = chunk_queries(texts, vocabulary, c.retro_chunk_length)
        found = find_evaluated(a, k, queries)[[query["document"] in named for query in queries]]
    else:
        documents = [vocabulary.encode(text) for _, text in texts]
    documents = [ids for (name, _), ids in zip(texts, documents) if name in named]
    gpt = export.load_model(a.gpt).to(a.device) if a.gpt else None
    result = evaluate(model, documents, vocabulary, a.window or default_window(c), found, collection, gpt, a.seed, a.device)
    print_result(result)
    if a.out:
        write_json(a.out, result)


def run_export(a):
    export.export_run(a.run, a.out, a.dtype, a.evaluation, "python -m retro_train " + shlex.join(sys.argv[1:]))
    print(f"{a.out} holds {', '.join(sorted(p.name for p in a.out.iterdir()))}")


def run_pack(a):
    if a.data:
        pack.pack_data(a.data, a.out)
    else:
        pack.pack_checkpoint(a.run, a.out)
    print(f"{a.out}: {a.out.stat().st_size:,} bytes")


def run_retrofit(a):
    model = retrofit.retrofit(a.base, a.out, retrofit.parse_retrieval(a.retrieval), a.seed)
    new = sum(p.numel() for n, p in model.named_parameters() if "cross_attention" in n or "pre_cross_attn" in n)
    print(f"{a.out}: {sum(p.numel() for p in model.parameters()):,} parameters, {new:,} of them new, retro layers {model.config.retro_layers}")


def run_widen(a):
    model = widen_context(export.load_model(a.base), a.positions)
    export.write_model(a.out, model, a.base / "tokenizer.json")
    print(f"{a.out}: {a.positions} positions")


def run_average(a):
    model = average_models([export.load_model(folder) for folder in a.models], a.weights or [1.0] * len(a.models))
    export.write_model(a.out, model, a.models[-1] / "tokenizer.json", a.dtype)
    print(f"{a.out}: the mean of {len(a.models)} models")


def run_plot_curve(a):
    from .plot import plot_curve  # matplotlib takes its time, and only this needs it

    plot_curve(a.curve, a.png)


def parser():
    p = argparse.ArgumentParser(prog="retro_train", description=__doc__)
    commands = p.add_subparsers(dest="command", required=True)

    def command(name, run, text):
        c = commands.add_parser(name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        c.set_defaults(run_command=run)
        return c

    def index_options(c):
        c.add_argument("--retro-index", default="build/retro-index", help="the program")

    c = command("prepare", run_prepare, "documents to tokenizer, collection and neighbours, in the data folder that the configuration names")
    c.add_argument("--config", type=Path, required=True, help="run.json")
    c.add_argument("--documents", required=True, help='a folder, or a .jsonl file of {"id", "text"}')
    c.add_argument("--embedder", default=str(Path.home() / ".cache/retro-server/minilm"), help="as the server will use")
    c.add_argument("--embedder-dtype", default="auto", choices=("auto", "f32", "bf16"),
                   help="bf16 is twice as fast on a CPU with AVX512_BF16")
    c.add_argument("--searched-by", default="retro-index", choices=("retro-index", "torch"),
                   help="torch: leave embedding and neighbours to the command search, on a machine with a GPU")
    c.add_argument("--questions", type=int, default=0, help="questions derived from a manual page, at most")
    c.add_argument("--questions-except", type=Path, help='a file of {"manual": file name} lines: no questions about these')
    c.add_argument("--max-files", type=int, default=0, help="read of each top folder, chosen by the hash of their path; 0: all")
    c.add_argument("--max-files-of", type=Path, help="a file whose lines begin with the folders that --max-files is for; else all")
    index_options(c)
    for f in dataclasses.fields(corpus.Filters):
        c.add_argument("--" + f.name.replace("_", "-"), type=f.type, default=f.default, help="filter")

    c = command("search", run_search, "the neighbours of a data folder that was prepared --searched-by torch, exactly")
    c.add_argument("--data", type=Path, required=True, help="data folder")
    c.add_argument("--embedder", type=Path, default=Path.home() / ".cache/retro-server/minilm", help="a BERT folder")
    c.add_argument("--k", type=int, help="neighbours per chunk; default as the model's")
    c.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")

    c = command("train", run_train, "train, or go on with a run that was interrupted")
    c.add_argument("--config", type=Path, required=True, help="run.json")
    c.add_argument("--out", type=Path, required=True, help="the run's folder")

    c = command("evaluate", run_evaluate, "bits per byte of the held-out documents: on, off, random neighbours, a GPT")
    c.add_argument("--model", type=Path, required=True, help="model folder")
    c.add_argument("--data", type=Path, required=True, help="data folder")
    c.add_argument("--gpt", type=Path, help="model folder of a plain GPT with the same tokenizer")
    c.add_argument("--only", type=Path, help="a corpus.json: of the held-out documents only those that it names too")
    c.add_argument("--neighbours", type=Path, help="file of neighbours of all complete chunks; default: as prepared, or searched")
    c.add_argument("--window", type=int, help="tokens; default min(512, the model's limit)")
    c.add_argument("--k", type=int, help="neighbours per chunk; default as trained")
    c.add_argument("--seed", type=int, default=1, help="of random neighbours (as retro-eval ppl --seed) and bootstrap")
    c.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    c.add_argument("--out", type=Path, help="write the result as JSON")
    index_options(c)

    c = command("export", run_export, "a run's checkpoint as a model folder with its card")
    c.add_argument("--run", type=Path, required=True, help="the run's folder")
    c.add_argument("--out", type=Path, required=True, help="model folder")
    c.add_argument("--dtype", default="bf16", choices=sorted(export.DTYPES), help="of the stored weights")
    c.add_argument("--evaluation", type=Path, help="the JSON of evaluate, for the card")

    c = command("pack", run_pack, "a data folder as an archive, or a run's checkpoint in bfloat16, to go on elsewhere")
    what = c.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="data folder")
    what.add_argument("--run", type=Path, help="the run's folder")
    c.add_argument("--out", type=Path, required=True, help="archive (.tar.xz), or checkpoint.pt of another run's folder")

    c = command("retrofit", run_retrofit, "a Hugging Face decoder as the start of a Retro model")
    c.add_argument("--from", dest="base", type=Path, required=True, help="folder with config.json, safetensors, tokenizer.json")
    c.add_argument("--out", type=Path, required=True, help="model folder")
    c.add_argument("--retrieval", default="{}", help='retro_* keys of config.json as JSON, such as {"retro_layers": [6, 9]}')
    c.add_argument("--seed", type=int, default=0, help="of the new weights")

    c = command("widen", run_widen, "a model with learned positions as the start of a run with longer sequences")
    c.add_argument("--from", dest="base", type=Path, required=True, help="model folder")
    c.add_argument("--positions", type=int, required=True, help="tokens of the longest sequence")
    c.add_argument("--out", type=Path, required=True, help="model folder")

    c = command("average", run_average, "the mean of models that went on from each other, which often predicts better than each")
    c.add_argument("--models", type=Path, nargs="+", required=True, help="model folders of one shape and tokenizer")
    c.add_argument("--weights", type=float, nargs="+", help="one for each model; default: all alike")
    c.add_argument("--out", type=Path, required=True, help="model folder, with the last one's configuration")
    c.add_argument("--dtype", default="bf16", choices=sorted(export.DTYPES), help="of the stored weights")

    c = command("plot-curve", run_plot_curve, "the CSV of retro-eval ppl --curve as a figure")
    c.add_argument("curve", type=Path, help="CSV")
    c.add_argument("png", type=Path, help="the figure")
    return p


def main():
    a = parser().parse_args()
    try:
        a.run_command(a)
    except (ValueError, RuntimeError, OSError) as problem:
        sys.exit(f"retro_train: {problem}")


if __name__ == "__main__":
    main()
