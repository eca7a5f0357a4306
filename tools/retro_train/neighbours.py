"""The collection and the neighbours of every chunk, both made by retro-index, so training reads what serving will read.

`retro-index neighbors` writes, little endian: "RETRONBR", u32 version 1, u32 k, u64 rows, u64 chunks of the collection; then
i64 ids [rows, k], best first, -1 where fewer were found; then f32 similarities [rows, k]. The collection's own files are
described in docs/index-format.md.
"""

import json
import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAGIC, HEADER = b"RETRONBR", struct.Struct("<8sIIQQ")
CHUNK = np.dtype([("token", "<u8"), ("start", "<u8"), ("end", "<u8"), ("document", "<u4"), ("n_tokens", "<u4")])


def run_index(retro_index, *arguments):
    """Progress and errors go to our standard error. Exit code 2: built, but some files were skipped and named there."""
    done = subprocess.run([str(retro_index), *map(str, arguments)], stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 2):
        raise RuntimeError(f"retro-index {arguments[0]} failed")


@dataclass
class NeighbourFile:
    ids: np.ndarray  # [rows, k], -1: none
    similarities: np.ndarray  # [rows, k]
    n_chunks: int  # of the collection that was searched


def read_neighbours(path):
    raw = Path(path).read_bytes()
    if len(raw) < HEADER.size:
        raise ValueError(f"{path}: {len(raw)} bytes are no neighbours file")
    magic, version, k, rows, n_chunks = HEADER.unpack_from(raw)
    if magic != MAGIC or version != 1 or len(raw) != HEADER.size + rows * k * 12:
        raise ValueError(f"{path}: not a neighbours file of version 1, or cut off")
    ids = np.frombuffer(raw, "<i8", rows * k, HEADER.size).reshape(rows, k)
    if rows and (ids.min() < -1 or ids.max() >= n_chunks):
        raise ValueError(f"{path}: a neighbour outside of the collection's {n_chunks} chunks")
    similarities = np.frombuffer(raw, "<f4", rows * k, HEADER.size + rows * k * 8).reshape(rows, k)
    return NeighbourFile(ids, similarities, n_chunks)


def write_neighbours(path, ids, similarities, n_chunks):
    rows, k = ids.shape
    header = HEADER.pack(MAGIC, 1, k, rows, n_chunks)
    Path(path).write_bytes(header + ids.astype("<i8").tobytes() + similarities.astype("<f4").tobytes())


class Collection:
    """Tokens of all chunks: tokens [chunks, m] padded with the end-of-document id, document [chunks]."""

    def __init__(self, folder):
        generation = (Path(folder) / "CURRENT").read_text().split()[0]
        if not re.fullmatch(r"gen-\d+", generation):
            raise ValueError(f"{folder}/CURRENT names {generation!r}")
        home = Path(folder) / generation
        manifest = json.loads((home / "MANIFEST").read_text())
        self.m, self.eod = manifest["chunk_length"], manifest["eod"]
        if manifest["chunks_end"] != "grid":
            raise ValueError(f"{home}: its chunks end with sentences; training reads those of retro-index build --chunks grid")
        tokens, chunks = np.fromfile(home / "chunks.tokens", "<u4"), np.fromfile(home / "chunks.offsets", CHUNK)
        self.lengths = chunks["n_tokens"].astype(np.int64)
        if self.lengths.sum() != len(tokens) or (len(chunks) and self.lengths.max() > self.m):
            raise ValueError(f"{home}: chunks and tokens disagree; run retro-index verify")
        self.document = chunks["document"].astype(np.int64)
        self.tokens = np.full((len(chunks), self.m), self.eod, dtype=np.int64)
        self.tokens[np.arange(self.m) < self.lengths[:, None]] = tokens
        self.names = read_document_names(home / "documents")
        self.starts = chunks["start"].astype(np.int64)  # bytes of the document's text before the chunk

    def __len__(self):
        return len(self.tokens)

    def find_chunks(self, places):
        """The chunk [n] that each (document's name, byte of its text) is in; -1 for None."""
        documents = {name: i for i, name in enumerate(self.names)}
        found = np.full(len(places), -1, dtype=np.int64)
        for i, place in enumerate(places):
            if place is not None:
                first, end = np.searchsorted(self.document, [documents[place[0]], documents[place[0]] + 1])
                found[i] = first + np.searchsorted(self.starts[first:end], place[1], side="right") - 1
        return found

    def neighbour_tokens(self, ids, r):
        """ids [...] -> tokens [..., r]: the chunk and what follows it in its document, end-of-document ids where there
        is nothing, or for the id -1."""
        ids = np.asarray(ids)
        parts = []
        for step in range(-(-r // self.m)):
            following = np.minimum(ids + step, len(self) - 1)
            same = (ids >= 0) & (ids + step < len(self)) & (self.document[following] == self.document[ids])
            parts.append(np.where(same[..., None], self.tokens[following], self.eod))
        return np.concatenate(parts, -1)[..., :r]


DOCUMENT = struct.Struct("<4Q8I")  # of docs/index-format.md


def pack_document(first_chunk, n_chunks, n_tokens, text, path):
    """An entry of a collection's documents, whose id is its path."""
    path = path.encode()
    return DOCUMENT.pack(first_chunk, n_chunks, n_tokens, len(text.encode()), len(path), len(path), *[0] * 6) + path + b"\0" + path + b"\0\0\0\0\0"


def read_document_names(path):
    """The paths of documents, in order (docs/index-format.md)."""
    raw, at, names = Path(path).read_bytes(), 0, []
    while at < len(raw):
        id_size, path_size, title_size, metadata_size, marks, source_size, file_size = DOCUMENT.unpack_from(raw, at)[4:11]
        first = at + DOCUMENT.size + id_size + 1
        names.append(raw[first : first + path_size].decode())
        at = first + path_size + 1 + title_size + 1 + metadata_size + 1 + source_size + 1 + file_size + 1 + 12 * marks
    return names


def chunk_queries(documents, vocabulary, m):
    """Complete chunks of [(name, text)], in order, as {"document", "text"} records, and the tokens of each document."""
    queries, tokens = [], []
    for name, text in documents:
        ids = vocabulary.encode(text)
        tokens.append(ids)
        queries += [{"document": name, "text": vocabulary.decode(ids[at : at + m])} for at in range(0, len(ids) - m + 1, m)]
    return queries, tokens


def write_queries(path, queries):
    """{"document", "text"} a line, as retro-index and search.py read them."""
    Path(path).write_text("".join(json.dumps(query) + "\n" for query in queries), encoding="utf-8")


def query_collection(retro_index, index_config, collection, k, queries, out):
    """Neighbours of chunks that are not of the collection."""
    lines = Path(out).with_suffix(".queries.jsonl")
    write_queries(lines, queries)
    run_index(retro_index, "neighbors", collection, "--config", index_config, "--k", k, "--queries", lines, "--out", out)
    lines.unlink()
