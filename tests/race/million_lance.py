"""LanceDB over the texts and vectors that `scale export` writes: builds a table, or searches it.

    million_lance.py make EXPORT TABLE          a table with an index of vectors and one of words
    million_lance.py search EXPORT TABLE        searches it as `scale search` does

Needs lancedb, which brings pyarrow and NumPy.
"""
import argparse
import os
import pathlib
import shutil
import time

os.environ.setdefault("LANCE_LOG", "error")  # read at the import: a warning for each search takes time

import lancedb
import million_export
import pyarrow as pa
from lancedb.index import FTS, IvfSq
from lancedb.rerankers import RRFReranker
from million_export import DIM, K, show


def batches(export):
    for first, texts, vectors in million_export.read_batches(export):
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIM)
        yield pa.record_batch({"id": pa.array(range(first, first + len(texts))), "text": pa.array(texts), "vector": column})


def make(a):
    shutil.rmtree(a.table, ignore_errors=True)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), DIM))])
    start = time.monotonic()
    table = lancedb.connect(a.table).create_table("chunks", pa.RecordBatchReader.from_batches(schema, batches(a.export)))
    show("build.add", time.monotonic() - start, "s")
    start = time.monotonic()
    table.create_index("vector", config=IvfSq(distance_type="cosine", num_partitions=a.lists), wait_timeout=None)
    show("build.vectors", time.monotonic() - start, "s")
    start = time.monotonic()
    table.create_index("text", config=FTS(stem=False, remove_stop_words=False, ascii_folding=False))
    show("build.words", time.monotonic() - start, "s")
    million_export.show_peak()
    million_export.show_bytes(a.table)


def take(query):
    return query.limit(K).select(["id", "text"]).to_arrow()["id"].to_pylist()


def open_table(a):
    table = lancedb.connect(a.table).open_table("chunks")

    def near(query):
        return query.distance_type("cosine").nprobes(a.probes).refine_factor(a.refine)

    def by_vector(text, vector):
        return take(near(table.search(vector)))

    def by_words(text, vector):
        return take(table.search(text, query_type="fts", fts_columns="text"))

    def by_both(text, vector):
        both = table.search(query_type="hybrid", fts_columns="text").vector(vector).text(text)
        return take(near(both).rerank(RRFReranker()))

    return {"vectors": by_vector, "words": by_words, "hybrid": by_both}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["make", "search"])
    p.add_argument("export", type=pathlib.Path)
    p.add_argument("table", type=pathlib.Path)
    p.add_argument("--lists", type=int, default=4096)
    p.add_argument("--probes", type=int, default=1024)
    p.add_argument("--refine", type=int, default=8, help="exact distances of so many candidates a result")
    million_export.add_options(p)
    a = p.parse_args()
    if a.command == "make":
        make(a)
    else:
        million_export.measure(a.export, lambda: open_table(a), a.searches)


if __name__ == "__main__":
    main()
