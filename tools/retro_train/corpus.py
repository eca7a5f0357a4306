"""Documents for training: read, clean, drop repetition, hold some out. Everything is deterministic: the same input gives
the same documents in the same order.

A prepared folder holds documents/train/ID.txt and documents/valid/ID.txt, and corpus.json with what was kept and dropped.
"""

import hashlib
import json
import os
import re
import subprocess
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from .files import write_json


@dataclass
class Filters:
    min_characters: int = 500
    max_characters: int = 300_000
    min_letters: float = 0.55  # share of letters among the characters that are not white space
    furniture_length: int = 25  # a line longer than this ...
    furniture_documents: int = 60  # ... in more documents than this is page furniture and goes
    max_seen_shingles: float = 0.5  # a document goes when more of its 8-word runs were in documents before it
    held_out: float = 0.02  # share of documents for validation


def read_jsonl(path):
    """{"id", "text"} a line."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            record = json.loads(line)
            if not isinstance(record.get("id"), str) or not isinstance(record.get("text"), str):
                raise ValueError(f'{path}:{number}: expected {{"id": "...", "text": "..."}}')
            yield record["id"], record["text"]


@dataclass
class FileLimit:
    """A large package would outweigh the others: of each top folder (of `folders` only, unless empty) at most `most` files are
    read, 0 for all. The hash of a file's path chooses them, not the one that is_held_out reads."""

    most: int = 0
    folders: tuple[str, ...] = ()

    def choose(self, names):
        """names: relative paths. Those to read, sorted."""
        groups = {}
        for name in names:
            groups.setdefault(name.split("/")[0], []).append(name)
        chosen = []
        for folder, group in groups.items():
            limited = self.most and (not self.folders or folder in self.folders)
            chosen += sorted(group, key=lambda n: hashlib.sha256(n.encode()).digest()[8:])[: self.most] if limited else group
        return sorted(chosen)


def read_folder_names(path):
    """The first word of each line, as in tools/retro_docs/packages.txt; # begins a comment."""
    lines = (line.split("#")[0].split() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return tuple(words[0] for words in lines if words)


def read_folder(folder, retro_index, limit):
    """Every file that `retro-index extract` can turn into text; the others are counted by the caller as None."""
    names = [p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file()]

    def extract(name):
        done = subprocess.run([retro_index, "extract", Path(folder) / name], capture_output=True)
        text = done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
        return name, text

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(extract, limit.choose(names))


def read_documents(source, retro_index, limit=FileLimit()):
    """(id, text) of a folder or of a .jsonl file, sorted by id. The limit is for folders."""
    source = Path(source)
    found = list(read_folder(source, retro_index, limit) if source.is_dir() else read_jsonl(source))
    if len({name for name, _ in found}) < len(found):
        raise ValueError(f"{source}: two documents have the same id")
    return sorted(found)


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b\ufeff]")


def normalise(text):
    """NFC, Unix line ends, no control characters, no trailing blanks, at most one empty line in a row."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = "\n".join(line.rstrip() for line in CONTROL.sub("", text).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def drop_furniture(texts, filters):
    """Removes the long lines that occur in very many documents: navigation, notices."""
    long_lines = Counter()
    for text in texts:
        long_lines.update({line for line in text.split("\n") if len(line) > filters.furniture_length})
    furniture = {line for line, count in long_lines.items() if count > filters.furniture_documents}
    if not furniture:
        return texts
    return ["\n".join(line for line in text.split("\n") if line not in furniture) for text in texts]


def unsuitable(text, filters):
    """Why a text is dropped, or None."""
    if len(text) < filters.min_characters:
        return "short"
    if len(text) > filters.max_characters:
        return "long"
    visible = re.sub(r"\s", "", text)
    return "letters" if sum(map(str.isalpha, visible)) < filters.min_letters * len(visible) else None


def shingles(text, words=8, sample=4):
    """Hashes of the runs of eight words; one in four is kept, chosen by its hash, which leaves every share as it is."""
    tokens = re.findall(r"\w+", text.lower())
    runs = (" ".join(tokens[i : i + words]) for i in range(max(1, len(tokens) - words + 1)))
    hashes = (int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "little") for run in runs)
    return {h for h in hashes if h % sample == 0}


def is_held_out(name, share):
    """By a hash of the id: independent of the other documents, so a growing corpus keeps its split."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") < share * 2**64


def clean(documents, filters):
    """[(id, text)] kept and a Counter of the reasons others went."""
    reasons = Counter(unreadable=sum(text is None for _, text in documents))
    documents = [(name, normalise(text)) for name, text in documents if text is not None]
    texts = drop_furniture([text for _, text in documents], filters)
    kept, exact, seen = [], set(), set()
    for (name, _), text in zip(documents, texts):
        reason = unsuitable(text, filters)
        digest = hashlib.sha256(text.encode()).digest()
        runs = set() if reason or digest in exact else shingles(text)
        if not reason and digest in exact:
            reason = "same"
        elif not reason and runs and len(runs & seen) > filters.max_seen_shingles * len(runs):
            reason = "repeats"
        if reason:
            reasons[reason] += 1
            continue
        exact.add(digest)
        seen |= runs
        kept.append((name, text))
    return kept, +reasons


def file_name(name):
    """A relative path from any id: no "..", nothing a file system minds, at most 200 bytes a part."""

    def part(text):
        safe = re.sub(r"[^A-Za-z0-9._+-]", lambda c: "".join(f"%{b:02X}" for b in c[0].encode()), text)
        safe = "%2E" + safe[1:] if safe.startswith(".") else safe
        return safe if len(safe) <= 200 else safe[:150] + "-" + hashlib.sha256(text.encode()).hexdigest()[:16]

    return "/".join(part(p) for p in name.split("/") if p) + ".txt"


def prepare(source, out, retro_index, filters, limit=FileLimit()):
    """Writes documents/train and documents/valid; returns what corpus.json says."""
    kept, reasons = clean(read_documents(source, retro_index, limit), filters)
    out = Path(out)
    report = {"source": Path(source).name, "filters": asdict(filters), "limit": asdict(limit), "dropped": dict(reasons),
              "held_out_rule": f"first 8 bytes of SHA-256 of the id, as a share of 2^64, below {filters.held_out}"}
    for part in ("train", "valid"):
        chosen = [(name, text) for name, text in kept if is_held_out(name, filters.held_out) == (part == "valid")]
        if not chosen:
            raise ValueError(f"{source}: no document for {part} ({len(kept)} kept; dropped {dict(reasons)})")
        for name, text in chosen:
            path = out / "documents" / part / file_name(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        report[part] = {"documents": len(chosen), "bytes": sum(len(text.encode()) for _, text in chosen)}
        if part == "valid":
            report["held_out"] = [name for name, _ in chosen]
    write_json(out / "corpus.json", report)
    return report


def prepared_documents(data, part):
    """(name, text) of a prepared folder, in the order of the names' bytes, as retro-index reads them."""
    root = Path(data) / "documents" / part
    paths = sorted((p for p in root.rglob("*.txt")), key=lambda p: p.relative_to(root).as_posix().encode())
    return [(p.relative_to(root).as_posix(), p.read_bytes().decode()) for p in paths]
