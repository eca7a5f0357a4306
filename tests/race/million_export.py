"""The common part of the programs that race over what `scale export` writes: texts, vectors, queries, and how searches are
measured. Lines are "NAME VALUE UNIT", under the names of `scale` (tests/scale/scale.c)."""
import pathlib
import time

import numpy as np

DIM, K, BATCH = 384, 10, 10000
WARMING, SEARCHES, RECALL_QUERIES = 100, 400, 200  # at most, of the 500 queries


def show(name, value, unit):
    print(f"{name:28s} {value:12.4g} {unit}", flush=True)


def show_bytes(folder):
    show("build.bytes", sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6, "MB")


def show_peak():
    show("build.memory.peak", status_mib("VmHWM"), "MiB")


def status_mib(field):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


def read_vectors(path):
    return np.memmap(path, np.float32).reshape(-1, DIM)


def read_batches(export):
    """(number of the first, texts, vectors) of BATCH chunks each."""
    vectors = read_vectors(export / "vectors.f32")
    with open(export / "texts.txt") as texts:
        for first in range(0, len(vectors), BATCH):
            part = np.ascontiguousarray(vectors[first:first + BATCH])
            yield first, [next(texts).rstrip("\n") for _ in range(len(part))], part


def show_times(queries, search, name, searches):
    warming, times = min(WARMING, searches), []
    for number in [*range(searches, searches + warming), *range(searches)]:
        start = time.monotonic()
        search(*queries[number])
        times.append(1000 * (time.monotonic() - start))
    times = sorted(times[warming:])
    for part, share in (("p50", 0.5), ("p95", 0.95), ("most", 1)):
        show(f"{name}.{part}", times[int((searches - 1) * share)], "ms")


def recall(vectors, queries, search):
    found = 0
    for text, vector in queries[:RECALL_QUERIES]:
        exact = set(np.argpartition(-(vectors @ vector), K)[:K].tolist())
        found += len(exact & set(search(text, vector)))
    return found / RECALL_QUERIES / K


def add_options(p):
    p.add_argument("--searches", type=int, default=SEARCHES, help=f"of each way, {SEARCHES} at most")


def measure(export, open_peer, searches=SEARCHES):
    """open_peer() returns {"vectors": search, "words": search, "hybrid": search}; search(text, vector) reads the texts of the
    K best chunks and returns their numbers. `first` is the time from opening to the first answer: what is read late counts."""
    vectors = read_vectors(export / "vectors.f32")
    texts = (export / "queries.txt").read_text().splitlines()
    queries = list(zip(texts, np.array(read_vectors(export / "queries.f32")), strict=True))
    start = time.monotonic()
    ways = open_peer()
    show("open", time.monotonic() - start, "s")
    ways["hybrid"](*queries[0])
    show("first", time.monotonic() - start, "s")
    for way, search in ways.items():
        show_times(queries, search, f"search.{way}", searches)
    show("search.memory", status_mib("RssAnon"), "MiB")
    show("recall.10", recall(vectors, queries, ways["vectors"]), "")
