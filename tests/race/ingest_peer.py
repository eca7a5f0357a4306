#!/usr/bin/env python3
"""A Python pipeline that indexes text files: sentence-transformers and faiss, for ingest_race.py.

Does what `retro-index build` does: reads the files, cuts each into chunks of 64 tokens of the model's tokenizer, embeds
the chunks (normalised, sorted by length as sentence-transformers does), and writes index and chunks. A line on standard
input names a folder to write to; the answer is a line of JSON. Imports and the opening of the models are not counted.

    ingest_peer.py FILES EMBEDDER TOKENIZER_JSON DTYPE THREADS
"""
import json
import pathlib
import sys
import time

import faiss
import sentence_transformers
import tokenizers
import torch

LENGTH, BATCH = 64, 64


def cut(tokenizer, texts):
    """The chunks of all texts, in order."""
    chunks = []
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
        bounds = [start for start, _ in encoding.offsets][::LENGTH] + [len(text)]
        chunks += [text[a:b] for a, b in zip(bounds, bounds[1:])]
    return chunks


def ingest(files, model, tokenizer, out):
    texts = [path.read_text(errors="replace") for path in files]
    chunks = cut(tokenizer, texts)
    vectors = model.encode(chunks, batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True,
                           show_progress_bar=False).astype("float32")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(out / "vectors.faiss"))
    with open(out / "chunks.jsonl", "w") as f:
        f.writelines(json.dumps({"text": chunk}) + "\n" for chunk in chunks)
    return len(chunks)


def main():
    folder, embedder, tokenizer_file, dtype, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    faiss.omp_set_num_threads(int(threads))
    files = sorted(pathlib.Path(folder).rglob("*.txt"))
    model = sentence_transformers.SentenceTransformer(
        embedder, device="cpu", model_kwargs={"dtype": {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]})
    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_file)
    for line in sys.stdin:
        start = time.perf_counter()
        n = ingest(files, model, tokenizer, pathlib.Path(line.strip()))
        seconds = time.perf_counter() - start
        print(json.dumps({"chunks": n, "rate": n / seconds}), flush=True)


main()
