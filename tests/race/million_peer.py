"""LanceDB over the texts and vectors that `scale export` writes: builds a table, or searches it.

    million_peer.py make EXPORT TABLE          a table with an index of vectors and one of words
    million_peer.py search EXPORT TABLE        searches it as `scale search` does

Lines are "NAME VALUE UNIT", under the names of `scale` (tests/scale/scale.c). Needs lancedb, which brings pyarrow and NumPy.
"""
import argparse
import os
import pathlib
import shutil
import time

os.environ.setdefault("LANCE_LOG", "error")  # read at the import: a warning for each search takes time

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, IvfSq
from lancedb.rerankers import RRFReranker

DIM, K, BATCH = 384, 10, 10000
WARMING, SEARCHES, RECALL_QUERIES = 100, 400, 200


def show(name, value, unit):
    print(f"{name:28s} {value:12.4g} {unit}", flush=True)


def own_mib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) / 1024


def read_vectors(path):
    return np.memmap(path, np.float32).reshape(-1, DIM)


def batches(export):
    vectors = read_vectors(export / "vectors.f32")
    with open(export / "texts.txt") as texts:
        for first in range(0, len(vectors), BATCH):
            part = np.ascontiguousarray(vectors[first:first + BATCH])
            column = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), DIM)
            lines = [next(texts).rstrip("\n") for _ in range(len(part))]
            yield pa.record_batch({"id": pa.array(range(first, first + len(part))), "text": pa.array(lines), "vector": column})


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
    show("build.bytes", sum(p.stat().st_size for p in a.table.rglob("*") if p.is_file()) / 1e6, "MB")


def by_vector(table, text, vector, a):
    return table.search(vector).distance_type("cosine").nprobes(a.probes).refine_factor(a.refine)


def by_words(table, text, vector, a):
    return table.search(text, query_type="fts", fts_columns="text")


def by_both(table, text, vector, a):
    both = table.search(query_type="hybrid", fts_columns="text").vector(vector).text(text)
    return both.distance_type("cosine").nprobes(a.probes).refine_factor(a.refine).rerank(RRFReranker())


def timed(table, queries, make_query, name, a):
    times = []
    for number in [*range(SEARCHES, SEARCHES + WARMING), *range(SEARCHES)]:
        start = time.monotonic()
        make_query(table, *queries[number], a).limit(K).select(["id", "text"]).to_arrow()
        times.append(1000 * (time.monotonic() - start))
    times = sorted(times[WARMING:])
    for part, share in (("p50", 0.5), ("p95", 0.95), ("most", 1)):
        show(f"{name}.{part}", times[int((SEARCHES - 1) * share)], "ms")


def recall(table, vectors, queries, a):
    found = 0
    for text, vector in queries[:RECALL_QUERIES]:
        exact = set(np.argpartition(-(vectors @ vector), K)[:K].tolist())
        ids = by_vector(table, text, vector, a).limit(K).select(["id"]).to_arrow()["id"].to_pylist()
        found += len(exact & set(ids))
    return found / RECALL_QUERIES / K


def search(a):
    vectors = read_vectors(a.export / "vectors.f32")
    texts = (a.export / "queries.txt").read_text().splitlines()
    queries = list(zip(texts, np.array(read_vectors(a.export / "queries.f32")), strict=True))
    start = time.monotonic()
    table = lancedb.connect(a.table).open_table("chunks")
    show("open", time.monotonic() - start, "s")
    for make_query, name in ((by_vector, "search.vectors"), (by_words, "search.words"), (by_both, "search.hybrid")):
        timed(table, queries, make_query, name, a)
    show("search.memory", own_mib(), "MiB")
    show("recall.10", recall(table, vectors, queries, a), "")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["make", "search"])
    p.add_argument("export", type=pathlib.Path)
    p.add_argument("table", type=pathlib.Path)
    p.add_argument("--lists", type=int, default=4096)
    p.add_argument("--probes", type=int, default=1024)
    p.add_argument("--refine", type=int, default=8, help="exact distances of so many candidates a result")
    a = p.parse_args()
    {"make": make, "search": search}[a.command](a)


if __name__ == "__main__":
    main()
