"""Milvus Lite over the texts and vectors that `scale export` writes: builds a collection, or searches it.

    million_milvus.py make EXPORT FOLDER          a collection with an index of vectors and one of words (BM25)
    million_milvus.py search EXPORT FOLDER        searches it as `scale search` does

Needs pymilvus and milvus-lite. Milvus Lite runs within this process. It keeps at most 100 000 rows in a segment, and each
segment has an index of its own: --index hnsw is a graph in each, --index ivfsq8 has --lists lists in each, of which
--probes are read.
"""
import argparse
import pathlib
import shutil
import time

import million_export
from million_export import DIM, K, show
from pymilvus import AnnSearchRequest, DataType, Function, FunctionType, MilvusClient, RRFRanker

NAME, CANDIDATES = "chunks", 80
ANALYZER = {"tokenizer": "standard", "filter": ["lowercase"]}
INDEXES = {"hnsw": ("HNSW", lambda a: {"M": 16, "efConstruction": 200}, lambda a: {"ef": a.ef}),
           "ivfsq8": ("IVF_SQ8", lambda a: {"nlist": a.lists}, lambda a: {"nprobe": a.probes})}


def chunk_schema(client):
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=65535, enable_analyzer=True, analyzer_params=ANALYZER)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function(name="bm25", input_field_names=["text"], output_field_names=["words"], function_type=FunctionType.BM25))
    return schema


def make_index(client, name, **params):
    index = client.prepare_index_params()
    index.add_index(**params)
    start = time.monotonic()
    client.create_index(NAME, index)
    show(name, time.monotonic() - start, "s")


def make(a):
    shutil.rmtree(a.folder, ignore_errors=True)
    a.folder.mkdir()
    client = MilvusClient(str(a.folder / "milvus.db"))
    client.create_collection(NAME, schema=chunk_schema(client))
    start = time.monotonic()
    for first, texts, vectors in million_export.read_batches(a.export):
        rows = [{"id": first + i, "text": text, "vector": vector} for i, (text, vector) in enumerate(zip(texts, vectors, strict=True))]
        client.insert(NAME, rows)
    client.flush(NAME)
    show("build.add", time.monotonic() - start, "s")
    kind, params, _ = INDEXES[a.index]
    make_index(client, "build.vectors", field_name="vector", index_type=kind, metric_type="COSINE", params=params(a))
    make_index(client, "build.words", field_name="words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params={})
    start = time.monotonic()
    client.load_collection(NAME)
    show("build.load", time.monotonic() - start, "s")
    million_export.show_peak()
    client.close()
    million_export.show_bytes(a.folder)


def open_collection(a):
    client = MilvusClient(str(a.folder / "milvus.db"))
    client.load_collection(NAME)
    near = {"params": INDEXES[a.index][2](a)}
    shown = {"limit": K, "output_fields": ["text"]}

    def take(found):
        return [hit["id"] for hit in found[0]]

    def by_vector(text, vector):
        return take(client.search(NAME, data=[vector], anns_field="vector", search_params=near, **shown))

    def by_words(text, vector):
        return take(client.search(NAME, data=[text], anns_field="words", search_params={}, **shown))

    def by_both(text, vector):
        lists = [AnnSearchRequest([vector], "vector", near, limit=CANDIDATES), AnnSearchRequest([text], "words", {}, limit=CANDIDATES)]
        return take(client.hybrid_search(NAME, reqs=lists, ranker=RRFRanker(), **shown))

    return {"vectors": by_vector, "words": by_words, "hybrid": by_both}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["make", "search"])
    p.add_argument("export", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--index", choices=list(INDEXES), default="ivfsq8")
    p.add_argument("--ef", type=int, default=100, help="nodes of a graph that a search keeps")
    p.add_argument("--lists", type=int, default=400)
    p.add_argument("--probes", type=int, default=50)
    million_export.add_options(p)
    a = p.parse_args()
    if a.command == "make":
        make(a)
    else:
        million_export.measure(a.export, lambda: open_collection(a), a.searches)


if __name__ == "__main__":
    main()
