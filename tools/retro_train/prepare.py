"""From documents to what training reads. A data folder holds:

  documents/train, documents/valid, corpus.json   corpus.py
  model/config.json, model/tokenizer.json         what retro-index needs to know about the model to come
  index.json, collection                          retro-index's configuration and the training documents' chunks
  train.neighbours                                of every chunk of the collection, never of its own document
  valid.neighbours                                of every complete chunk of the validation documents
"""

import shutil
from pathlib import Path

from . import corpus, tokenizer
from .files import write_json
from .neighbours import Collection, chunk_queries, query_collection, run_index


def make_model_folder(run, folder):
    """The tokenizer: of the model that the run starts from, or trained on the training documents."""
    folder.mkdir(parents=True, exist_ok=True)
    config = run.model_config
    if run.start:
        shutil.copyfile(run.start / "tokenizer.json", folder / "tokenizer.json")
    else:
        texts = (text for _, text in corpus.prepared_documents(run.data, "train"))
        trained = tokenizer.train(texts, config.vocab_size)
        if trained.get_vocab_size() > config.vocab_size:
            raise ValueError(f"vocab_size {config.vocab_size}: the 256 bytes and the end of a document need 257")
        trained.save(str(folder / "tokenizer.json"))
    if config.eod_token_id is None:
        raise ValueError("model: eod_token_id is needed; it pads neighbours (0 for a tokenizer trained here)")
    write_json(folder / "config.json", config.to_dict())


def remove_parts(data):
    """Only what is ours: "data" may name a folder that holds other things."""
    for name in ("documents", "model", "collection"):
        shutil.rmtree(data / name, ignore_errors=True)
    for name in ("corpus.json", "index.json", "train.neighbours", "valid.neighbours"):
        (data / name).unlink(missing_ok=True)


def prepare(run, documents, retro_index, retrieval, filters):
    """Everything, each part from the one before. Existing parts are made again. retrieval: {"embedder": folder, ...}, as in the
    server's configuration."""
    config = run.model_config
    if config.architecture != "retro":
        raise ValueError("prepare with the retro model's configuration; a GPT of the same data folder trains on the same chunks")
    remove_parts(run.data)
    report = corpus.prepare(documents, run.data, retro_index, filters)
    for part in ("train", "valid"):
        print(f"{part}: {report[part]['documents']} documents, {report[part]['bytes']:,} bytes", flush=True)
    make_model_folder(run, run.data / "model")
    write_json(run.data / "index.json", {"model": {"path": str(run.data / "model")},
                                         "retrieval": retrieval | {"embedder": str(Path(retrieval["embedder"]).resolve())}})
    index, collection, k = run.data / "index.json", run.data / "collection", config.retro_num_neighbors
    run_index(retro_index, "build", "--out", collection, "--config", index, run.data / "documents/train")
    print(f"collection: {len(Collection(collection)):,} chunks", flush=True)
    run_index(retro_index, "neighbors", collection, "--k", k, "--exclude-same-document", "--out", run.data / "train.neighbours")
    vocabulary = tokenizer.Vocabulary(run.data / "model/tokenizer.json")
    queries, _ = chunk_queries(corpus.prepared_documents(run.data, "valid"), vocabulary, config.retro_chunk_length)
    query_collection(retro_index, index, collection, k, queries, run.data / "valid.neighbours")
    print(f"neighbours: {len(queries):,} validation chunks", flush=True)

