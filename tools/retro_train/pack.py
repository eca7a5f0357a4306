"""Data folders and checkpoints made small, to go on with a run on another machine."""

import tarfile
from pathlib import Path

import torch

from .files import replace_file

# What training and its evaluation read. Training documents, vectors and search structures stay behind.
FILES = ("prepared.json", "corpus.json", "model/config.json", "model/tokenizer.json", "train.neighbours", "valid.neighbours",
         "questions.tokens", "questions.neighbours", "questions.sources", "valid.queries.jsonl", "questions.queries.jsonl",
         "collection/CURRENT")
COLLECTION = ("MANIFEST", "chunks.tokens", "chunks.offsets", "documents")


def packed_files(data):
    generation = (data / "collection/CURRENT").read_text().split()[0]
    names = [*FILES, *(f"collection/{generation}/{name}" for name in COLLECTION)]
    names += [p.relative_to(data).as_posix() for p in (data / "documents/valid").rglob("*.txt")]
    return sorted(name for name in names if (data / name).exists())


def pack_data(data, out):
    """An archive (tar, xz) that unpacks to a data folder; the same folder gives the same bytes."""
    data = Path(data)

    def anonymous(member):
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o644
        return member

    def write(path):
        with tarfile.open(path, "w:xz", preset=9) as archive:
            for name in packed_files(data):
                archive.add(data / name, name, filter=anonymous)

    replace_file(out, write)


def shrink(value):
    if isinstance(value, dict):
        return {key: shrink(x) for key, x in value.items()}
    if isinstance(value, list):
        return [shrink(x) for x in value]
    # The number of steps is a float32 of no dimensions, and bfloat16 counts to 256 only.
    return value.to(torch.bfloat16) if torch.is_tensor(value) and value.is_floating_point() and value.dim() else value


def pack_checkpoint(run, out):
    """checkpoint.pt with weights and optimiser state in bfloat16: half the size. A run goes on from it, as from one that was
    rounded."""
    state = torch.load(Path(run) / "checkpoint.pt", map_location="cpu", weights_only=True)
    replace_file(out, lambda path: torch.save(shrink(state), path))
