"""Neighbours by PyTorch instead of retro-index: a GPU embeds a million chunks and compares each with all others in a minute,
where two cores take hours.

`prepare --searched-by torch` writes the collection's tokens and the texts of all queries; `search` finds the neighbours of all,
exactly. The embedder is a BERT of the sentence-transformers kind: mean over the tokens, vectors of length 1.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

from .files import read_json, write_json
from .neighbours import CHUNK, Collection, pack_document, write_neighbours

GENERATION = "gen-000001"
TOKENS = 1 << 19  # of a batch of texts, padding included
ROWS = 4096  # queries that are compared with all chunks at once


def write_collection(folder, documents, vocabulary, m, eod):
    """The files of a collection that training reads, as `retro-index build --chunks grid` cuts [(name, text)]."""
    home = Path(folder) / GENERATION
    home.mkdir(parents=True, exist_ok=True)
    chunks, tokens, entries = [], [], []
    n_chunks = n_tokens = 0
    for number, (name, text) in enumerate(documents):
        ids = vocabulary.encode(text)
        edges = np.concatenate([[0], np.cumsum(vocabulary.bytes[ids])])
        at = np.arange(0, len(ids), m)
        end = np.minimum(at + m, len(ids))
        mine = np.zeros(len(at), dtype=CHUNK)
        mine["token"], mine["start"], mine["end"] = n_tokens + at, edges[at], edges[end]
        mine["document"], mine["n_tokens"] = number, end - at
        chunks.append(mine)
        tokens.append(ids.astype("<u4"))
        entries.append(pack_document(n_chunks, len(at), len(ids), text, name))
        n_chunks, n_tokens = n_chunks + len(at), n_tokens + len(ids)
    np.concatenate(tokens).tofile(home / "chunks.tokens")
    np.concatenate(chunks).tofile(home / "chunks.offsets")
    (home / "documents").write_bytes(b"".join(entries))
    write_json(home / "MANIFEST", {"chunk_length": m, "chunks_end": "grid", "eod": eod})
    (Path(folder) / "CURRENT").write_text(f"{GENERATION} 0000000000000000\n")


def read_queries(path):
    return [json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()]


class Embedder:
    """A BERT folder of Hugging Face: config.json, model.safetensors, tokenizer.json, and how sentence-transformers cuts texts."""

    def __init__(self, folder, device):
        folder = Path(folder)
        config = read_json(folder / "config.json")
        if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
            raise ValueError(f'{folder}: the embedder of search is a BERT with gelu, this is "{config["model_type"]}"')
        self.heads, self.epsilon, self.layers = config["num_attention_heads"], config["layer_norm_eps"], config["num_hidden_layers"]
        self.device, self.dtype = device, torch.bfloat16 if device.type == "cuda" else torch.float32
        self.weights = {name: w.to(device, self.dtype) for name, w in load_file(folder / "model.safetensors").items() if w.is_floating_point()}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(read_json(folder / "sentence_bert_config.json")["max_seq_length"])
        self.tokenizer.no_padding()

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.weights[name + ".bias"], self.epsilon)

    def layer(self, x, name, mask):
        heads = lambda part: self.linear(x, f"{name}.attention.self.{part}").unflatten(-1, (self.heads, -1)).transpose(1, 2)
        read = F.scaled_dot_product_attention(heads("query"), heads("key"), heads("value"), attn_mask=mask[:, None, None, :])
        x = self.norm(x + self.linear(read.transpose(1, 2).flatten(2), name + ".attention.output.dense"), name + ".attention.output.LayerNorm")
        wide = F.gelu(self.linear(x, name + ".intermediate.dense"))
        return self.norm(x + self.linear(wide, name + ".output.dense"), name + ".output.LayerNorm")

    @torch.no_grad()
    def embed_ids(self, rows):
        """Lists of token ids -> [rows, dimensions], of length 1."""
        length = max(map(len, rows))
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows]).to(self.device)
        mask = torch.arange(length, device=self.device) < torch.tensor([len(row) for row in rows]).to(self.device)[:, None]
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
        x = self.norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for i in range(self.layers):
            x = self.layer(x, f"encoder.layer.{i}", mask)
        return F.normalize((x.float() * mask[..., None]).sum(1), dim=-1)

    def embed(self, texts):
        """[texts, dimensions] on the device; texts of like length share a batch."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        order = np.argsort([len(row) for row in ids], kind="stable")
        vectors, at = None, 0
        while at < len(order):
            # The batch's last text is its longest; one more step of the estimate keeps padding within TOKENS.
            count = max(1, TOKENS // len(ids[order[min(at + TOKENS // max(1, len(ids[order[at]])), len(order)) - 1]]))
            batch = order[at : at + count]
            found = self.embed_ids([ids[i] for i in batch])
            if vectors is None:
                vectors = torch.empty(len(texts), found.shape[1], device=self.device)
            vectors[torch.from_numpy(batch).to(self.device)] = found
            at += len(batch)
        return vectors


@torch.no_grad()
def find_neighbours(vectors, queries, k, documents=None):
    """The k nearest of vectors [chunks, d] for each of queries [q, d]: ids [q, k], -1 where there are fewer, and similarities, -2 there.
    documents [chunks]: the queries are the vectors, and none finds a chunk of its own document."""
    k_found = min(k, len(vectors))
    dtype = torch.bfloat16 if vectors.is_cuda else torch.float32
    ids, similarities = [], []
    rough = vectors.to(dtype)
    for at in range(0, len(queries), ROWS):
        scores = queries[at : at + ROWS].to(dtype) @ rough.T
        if documents is not None:
            scores.masked_fill_(documents[at : at + ROWS, None] == documents, -torch.inf)
        # The products are rough; the best of a few more are put in order by the vectors themselves.
        best, found = scores.topk(min(4 * k_found, len(vectors)), dim=1)
        exact = (vectors[found] * queries[at : at + ROWS, None]).sum(-1).masked_fill(best == -torch.inf, -torch.inf)
        exact, order = exact.topk(k_found, dim=1)
        ids.append(found.gather(1, order).masked_fill(exact == -torch.inf, -1).cpu())
        similarities.append(exact.masked_fill(exact == -torch.inf, -2).cpu())
    ids, similarities = torch.cat(ids).numpy(), torch.cat(similarities).numpy()
    missing = ((0, 0), (0, k - k_found))
    return np.pad(ids, missing, constant_values=-1), np.pad(similarities, missing, constant_values=-2)


def search(data, embedder_folder, k, device):
    """Writes the neighbours of the collection's chunks, and those of the queries that `prepare` wrote, into the data folder."""
    data, device = Path(data), torch.device(device)
    collection, embedder = Collection(data / "collection"), Embedder(embedder_folder, device)
    tokenizer = Tokenizer.from_file(str(data / "model/tokenizer.json"))
    texts = tokenizer.decode_batch([row[:n].tolist() for row, n in zip(collection.tokens, collection.lengths)])
    vectors = embedder.embed(texts)
    documents = torch.from_numpy(collection.document).to(device)
    write_neighbours(data / "train.neighbours", *find_neighbours(vectors, vectors, k, documents), len(collection))
    for name in ("valid", "questions"):
        if (data / f"{name}.queries.jsonl").exists():
            queries = embedder.embed(read_queries(data / f"{name}.queries.jsonl"))
            write_neighbours(data / f"{name}.neighbours", *find_neighbours(vectors, queries, k), len(collection))
