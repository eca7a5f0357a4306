"""From documents to what training reads. A data folder holds:

  documents/train, documents/valid, corpus.json   corpus.py
  model/config.json, model/tokenizer.json         what retro-index needs to know about the model to come
  index.json, collection                          retro-index's configuration and the training documents' chunks
  train.neighbours                                of every chunk of the collection, never of its own document
  valid.neighbours                                of every complete chunk of the validation documents
  questions.tokens, questions.neighbours          questions.py: u32 [chunks, m], and the neighbours of these chunks
  questions.sources                               i64 [chunks]: the chunk of the collection that has what the next one says, -1: none
  valid.queries.jsonl, questions.queries.jsonl    instead of neighbours, which search.py is to find: {"document", "text"} a line
  prepared.json                                   the settings, the stages that are whole, and the one that was begun
"""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from . import corpus, tokenizer
from .files import read_json, write_json
from .neighbours import Collection, chunk_queries, query_collection, run_index, write_queries
from .questions import question_chunks, read_manuals
from .search import write_collection


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


PARTS = {  # of each stage; "data" may name a folder that holds other things
    "documents": ["documents", "corpus.json"],
    "model": ["model", "index.json"],
    "collection": ["collection"],
    "neighbours": ["train.neighbours"],
    "validation": ["valid.neighbours", "valid.queries.jsonl"],
    "questions": ["questions.tokens", "questions.neighbours", "questions.queries.jsonl", "questions.sources"],
}


class Stages:
    """What is whole already. An interrupted preparation goes on behind its last whole stage when its settings are the same; a
    finished one begins anew, since its documents may have changed."""

    def __init__(self, data, settings):
        self.data, self.settings, self.path = data, settings, data / "prepared.json"
        kept = read_json(self.path) if self.path.exists() else {}
        goes_on = kept.get("settings") == settings and len(kept["whole"]) < len(PARTS)
        self.whole, self.begun = (kept["whole"], kept["begun"]) if goes_on else ([], None)

    def run(self, name, work):
        if name in self.whole:
            print(f"{name}: there already", flush=True)
            return
        if name != "collection" or self.begun != name:  # retro-index goes on with a build that was interrupted
            for part in PARTS[name]:
                path = self.data / part
                if path.is_dir():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)
        self.keep(name)
        work()
        self.whole = [*self.whole, name]
        self.keep(None)

    def keep(self, begun):
        write_json(self.path, {"settings": self.settings, "whole": self.whole, "begun": begun})


@dataclass
class QuestionLimit:
    most: int = 0  # pairs of a manual page
    left_out: str = ""  # a file of {"manual": name} lines: no questions about these, they are asked when the model is done


class Preparation:
    """retrieval: {"embedder": folder, ...}, as in the server's configuration. by_torch: the collection is its tokens alone, and
    the neighbours are left to search.py."""

    def __init__(self, run, documents, retro_index, retrieval, filters, limit, questions, by_torch):
        self.run, self.source, self.retro_index, self.questions, self.by_torch = run, documents, retro_index, questions, by_torch
        self.filters, self.limit = filters, limit
        self.retrieval = retrieval | {"embedder": str(Path(retrieval["embedder"]).resolve())}
        self.data, self.collection = run.data, run.data / "collection"

    def settings(self):
        return {"model": self.run.model_config.to_dict(), "documents": str(Path(self.source).resolve()), "filters": asdict(self.filters),
                "limit": {"most": self.limit.most, "folders": list(self.limit.folders)}, "retrieval": self.retrieval, "questions": asdict(self.questions),
                "by_torch": self.by_torch}

    def make_documents(self):
        report = corpus.prepare(self.source, self.data, self.retro_index, self.filters, self.limit)
        for part in ("train", "valid"):
            print(f"{part}: {report[part]['documents']} documents, {report[part]['bytes']:,} bytes", flush=True)

    def make_model(self):
        make_model_folder(self.run, self.data / "model")
        write_json(self.data / "index.json", {"model": {"path": str(self.data / "model")}, "retrieval": self.retrieval})

    def make_collection(self):
        if self.by_torch:
            named = ((f"train/{name}", text) for name, text in corpus.prepared_documents(self.data, "train"))
            c = self.run.model_config
            write_collection(self.collection, named, tokenizer.Vocabulary(self.data / "model/tokenizer.json"), c.retro_chunk_length, c.eod_token_id)
        else:
            self.build_collection()
        print(f"collection: {len(Collection(self.collection)):,} chunks", flush=True)

    def build_collection(self):
        run_index(self.retro_index, "build", "--chunks", "grid", "--out", self.collection, "--config", self.data / "index.json", self.data / "documents/train")

    def make_neighbours(self):
        if self.by_torch:
            return
        run_index(self.retro_index, "neighbors", self.collection, "--k", self.run.model_config.retro_num_neighbors,
                  "--exclude-same-document", "--out", self.data / "train.neighbours")

    def query(self, queries, name):
        if self.by_torch:
            write_queries(self.data / f"{name}.queries.jsonl", queries)
        else:
            query_collection(self.retro_index, self.data / "index.json", self.collection, self.run.model_config.retro_num_neighbors,
                             queries, self.data / f"{name}.neighbours")

    def make_validation(self):
        vocabulary = tokenizer.Vocabulary(self.data / "model/tokenizer.json")
        queries, _ = chunk_queries(corpus.prepared_documents(self.data, "valid"), vocabulary, self.run.model_config.retro_chunk_length)
        self.query(queries, "valid")
        print(f"neighbours: {len(queries):,} validation chunks", flush=True)

    def make_questions(self):
        if not self.questions.most:
            return
        vocabulary, c = tokenizer.Vocabulary(self.data / "model/tokenizer.json"), self.run.model_config
        documents = corpus.prepared_documents(self.data, "train")
        left_out = read_manuals(self.questions.left_out) if self.questions.left_out else frozenset()
        chunks = question_chunks(documents, vocabulary, c.retro_chunk_length, c.eod_token_id, self.questions.most, left_out)
        if not chunks.rows:
            raise ValueError(f"{self.source}: no manual page to ask questions about; leave --questions out")
        self.query(chunks.queries, "questions")
        places = [place and (f"train/{place[0]}", place[1]) for place in chunks.places]  # retro-index names them by the folder read
        sources = Collection(self.collection).find_chunks(places)
        sources.astype("<i8").tofile(self.data / "questions.sources")
        np.stack(chunks.rows).astype("<u4").tofile(self.data / "questions.tokens")
        print(f"questions: {len(chunks.rows):,} chunks, before {np.mean(sources >= 0):.0%} of them the answer's place is known", flush=True)


def prepare(run, documents, retro_index, retrieval, filters, limit=corpus.FileLimit(), questions=QuestionLimit(), by_torch=False):
    """Everything, each part from the one before."""
    if run.model_config.architecture != "retro":
        raise ValueError("prepare with the retro model's configuration; a GPT of the same data folder trains on the same chunks")
    p = Preparation(run, documents, retro_index, retrieval, filters, limit, questions, by_torch)
    stages = Stages(run.data, p.settings())
    stages.run("documents", p.make_documents)
    stages.run("model", p.make_model)
    stages.run("collection", p.make_collection)
    stages.run("neighbours", p.make_neighbours)
    stages.run("validation", p.make_validation)
    stages.run("questions", p.make_questions)
